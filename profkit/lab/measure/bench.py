"""Callables on a GPU  ->  timing samples: graph replay, interleaved, L2 warm and cold.

Every subject is captured into a CUDA graph of n launches, n large enough that a sample is a
millisecond: the timer's step (half a microsecond) and the start of a graph are then a few
thousandths of it. The stream is held while a sample is enqueued, so the host is out of the way.
Subjects take turns, one sample each per round: clocks that drift drift for all of them.

Warm: n launches one after the other on the same arrays, after one that is not timed. Cold: a graph
of n times (flush, launch) minus a graph of n flushes of the same round; the flush reads twice the
size of L2 and leaves no dirty lines, so what remains is the launch alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan, nan, sqrt
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from profkit.lab.measure.cuda import device
from profkit.lab.measure.cuda.library import (
    GraphLaunch,
    Support,
    capture_graph,
    instantiate_graph,
    launch_graph,
)
from profkit.records.parts import GpuState
from profkit.records.store import JsonObject
from profkit.reports.figures import format_percent

if TYPE_CHECKING:
    from profkit.units import (
        Clause,
        ClauseOrEmpty,
        CudaStream,
        FirstAndMostRounds,
        Seconds,
        ShareOrZero,
    )


METHOD = "graph replay"
WIDTH = 0.01  # the interval's half-width that is asked for, relative to the median
_SAMPLE = 1e-3  # seconds: two thousand steps of the event timer
_HOLD = 60_000  # nanoseconds that the stream is held: longer than the host needs to enqueue
_MOST_PER_GRAPH = 500
_COLD_PER_GRAPH = 10
ROUNDS = 120, 240  # what a gate needs to see 2 % (GATE_ROUNDS), and the end
_LIMIT = 2.0  # seconds per subject after which no round is added
_WARM_UP = 0.05  # seconds: an idle GPU needs tens of milliseconds to raise its clocks
_EAGER = 20  # plain calls in a row
# Host-bound: plain calls take longer than in a graph, the host is busy with the calls for most of
# that time (the rest is the last kernel, one in _EAGER), and with more than the launches themselves.
_HOST_RATIO = 1.1
_HOST_SHARE = 0.8
_HOST_LAUNCHES = 1.5

Action = Callable[[], None]  # enqueues work, or replays what was captured of it


class PlainCall(NamedTuple):
    """Seconds of one plain call among others: by the GPU's events, and by the host's clock."""

    event: float
    host: float


@dataclass(frozen=True)
class Subject:
    """A variant or a reference that can be called and timed."""

    name: str  # a variant's id or a reference's name
    call: Callable[[int], None]  # enqueue it once, on the stream given
    # (body, stream): a function that replays what body enqueues
    capture: Callable[[Action, int], Action]
    # (n, stream): how long one of n plain calls in a row takes
    eager: Callable[[int, int], PlainCall]
    launches: tuple[GraphLaunch, ...] = ()
    brought: Mapping[str, str] = field(default_factory=dict)
    # what is wrong with the outputs of the last call; None where that cannot be asked
    judge: Callable[[], tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Times:
    """Samples of one subject at one case. Seconds per call."""

    name: str
    case: str
    warm: tuple[float, ...]  # with a warm L2, one per round
    cold: tuple[float, ...]  # with a cold L2, one per round; empty if not asked for
    per_sample: int  # calls in one warm sample
    eager: float  # event time of one plain call, among others
    host: float  # host time of one plain call
    bare: float  # host time of starting one empty kernel, in the same process
    before: GpuState  # the GPU after warming up
    after: GpuState  # the GPU at the end
    launches: tuple[GraphLaunch, ...] = ()  # the kernel launches of one call
    rounds_short: str = ""  # why there are no more samples, if the interval is still wide
    session: str = ""  # of the process: what was timed in turns has one
    brought: Mapping[str, str] = field(default_factory=dict)  # as the subject's

    @property
    def is_host_bound(self) -> bool:
        """Return whether a caller without graphs waits for the launcher instead of the kernel.

        Any kernel of a microsecond or two is over before the host has started the next: that is
        the price of a launch, and no fault of the launcher. So its host time has to be well above
        that of as many empty launches, too.
        """
        empty_launches = self.bare * max(1, len(self.launches))
        is_slower_than_kernel = self.eager > _HOST_RATIO * median(self.warm)
        is_mostly_host = self.host > _HOST_SHARE * self.eager
        return (
            is_slower_than_kernel and is_mostly_host and self.host > _HOST_LAUNCHES * empty_launches
        )


def capture_replay(enqueue_work: Action, stream: CudaStream) -> Action:
    """Capture what a function enqueues as a graph, and return the function that replays it."""
    graph = instantiate_graph(capture_graph(stream, enqueue_work))
    return lambda: launch_graph(graph, stream)


def measure_host_seconds(call: Callable[[], object], call_count: int) -> Seconds:
    """Return host seconds per call of n plain calls in a row."""
    began = time.perf_counter()
    for _ in range(call_count):
        call()
    return (time.perf_counter() - began) / call_count


def time_plain_calls(
    run_calls_and_time_host: Callable[[], Seconds], call_count: int, stream: CudaStream
) -> PlainCall:
    """Return the seconds of one of the plain calls that a function makes and times on the host."""
    start = device.create_event()
    stop = device.create_event()
    device.wait_for_gpu_or_stream(stream)
    device.record_event(start, stream)
    host = run_calls_and_time_host()
    device.record_event(stop, stream)
    device.wait_for_gpu_or_stream(stream)
    return PlainCall(device.measure_seconds_between_events(start, stop) / call_count, host)


@dataclass(frozen=True)
class _Graphs:
    subject: Subject
    once: Action
    warm: Action
    n: int
    cold: Action | None


def time_subjects_in_turns(
    subjects: Sequence[Subject],
    case: str,
    gpu: device.Gpu,
    tools: Support,
    with_cold_l2: bool = True,
    first_and_most_rounds: FirstAndMostRounds = ROUNDS,
) -> list[Times]:
    """Time subjects, each run once already, in turns; `first_and_most_rounds`: at first, and at most."""
    stream = device.create_non_blocking_stream()
    clock = _make_replay_clock(stream, tools)
    flushing = tools if with_cold_l2 else None
    graphs = [_capture_graphs(s, stream, flushing, clock) for s in subjects]
    flush = _capture_cache_flushes(tools, stream)
    _run_until_warm(graphs, stream)
    before = device.read_gpu_state(gpu.pci)
    taken, why = _time_rounds(
        graphs, flush, clock, (*first_and_most_rounds, _LIMIT * len(subjects))
    )
    after = device.read_gpu_state(gpu.pci)
    bare = _time_one_empty_kernel(tools, stream)
    results = []
    for g, samples in zip(graphs, taken, strict=True):
        call = _time_plain_calls_best_of_3(g.subject, stream)
        results.append(
            Times(
                g.subject.name,
                case,
                warm=tuple(samples.warm),
                cold=tuple(samples.cold),
                per_sample=g.n,
                eager=call.event,
                host=call.host,
                bare=bare,
                before=before,
                after=after,
                launches=g.subject.launches,
                rounds_short="" if samples.are_medians_known else why,
                brought=g.subject.brought,
            )
        )
    return results


def _capture_cache_flushes(tools: Support, stream: CudaStream) -> Action:
    """Return a replay of as many flushes of the caches as a cold graph has."""
    return capture_replay(
        lambda: _enqueue_calls_in_turn(_COLD_PER_GRAPH, stream, tools.flush_l2_cache), stream
    )


def _time_one_empty_kernel(tools: Support, stream: CudaStream) -> Seconds:
    """Return seconds per launch of an empty kernel, the best of four: the first one loads it."""
    return min(tools.time_empty_kernel(_EAGER, stream) for _ in range(4))


def _time_plain_calls_best_of_3(subject: Subject, stream: CudaStream) -> PlainCall:
    """Time plain calls three times and return the best: one may be interrupted."""
    return min(subject.eager(_EAGER, stream) for _ in range(3))


Clock = Callable[[Action, Action | None], float]


def _make_replay_clock(stream: CudaStream, tools: Support) -> Clock:
    """Return a function of (replay, first) that gives the seconds of one replay; first is not timed."""
    start = device.create_event()
    stop = device.create_event()

    def time_replay(replay: Action, first: Action | None = None) -> Seconds:
        tools.keep_stream_busy(_HOLD, stream)
        if first:
            first()
        device.record_event(start, stream)
        replay()
        device.record_event(stop, stream)
        device.wait_for_gpu_or_stream(stream)
        return device.measure_seconds_between_events(start, stop)

    return time_replay


def _capture_graphs(
    subject: Subject, stream: CudaStream, tools: Support | None, time_replay: Clock
) -> _Graphs:
    """Capture a subject; without tools there is no cold graph."""

    def capture_calls(n: int, *first: Callable[[int], None]) -> Action:
        return subject.capture(
            lambda: _enqueue_calls_in_turn(n, stream, *first, subject.call), stream
        )

    once = capture_calls(1)
    few = capture_calls(5)
    seconds = min(time_replay(few, once) for _ in range(3)) / 5
    n = max(1, min(_MOST_PER_GRAPH, round(_SAMPLE / max(seconds, 1e-7))))
    cold = None
    if tools:
        cold = capture_calls(_COLD_PER_GRAPH, tools.flush_l2_cache)
    return _Graphs(subject, once, capture_calls(n), n, cold)


def _enqueue_calls_in_turn(times: int, stream: CudaStream, *calls: Callable[[int], None]) -> None:
    """Enqueue some calls, one after the other, n times."""
    for _ in range(times):
        for call in calls:
            call(stream)


def _run_until_warm(graphs: Sequence[_Graphs], stream: CudaStream) -> None:
    until = time.monotonic() + _WARM_UP
    while time.monotonic() < until:
        for g in graphs:
            g.warm()
        device.wait_for_gpu_or_stream(stream)


@dataclass
class _Samples:
    """Seconds per call of one subject, one of each kind a round; cold ones only where asked for."""

    warm: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)

    @property
    def are_medians_known(self) -> bool:
        """Return whether both medians are known to WIDTH.

        A quick look while measuring, from order statistics; what is reported is the bootstrap
        interval of profkit.evidence.
        """
        return (
            max(
                _compute_relative_half_width(self.warm),
                _compute_relative_half_width(self.cold),
            )
            <= WIDTH
        )

    def take_one_sample_each(self, graphs: _Graphs, clock: Clock, flush_seconds: float) -> None:
        """Take one sample of each kind.

        `flush_seconds`: of as many flushes as there are in the graph of cold calls.
        """
        self.warm.append(clock(graphs.warm, graphs.once) / graphs.n)
        if graphs.cold:
            self.cold.append((clock(graphs.cold, None) - flush_seconds) / _COLD_PER_GRAPH)


def _time_rounds(
    graphs: Sequence[_Graphs],
    flush_caches: Action,
    time_replay: Clock,
    rounds_and_seconds: tuple[int, int, Seconds],
) -> tuple[list[_Samples], ClauseOrEmpty]:
    """Return the samples of each subject, and why there are no more."""
    taken = [_Samples() for _ in graphs]
    needed, most, limit = rounds_and_seconds
    until = time.monotonic() + limit
    while True:
        flush_seconds = nan
        if any(g.cold for g in graphs):
            flush_seconds = time_replay(flush_caches, None)
        for graph, samples in zip(graphs, taken, strict=True):
            samples.take_one_sample_each(graph, time_replay, flush_seconds)
        done = len(taken[0].warm)
        if time.monotonic() > until:
            return taken, f"time ran out after {done} rounds"
        if done >= needed:
            if all(samples.are_medians_known for samples in taken):
                return taken, ""
            if done >= most:
                return taken, f"still wide after {done} rounds"
            needed = min(2 * needed, most)


def _compute_relative_half_width(samples: Sequence[Seconds]) -> ShareOrZero:
    """Return half of the 95 % interval of the median, relative to it; 0 if there is nothing to know."""
    if not samples:
        return 0.0
    known = sorted(samples)
    reach = 0.98 * sqrt(len(known))  # 1.96 standard deviations of a binomial with p = 1/2
    low = max(0, int(len(known) / 2 - reach))
    high = min(len(known) - 1, int(len(known) / 2 + reach) + 1)
    middle = median(known)
    if middle > 0:
        return (known[high] - known[low]) / 2 / middle
    return float("inf")


def summarize_times_as_json(times: Times) -> JsonObject:
    """Return timing samples with their medians and bootstrap intervals, in seconds per call."""
    samples = {"warm": times.warm, "cold": times.cold}
    medians: dict[str, JsonObject | None] = {}
    wide = []
    reasons = []
    for state, taken in samples.items():
        summary = medians[state] = _summarize_samples(taken)
        if summary is None:
            continue
        if summary["width"] is None:
            reasons.append(f"{state}: no interval, {_explain_unusable_samples(taken)}")
        elif summary["width"] > WIDTH:
            wide.append(state)
    if wide:
        reason = times.rounds_short or "neighbouring samples are correlated"
        reasons.insert(0, f"{' and '.join(wide)}: wider than {format_percent(WIDTH)}, {reason}")
    kept = ("session", "per_sample", "eager", "host", "bare", "host_bound", "before", "after")
    plain = {**asdict(times), "host_bound": times.is_host_bound}
    return {
        "method": METHOD,
        "l2": medians,
        "why_wide": "; ".join(reasons),
        **{k: plain[k] for k in kept},
    }


def _explain_unusable_samples(samples: Sequence[Seconds]) -> Clause:
    from profkit.evidence.samples import THRESHOLDS, group_samples_by_process, summarize_samples

    fault = summarize_samples(group_samples_by_process(samples, "the samples"), THRESHOLDS).unusable
    return {
        "too-few": f"{len(samples)} samples are too few",
        "constant": "all samples are equal",
        "autocorrelated": "neighbouring samples are correlated",
    }.get(str(fault), str(fault))


def _summarize_samples(samples: Sequence[Seconds]) -> JsonObject | None:
    if not samples:
        return None
    from profkit.evidence.stats import estimate_median

    interval = estimate_median(list(samples))
    half = (interval.high - interval.low) / 2
    width = None
    if interval.median and not isnan(half):
        width = half / interval.median
    return {**interval.to_json(), "width": width, "samples": list(samples)}
