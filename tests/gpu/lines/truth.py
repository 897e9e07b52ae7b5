"""Kernels of planted.py in their order  ->  which line and which module each of them is of.

Nothing of profkit is asked: the names of activations say which block it is, and their order the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

NAMES = ("tanh", "sigmoid", "gelu", "silu", "elu", "softplus", "mish", "hardswish")
# Longer names first: "elu" is in "gelu", and what Inductor makes of mish has softplus and tanh in it.
_ORDER = ("hardswish", "mish", "softplus", "sigmoid", "gelu", "silu", "tanh", "elu")
_OPTIMIZER = re.compile("multi_tensor(?!.*native::Copy<)|FusedAdam|fused_adam", re.IGNORECASE)
_NORM = re.compile("layer_norm|LayerNorm|GammaBeta|cuCompute")
_PRODUCT = re.compile("gemm|nvjet|cutlass|xmma|splitK")


@dataclass(frozen=True)
class Truth:
    """What a kernel is of; an empty mark: any line of the block."""

    part: str
    mark: str
    module: str  # empty: none


STEP = Truth("optimizer", "step", "")
LOSS = Truth("loss", "loss", "")


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
    at = _Position()
    out: list[Truth | None] = []
    for name in names:
        if _OPTIMIZER.search(name):
            out.append(STEP)
        elif "smooth_l1" in name.lower():
            at.pass_loss(name)
            out.append(LOSS)
        elif at.phase == "forward":
            out.append(at.tell_forward(name))
        elif at.phase == "backward":
            out.append(at.tell_backward(name))
        else:
            out.append(None)
    return out


@dataclass
class _Position:
    """Where in the network a step is, as its kernels are read in order."""

    block: int = 0
    phase: str = "forward"
    after: str = "fc"  # the part whose kernels were met last in the backward pass

    def pass_loss(self, name: str) -> None:
        """Go on behind the loss: first its value, then its gradient."""
        if "backward" in name.lower():
            self.phase, self.block, self.after = "backward", 7, "scale"
        else:
            self.phase = "loss"

    def tell_forward(self, name: str) -> Truth | None:
        """Tell a kernel of the forward pass; its multiplication ends a block."""
        activation = find_activation(name)
        if activation is not None:
            return Truth(self.phase, "act", f"blocks.{activation}.act")
        if _NORM.search(name):
            return Truth(self.phase, "norm", f"blocks.{self.block}.norm")
        if "MulFunctor" in name:
            self.block += 1
            return Truth(self.phase, "scale", f"blocks.{self.block - 1}")
        if self.block < len(NAMES):
            return Truth(self.phase, "fc", f"blocks.{self.block}.fc")
        return None

    def tell_backward(self, name: str) -> Truth | None:
        """Tell a kernel of the backward pass, where each block begins with its multiplication."""
        activation = find_activation(name)
        if activation is not None:
            self.after = "norm"
            return Truth(self.phase, "act", f"blocks.{activation}.act")
        if _NORM.search(name):
            self.after = "fc"
            return Truth(self.phase, "norm", f"blocks.{self.block}.norm")
        if "MulFunctor" in name and self.after == "fc":
            self.after = "scale"
            self.block -= 1
            return Truth(self.phase, "scale", f"blocks.{self.block}")
        if self.after == "fc" and self.block >= 0:
            return Truth(self.phase, "fc", f"blocks.{self.block}.fc")
        if self.after == "scale" and self.block >= 0:
            return Truth(self.phase, "scale", f"blocks.{self.block}")
        return None


def tell_compiled(names: Sequence[str]) -> list[Truth | None]:
    """The truth of one step's kernels that Inductor made: its names say what it fused."""
    blocks: list[int | None] = []
    for name in names:
        fused = "triton" in name and "layer_norm" in name
        blocks.append(find_activation(name) if fused else None)
    loss = next((at for at, name in enumerate(names) if "smooth_l1" in name.lower()), len(names))
    out: list[Truth | None] = []
    for at, name in enumerate(names):
        before = _find_first(reversed(blocks[loss : at + 1]))
        if _OPTIMIZER.search(name):
            out.append(STEP)
        elif "smooth_l1" in name.lower():
            out.append(LOSS)
        elif at < loss:
            out.append(_tell_fused(name, "forward", blocks[at], _find_first(blocks[at:loss])))
        elif truth := _tell_fused(name, "backward", blocks[at], before):
            out.append(truth)
        elif "triton" in name and before is not None and not _PRODUCT.search(name):
            out.append(Truth("backward, block alone", "", f"blocks.{before}"))
        else:
            out.append(None)
    return out


def _tell_fused(name: str, phase: str, own: int | None, near: int | None) -> Truth | None:
    """Tell a kernel by the block that it names itself; a product by the nearest one that is named."""
    if own is not None:
        return Truth(phase, "act", f"blocks.{own}.act")
    if _PRODUCT.search(name) and near is not None:
        return Truth(phase, "fc", f"blocks.{near}.fc")
    return None


def _find_first(blocks: Iterable[int | None]) -> int | None:
    return next((block for block in blocks if block is not None), None)
