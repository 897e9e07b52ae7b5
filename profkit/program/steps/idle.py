"""A step  ->  how long its GPU computes, and why it does not in the rest of the time.

All of the step is given out, to the nanosecond: computing, or idle with one cause. A copy to or
from the host and a collective count as idle where nothing computes beside them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from profkit.program.steps.cut import Step, StepWork

EPSILON = 2_000  # nanoseconds: a wait that returns so shortly before the GPU is idle emptied it
AT_ONCE = (
    1.5  # times the quickest launch of the step: 5.9 to 7.5 us are the first quarter's of traces
)
FULL = 20_000  # nanoseconds: a step whose quickest launch takes longer has a full queue
Interval = tuple[int, int]
Spent = tuple[int, int, str, str]  # from, to, cause, where
CAUSES = ("host-launch", "host-sync", "copy", "collective", "other")


@dataclass(frozen=True)
class Idle:
    """Time in which nothing computes, by one cause."""

    cause: str  # one of CAUSES
    time: int  # nanoseconds a step
    where: str  # the place that has most of it: an operator, a range, a line; empty if unknown


@dataclass(frozen=True)
class Split:
    """Where a step's time goes."""

    period: int  # nanoseconds of the step
    # nanoseconds in which a kernel (no collective), a memset or a copy within the GPU runs
    busy: int
    idle: tuple[Idle, ...]  # the rest, largest first
    # the same in time: (start, end, cause), nanoseconds
    gaps: tuple[tuple[int, int, str], ...] = ()


def split_period(step: Step) -> Split:
    """Divide a step's period."""
    begin = step.first
    end = begin + step.period
    computing = _union(_spans(step.works, {"copy", "collective"}, without=True), begin, end)
    gaps = _without((begin, end), computing)
    spent: list[Spent] = []
    for cause in ("collective", "copy"):
        works = [w for w in step.works if w.kind == cause]
        taken = _union(((w.activity.start, w.activity.end) for w in works), begin, end)
        where = _most(works)
        left: list[Interval] = []
        for gap in gaps:
            rest = _without(gap, taken)
            spent += [(*part, cause, where) for part in _without(gap, rest)]
            left += rest
        gaps = left
    _host(step, gaps, spent)
    gaps_in_time = tuple(sorted((low, high, cause) for low, high, cause, _ in spent))
    return Split(step.period, sum(b - a for a, b in computing), _rows(spent), gaps_in_time)


def _rows(spent: Sequence[Spent]) -> tuple[Idle, ...]:
    rows = []
    for cause in CAUSES:
        places: dict[str, int] = defaultdict(int)
        for low, high, why, where in spent:
            if why == cause:
                places[where] += high - low
        if total := sum(places.values()):
            rows.append(Idle(cause, total, max(places, key=lambda w: places[w])))
    return tuple(sorted(rows, key=lambda row: -row.time))


def _host(step: Step, gaps: Iterable[Interval], spent: list[Spent]) -> None:
    """Give each gap to what the host did while the GPU had nothing."""
    works = sorted(step.works, key=lambda w: w.activity.start)
    starts = [w.activity.start for w in works]
    waits = [c for c in step.calls if c.waits]
    ends = [c.end for c in waits]
    at_once = _soonest(step)
    for low, high in gaps:
        at = bisect_left(starts, high)
        work = works[at] if at < len(works) else None
        if work is None:  # the next step's launch comes too late: its first call tells no more
            cause = _after_wait(waits, ends, low, high) or "host-launch"
            spent.append((low, high, cause, "between steps"))
            continue
        call = step.calls[work.call]
        if call.start <= low and work.activity.start - call.start > at_once:
            spent.append((low, high, "other", f"before {launch_place(work)}"))
            continue
        cause = _after_wait(waits, ends, low, min(high, call.end)) or "host-launch"
        where = launch_place(work)
        if cause == "host-sync":
            wait = bisect_left(ends, low - EPSILON)
            index = step.calls.index(waits[wait])
            where = of_maker(step, index) or waits[wait].name
        spent.append((low, high, cause, where))


def _soonest(step: Step) -> float:
    """Nanoseconds from a launch's beginning within which its work begins where nothing is before it.

    Such work began as soon as its launch could bring it, though that began while the work before ran:
    the GPU waits for the host, which launches in less time than a launch takes to arrive.
    """
    leads = [w.activity.start - step.calls[w.call].start for w in step.works if w.call >= 0]
    least = min((lead for lead in leads if lead > 0), default=FULL)
    return AT_ONCE * least if least < FULL else 0.0


def _after_wait(waits: Sequence[object], ends: Sequence[int], low: int, high: int) -> str:
    """host-sync if a wait returned inside of a gap, or just before it: the host was held."""
    at = bisect_left(ends, low - EPSILON)
    return "host-sync" if at < len(waits) and ends[at] <= high else ""


def launch_place(work: StepWork) -> str:
    """Where a piece of work comes from, as exactly as is known."""
    maker = work.maker
    return maker.source or maker.range or node(maker.top) or work.activity.name


def node(name: str) -> str:
    """An operator, or a node of the backward pass without the engine's words before it."""
    return name.removeprefix("autograd::engine::evaluate_function: ")


def of_maker(step: Step, call: int) -> str:
    """Where a call comes from."""
    maker = step.makers[call]
    name, place = maker.op or node(maker.top), maker.source or maker.range
    return f"{place} ({name})" if place and name else place or name


def _most(works: Sequence[StepWork]) -> str:
    largest = max(works, key=lambda w: w.activity.duration, default=None)
    return f"{largest.activity.name} at {launch_place(largest)}" if largest else ""


def _spans(works: Iterable[StepWork], kinds: set[str], *, without: bool) -> Iterable[Interval]:
    return ((w.activity.start, w.activity.end) for w in works if (w.kind in kinds) != without)


def _union(spans: Iterable[Interval], low: int, high: int) -> list[Interval]:
    """Intervals that overlap made one, inside of (low, high)."""
    out: list[Interval] = []
    for start, end in sorted(spans):
        first, last = max(start, low), min(end, high)
        if first >= last:
            continue
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def _without(span: Interval, taken: Sequence[Interval]) -> list[Interval]:
    """What is left of a span."""
    out, at = [], span[0]
    for low, high in taken[max(0, bisect_left(taken, (span[0], span[0])) - 1) :]:
        if low >= span[1]:
            break
        if high <= at:
            continue
        if low > at:
            out.append((at, low))
        at = max(at, high)
    return [*out, (at, span[1])] if at < span[1] else out
