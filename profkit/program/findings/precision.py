"""Work in more precision than it needs: float32 products beside idle tensor cores, float64."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from profkit.program.findings.case import REACH, Case, Draft
from profkit.program.replay.scenario import Change, Reach
from profkit.program.steps.cut import StepWork
from profkit.program.steps.idle import launch_place
from profkit.program.steps.kinds import is_vector_product, precision_of
from profkit.records.gpus import levels

_FP32_ATTENTION = re.compile(r"fmha_cutlass[FB]_f32_")
FLOOR = 4_000.0  # nanoseconds: a small product is not bound by its pipe


def fp32_products(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Products and convolutions in float32 on FP32 pipes, the tensor cores idle."""
    cc = case.device.cc if case.device else None
    if cc is not None and cc < (8, 0):
        return  # no TF32 before
    fused = frozenset(i for i in case.chosen(_is_fp32_attention) if i not in taken)
    chosen = fused | {
        i for i, w in enumerate(case.works)
        if i not in taken and w.kind in {"gemm", "conv"}
        and precision_of(w.activity.name) == "fp32" and not is_vector_product(w.activity.name)
    }  # fmt: skip
    if not chosen:
        return
    gains = levels("tensor", cc)
    # Fused attention has no TF32: its fix is half precision.
    by_half = (max(1.0, gains[1]), max(1.0, 0.8 * gains[2]), max(1.0, 1.15 * gains[2]))
    scale = {i: _faster(case, i, by_half if i in fused else gains) for i in chosen}
    largest = case.works[max(chosen, key=lambda i: case.works[i].activity.duration)]
    time = case.time(sorted(chosen))
    yield Draft(
        "fp32-matmul",
        f"{len(chosen)} {'kernels of attention' if fused == chosen else 'products'} in float32 run "
        f"on the FP32 pipes, {time:.3g} ms a step, while the tensor cores are idle",
        "give the attention bfloat16 or float16: no .float() before it, autocast round it" if fused
        else case.advice(
            "torch.set_float32_matmul_precision('high') for TF32, or autocast to bfloat16",
            "let them use TF32, or give them half precision, where their results may be so exact"),
        launch_place(largest), tuple(sorted(chosen)), Change(scale),
    )  # fmt: skip


def _faster(case: Case, index: int, gains: Sequence[float]) -> Reach:
    """What is left of a product whose pipe gets faster; a small one is not bound by it."""
    long = max(case.works[index].activity.duration, 1.0)
    return Reach(*(min(1.0, max(FLOOR, long / gain) / long) for gain in gains))


def in_float64(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Work in float64, which is numpy's and Python's default and seldom a network's need."""
    cc = case.device.cc if case.device else None
    chosen = [i for i, w in enumerate(case.works) if i not in taken and _is_float64(w)]
    products = frozenset(i for i in chosen if case.works[i].kind in {"gemm", "conv"})
    if not chosen:
        return
    gains = levels("double", cc)
    scale = {i: _faster(case, i, gains) if i in products else REACH["float64"] for i in chosen}
    if not (case.torch or case.jax):  # float64 is no default elsewhere: somebody chose it
        scale = {i: reach._replace(low=1.0) for i, reach in scale.items()}
    largest = case.works[max(chosen, key=lambda i: case.works[i].activity.duration)]
    yield Draft(
        "fp32-matmul" if products else "elementwise-chain",
        f"{len(chosen)} kernels a step work in float64, {case.time(chosen):.3g} ms"
        + (f", {len(products)} of them products" if products else ""),
        case.advice("make it float32 where it comes in (numpy's arrays are float64)"
                    + (", and let products use TF32" if products else ""),
                    "compute in float32 what need not be so exact (preconditioners, inner iterations)"),
        launch_place(largest), tuple(chosen), Change(scale),
    )  # fmt: skip


def _is_float64(work: StepWork) -> bool:
    """A product by its name, a kernel bound by its bytes by what its operator reads."""
    if work.kind in {"gemm", "conv"}:
        return precision_of(work.activity.name) == "fp64"
    moves = work.kind in {"elementwise", "convert", "norm", "softmax", "reduce"}
    return moves and work.maker.types[:1] == ("double",) and bool(work.maker.shapes[0])


def _is_fp32_attention(work: StepWork) -> bool:
    """A fused attention on float32, by its operator's types or else by its name."""
    types = work.maker.types
    named = _FP32_ATTENTION.search(work.activity.name) is not None
    return work.kind == "attention" and (types[0] == "float" if types and types[0] else named)
