"""One kernel at fault: contended atomics, a grid too small, far from what its bytes need.

Where nothing but a kernel's name and its time is known, nothing is said of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from math import prod

from profkit.program.findings.case import REACH, Case, Draft, input_bytes, needed_bytes
from profkit.program.replay.scenario import Change, Reach
from profkit.program.steps.groups import KernelGroup
from profkit.program.steps.kinds import is_librarys
from profkit.program.timeline import Activity

SORTS = frozenset({"aten::sort", "aten::argsort"})
SCANS = frozenset(
    {"aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::cummax", "aten::cummin"}
)
CUTS = frozenset({"aten::slice", "aten::narrow"})
NEXT = 8  # cuts after a sort that are looked at
IDLE = 0.6  # of the multiprocessors: kernels that together have no more blocks leave most idle
SHARE = 0.05  # of the step, from which on a kernel is worth a sentence
LONG = 20_000  # nanoseconds: shorter kernels are short for other reasons
FAR = 4.0  # times what the bytes need, from which on a kernel is called slow
BOUND_BY_BYTES = {
    "softmax",
    "norm",
    "reduce",
    "elementwise",
    "convert",
    "gather",
    "concat",
    "random",
}


def contended_atomics(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Sums into few places, which wait for one another: far from what their bytes need."""
    for group in case.groups:
        works = [i for i in group.works if i not in taken]
        if group.kind != "scatter" or not works or group.time < 0.02 * case.split.period:
            continue
        need = sum(input_bytes(case.works[i]) for i in works) / case.bandwidth * 1e9
        now = sum(case.works[i].activity.duration for i in works)
        if not need or now < 2 * need:
            continue
        floor = min(1.0, 1.5 * need / now)
        yield Draft(
            "atomics",
            f"{_short(group)} adds into shared places: {now / 1e6:.3g} ms a step, {now / need:.1f} "
            "times what its bytes need",
            "sort or group the rows by target and sum each group, or multiply with who belongs "
            "where; private sums in shared memory",
            group.source or group.range or group.op or group.name, tuple(works),
            _scaled(works, Reach(3 * floor, floor, floor / 2.5)),
        )  # fmt: skip


def small_grid(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A kernel of fewer blocks than the GPU has multiprocessors, with what runs beside it."""
    count = case.device.multiprocessors if case.device else None
    if not count:
        return
    running = _running(case, count)
    for group in case.groups:
        works = [i for i in group.works if i not in taken]
        if not works or group.grid is None or group.kind in {"collective", "attention"}:
            continue
        blocks = prod(group.grid)
        if blocks > IDLE * count or group.time < SHARE * case.split.period:
            continue
        if group.time / group.calls < LONG:
            continue
        beside = sum(running(case.works[i].activity) for i in works) / (1e6 * case.time(works))
        ideal = beside / count
        if ideal > IDLE:
            continue
        left = Reach(2.5 * ideal + 0.1, ideal, ideal * 0.6)
        if group.kind in BOUND_BY_BYTES and (need := _needed(case, works)):
            # Blocks that hold too few loads in flight are too few for more reasons than their number.
            least = need / sum(case.works[i].activity.duration for i in works)
            left = left._replace(expect=min(ideal, 1.6 * least), high=min(ideal * 0.6, least))
        others = "" if beside < blocks + 1 else f" ({beside:.0f} with those beside it)"
        yield Draft(
            "kernel",
            f"{_short(group)} runs {blocks} blocks{others} on {count} multiprocessors, "
            f"{group.time / 1e6:.3g} ms a step: most of the GPU is idle",
            "split its work into more blocks (rows, tiles, split-k)",
            group.source or group.range or group.op or group.name, tuple(works),
            _scaled(works, left),
        )  # fmt: skip


def _running(case: Case, full: int) -> Callable[[Activity], float]:
    """Blocks times nanoseconds of all kernels while one runs; of no known grid they fill the GPU.

    What the steps before and after do meanwhile counts too: they are alike, a period apart.
    """
    changes: list[tuple[int, int]] = []
    for activity in (w.activity for w in case.works if w.activity.kind == "kernel"):
        blocks = prod(activity.grid) if activity.grid else full
        for turn in (-case.split.period, 0, case.split.period):
            changes += [(activity.start + turn, blocks), (activity.end + turn, -blocks)]
    changes.sort()
    times: list[int] = []
    whole, rate = [0], 0
    for n, (time, more) in enumerate(changes):
        whole.append(whole[-1] + rate * (time - times[-1] if n else 0))
        times.append(time)
        rate += more
    rates = list(accumulate(more for _, more in changes))

    def until(time: int) -> int:
        at = bisect_right(times, time)
        return whole[at] + rates[at - 1] * (time - times[at - 1]) if at else 0

    return lambda activity: until(activity.end) - until(activity.start)


def slow(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A kernel far from its roof: counted, or by its operator's bytes."""
    for group in case.groups:
        works = [i for i in group.works if i not in taken]
        if not works or group.time < SHARE * case.split.period:
            continue
        if (gain := case.gains.get(group.id)) is not None:
            if gain > 1.15:
                yield _counted(group, works, gain)
        elif is_librarys(group.name) and (
            group.kind in BOUND_BY_BYTES or _is_native(group) or group.op in SCANS
        ):
            yield from _against_bytes(case, group, works)


def sorts(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A whole order where only its beginning is read on: topk finds that without it."""
    found = [i for i, w in enumerate(case.works)
             if i not in taken and w.maker.op in SORTS and _is_cut(case, i)]  # fmt: skip
    if not found or case.time(found) * 1e6 < 0.02 * case.split.period:
        return
    work = case.works[max(found, key=lambda i: case.works[i].activity.duration)]
    yield Draft(
        "kernel",
        f"{case.time(found):.3g} ms a step sort {' x '.join(map(str, work.maker.shapes[0]))} values, "
        "of which only the first are read on",
        "torch.topk", work.maker.source or work.maker.range or work.maker.op, tuple(found),
        _scaled(found, REACH["sort"]),
    )  # fmt: skip


def _is_cut(case: Case, index: int) -> bool:
    """Whether a part of what a sort has made is taken right after it."""
    work = case.works[index]
    after = case.step.calls[work.call].start
    later = (s for s in case.spans if after < s.start < case.step.end and s.kind == "op")
    near = islice((s for s in later if s.name in CUTS | SORTS), NEXT)
    return any(
        s.name in CUTS and s.shapes[:1] == work.maker.shapes[:1] and s.shapes[:1] for s in near
    )


def _counted(group: KernelGroup, works: Sequence[int], gain: float) -> Draft:
    left = Reach(2 / (1 + gain), 1 / gain, 0.8 / gain)
    return Draft(
        "kernel", f"{_short(group)}, {group.time / 1e6:.3g} ms a step, could be {gain:.2g}x faster",
        "see its diagnosis", group.source or group.op or group.name, tuple(works),
        _scaled(works, left),
    )  # fmt: skip


def _against_bytes(case: Case, group: KernelGroup, works: Sequence[int]) -> Iterator[Draft]:
    need = _needed(case, works, by_threads=_is_native(group))
    if not need or group.time < FAR * need or group.time / group.calls < LONG:
        return
    ratio = group.time / need
    yield Draft(
        "kernel",
        f"{_short(group)} takes {group.time / 1e6:.3g} ms a step, {ratio:.1f} times what the bytes "
        "of its operator need",
        "count it (profkit profile), or choose another layout or operator for it",
        group.source or group.range or group.op or group.name, tuple(works),
        _scaled(works, Reach(0.9, 1.6 / ratio, 1.0 / ratio)),
    )  # fmt: skip


def _is_native(group: KernelGroup) -> bool:
    """A loop of PyTorch's own that is no elementwise one (interpolation, pooling, depthwise)."""
    return group.kind in {"other", "conv"} and "at::native" in group.name


def _needed(case: Case, works: Sequence[int], by_threads: bool = False) -> float:
    """Nanoseconds that the bytes of some works' operators need; 0 if they are not known.

    `by_threads`: a result may be larger than all inputs, a value a thread.
    """
    total = 0
    for i in works:
        moved = needed_bytes(case.works[i])
        activity = case.works[i].activity
        if moved and by_threads and activity.grid and activity.block:
            moved = max(
                moved, input_bytes(case.works[i]) + prod(activity.grid) * prod(activity.block)
            )
        total += moved
    return total / case.bandwidth * 1e9


def _scaled(works: Sequence[int], left: Reach) -> Change:
    return Change(dict.fromkeys(works, left.times(1.0)))


def _short(group: KernelGroup) -> str:
    plain = group.name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return plain.split("<", 1)[0].split("(", 1)[0].rsplit("::", 1)[-1][:60] or group.name[:60]
