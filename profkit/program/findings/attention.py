"""Attention that is not fused: its scores go through DRAM."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from profkit.program.findings.case import REACH, Case, Draft, goes_back
from profkit.program.replay.scenario import Change
from profkit.program.steps.cut import StepWork
from profkit.program.steps.idle import launch_place

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
