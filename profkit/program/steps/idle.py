"""A step  ->  how long its GPU computes, and why it does not in the rest of the time.

All of the step is given out, to the nanosecond: computing, or idle with one cause. A copy to or
from the host and a collective count as idle where nothing computes beside them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.program.steps.attribution import CallOrigin, describe_source
from profkit.program.steps.cut import Step, StepWork
from profkit.program.steps.lost import find_graph_captures, find_unrecorded_launches
from profkit.program.timeline import Call

if TYPE_CHECKING:
    from profkit.units import (
        CallIndex,
        CauseName,
        ClauseOrEmpty,
        IndexOrMinusOne,
        Nanoseconds,
        NanosecondsOrZero,
        TextOrEmpty,
    )


EPSILON = 2_000  # nanoseconds: a wait that returns so shortly before the GPU is idle emptied it
AT_ONCE = 1.5  # times the quickest launch of the step: 5.9 to 7.5 us are a quarter of traces'
LATE = 20_000  # nanoseconds after its launch: work that begins later waits for something else
FULL = 20_000  # nanoseconds: a step whose quickest launch takes longer has a full queue
# Nanoseconds, and of the step, from which on the host's own time after a wait is no part of it.
PAUSE = 500_000
PAUSE_SHARE = 0.05
DEVICE_LEAST = 0.02  # of the computing of all GPUs: one that does less is no part of the step
BeginEndNs = tuple[int, int]
SpentForCause = tuple[int, int, str, str]  # from, to, cause, where
CAPTURING = "while a graph is captured"
IN_GRAPH = "between kernels of one launch of a graph"
LOST = "kernels that are not in the recording"
CAUSES = ("host-launch", "host-sync", "copy", "collective", "other")


@dataclass(frozen=True)
class Idle:
    """Time in which nothing computes, by one cause."""

    cause: str  # one of CAUSES
    time: int  # nanoseconds a step
    where: str  # the place that has most of it: an operator, a range, a line; empty if unknown


@dataclass(frozen=True)
class PeriodSplit:
    """Where a step's time goes."""

    period: int  # nanoseconds of the step
    # nanoseconds in which a kernel (no collective), a memset or a copy within the GPU runs
    busy: int
    idle: tuple[Idle, ...]  # the rest, largest first
    gaps: tuple[tuple[int, int, str], ...] = ()  # the same in time: (start, end, cause)


def split_period_by_idle_cause(step: Step) -> PeriodSplit:
    """Divide a step's period."""
    whole = step.first, step.first + step.period
    computing = _merge_busy_intervals(
        (w for w in step.works if w.kind not in {"copy", "collective"}), whole
    )
    gaps = _subtract_intervals(whole, computing)
    spent: list[SpentForCause] = []
    for cause in ("collective", "copy"):
        works = [w for w in step.works if w.kind == cause]
        running = _merge_busy_intervals(works, whole)
        where = _name_largest_work(works)
        left: list[BeginEndNs] = []
        for gap in gaps:
            rest = _subtract_intervals(gap, running)
            spent += [(*part, cause, where) for part in _subtract_intervals(gap, rest)]
            left += rest
        gaps = left
    spent += _explain_gaps(step, gaps)
    gaps_in_time = tuple(sorted((low, high, cause) for low, high, cause, _ in spent))
    return PeriodSplit(
        step.period, sum(b - a for a, b in computing), _sum_idle_by_cause(spent), gaps_in_time
    )


def _name_largest_work(works: Sequence[StepWork]) -> ClauseOrEmpty:
    """Return what takes longest and where it comes from; "" for none."""
    largest = max(works, key=lambda work: work.activity.duration, default=None)
    if largest is None:
        return ""
    name = largest.activity.name
    place = describe_launch_place(largest)
    if place == name:
        return name
    return f"{name} at {place}"


def sum_busy_by_device(step: Step) -> dict[int, Nanoseconds]:
    """Return nanoseconds of the step in which each GPU computes, of those that do enough for a word."""
    works: dict[int, list[StepWork]] = {}
    for work in step.works:
        if work.kind not in {"copy", "collective"}:
            works.setdefault(work.activity.device, []).append(work)
    busy = {}
    for device in sorted(works):
        own = [work.activity for work in works[device]]
        # One GPU may be at this step while another is still at the one before.
        span = min(a.start for a in own), max(a.end for a in own)
        time = sum(end - start for start, end in _merge_busy_intervals(works[device], span))
        busy[device] = min(step.period, time)
    least = DEVICE_LEAST * sum(busy.values())
    for device, time in tuple(busy.items()):
        if time < least:
            del busy[device]
    return busy


def _sum_idle_by_cause(spent: Sequence[SpentForCause]) -> tuple[Idle, ...]:
    places: dict[str, Counter[str]] = {cause: Counter() for cause in CAUSES}
    for low, high, cause, where in spent:
        places[cause][where] += high - low
    spent_in = {cause: own for cause, own in places.items() if own.total()}
    rows = [Idle(cause, own.total(), own.most_common(1)[0][0]) for cause, own in spent_in.items()]
    return tuple(sorted(rows, key=lambda row: -row.time))


@dataclass(frozen=True)
class _GapNeighbours:
    """What stands at the ends of a gap: the launches before and after it, the work that ends it."""

    before: int  # the call that launched the work before it; -1 for none
    after: int  # the call that launched the work that ends it; behind the last call for none
    work: StepWork | None
    call: Call | None


def _explain_gaps(step: Step, gaps: Iterable[BeginEndNs]) -> Iterator[SpentForCause]:
    """Give each gap to what the host did while the GPU had nothing."""
    host = _HostOfStep(step)
    for low, high in gaps:
        yield from host.split_gap_by_cause(low, high)


class _HostOfStep:
    """What the host did in a step, as gaps of the GPU are held against it."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.works = sorted(step.works, key=lambda w: w.activity.start)
        self.starts = [w.activity.start for w in self.works]
        self.waits = [i for i, call in enumerate(step.calls) if call.waits]
        self.ends = [step.calls[i].end for i in self.waits]
        self.at_once = _find_shortest_delay(step)
        self.lost = list_launches_without_recorded_work(step)
        self.captures = [i for i, call in enumerate(step.calls) if call.capture_phase]

    def split_gap_by_cause(
        self, begin_ns: Nanoseconds, end_ns: Nanoseconds
    ) -> Iterator[SpentForCause]:
        """Yield the parts of a gap, each with its cause and where that is."""
        around = self._find_neighbours_of_gap(end_ns)
        unseen = self._name_unrecorded_work(around)
        if unseen:
            yield begin_ns, end_ns, "other", unseen
            return
        work = around.work
        call = around.call
        if call and work and around.before != work.call:  # one graph's are launched at once
            late = max(begin_ns, _find_end_of_host_delay(call, work, self.at_once))
            if late < end_ns:
                yield (
                    late,
                    end_ns,
                    "other",
                    describe_time_before_launch(describe_launch_place(work)),
                )
                end_ns = late
                if end_ns == begin_ns:
                    return
        wait = self._find_call_that_held_host(begin_ns, min(end_ns, call.end) if call else end_ns)
        until = end_ns
        if wait >= 0 and _is_host_busy_after(self.step, wait, end_ns):
            # The wait is over: what keeps the GPU idle then is what the host does of its own.
            until = max(begin_ns, min(end_ns, self.step.calls[wait].end))
            yield (
                until,
                end_ns,
                "host-launch",
                describe_launch_place(work) if work else "between steps",
            )
        if until > begin_ns:
            cause, where = self._explain_idle_from(around, begin_ns, wait)
            yield begin_ns, until, cause, where

    def _find_neighbours_of_gap(self, end: Nanoseconds) -> _GapNeighbours:
        following = bisect_left(self.starts, end)
        before = -1
        if following:
            before = self.works[following - 1].call
        if following == len(self.works):
            return _GapNeighbours(before, len(self.step.calls), None, None)
        work = self.works[following]
        return _GapNeighbours(before, work.call, work, self.step.calls[work.call])

    def _name_unrecorded_work(self, around: _GapNeighbours) -> TextOrEmpty:
        """Return what the GPU may have done in a gap though no work is recorded in it.

        Empty for nothing.
        """
        missing = _has_index_between(self.lost, around.before, around.after)
        if around.work is None and self.lost:  # the next step begins as this one does
            missing = missing or self.lost[0] < self.works[0].call
        if missing:
            return LOST
        if _has_index_between(self.captures, around.before, around.after):
            return CAPTURING
        return ""

    def _find_call_that_held_host(self, low: Nanoseconds, end: Nanoseconds) -> IndexOrMinusOne:
        """Return the call that held the host: it returned inside of a gap or just before it.

        -1 for none.
        """
        at = bisect_left(self.ends, low - EPSILON)
        if at < len(self.waits) and self.ends[at] <= end:
            return self.waits[at]
        return -1

    def _explain_idle_from(
        self, around: _GapNeighbours, low: Nanoseconds, wait: IndexOrMinusOne
    ) -> tuple[CauseName, str]:
        """Return why the GPU had nothing from `low` on, and where that is.

        `wait`: of the host, or -1.
        """
        work = around.work
        call = around.call
        if work is None or call is None:
            # The next step's launch comes too late: its first call tells no more.
            return "host-sync" if wait >= 0 else "host-launch", "between steps"
        if call.start <= low and work.activity.start - call.start > self.at_once:
            if call.launches_graph and around.before == work.call:
                return "other", IN_GRAPH
            return "other", describe_time_before_launch(describe_launch_place(work))
        if wait >= 0:
            return "host-sync", describe_call_origin(self.step, wait) or self.step.calls[wait].name
        return "host-launch", describe_launch_place(work)


def _is_host_busy_after(step: Step, wait: CallIndex, until: Nanoseconds) -> bool:
    """Return whether the host does something long of its own after a wait, before it calls again."""
    calls = step.calls
    if wait + 1 < len(calls):
        next_call = calls[wait + 1].start
    else:
        next_call = until
    pause = min(next_call, until) - calls[wait].end
    return pause > max(PAUSE, PAUSE_SHARE * step.period)


def _find_end_of_host_delay(call: Call, work: StepWork, at_once: NanosecondsOrZero) -> Nanoseconds:
    """Return from when on the host is not why a work begins so late; its own beginning if always.

    A launch has returned long before: something that was not recorded runs, or is waited for. Or it is
    a copy that holds the host until it is done, and does not begin.
    """
    begin = work.activity.start
    if begin - call.start <= max(at_once, LATE):
        return begin
    if call.waits and call.start < begin <= call.end:
        return call.start
    if call.end < begin:
        return call.end
    return begin


def _has_index_between(indices: Sequence[int], before: int, after: int) -> bool:
    """Return whether any of some indices in order lies between two others."""
    return bisect_left(indices, after) > bisect_right(indices, before)


def list_launches_without_recorded_work(step: Step) -> list[CallIndex]:
    """Return indices of the launches of which nothing that they ran was recorded, in order."""
    launching = {work.call for work in step.works}
    captures = find_graph_captures(step.calls)
    return sorted(find_unrecorded_launches(step.calls, launching, captures))


def _find_shortest_delay(step: Step) -> NanosecondsOrZero:
    """Return nanoseconds from a launch's beginning within which its work begins on an idle stream.

    Such work began as soon as its launch could bring it, though that began while the work before ran:
    the GPU waits for the host, which launches in less time than a launch takes to arrive.
    """
    leads = []
    for w in step.works:
        if w.call >= 0:
            leads.append(w.activity.start - step.calls[w.call].start)
    least = min((lead for lead in leads if lead > 0), default=FULL)
    if least < FULL:
        return AT_ONCE * least
    return 0.0


def describe_launch_place(work: StepWork) -> str:
    """Return where a piece of work comes from, as exactly as is known."""
    maker = work.maker
    return (
        describe_source(maker)
        or maker.range
        or clean_operator_name(maker.top)
        or work.activity.name
    )


def describe_time_before_launch(launch_place: str) -> str:
    """Say that something is before the launch of a place."""
    if launch_place.startswith("in "):
        return f"before a launch {launch_place}"
    return f"before {launch_place}"


def clean_operator_name(name: str) -> str:
    """Return an operator, or a node of the backward pass without the engine's words before it."""
    return name.removeprefix("autograd::engine::evaluate_function: ")


def describe_caller(origin: CallOrigin) -> ClauseOrEmpty:
    """Say where a call was made: a line, or a range that the program names; empty if unknown."""
    return describe_source(origin) or origin.range


def describe_call_origin(step: Step, call: CallIndex) -> str:
    """Return where a call comes from."""
    maker = step.makers[call]
    name = maker.op or clean_operator_name(maker.top)
    place = describe_caller(maker)
    if not place or not name:
        return place or name
    if place.startswith("in "):
        return f"{name} {place}"
    return f"{place} ({name})"


def _merge_busy_intervals(works: Iterable[StepWork], span: BeginEndNs) -> list[BeginEndNs]:
    """Return when any of some works runs, inside of a span."""
    out: list[BeginEndNs] = []
    for start, end in sorted((w.activity.start, w.activity.end) for w in works):
        first = max(start, span[0])
        last = min(end, span[1])
        if first >= last:
            continue
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def _subtract_intervals(
    span: BeginEndNs, taken_intervals: Sequence[BeginEndNs]
) -> list[BeginEndNs]:
    """Return what is left of a span."""
    out = []
    at = span[0]
    for low, high in taken_intervals[
        max(0, bisect_left(taken_intervals, (span[0], span[0])) - 1) :
    ]:
        if low >= span[1]:
            break
        if low > at:
            out.append((at, low))
        at = max(at, high)
    if at < span[1]:
        return [*out, (at, span[1])]
    return out
