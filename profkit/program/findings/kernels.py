"""One kernel at fault: contended atomics, a grid too small, far from what its bytes need.

Where nothing but a kernel's name and its time is known, something is said only if it is a name of a
known library's, and the kernel takes a good part of the step.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from math import prod
from typing import TYPE_CHECKING, Any

from profkit.program.findings.case import REACH, Advice, RuleTexts, StepCase, StepFinding
from profkit.program.operators import is_native_kernel_but_not_elementwise
from profkit.program.replay.scenario import Range, StepChange, make_exact_range
from profkit.program.steps.cut import KernelGroup, StepWork
from profkit.program.steps.kinds import (
    find_product_precision,
    is_library_kernel,
    is_memory_bound_product,
)
from profkit.program.timeline import GRAPH
from profkit.reports.figures import get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import ClaimedWorks, NanosecondsOrZero, Share, WorkIndex


SORTING = frozenset({"aten::sort", "aten::argsort"})
CUTS = frozenset({"aten::slice", "aten::narrow"})
BY_INDEX = "aten::index"  # reads by indices whose sizes are not recorded
NEXT = 8  # cuts after a sort that are looked at
IDLE = 0.6  # of the multiprocessors: kernels that together have no more blocks leave most idle
SHARE = 0.05  # of the step, from which on a kernel is worth a sentence
LEAST = 0.02  # the same of atomics and sorts
BY_NAME = 0.2  # the same where nothing but a library's name of the kernel is known
FEW_READ = 0.1  # of a sort's time: reading a whole order takes longer
# AMD's products by their names: half precision or less, which their matrix cores multiply.
_TENSILE_HALF = re.compile(r"Cijk_[A-Za-z]+_[A-Za-z]+_(HH|BB|HS|BS|F8)")
_SORT = re.compile(r"(?i)radix_?sort|bitonic_?sort|merge_?sort")
LONG = 20_000  # nanoseconds: shorter kernels are short for other reasons
GAINED = 1.15  # times faster, from which on what was counted is a finding
NEAR = 2.5  # times what the bytes need, up to which a kernel is near them
NOT_KNOWN = frozenset({"scatter", "sort", "other", "unknown", "collective", "copy", "graph"})
FAR = 4.0  # times what the bytes need, from which on a kernel is called slow
BOUND_BY_BYTES = frozenset("softmax norm reduce elementwise convert gather concat random".split())


CONTENDED_ATOMICS = RuleTexts(
    rule="atomics",
    says=(
        "{name} adds atomically into shared locations: {now:time} per step, {ratio:figures} times "
        "the minimum for its bytes"
    ),
    advice=Advice(
        others=(
            "sort or group the rows by target and sum each group, multiply by a one-hot matrix, "
            "or build partial sums per block in shared memory"
        )
    ),
    floor="kernel",
)


NAMED_ATOMICS = RuleTexts(
    rule="atomics",
    says=(
        "{name} adds atomically into shared locations: {now:time} per step, {share:.0%} of it; "
        "the cost of contention is unknown without operator sizes"
    ),
    advice=Advice(
        others=(
            "sort or group the rows by target and sum each group, multiply by a one-hot matrix, "
            "or build partial sums per block in shared memory"
        )
    ),
)


def find_contended_atomics(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find sums into few places, which wait for one another: far from what their bytes need."""
    for group, works in _iterate_large_groups_with_works(case, claimed_works, LEAST):
        need = case.estimate_ns_of_bytes(works)
        now = 1e6 * case.sum_work_ms(works)
        if group.kind == "scatter" and not need and now >= BY_NAME * case.split.period:
            left = REACH["atomics by name"]
            share = now / case.split.period
            yield _make_group_finding(
                case, NAMED_ATOMICS, group, works, left, now=now / 1e6, share=share
            )
        if group.kind != "scatter" or not need or now < 2 * need:
            continue
        left = make_exact_range(need / now)
        yield _make_group_finding(
            case, CONTENDED_ATOMICS, group, works, left, now=now / 1e6, ratio=now / need
        )


SMALL_GRID = RuleTexts(
    rule="kernel",
    says=(
        "{name} runs {blocks:,} block{plural}{others} on {sms} multiprocessors, {time:time} per step: "
        "most of the GPU is idle"
    ),
    advice=Advice(others="split its work into more blocks (rows, tiles, split-k)"),
    floor="kernel",
)


def find_small_grid(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find a kernel of fewer blocks than the GPU has multiprocessors, with what runs beside it."""
    count = None
    if case.device:
        count = case.device.multiprocessors
    for group, works in (
        _iterate_large_groups_with_works(case, claimed_works, SHARE) if count else ()
    ):
        blocks = prod(group.grid or ())
        known = group.grid is not None and group.kind not in {"collective", "attention"}
        if not count or not known or blocks > IDLE * count or group.time < LONG * group.calls:
            continue
        beside = _average_concurrent_blocks(case, works, count)
        ideal = beside / count
        if ideal > IDLE:
            continue
        others = ""
        if beside >= blocks + 1:
            others = f" ({beside:.0f} with the kernels that run at the same time)"
        plural = "" if blocks == 1 else "s"
        left = make_exact_range(ideal)
        yield _make_group_finding(
            case,
            SMALL_GRID,
            group,
            works,
            left,
            blocks=blocks,
            plural=plural,
            others=others,
            sms=count,
        )


def _average_concurrent_blocks(
    case: StepCase, work_indices: Sequence[WorkIndex], blocks_that_fill_gpu: int
) -> float:
    """Return blocks of all kernels while some works run, in the mean.

    Those of no known grid fill the GPU.
    What the steps before and after do meanwhile counts too: they are alike, a period apart.
    """
    import numpy as np

    kernels = []
    for w in case.works:
        if w.activity.kind in {"kernel", GRAPH}:
            kernels.append(w.activity)
    starts, ends = np.array([(a.start, a.end) for a in kernels]).T
    blocks = np.array([float(prod(a.grid) if a.grid else blocks_that_fill_gpu) for a in kernels])
    total = 0.0
    for activity in (case.works[i].activity for i in work_indices):
        for turn in (-case.split.period, 0, case.split.period):
            first = activity.start - turn
            last = activity.end - turn
            shared = np.minimum(ends, last) - np.maximum(starts, first)
            total += float(blocks @ shared.clip(0))
    return total / (1e6 * case.sum_work_ms(work_indices))


SLOW = RuleTexts(
    rule="kernel",
    says=(
        "{name} takes {time:time} per step, {ratio:figures} times the minimum for the bytes of "
        "its operator"
    ),
    advice=Advice(others="profile it (profkit profile), or choose another layout or operator"),
)


COUNTED = RuleTexts(
    rule="kernel",
    says="{name}, {time:time} per step, could be {gain:figures}x faster",
    advice=Advice(others="read its diagnosis"),
)


def find_slow_kernels(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find a kernel far from its hardware limit: counted, or by its operator's bytes."""
    for group, works in _iterate_large_groups_with_works(case, claimed_works, SHARE):
        gain = case.gains.get(group.id)
        need = _estimate_floor_ns_of_group(case, group, works)
        if gain is not None:
            if gain > GAINED:
                left = Range(2 / (1 + gain), 1 / gain, 0.8 / gain)
                yield _make_group_finding(case, COUNTED, group, works, left, gain=gain)
        elif need and group.time >= FAR * need and group.time >= LONG * group.calls:
            ratio = group.time / need
            left = Range(0.9, 1.6 / ratio, 1.0 / ratio)
            yield _make_group_finding(case, SLOW, group, works, left, ratio=ratio)


def is_kernel_near_floor(case: StepCase, group: KernelGroup) -> bool:
    """Return whether a kernel is known to be near the least time that its work can take.

    It was counted, or a known library wrote it: products on the tensor cores, fused attention, loops
    that are bound by their bytes, as far from these as is known.
    """
    gain = case.gains.get(group.id)
    if gain is not None:
        return gain <= GAINED
    if group.kind == "set":
        return True
    if group.kind == "convert" and group.grid is None:
        return True  # a copy within the GPU
    if not is_library_kernel(group.name) or group.kind in NOT_KNOWN:
        return False
    if group.kind in {"gemm", "conv"}:
        precise = find_product_precision(group.name)
        matrix_cores = precise in {"half", "tf32"} or _TENSILE_HALF.match(group.name) is not None
        return matrix_cores or is_memory_bound_product(group.name)
    need = case.estimate_ns_of_bytes(group.works)
    return not need or group.time <= NEAR * need or group.time < LONG * group.calls


def _estimate_floor_ns_of_group(
    case: StepCase, group: KernelGroup, work_indices: Sequence[WorkIndex]
) -> NanosecondsOrZero:
    """Return nanoseconds that the bytes of a group need which is bound by them; 0 where nobody knows."""
    loop = is_native_kernel_but_not_elementwise(group.kind, group.name)
    if not is_library_kernel(group.name) or not (loop or group.kind in BOUND_BY_BYTES):
        return 0.0
    if (
        loop
        and group.kind == "conv"
        and not case.estimate_ns_of_bytes(work_indices)
        and group.grid
        and group.block
    ):
        # No sizes are known. A thread of PyTorch's depthwise convolutions makes one value: it reads
        # another, of four bytes at most (of two, the kernel is farther from its bytes than is said).
        values = len(work_indices) * prod(group.grid) * prod(group.block)
        return values * 2 * 4 / case.bandwidth * 1e9
    return case.estimate_ns_of_bytes(work_indices)


SORTS = RuleTexts(
    rule="kernel",
    says="sorting {size} values takes {ms:time} per step, but only the first few are used",
    advice=Advice(others="use torch.topk"),
)


NAMED_SORTS = RuleTexts(
    rule="kernel",
    says=(
        "{count:,} kernels sort for {ms:time} per step, but hardly anything uses the complete "
        "order afterwards"
    ),
    advice=Advice(
        torch="use torch.topk if only the first values are needed",
        others="select the first values instead of sorting all of them, if only those are needed",
    ),
)


def find_sorts_for_top_values(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find a whole order where only its beginning is read on: topk finds that without it."""
    others = [i for i, work in enumerate(case.works) if work.maker.op not in SORTING]
    found = []
    for i in case.list_unclaimed_works(lambda w: w.maker.op in SORTING, claimed_works):
        if is_sort_result_sliced(case, i, others):
            found.append(i)
    if not found:
        yield from _find_sorts_by_name(case, claimed_works)
        return
    if case.sum_work_ms(found) * 1e6 < LEAST * case.split.period:
        return
    size = " x ".join(map(str, case.find_longest_work(found).maker.shapes[0]))
    operators = {case.works[i].maker.ordinal for i in found}
    alike = case.list_unclaimed_works(
        lambda w: w.maker.op in SORTING and not w.maker.shapes, claimed_works
    )
    found += [i for i in alike if case.works[i].maker.ordinal in operators]
    change = StepChange(dict.fromkeys(found, REACH["sort"]))
    yield case.make_finding(SORTS, found, change, size=size)


def _find_sorts_by_name(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find sorts whose operators are not known, where hardly anything is done with the order."""
    sorting = case.list_unclaimed_works(lambda w: not w.maker.op and _is_sort(w), claimed_works)
    if case.sum_work_ms(sorting) * 1e6 < BY_NAME * case.split.period:
        return
    last = max(sorting)
    after = range(last + 1, min(last + 1 + NEXT, len(case.works)))
    if case.sum_work_ms(after) <= FEW_READ * case.sum_work_ms(sorting):
        change = StepChange(dict.fromkeys(sorting, REACH["sort by name"]))
        yield case.make_finding(NAMED_SORTS, sorting, change)


def _is_sort(work: StepWork) -> bool:
    return work.kind == "sort" and _SORT.search(work.activity.name) is not None


def is_sort_result_sliced(
    case: StepCase, index: WorkIndex, works_that_do_not_sort: Sequence[WorkIndex]
) -> bool:
    """Return whether a part of what a sort has made is taken right after it.

    `works_that_do_not_sort`: the works that sort nothing, in their order.
    """
    work = case.works[index]
    after = case.step.calls[work.call].start
    later = (s for s in case.spans if after < s.start < case.step.end and s.kind == "op")
    near = islice((s for s in later if s.name in CUTS | SORTING), NEXT)
    whole = work.maker.shapes[:1]
    if not whole:
        return False
    if any(s.name in CUTS and s.shapes[:1] == whole for s in near):
        return True
    first = bisect_right(works_that_do_not_sort, index)
    behind = islice(
        chain(works_that_do_not_sort[first : first + NEXT], works_that_do_not_sort[:NEXT]), NEXT
    )  # the next step is alike
    return _are_few_columns_read([case.works[i] for i in behind], whole[0])


def _are_few_columns_read(
    works_after_sort: Sequence[StepWork], sizes_of_sorted: Sequence[int]
) -> bool:
    """Return whether what comes after a sort reads the first of each row, and nothing all of them.

    Recordings may lack operators that launch nothing, as slices, and the sizes of indices.
    """
    read = [sizes for work in works_after_sort for sizes in work.maker.shapes if sizes]
    if (
        not read
        or not sizes_of_sorted
        or any(prod(sizes) == prod(sizes_of_sorted) for sizes in read)
    ):
        return False
    readers = [work for work in works_after_sort if work.maker.op != BY_INDEX]
    first = readers[0].maker.shapes[:1] if readers else ()
    few = FEW_READ * sizes_of_sorted[-1]
    return any(
        sizes[:-1] == tuple(sizes_of_sorted[:-1]) and sizes[-1] <= few for sizes in first if sizes
    )


def _iterate_large_groups_with_works(
    case: StepCase, claimed_works: ClaimedWorks, share: Share
) -> Iterator[tuple[KernelGroup, list[WorkIndex]]]:
    """Yield groups that take at least a share of the step, with their works that are not claimed."""
    for group in case.groups:
        works = [i for i in group.works if i not in claimed_works]
        if works and group.time >= share * case.split.period:
            yield group, works


def _make_group_finding(
    case: StepCase,
    words: RuleTexts,
    group: KernelGroup,
    work_indices: Sequence[WorkIndex],
    share_left: Range,
    **figures: Any,
) -> StepFinding:
    where = case.describe_origin_of_works(group.works)
    change = StepChange(dict.fromkeys(work_indices, share_left.limit_to(1.0)))
    figures |= {"name": _shorten_name(group), "time": group.time / 1e6}
    return case.make_finding(words, work_indices, change, where, **figures)


def _shorten_name(group: KernelGroup) -> str:
    return get_base_name_of_kernel(group.name)[:60] or group.name[:60]
