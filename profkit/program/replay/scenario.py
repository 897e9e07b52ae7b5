"""A step's model and what a fix does to it, as data  ->  what the step saves, with an interval.

Recording with torch.profiler slows the host. How fast it is without is a guess with a range: the
same change is replayed with hosts between the one that was recorded and one that a profiler slows
most; the saving's interval holds all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from profkit.program.replay.play import (
    LONG,
    ReplayCall,
    ReplayItem,
    ReplayModel,
    build_replay_model,
)
from profkit.program.steps.cut import Step
from profkit.program.timeline import Process, Timeline

if TYPE_CHECKING:
    from profkit.units import (
        CallIndex,
        IndexOrMinusOne,
        Milliseconds,
        Nanoseconds,
        NanosecondsOfModel,
        RangeLevel,
        Share,
        WorkIndex,
    )


LOW, EXPECT, HIGH = range(3)
GRAPH_LAG = 1_000.0  # nanoseconds between the kernels of a graph
# Of host time between calls that a trace records, the share that the profiler adds, the most it
# adds for each operator, Python frame or call (ns), and its share of the calls themselves. USUAL was
# chosen on ten host-bound programs on machines with an H200, where it tells the plain step within
# 0.87 to 1.21 of what it was (decoding 8.3 ms traced, 3.66 plain; an optimiser by hand 38.4 and 18.4);
# processes of one program differ by a quarter. MOST is a third more, and not measured.
USUAL = (0.56, 10_000, 0.46)
MOST = (0.68, 16_000, 0.60)
# Of the step that is expected without the recorder: how much longer it may be (0.87 of what it was).
LONGER = 0.15
# Times what recording Python frames is estimated to have taken before a call (Call.traced), with the
# usual host and the fastest: the estimate was 0.8 to 2.3 times the truth. A frame does something itself,
# too, so that some of the time is left.
TRACED = 1.0
TRACED_MOST = 2.0
TRACED_SHARE = 0.8
# Of the step: what two runs of one program differ by even where nothing is wrong (clocks, memory's
# place); a saving is the difference of two runs. GPU-bound programs on an H200 showed 1 to 2 %.
SPREAD = 0.025
# Nanoseconds that profkit's own recording adds to the host's time for each launch: 2,100 and 1,700 on
# two programs that mostly launch, on machines with an H200 (tests/programs/overhead.py, record.py).
WATCHED = 1_900.0
# Of the recorded step: a replay of it that is farther off shows no saving, unless steps differ by more
# than that. It follows the host of one of them, and the step's time is that of most.
MISSED = 0.05
FASTEST, SLOWEST = 0.0, 1.5  # of the recorded host, between which a measured step is looked for


class Range(NamedTuple):
    """What is expected of a share, which is left by a fix, or of milliseconds; and its two ends.

    How often truth is between the ends has not been counted.
    """

    low: float  # with the slowest host, and the least help that is thought possible
    expect: float
    high: float  # with the other ends of both

    def limit_to(self, most: float) -> Range:
        """Return the same, but nowhere more than this."""
        return Range(*(min(value, most) for value in self))


def make_exact_range(value: float) -> Range:
    """Return a share without an interval, as a floor has none."""
    return Range(value, value, value)


ALL = Range(1.0, 1.0, 1.0)
NOTHING = Range(0.0, 0.0, 0.0)


class CallShare(NamedTuple):
    """What is left of the host's time before a call, and in it."""

    gap: Range = ALL
    busy: Range = ALL


class StreamMove(NamedTuple):
    """A stream for work that nothing waits for any more, and the share that stays where it was."""

    stream: int
    left: Range


@dataclass(frozen=True)
class StepChange:
    """What a fix does to a step: its works and calls by index, with what is left of them."""

    scale: Mapping[int, Range] = field(default_factory=dict)  # of a work's duration
    merge: Mapping[int, Range] = field(default_factory=dict)  # work gone; of its launch's host time
    host: Mapping[int, CallShare] = field(default_factory=dict)  # calls that wait for nothing now
    stream: Mapping[int, StreamMove] = field(default_factory=dict)
    launches: Range = ALL  # of the host's time for all calls, as a graph has them; not its pauses
    pauses: Range = ALL  # of the host's long work between calls

    def apply_to_model(self, before: ReplayModel, level_of_range: RangeLevel) -> ReplayModel:
        """Return the model after the fix, where it helps least (LOW), as expected, or most."""
        lost = {
            i: reach[level_of_range] for i, reach in self.merge.items() if reach[level_of_range] < 1
        }
        events = []
        for i, called in enumerate(before.events):
            event = _remove_launches(self._remove_wait_of_call(i, called, level_of_range), lost)
            gap, busy = self._choose_host_shares(event, before.pause, level_of_range)
            events.append(event.scale_times(gap, busy))
        items = self._change_items(before, lost, level_of_range)
        tail = before.tail * self._choose_share_between_calls(
            before.tail, before.pause, level_of_range
        )
        return replace(before, events=tuple(events), items=items, tail=tail)

    def _remove_wait_of_call(
        self, index: CallIndex, event: ReplayCall, level: RangeLevel
    ) -> ReplayCall:
        """Return a call without its wait, where the fix takes that away."""
        share = self.host.get(index)
        if share is None:
            return event
        return event.scale_times(share.gap[level], share.busy[level])._replace(awaits=-1)

    def _choose_share_between_calls(
        self, time: NanosecondsOfModel, pause: NanosecondsOfModel, level: RangeLevel
    ) -> Share:
        """Return what is left of some time between calls: it launches, or is a pause."""
        if time > pause:
            return self.pauses[level]
        return self.launches[level]

    def _choose_host_shares(
        self, event: ReplayCall, pause: NanosecondsOfModel, level: RangeLevel
    ) -> tuple[Share, Share]:
        """Return what is left of the host's time before a call, and in it."""
        busy = self.launches[level]
        # A call that takes so long loads code, or allocates: a graph does not change that.
        if event.busy > LONG:
            busy = 1.0
        return self._choose_share_between_calls(event.gap, pause, level), busy

    def _map_works_to_new_streams(self, level: RangeLevel) -> dict[WorkIndex, int]:
        """Return the new streams of work that moves to one of its own."""
        return {i: aside.stream for i, aside in self.stream.items() if aside.left[level] < 1}

    def _change_items(
        self, before: ReplayModel, lost_works: Mapping[WorkIndex, Share], level: RangeLevel
    ) -> tuple[ReplayItem, ...]:
        """Return the work after the fix.

        What waited for lost work waits for what that had waited for.
        """
        moved = self._map_works_to_new_streams(level)
        after = _find_remaining_predecessors(before, lost_works) | dict.fromkeys(moved, -1)
        left = {**self.scale, **dict.fromkeys(lost_works, NOTHING)}
        longest_lag = GRAPH_LAG if self.launches[level] < 1 else inf
        waiting: dict[int, float] = {}  # by stream: unexplained delays of what is no longer on it
        items = []
        for i, item in enumerate(before.items):
            unexplained = item.lag - item.launch_lag
            stream = item.stream
            duration = item.duration * left.get(i, ALL)[level]
            if i in moved or i in lost_works:
                waiting[stream] = waiting.get(stream, 0.0) + unexplained
                items.append(ReplayItem(moved.get(i, stream), duration))
                continue
            own = min(item.launch_lag, longest_lag)
            lag = own + unexplained + waiting.pop(stream, 0.0)
            items.append(ReplayItem(stream, duration, after.get(item.after, item.after), lag))
        return tuple(items)


UNCHANGED = StepChange()


def _find_remaining_predecessors(
    model: ReplayModel, lost_works: Mapping[WorkIndex, Share]
) -> dict[WorkIndex, IndexOrMinusOne]:
    """Return for each item that goes, the one before it on its stream that stays.

    -1 where there is none.
    What waited for an item that goes waits for what that had waited for.
    """
    last: dict[int, int] = {}
    before = {}
    for i, item in enumerate(model.items):
        if i in lost_works:
            before[i] = last.get(item.stream, -1)
        else:
            last[item.stream] = i
    return before


def _remove_launches(event: ReplayCall, lost_works: Mapping[WorkIndex, Share]) -> ReplayCall:
    """Return a call without what others do; with a share of its time where nothing is left to launch."""
    if lost_works.keys().isdisjoint(event.items):
        return event
    left = tuple(i for i in event.items if i not in lost_works)
    if left:
        return event._replace(items=left)
    share = lost_works[event.items[0]]
    return event.scale_times(share, share)._replace(items=())


@dataclass(frozen=True)
class HostModels:
    """The step's models with a host as fast as it may be without the recorder."""

    usual: ReplayModel  # what is thought most likely
    # the ends of what is possible; the same as usual where recording costs nothing
    others: tuple[ReplayModel, ...]
    checked: bool  # whether the usual one was fitted to a plain run
    most: float = inf  # milliseconds of the step as it was recorded: recording makes none faster
    given: bool = False  # whether a plain run was measured
    error: float = 0.0  # of the replay of the step as it was recorded, a share of its time
    differing: float = 0.0  # how far half of the steps are from the usual one, a share of its time

    @property
    def matches_recording(self) -> bool:
        """Return whether the replay of the unchanged step is as recorded: changes can be asked."""
        return abs(self.error) <= max(MISSED, self.differing)

    @property
    def step_ms_without_recorder(self) -> Range:
        """Return the step without the recorder in milliseconds."""
        times = [min(m.period / 1e6, self.most) for m in (self.usual, *self.others)]
        return Range(min(times), times[0], max(times))

    def estimate_saving(
        self, change: StepChange, change_made_before: StepChange | None = None
    ) -> Range:
        """Return the milliseconds of the step that a change saves, alone or after another one."""

        def compute_saved_ms(model: ReplayModel, level: RangeLevel) -> Milliseconds:
            if change_made_before:
                before = change_made_before.apply_to_model(model, level)
            else:
                before = model
            return max(0.0, before.period - change.apply_to_model(before, level).period) / 1e6

        plain = self.step_ms_without_recorder.expect
        every = (self.usual, *self.others)
        spread = SPREAD
        if abs(self.error) > MISSED:
            spread = max(SPREAD, abs(self.error))
        expect = min(compute_saved_ms(self.usual, EXPECT), plain)
        low = min(expect, *(compute_saved_ms(model, LOW) for model in every)) - spread * plain
        high = max(expect, *(compute_saved_ms(model, HIGH) for model in every)) + spread * plain
        return Range(max(0.0, low), expect, max(expect, min(high, plain)))


def make_host_models(
    timeline: Timeline, process: Process, step: Step, unprofiled_step_ms: Milliseconds | None = None
) -> HostModels:
    """Return the models of a process's typical step, and its plain milliseconds if measured."""
    recorded = _fit_host_to_period(build_replay_model(process, step), step.period)
    error = recorded.period / max(1, step.period) - 1
    if unprofiled_step_ms is not None:
        return HostModels(
            _fit_to_period(recorded, unprofiled_step_ms * 1e6), (), True, given=True, error=error
        )
    if timeline.how == "cupti":
        return HostModels(_remove_recorder_overhead(recorded), (recorded,), True, error=error)
    if not timeline.is_host_slowed:
        return HostModels(recorded, (), True, error=error)
    spans = sorted(s.start for s in process.spans if s.kind in {"op", "python"})
    usual = _remove_recorder_time(recorded, step, spans, USUAL, TRACED)
    most = _remove_recorder_time(recorded, step, spans, MOST, TRACED_MOST)
    return HostModels(usual, (recorded, most), False, error=error)


def add_host_of_quick_steps(hosts: HostModels, quick_ns: float) -> HostModels:
    """Return models with one more, of a host that makes steps as quick as those of a recording's best.

    Steps that differ by no more than two runs of a program do tell nothing.
    """
    if hosts.given or quick_ns >= (1 - SPREAD) * min(hosts.step_ms_without_recorder) * 1e6:
        return hosts
    return replace(hosts, others=(*hosts.others, _fit_to_period(hosts.usual, quick_ns)))


def _fit_host_to_period(model: ReplayModel, period: Nanoseconds) -> ReplayModel:
    """Return the model with a host that needs no longer than steps take that follow each other.

    What one step's host takes longer, the GPU's queue has bridged: it is not so in every step.
    """
    turn = sum(e.gap + e.busy for e in model.events) + model.tail
    if turn > period:
        return _scale_host(model, period / turn)
    return model


def _remove_recorder_overhead(model: ReplayModel) -> ReplayModel:
    """Return the model without what our own recording adds to each launch."""
    own = (min(WATCHED, 0.5 * e.busy) if e.items else 0.0 for e in model.events)
    events = (e._replace(busy=e.busy - t) for e, t in zip(model.events, own, strict=True))
    return replace(model, events=tuple(events))


def _remove_recorder_time(
    model: ReplayModel,
    step: Step,
    spans: list[int],
    recorder_costs: tuple[float, int, float],
    traced: float,
) -> ReplayModel:
    """Return the model with the recorder's part taken out of the host's time.

    What recording Python frames took goes first: the shares are those of traces without frames.
    """
    share, each, in_calls = recorder_costs

    def shorten_gap(gap: NanosecondsOfModel, low: int, high: int) -> NanosecondsOfModel:
        count = bisect_left(spans, high) - bisect_left(spans, low)
        return gap - min(share * gap, count * each)

    events = []
    last = step.begin
    for event, call in zip(model.events, step.calls, strict=True):
        own = event.gap - min(traced * call.traced, TRACED_SHARE * event.gap)
        gap = shorten_gap(own, last, call.start)
        last = max(last, call.end)
        busy, late = (t - min(in_calls * t, each) for t in (event.busy, event.late))
        events.append(event._replace(gap=gap, busy=busy, late=late))
    return replace(model, events=tuple(events), tail=shorten_gap(model.tail, last, step.end))


def _fit_to_period(model: ReplayModel, period: NanosecondsOfModel) -> ReplayModel:
    """Return the model of a step that takes what a plain run took.

    With another host, if any host explains it; else host and GPU alike are slower or faster.
    """
    low = FASTEST
    high = SLOWEST
    for _ in range(24):
        middle = (low + high) / 2
        scaled = _scale_host(model, middle)
        low, high = (middle, high) if scaled.period < period else (low, middle)
    fitted = _scale_host(model, (low + high) / 2)
    return _scale_times(fitted, period / max(fitted.period, 1e-3))


def _scale_times(model: ReplayModel, factor: float) -> ReplayModel:
    """Return the model with all of its times so many times as long."""
    events = [event.scale_times(factor, factor) for event in model.events]
    events = [event._replace(late=event.late * factor) for event in events]
    items = [
        item._replace(duration=item.duration * factor, lag=item.lag * factor)
        for item in model.items
    ]
    return ReplayModel(
        events=tuple(events),
        items=tuple(items),
        tail=model.tail * factor,
        latency=model.latency * factor,
        pause=model.pause * factor,
        late=model.late * factor,
    )


def _scale_host(model: ReplayModel, factor: float) -> ReplayModel:
    events = tuple(event.scale_times(factor, factor) for event in model.events)
    return replace(model, events=events, tail=model.tail * factor)
