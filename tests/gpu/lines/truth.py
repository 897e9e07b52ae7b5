"""Kernels of planted.py in their order  ->  which line and which module each of them is of.

Nothing of profkit is asked: the names of activations say which block it is, and their order the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAMES = ("tanh", "sigmoid", "gelu", "silu", "elu", "softplus", "mish", "hardswish")
# Longer names first: "elu" is in "gelu", and what Inductor makes of mish has softplus and tanh in it.
_ORDER = ("hardswish", "mish", "softplus", "sigmoid", "gelu", "silu", "tanh", "elu")
_OPTIMIZER = re.compile("multi_tensor(?!.*native::Copy<)|FusedAdam|fused_adam", re.IGNORECASE)
_NORM = re.compile("layer_norm|LayerNorm|GammaBeta|cuCompute")


@dataclass(frozen=True)
class Truth:
    """What a kernel is of; an empty mark: any line of the block."""

    part: str
    mark: str
    module: str  # empty: none


def find_lines(program: Path) -> dict[str, int]:
    """The number of each line that has a name."""
    lines = {}
    for number, text in enumerate(program.read_text("utf-8").split("\n"), 1):
        if found := re.search(r"  # ([\w ]+)$", text):
            lines[found[1]] = number
    return lines


def find_activation(name: str) -> int | None:
    """The block whose activation is in a kernel's name."""
    low = name.lower()
    for activation in _ORDER:
        if activation in low:
            return NAMES.index(activation)
    return None


def cut_steps(names: Sequence[str]) -> list[tuple[int, int]]:
    """Begin and end of each step: an optimizer's kernels end it."""
    steps, begin = [], 0
    for at, name in enumerate(names):
        ends = _OPTIMIZER.search(name) and (
            at + 1 == len(names) or not _OPTIMIZER.search(names[at + 1])
        )
        if ends:
            steps.append((begin, at + 1))
            begin = at + 1
    return steps


def tell_eager(names: Sequence[str]) -> list[Truth | None]:
    """The truth of one step's kernels, launched one by one or replayed in their order."""
    out: list[Truth | None] = []
    block, phase, after = 0, "forward", "fc"
    for name in names:
        activation = find_activation(name)
        truth = None
        if _OPTIMIZER.search(name):
            truth = Truth("optimizer", "step", "")
        elif "smooth_l1" in name.lower():
            backward = "backward" in name.lower()
            truth = Truth("loss", "loss", "")
            if backward:
                phase, block, after = "backward", 7, "scale"
            else:
                phase = "loss"
        elif phase == "forward":
            if activation is not None:
                truth = Truth(phase, "act", f"blocks.{activation}.act")
            elif _NORM.search(name):
                truth = Truth(phase, "norm", f"blocks.{block}.norm")
            elif "MulFunctor" in name:
                truth = Truth(phase, "scale", f"blocks.{block}")
                block += 1
            elif block < len(NAMES):
                truth = Truth(phase, "fc", f"blocks.{block}.fc")
        elif phase == "backward":
            if activation is not None:
                truth, after = Truth(phase, "act", f"blocks.{activation}.act"), "norm"
            elif _NORM.search(name):
                truth, after = Truth(phase, "norm", f"blocks.{block}.norm"), "fc"
            elif "MulFunctor" in name and after == "fc":
                block, after = block - 1, "scale"
                truth = Truth(phase, "scale", f"blocks.{block}")
            elif after in {"fc", "scale"} and block >= 0:
                module = f"blocks.{block}" + (".fc" if after == "fc" else "")
                truth = Truth(phase, after, module)
        out.append(truth)
    return out


def tell_compiled(names: Sequence[str]) -> list[Truth | None]:
    """The truth of one step's kernels that Inductor made: its names say what it fused."""
    blocks: list[int | None] = []
    for name in names:
        fused = "triton" in name and "layer_norm" in name
        blocks.append(find_activation(name) if fused else None)
    loss = next((at for at, name in enumerate(names) if "smooth_l1" in name.lower()), len(names))
    out: list[Truth | None] = []
    for at, name in enumerate(names):
        phase = "forward" if at < loss else "backward"
        before = next((b for b in reversed(blocks[loss : at + 1]) if b is not None), None)
        following = next((b for b in blocks[at:loss] if b is not None), None)
        truth = None
        if _OPTIMIZER.search(name):
            truth = Truth("optimizer", "step", "")
        elif "smooth_l1" in name.lower():
            truth = Truth("loss", "loss", "")
        elif blocks[at] is not None:
            truth = Truth(phase, "act", f"blocks.{blocks[at]}.act")
        elif re.search("gemm|nvjet|cutlass|xmma|splitK", name):
            block = following if phase == "forward" else before
            truth = Truth(phase, "fc", f"blocks.{block}.fc") if block is not None else None
        elif "triton" in name and before is not None and phase == "backward":
            truth = Truth("backward, block alone", "", f"blocks.{before}")
        out.append(truth)
    return out
