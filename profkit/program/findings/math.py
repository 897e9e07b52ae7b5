"""Products: in float32 beside idle tensor cores, and attention that goes through DRAM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod

from profkit.program.findings.case import Case, Draft, goes_back
from profkit.program.findings.reach import REACH
from profkit.program.savings.scenario import Change, Reach
from profkit.program.step.idle import launch_place
from profkit.program.step.kinds import is_vector_product, precision_of
from profkit.program.step.steps import StepWork
from profkit.records.gpus import levels

_FP32_ATTENTION = re.compile(r"fmha_cutlass[FB]_f32_")
FLOOR = 4_000.0  # nanoseconds: a small product is not bound by its pipe
BETWEEN = {
    "elementwise",
    "convert",
    "set",
    "softmax",
    "reduce",
    "random",
    "layout",
    "copy",
    "gather",
    "other",
    "concat",
}
WIDEST_HEAD = 512  # columns that a fused kernel takes
HEADS = 4  # works beside a product that are looked at: two copies, and sets between them
MERGES = {"aten::reshape", "aten::contiguous", "aten::clone", "aten::flatten"}
WINDOW = 24  # works between the products on the two sides of a softmax


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


def attention(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Products with a softmax between them, the scores in DRAM."""
    regions = _regions(case, taken)
    if not regions:
        return
    chosen = frozenset(i for region in regions for i in region)
    products = [i for i in chosen if case.works[i].kind == "gemm"]
    others = chosen.difference(products)
    # The rest of each region goes, its products take a part of their time.
    change = Change(
        dict.fromkeys(products, REACH["attention"]),
        dict.fromkeys(others, REACH["launch of a chain"]),
    )
    softmax = [case.works[i] for i in sorted(chosen) if case.works[i].kind == "softmax"]
    first = softmax[0] if softmax else case.works[min(chosen)]
    rest = case.time(sorted(others))
    yield Draft(
        "attention-unfused",
        f"attention is written out: {len(regions)} times products, mask and softmax through DRAM, "
        f"{case.time(sorted(chosen)):.3g} ms a step, {rest:.3g} ms of it round the products",
        "torch.nn.functional.scaled_dot_product_attention",
        launch_place(first), tuple(sorted(chosen)), change,
    )  # fmt: skip


def _regions(case: Case, taken: frozenset[int]) -> list[list[int]]:
    """From the products before a softmax to those after it, one list a softmax."""
    out: list[list[int]] = []
    used: set[int] = set(taken)
    scores: set[tuple[int, int]] = set()  # of attention, on its way forward
    for i in range(len(case.works)):
        if i in used or not _softmax_at(case, i):
            continue
        size = _size(case.works[i])
        if goes_back(case.works[i]) and size not in scores:
            continue
        low, high = _side(case, i, -1, used), _side(case, i, 1, used)
        if low is None or high is None:
            continue
        region = [j for j in range(low, high + 1) if j not in used]
        region = [*_reordered(case, low, -1, used), *region, *_reordered(case, high, 1, used)]
        out.append(region)
        used.update(region)
        scores.add(size)
    return out


def _reordered(case: Case, product: int, way: int, used: set[int]) -> list[int]:
    """Copies of heads into another order round the products: a fused kernel takes and gives any.

    Before, those that the first product's own operator makes; behind, one that puts heads side by side.
    """
    out: list[int] = []
    for j in range(product + way, product + way * (HEADS + 1), way):
        if not 0 <= j < len(case.works) or j in used:
            break
        maker, kind = case.works[j].maker, case.works[j].kind
        own = maker.ordinal >= 0 and maker.ordinal == case.works[product].maker.ordinal
        merges = way > 0 and maker.top in MERGES
        if kind != "set" and not (kind == "convert" and (own or merges)):
            break
        out.append(j)
        if merges:
            break
    while out and case.works[out[-1]].kind == "set":
        out.pop()  # belongs to what comes next
    return sorted(out)


def _softmax_at(case: Case, i: int) -> bool:
    """A softmax, or the exponential of one that is written by hand."""
    work = case.works[i]
    if work.kind == "softmax":
        return "log" not in work.maker.op.lower()
    if work.kind == "elementwise" and "ExpBackward" in work.maker.top:
        return True  # no kernel of its own: a product with what the exponential was
    near = range(i + 1, min(i + 5, len(case.works)))
    return work.maker.op in {"aten::exp", "aten::exp_"} and any(
        case.works[j].kind == "reduce" for j in near
    )


def _size(softmax: StepWork) -> tuple[int, int]:
    """How many scores a softmax reads, and over how many keys each is taken; zeros if unknown."""
    shape = next(iter(softmax.maker.shapes), ())
    return (prod(shape), shape[-1]) if shape else (0, 0)


def _side(case: Case, at: int, way: int, used: set[int]) -> int | None:
    """Attention's farthest product on one side of a softmax; None if none is near.

    Forward there is one on each side, backward there are up to two.
    """
    last, left = None, 2 if goes_back(case.works[at]) else 1
    j = at + way
    while left and 0 <= j < len(case.works) and abs(j - at) <= WINDOW and j not in used:
        kind = case.works[j].kind
        if kind == "gemm" and _of_scores(case, j, at):
            last, left = j, left - 1
        elif kind not in BETWEEN:
            break
        j += way
    return last


def _of_scores(case: Case, i: int, softmax: int) -> bool:
    """Whether a product makes the scores that a softmax reads, or sums values over its keys.

    Its sizes tell: without them, or summed over anything else (as clusters' members are), it is not
    said. Of a single head the rest is narrow, and narrower than the keys are many.
    """
    one, other = case.works[i], case.works[softmax]
    scores, keys = _size(other)
    shapes = [shape for shape in one.maker.shapes if len(shape) > 1][-2:]
    if not scores or len(shapes) != 2 or goes_back(one) != goes_back(other):
        return False
    (*batch, rows, inner), (*_, across, columns) = shapes
    if inner != across:
        return False
    many = prod(batch)
    makes = many * rows * columns == scores and keys in {rows, columns}
    sums = inner == keys and scores in {many * rows * inner, many * inner * columns}
    if goes_back(one):
        return makes or scores in {many * rows * inner, many * inner * columns}
    width = inner if makes and i < softmax else columns if many * rows * inner == scores else rows
    fits = makes if i < softmax else sums
    return fits and width <= WIDEST_HEAD and (many > 1 or width <= keys)
