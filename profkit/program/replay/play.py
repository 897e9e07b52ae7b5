"""A step's host calls and GPU work  ->  a model of it, whose period can be asked under changes.

The host goes through its calls one after another; each launch puts work on a stream, each wait
holds the host until what it waited for is done. Played over a few steps, the period is what the
slower side dictates: a change that frees the GPU saves no more than the host (or another stream, or
a copy) lets it. Savings are differences of two replays, never sums of durations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from profkit.program.steps.cut import Step, StepWork
from profkit.program.timeline import Call, Process

if TYPE_CHECKING:
    from profkit.units import IndexOrMinusOne, Nanoseconds, NanosecondsOfModel, WorkIndex


LONG = 500_000  # nanoseconds of host work before one call that no launching explains
LONG_SHARE = 0.05  # of the step: what is shorter is no pause
DEPTH = 1024  # launches that a stream takes before the host has to wait
NEAR = 5_000  # nanoseconds between the end of work and the return of the wait for it
FEW_BESIDE = 32  # works of all streams that are looked at before one that waited
FULL = 0.9  # of DEPTH, from which on a launch may have waited for room in the queue
QUICK = 0.1  # quantile of a process's launches: what one takes that waits for nothing
# Nanoseconds of unexplained delay from which on another stream is looked at: from one kernel to the
# next of a stream it is less.
SEEN = 3_000
HELD = 15_000  # nanoseconds from which on a call that ends with its copy was held by it
# Of a copy of pageable memory: if so much of it was made before its call returned, it held the call.
MOSTLY = 0.5
LATE = 20_000  # nanoseconds: a launch that takes longer found the stream busy with an earlier step
MANY = 20_000  # calls and works from which on two rounds do: many times what a queue holds


class ReplayItem(NamedTuple):  # made by the million: a dataclass takes four times as long
    """Work on a stream: where, how long, after which other item, and with what delay (ns)."""

    stream: int
    duration: float
    after: int = -1
    lag: float = 0.0

    @property
    def launch_lag(self) -> NanosecondsOfModel:
        """Return what of the delay goes with the launch; longer has no known reason and is nobody's."""
        return min(self.lag, SEEN)


class ReplayCall(NamedTuple):
    """A call of the host."""

    gap: float  # nanoseconds of the host's own work before it
    busy: float  # nanoseconds in the call that are no waiting
    items: tuple[int, ...] = ()  # what it launches, as indices
    awaits: int = -1  # the item it waits for; -1 for none
    back: int = 0  # how many steps before this one that item was launched
    late: float = 0.0  # nanoseconds from the end of that item to the host's going on

    def scale_times(self, gap_share: float, busy_share: float) -> ReplayCall:
        """Return the call with shares of the host's time before it and in it."""
        return self._replace(gap=self.gap * gap_share, busy=self.busy * busy_share)


@dataclass(frozen=True)
class ReplayModel:
    """One step, to be played round after round."""

    events: tuple[ReplayCall, ...]  # calls in order
    items: tuple[ReplayItem, ...]  # work, in order of launch
    tail: float  # nanoseconds of host work after the last call
    latency: float  # nanoseconds from the beginning of a launch to its work on an idle stream
    pause: float  # nanoseconds from which on the host's own work between calls is no launching
    late: float = LATE  # nanoseconds from which on work begins when its call is over, not before

    @cached_property
    def period(self) -> NanosecondsOfModel:
        """Return nanoseconds a step in the steady state."""
        if len(self.events) + len(self.items) > MANY:
            rounds = 2
        else:
            rounds = 8
        ends = _simulate_rounds_and_list_ends(self, rounds)
        half = rounds // 2
        return (ends[-1] - ends[half - 1]) / (rounds - half)


@dataclass
class _Replay:
    """Where the host and the streams are after some rounds of a model."""

    model: ReplayModel
    clock: float = 0.0  # of the host
    free: dict[int, float] = field(default_factory=dict)  # when each stream is done
    queues: defaultdict[int, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    done: list[list[float]] = field(default_factory=list)  # when each item ended, by round

    def simulate_step(self) -> NanosecondsOfModel:
        """Play the step once more; when it is over: its last item, or the host where that is later."""
        model = self.model
        turn = len(self.done)
        ends = [0.0] * len(model.items)
        self.done.append(ends)
        # Taken apart at once, and no max(): this runs millions of times.
        for gap, busy, launched, awaits, back, late in model.events:
            self.clock += gap
            soonest = self.clock + (model.latency if busy <= model.late else busy)
            self.clock += busy
            if launched:
                self._launch_items(launched, soonest, ends)
            if awaits >= 0 and turn >= back:
                until = self.done[turn - back][awaits] + late
                if until > self.clock:  # noqa: PLR1730
                    self.clock = until
        self.clock += model.tail
        return max([self.clock, *self.free.values()])

    def _launch_items(
        self,
        launched: Sequence[WorkIndex],
        soonest: NanosecondsOfModel,
        ends: list[NanosecondsOfModel],
    ) -> None:
        """Put items on their streams, none to begin before `soonest`, and set their ends."""
        items = self.model.items
        free = self.free
        for i in launched:
            stream, duration, after, lag = items[i]
            queue = self.queues[stream]
            if len(queue) >= DEPTH and (taken := queue.popleft()) > self.clock:
                self.clock = taken
            ready = free.get(stream, 0.0)
            if soonest > ready:  # noqa: PLR1730
                ready = soonest
            if after >= 0 and ends[after] > ready:
                ready = ends[after]
            ends[i] = free[stream] = end = ready + lag + duration
            queue.append(end)


def _simulate_rounds_and_list_ends(model: ReplayModel, rounds: int) -> list[NanosecondsOfModel]:
    """Return when each round is over."""
    replay = _Replay(model)
    overs = []
    for _ in range(rounds):
        overs.append(replay.simulate_step())
    return overs


@dataclass(frozen=True)
class _LaunchTimes:
    """Nanoseconds that a launch of a step takes if none waits."""

    usual: float
    most: float


def build_replay_model(process: Process, step: Step) -> ReplayModel:
    """Return the model of a step as it was recorded; what other steps launched is the process's."""
    launches = _list_work_indices_by_call(step)
    latency = _measure_launch_latency(process)
    times = _measure_launch_times(process, step, launches)
    queued = _count_queued_works(process, step)
    endings = _WorksByEnd(step, process)
    events = []
    last = step.begin
    for call, own, before in zip(step.calls, launches, queued, strict=True):
        gap = max(0, call.start - last)
        last = max(last, call.end)
        target, back = _find_awaited_item(call, own, endings)
        busy = _measure_launch_without_waiting(step, call, own, before, times)
        late = 0
        if target >= 0:
            busy = _measure_waiting_call(step, call, own, target, times)
        if target >= 0 and not back:
            late = _measure_return_delay(step, call, own, target)
        events.append(ReplayCall(gap, busy, tuple(own), target, back, late))
    items = _make_items(step, events, latency, _find_end_of_earlier_work(process, step))
    pause = max(LONG, LONG_SHARE * step.period)
    return ReplayModel(tuple(events), items, max(0, step.end - last), latency, pause)


def _list_work_indices_by_call(step: Step) -> list[list[WorkIndex]]:
    """Return what each call of a step launches, as indices of its works."""
    launches: list[list[int]] = [[] for _ in step.calls]
    for i, work in enumerate(step.works):
        launches[work.call].append(i)
    return launches


def _measure_launch_without_waiting(
    step: Step, call: Call, launched_works: Sequence[WorkIndex], queued: int, times: _LaunchTimes
) -> NanosecondsOfModel:
    """Return nanoseconds in a call that waits for nothing; the replay itself has waits for the queue."""
    took = call.end - call.start
    if launched_works and not _is_loading_code(step, call, launched_works, queued):
        return min(took, times.most)
    return took


def _measure_waiting_call(
    step: Step,
    call: Call,
    launched_works: Sequence[WorkIndex],
    target: WorkIndex,
    times: _LaunchTimes,
) -> NanosecondsOfModel:
    """Return nanoseconds in a call that waits for an item, without the waiting."""
    busy = min(call.end - call.start, times.usual)
    if launched_works:  # what it takes before its copy begins, if that waits for nothing else
        busy = min(busy, max(0, step.works[target].activity.start - call.start))
    return busy


def _measure_return_delay(
    step: Step, call: Call, launched_works: Sequence[WorkIndex], target: WorkIndex
) -> Nanoseconds:
    """Return nanoseconds from the end of an item to the return of the call that waited for it."""
    late = call.end - step.works[target].activity.end
    if not launched_works or late >= -NEAR:  # two clocks differ by so much
        return max(0, late)
    return late


def _count_queued_works(process: Process, step: Step) -> list[int]:
    """Return how many works were launched before each call of a step and not begun at its start."""
    begins = {call.correlation: call.start for call in reversed(process.calls) if call.correlation}
    made = [a for a in process.activities if a.correlation in begins]
    launched = sorted(begins[a.correlation] for a in made)
    begun = sorted(a.start for a in made)
    starts = (call.start for call in step.calls)
    return [bisect_left(launched, start) - bisect_left(begun, start) for start in starts]


def _measure_launch_times(
    process: Process, step: Step, launches: Sequence[Sequence[WorkIndex]]
) -> _LaunchTimes:
    """Return what a launch of the step usually takes, and takes at most, if none waits.

    Behind a full queue each of the step's launches takes as long as the GPU takes for one: then the
    quick ones of the whole process tell, those that found room (the first thousand, at least).
    """
    launching = [(c, own) for c, own in zip(step.calls, launches, strict=True) if own]
    free = [
        call.end - call.start for call, own in launching if not _is_blocked_by_copy(step, call, own)
    ]
    # Where each was held by its copy, none shows what a launch takes by itself.
    if free:
        usual = float(median(free))
    else:
        usual = float(HELD)
    starts = [a.start for a in process.activities]
    first = min(work.activity.start for work in step.works)
    if bisect_left(starts, first) - bisect_left(starts, step.begin) < FULL * DEPTH:
        return _LaunchTimes(usual, 4 * usual)
    made = {a.correlation for a in process.activities}
    every = sorted(c.end - c.start for c in process.calls if c.correlation in made)
    if every:
        quick = min(usual, every[int(QUICK * len(every))])
    else:
        quick = usual
    return _LaunchTimes(quick, quick)


def _find_end_of_earlier_work(process: Process, step: Step) -> dict[int, Nanoseconds]:
    """Return when each stream was done with what earlier steps had given it."""
    own = {id(work.activity) for work in step.works}
    firsts: dict[int, int] = {}
    for activity in (work.activity for work in step.works):
        firsts[activity.stream] = min(firsts.get(activity.stream, activity.start), activity.start)
    free: dict[int, int] = {}
    for activity in process.activities:
        if activity.start <= firsts.get(activity.stream, -1) and id(activity) not in own:
            free[activity.stream] = max(free.get(activity.stream, 0), activity.end)
    return free


def _measure_launch_latency(process: Process) -> NanosecondsOfModel:
    """Measure from the beginning of a launch to its work, where the stream had nothing else to do.

    Of the whole process: in a step whose stream is never idle no launch shows it.
    """
    begins = {}
    for call in reversed(process.calls):
        if call.correlation:
            begins[call.correlation] = call.start
    free: dict[int, int] = {}
    seen = []
    for activity in process.activities:
        begin = begins.pop(activity.correlation, None)  # a graph's further kernels wait for others
        if begin is not None and free.get(activity.stream, 0) <= begin:
            seen.append(activity.start - begin)
        free[activity.stream] = max(free.get(activity.stream, 0), activity.end)
    seen = sorted(s for s in seen if 0 <= s < LATE)
    if seen:
        return float(seen[len(seen) // 10])
    return 4_000.0


@dataclass(frozen=True)
class _WorksByEnd:
    """When works end, in order: looked at once for each call that waits."""

    step: Step
    process: Process

    @cached_property
    def by_end(self) -> list[WorkIndex]:
        """Return works in order of their ends; of those that end at once the first comes last."""
        works = self.step.works
        return sorted(range(len(works)), key=lambda i: (works[i].activity.end, -i))

    @cached_property
    def ends(self) -> list[Nanoseconds]:
        return [self.step.works[i].activity.end for i in self.by_end]

    @cached_property
    def starts(self) -> list[Nanoseconds]:
        """Return when the process's activities begin."""
        return [activity.start for activity in self.process.activities]

    @cached_property
    def last_work_by_kernel(self) -> dict[tuple[object, ...], WorkIndex]:
        """Return the last work of each name and grid."""
        works = self.step.works
        return {(w.activity.name, w.activity.grid): i for i, w in enumerate(works)}

    def find_last_ended_work(self, call: Call) -> IndexOrMinusOne:
        """Return the last of what was launched before a call and ended in it; -1 for none."""
        last = bisect_left(self.ends, call.end + NEAR + 1)
        first = bisect_left(self.ends, call.start + 1)
        for i in reversed(self.by_end[first:last]):
            if self.step.calls[self.step.works[i].call].start < call.start:
                return i
        return -1

    def find_similar_work_of_last_step(self, call: Call) -> IndexOrMinusOne | None:
        """Return what is like the last that ended in a call; -1 if nothing is, None if none ended."""
        place = bisect_left(self.starts, call.end)
        for activity in reversed(self.process.activities[max(0, place - 64) : place]):
            if call.start < activity.end <= call.end + NEAR:
                return self.last_work_by_kernel.get((activity.name, activity.grid), -1)
        return None


def _find_awaited_item(
    call: Call, launched_works: Sequence[WorkIndex], endings: _WorksByEnd
) -> tuple[IndexOrMinusOne, int]:
    """Return the item that a call waited for, and how many steps back it was launched; -1 for none."""
    if launched_works:
        if _is_blocked_by_copy(endings.step, call, launched_works):
            return (launched_works[-1], 0)
        return (-1, 0)
    if not call.waits:
        return -1, 0
    index = endings.find_last_ended_work(call)
    if index >= 0:
        return index, 0
    before = endings.find_similar_work_of_last_step(call)
    if before is not None:
        return before, 1
    return (-1, 0)


def _is_loading_code(
    step: Step, call: Call, launched_works: Sequence[WorkIndex], queued: int
) -> bool:
    """Return whether a launch takes long before its kernel can begin, with room in the queue."""
    long = call.end - call.start > LATE and queued < FULL * DEPTH
    return long and step.works[launched_works[0]].activity.start >= call.end - NEAR


def _is_blocked_by_copy(step: Step, call: Call, launched_works: Sequence[WorkIndex]) -> bool:
    """Return whether a call returned only when its copy was done, or all but its last part.

    A copy of pageable memory to the GPU holds its call until the driver has taken the last bytes out of
    that memory, which go to the GPU after the call has returned. A copy within the GPU holds no
    call that is asynchronous: those that seem to be held took long for another reason.
    """
    activity = step.works[launched_works[-1]].activity
    if activity.kind != "copy":
        return False
    if activity.direction == "DtoD" and "Async" in call.name:
        return False
    if call.end - call.start <= HELD:
        return False
    if activity.end <= call.end + NEAR:
        return True
    return activity.pageable and call.end - activity.start >= MOSTLY * activity.duration


def _make_items(
    step: Step,
    events: Sequence[ReplayCall],
    latency: NanosecondsOfModel,
    busy_until: Mapping[int, Nanoseconds],
) -> tuple[ReplayItem, ...]:
    """Return the step's work, with what each had to wait for besides its launch and its stream."""
    ends = _sort_by_end(step.works)
    free = dict(busy_until)
    arrivals = []
    for call, event in zip(step.calls, events, strict=True):
        arrivals.append(call.start + (latency if event.busy <= LATE else event.busy))
    out = []
    for i, work in enumerate(step.works):
        activity = work.activity
        ready = max(free.get(activity.stream, 0), arrivals[work.call])
        late = activity.start - ready
        after = -1
        if late > SEEN:
            after = _find_dependency(step, i, ends)
            if after >= 0:
                late = activity.start - max(ready, step.works[after].activity.end)
            if late > LATE and activity.stream not in free:
                late = 0  # a queue of before the recording, no delay of its own
        free[activity.stream] = activity.end
        out.append(ReplayItem(activity.stream, activity.duration, after, max(0.0, late)))
    return tuple(out)


def _sort_by_end(works: Sequence[StepWork]) -> list[tuple[Nanoseconds, WorkIndex]]:
    """Return when each work ends, and which it is, in order.

    Of those that end at once the first is first.
    """
    return sorted((work.activity.end, i) for i, work in enumerate(works))


def _find_dependency(
    step: Step, work_index: WorkIndex, ends: Sequence[tuple[Nanoseconds, WorkIndex]]
) -> IndexOrMinusOne:
    """Return the item of another stream that an item has waited for: the last that ended."""
    own = step.works[work_index].activity
    at = bisect_left(ends, (own.start + 1, 0))
    for _, j in reversed(ends[max(0, at - FEW_BESIDE) : at]):
        if j < work_index and step.works[j].activity.stream != own.stream:
            return j
    return -1
