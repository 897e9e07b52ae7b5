"""Products: in float32 beside idle tensor cores, and attention that goes through DRAM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from profkit.program.findings.case import Case, Draft, is_strided
from profkit.program.savings.replay import Model
from profkit.program.step.idle import launch_place
from profkit.program.step.kinds import is_vector_product, precision_of
from profkit.program.step.steps import StepWork

GainTable = Mapping[tuple[int, int], tuple[float, float, float]]  # by compute capability
# How much faster float32 products get in TF32 (low) up to half precision (high), by what the
# pipes of a compute capability can: 7.4 and 14.8 times as much on 9.0, 8 and 16 on 8.0, but 1 and 2
# on the 8.6 and 8.9 of desktop cards (datasheets). Measured only on 9.0, TF32: 5.0 to 8.3.
TENSOR_GAINS: GainTable = {
    (8, 0): (3.0, 5.5, 13.0),
    (8, 6): (1.0, 1.5, 2.2),
    (8, 9): (1.0, 1.6, 2.2),
    (9, 0): (3.0, 5.5, 13.0),
    (10, 0): (3.5, 7.0, 20.0),
    (12, 0): (1.0, 1.6, 2.2),
}
# The same for products in float64 that become float32 ones, at worst without TF32: on 8.0 and 9.0
# the pipes do float64 as fast as float32, on desktop cards at a 32nd or 64th (datasheets, not measured).
DOUBLE_GAINS: GainTable = {
    (7, 0): (1.6, 2.0, 2.2),
    (7, 5): (12.0, 24.0, 32.0),
    (8, 0): (1.0, 5.5, 13.0),
    (8, 6): (20.0, 40.0, 64.0),
    (9, 0): (1.0, 5.5, 13.0),
    (10, 0): (1.8, 10.0, 30.0),
    (12, 0): (20.0, 40.0, 64.0),
}
HALVED = {"low": 0.65, "expect": 0.5, "high": 0.45}  # of what moves 8 bytes a value, moving 4
_FP32_ATTENTION = re.compile(r"fmha_cutlass[FB]_f32_")
# The softmax of a cross-entropy: PyTorch's kernels are the same two but for a functor or a flag.
_OF_LOG = re.compile(r"(?i)log_?softmax|softmax_warp_\w+<[^<>]*, (\(int\))?\d+, (true|\(bool\)1)")
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
BESIDE = (
    0.25  # of the products' time: heads of 64 take five times as long for the softmax, of 512 half
)
LEAST_KEYS = 128  # of a single head, from which on its softmax is no choice between a few
WIDEST_HEAD = 512  # columns that a fused kernel takes
HEADS = 4  # works beside a product that are looked at: two copies, and sets between them
MERGES = {"aten::reshape", "aten::contiguous", "aten::clone", "aten::flatten"}
REACH = 24  # works between the products on the two sides of a softmax
# What the fused call takes of the products it replaces, which write and read the scores: on an H200
# 0.34 forward and 0.47 backward where a causal mask leaves half of the work; twice that without one
# is inferred, not seen.
FUSED = {"low": 1.1, "expect": 0.6, "high": 0.33}


def _gains(table: GainTable, cc: tuple[int, int] | None) -> tuple[float, float, float]:
    """Of the nearest GPU that is no newer; where there is none, what holds on every GPU of the table."""
    older = [known for known in table if cc and known <= cc]
    if older:
        return table[max(older)]
    low, expect, high = zip(*table.values(), strict=True)
    return min(low), min(expect), max(high)


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
    gains = _gains(TENSOR_GAINS, cc)
    by_level = dict(zip(("low", "expect", "high"), gains, strict=True))
    # Fused attention has no TF32: its mend is half precision.
    by_half = {"low": gains[1], "expect": 0.8 * gains[2], "high": 1.15 * gains[2]}

    def on_tensor_cores(model: Model, level: str) -> Model:
        def factor(i: int) -> float:
            if i not in chosen:
                return 1.0
            long = max(model.items[i].duration, 1.0)
            gain = max(1.0, by_half[level]) if i in fused else by_level[level]
            return min(1.0, max(FLOOR, long / gain) / long)

        return model.scaled(factor)

    largest = case.works[max(chosen, key=lambda i: case.works[i].activity.duration)]
    time = case.time(sorted(chosen))
    yield Draft(
        "fp32-matmul",
        f"{len(chosen)} {'kernels of attention' if fused == chosen else 'products'} in float32 run "
        f"on the FP32 pipes, {time:.3g} ms a step, while the tensor cores are idle",
        "give the attention bfloat16 or float16: no .float() before it, autocast round it" if fused
        else "torch.set_float32_matmul_precision('high') for TF32, or autocast to bfloat16",
        launch_place(largest), tuple(sorted(chosen)), on_tensor_cores,
    )  # fmt: skip


def in_float64(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Work in float64, which is numpy's and Python's default and seldom a network's need."""
    cc = case.device.cc if case.device else None
    chosen = [i for i, w in enumerate(case.works) if i not in taken and _is_float64(w)]
    products = frozenset(i for i in chosen if case.works[i].kind in {"gemm", "conv"})
    if not chosen:
        return
    gains = _gains(DOUBLE_GAINS, cc)
    by_level = dict(zip(("low", "expect", "high"), gains, strict=True))
    rest = frozenset(chosen) - products

    def halved(model: Model, level: str) -> Model:
        def factor(i: int) -> float:
            if i in rest:
                return HALVED[level]
            if i not in products:
                return 1.0
            long = max(model.items[i].duration, 1.0)
            return min(1.0, max(FLOOR, long / by_level[level]) / long)

        return model.scaled(factor)

    largest = case.works[max(chosen, key=lambda i: case.works[i].activity.duration)]
    yield Draft(
        "fp32-matmul" if products else "elementwise-chain",
        f"{len(chosen)} kernels a step work in float64, {case.time(chosen):.3g} ms"
        + (f", {len(products)} of them products" if products else ""),
        "make it float32 where it comes in (numpy's arrays are float64)"
        + (", and let products use TF32" if products else ""),
        launch_place(largest), tuple(chosen), halved,
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

    def fused(model: Model, level: str) -> Model:
        """The rest of each region goes, its products take a part of their time."""
        left = model.without(lambda i: i in chosen and i not in products, merged=0.1)
        return left.scaled(lambda i: FUSED[level] if i in products else 1.0)

    softmax = [case.works[i] for i in sorted(chosen) if case.works[i].kind == "softmax"]
    first = softmax[0] if softmax else case.works[min(chosen)]
    rest = case.time([i for i in sorted(chosen) if i not in products])
    yield Draft(
        "attention-unfused",
        f"attention is written out: {len(regions)} times products, mask and softmax through DRAM, "
        f"{case.time(sorted(chosen)):.3g} ms a step, {rest:.3g} ms of it round the products",
        "torch.nn.functional.scaled_dot_product_attention",
        launch_place(first), tuple(sorted(chosen)), fused,
    )  # fmt: skip


def _regions(case: Case, taken: frozenset[int]) -> list[list[int]]:
    """From the products before a softmax to those after it, one list a softmax."""
    works = case.works
    out: list[list[int]] = []
    used: set[int] = set(taken)
    for i in range(len(works)):
        if i in used or not _softmax_at(case, i):
            continue
        low, high = _side(case, i, -1, used), _side(case, i, 1, used)
        if low is None or high is None:
            continue
        region = [j for j in range(low, high + 1) if j not in used]
        if _is_attention(case, region):
            region = [*_reordered(case, low, -1, used), *region, *_reordered(case, high, 1, used)]
            out.append(region)
            used.update(region)
    return out


def _reordered(case: Case, product: int, way: int, used: set[int]) -> list[int]:
    """Copies of heads into another order round the products: a fused kernel takes and gives any.

    Before, those that the first product's own operator makes; behind, one that puts heads side by side;
    on both sides any, where no operator is known.
    """
    out: list[int] = []
    for j in range(product + way, product + way * (HEADS + 1), way):
        if not 0 <= j < len(case.works) or j in used:
            break
        maker, kind = case.works[j].maker, case.works[j].kind
        own = maker.ordinal >= 0 and maker.ordinal == case.works[product].maker.ordinal
        own = own or (not maker.op and is_strided(case.works[j]))
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
        return "log" not in work.maker.op.lower() and not _OF_LOG.search(work.activity.name)
    if work.kind == "elementwise" and "ExpBackward" in work.maker.top:
        return True  # no kernel of its own: a product with what the exponential was
    hand = work.maker.op in {"aten::exp", "aten::exp_"} or "exp_kernel" in work.activity.name
    near = range(i + 1, min(i + 5, len(case.works)))
    return work.kind == "elementwise" and hand and any(case.works[j].kind == "reduce" for j in near)


def _side(case: Case, at: int, way: int, used: set[int]) -> int | None:
    """The farthest of the (at most two) products on one side of a softmax; None if none is near."""
    last, products = None, 0
    j = at + way
    while 0 <= j < len(case.works) and abs(j - at) <= REACH and j not in used:
        kind = case.works[j].kind
        if kind == "gemm" and _of_scores(case, j, at):
            last, products = j, products + 1
            if products == 2:
                break
        elif kind not in BETWEEN:
            break
        j += way
    if products == 2 and not _backward(case, at):
        # Forward there is one product on each side: the second belongs to what comes next.
        return _nearest(case, at, way)
    return last


def _nearest(case: Case, at: int, way: int) -> int:
    j = at + way
    while not (case.works[j].kind == "gemm" and _of_scores(case, j, at)):
        j += way
    return j


def _backward(case: Case, at: int) -> bool:
    work = case.works[at]
    return "ackward" in work.activity.name or "ackward" in work.maker.op + work.maker.top


def _of_scores(case: Case, i: int, softmax: int) -> bool:
    """Whether a product may be one of attention's; any product where operators are not known.

    One of many matrices is. One of two matrices is where it makes or takes a matrix of the softmax's
    sizes, a large one: of few columns it chooses between experts, and of one head the rest is narrow.
    """
    maker = case.works[i].maker
    if not maker.op or "bmm" in maker.op or any(len(shape) >= 3 for shape in maker.shapes[:2]):
        return True
    scores = sorted(next(iter(case.works[softmax].maker.shapes), ()))
    sides = [shape for shape in maker.shapes if len(shape) == 2][-2:]
    if len(scores) != 2 or scores[0] < LEAST_KEYS or len(sides) != 2:
        return False
    (rows, inner), (_, columns) = sides
    around = {(rows, columns): inner, (rows, inner): columns, (inner, columns): rows}
    return any(sorted(made) == scores and width <= WIDEST_HEAD for made, width in around.items())


def _is_attention(case: Case, region: Sequence[int]) -> bool:
    """Two products at least, and a part of the time between them: scores are larger than what they mix.

    A choice between a few experts stands between two products too, and takes next to nothing.
    """
    products = [i for i in region if case.works[i].kind == "gemm"]
    between = case.time([i for i in region if case.works[i].kind != "gemm"])
    return len(products) >= 2 and between >= BESIDE * case.time(products)
