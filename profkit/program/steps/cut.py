"""A process's timeline  ->  its steps: named, marked or found, and one to look at closely.

A step's time is taken on the GPU, from its first activity on the busiest stream to the next step's
first there: the host, and a stream that copies, may be steps ahead, but over steps all run at one pace.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.program.steps.attribution import NOBODY, Maker, makers, put_place
from profkit.program.steps.kinds import kind_of
from profkit.program.steps.places import find_place
from profkit.program.timeline import Activity, Call, Dims, Place, Process
from profkit.reports.figures import readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

Launched = tuple[int, Activity]  # the index of a call, and what it launched
ALIKE = 0.9  # of a turn's launches that must be the ones of the turn before
NEAR_BEST = 0.98  # layers repeat inside of a step, but not as well as steps do
LONGEST = 1 << 19  # launches looked at, the last ones: the beginning is warm-up anyway
_VIEWS = 8  # random projections: how well a lag matches is known to about 1 / sqrt(8 n)
UNLAUNCHED = 0.02  # of the GPU's work: what less has no launch is not worth a word
ODD = 1.5  # a step that takes so many times the median is another kind of step, or was disturbed


@dataclass(frozen=True, slots=True)
class StepWork:
    """An activity of a step, with who launched it."""

    activity: Activity  # what the GPU did
    kind: str  # of profkit.program.steps.kinds, or copy (not within the GPU), convert, set
    call: int  # index of its call among the step's
    maker: Maker  # who made the call


@dataclass(frozen=True)
class Step:
    """One step of one process."""

    begin: int  # host time at which it begins, nanoseconds
    end: int  # host time at which the next one begins
    first: int  # GPU time of its first activity on the busiest stream
    period: int  # nanoseconds from that to the next step's; its own span if it is last
    calls: Sequence[Call]
    makers: Sequence[Maker]  # who made each call
    works: Sequence[StepWork]  # what the GPU did, in order of launch


@dataclass(frozen=True)
class Steps:
    """All steps, and which one is typical."""

    how: str  # how they were found, as a sentence's end: "ProfilerStep", "range train_step"
    steps: Sequence[Step]  # in order; those that warm up are left out
    # the one nearest to the median, the later of equals; its host pauses as long as steps usually do
    chosen: int
    notes: tuple[str, ...] = ()  # what is odd about them

    @property
    def typical(self) -> Step:
        """The chosen one."""
        return self.steps[self.chosen]

    @property
    def periods(self) -> list[int]:
        """Nanoseconds of each step that has a next one; of the only one otherwise."""
        return [s.period for s in self.steps[:-1]] or [s.period for s in self.steps]


def find_steps(process: Process, named: str = "") -> Steps:
    """The steps of a process: of a named range, of what marks steps, or found.

    Activities that no recorded call launched belong to no step.

    Raises:
        ProfkitError: The range is nowhere, no kernel was launched inside of any step, or all of
            it is at one time.
    """
    calls = _outermost(process.calls)
    order = _launched(process.activities, calls)
    if not order:
        why = "no launch of a kernel was recorded, by its correlation number"
        raise ProfkitError(why, "record CPU and GPU together")
    how, begins, notes = _begins(process, calls, order, named)
    # What precedes the first launch may be no step's: a recorder that starts takes its time once.
    first = min(
        (calls[i].start for i, _ in order if begins[0] <= calls[i].start), default=begins[0]
    )
    made = dict(zip(process.calls, makers(process), strict=True))
    heads = [max(begin, first) for begin in begins]
    steps = _cut(heads, calls, order, made, process.places)
    if not steps:
        raise ProfkitError(
            "no kernel was launched inside of a step", "name the step with --range, or record more"
        )
    found = _chosen(how, steps, [*notes, *_unlaunched(process.activities, order)])
    if found.typical.period <= 0:
        raise ProfkitError("its steps take no time: their clock does not move", "record it again")
    return found


def _outermost(calls: Sequence[Call]) -> list[Call]:
    """Calls without those that a call of the runtime made of the driver."""
    out: list[Call] = []
    last: dict[int, Call] = {}
    for call in calls:
        outer = last.get(call.thread)
        if outer and call.end <= outer.end and call.correlation == outer.correlation:
            continue
        last[call.thread] = call
        out.append(call)
    return out


def _launched(activities: Sequence[Activity], calls: Sequence[Call]) -> list[Launched]:
    """(index of the call, activity) of every activity whose call was recorded, in that order."""
    at = {call.correlation: i for i, call in enumerate(calls) if call.correlation}  # 0 is none
    pairs = [(at[a.correlation], a) for a in activities if a.correlation in at]
    return sorted(pairs, key=lambda pair: (pair[0], pair[1].start))


def _unlaunched(activities: Sequence[Activity], order: Sequence[Launched]) -> Iterator[str]:
    """Says so where much of what the GPU did has no launch: a cut recording, dynamic parallelism."""
    begin = min((a.start for _, a in order), default=0)
    inside = sum(a.duration for a in activities if a.start >= begin)
    left = inside - sum(a.duration for _, a in order)
    if left > UNLAUNCHED * inside:
        why = "(cut, or launched by the GPU itself): it is in no step"
        yield f"{left / inside:.0%} of the GPU's work has no launch in the recording {why}"


def _begins(
    process: Process, calls: Sequence[Call], order: Sequence[Launched], named: str
) -> tuple[str, list[int], list[str]]:
    """How steps are told, when each begins and the last one ends, and notes."""
    if named:
        spans = [s for s in process.spans if s.kind in {"range", "step"} and s.name == named]
        if not spans:
            names = sorted({s.name for s in process.spans if s.kind == "range"})[:5]
            hint = f"there are: {', '.join(names)}" if names else "it has no ranges"
            raise ProfkitError(f"--range {named}: not in the timeline", hint)
        return f"range {named}", [*(s.start for s in spans), spans[-1].end], []
    spans = [s for s in process.spans if s.kind == "step"]
    if spans:
        begins = [s.start for s in spans]
        return "ProfilerStep", [*begins, max(s.end for s in spans)], []
    return _found(calls, _between_marks(calls, order))


def _between_marks(calls: Sequence[Call], order: Sequence[Launched]) -> Sequence[Launched]:
    """What was launched between cudaProfilerStart and Stop, where the program calls them."""
    low = next((i for i, c in enumerate(calls) if "ProfilerStart" in c.name), len(calls))
    stops = (i for i, c in enumerate(calls) if i > low and "ProfilerStop" in c.name)
    high = next(stops, len(calls))
    return [pair for pair in order if low < pair[0] < high] or order


def _found(calls: Sequence[Call], order: Sequence[Launched]) -> tuple[str, list[int], list[str]]:
    """Steps by the period of the launch sequence; the whole of it where there is none."""
    found = repeats([(a.name, a.grid, a.block, a.bytes) for _, a in order])
    if found is None:
        begin, end = calls[order[0][0]].start, max(c.end for c in calls)
        note = "no repeating sequence of launches: the whole recording is taken as one step"
        return "the whole recording", [begin, end], [note]
    first, length, count = found
    phase = _phase(calls, order, found)
    heads = range(first + phase, min(len(order), first + length * count + 1), length)
    begins = [calls[order[i][0]].start for i in heads]
    if len(begins) < 2:
        begins.append(max(c.end for c in calls))
    note = f"the first {order[first + phase][0]:,} calls were taken as warm-up" if first else ""
    return f"{length:,} launches that repeat {count} times", begins, [note] if note else []


def _phase(calls: Sequence[Call], order: Sequence[Launched], found: tuple[int, int, int]) -> int:
    """Where in the repeating sequence a step begins: after the host's longest pause."""
    first, length, count = found

    def pause(offset: int) -> float:
        heads = [order[i][0] for i in range(first + offset, first + length * (count - 1), length)]
        gaps = [calls[i].start - calls[i - 1].end if i else 0 for i in heads]
        return median(gaps) if gaps else 0.0

    return max(range(length), key=lambda offset: (pause(offset), -offset))


def _cut(
    begins: Sequence[int],
    calls: Sequence[Call],
    order: Sequence[Launched],
    made: dict[Call, Maker],
    places: Sequence[Place],
) -> list[Step]:
    """Calls and activities between one begin and the next."""
    starts = [c.start for c in calls]
    launched = [pair[0] for pair in order]
    cuts = [bisect_left(starts, begin) for begin in begins]
    steps: list[Step] = []
    busiest = _busiest(order)
    for n, (low, high) in enumerate(pairwise(cuts)):
        begin, end = begins[n], begins[n + 1]
        pairs = order[bisect_left(launched, low) : bisect_left(launched, high)]
        if not pairs:
            continue
        own = calls[low:high]
        makers = [made.get(call, NOBODY) for call in own]
        works = [_work(a, i - low, makers[i - low], places) for i, a in pairs]
        first = min((a.stream != busiest, a.start) for _, a in pairs)[1]
        span = max(max(a.end for _, a in pairs) - first, end - begin)
        steps.append(Step(begin, end, first, span, own, makers, works))
    timed = [replace(s, period=after.first - s.first) for s, after in pairwise(steps)]
    return [*timed, *steps[-1:]]


def _busiest(order: Sequence[Launched]) -> int:
    """The stream that computes most: copies on others may run steps ahead of it."""
    times: Counter[int] = Counter()
    for _, activity in order:
        times[activity.stream] += activity.duration if activity.kind == "kernel" else 0
    return max(times, key=lambda stream: times[stream], default=0)


def _work(activity: Activity, call: int, maker: Maker, places: Sequence[Place]) -> StepWork:
    if activity.origin >= 0:  # of a graph's kernel: where it was captured, not where it is replayed
        maker = put_place(maker, places[activity.origin])
    name, kind = readable(activity.name), "set"
    if activity.kind == "copy":
        kind = "convert" if activity.direction == "DtoD" else "copy"
    elif activity.kind == "kernel":
        kind = kind_of(name)
    activity = activity if name == activity.name else replace(activity, name=name)
    return StepWork(activity, kind, call, maker)


def _chosen(how: str, steps: list[Step], notes: list[str]) -> Steps:
    timed = steps[:-1] or steps
    middle = median(s.period for s in timed)
    odd = [s for s in timed if s.period > ODD * middle or s.period < middle / ODD]
    if odd:
        low, high = (f(s.period for s in timed) / 1e6 for f in (min, max))
        lengths = f"{low:.3g} to {high:.3g} ms; what is said is of the typical one"
        notes = [*notes, f"{len(odd)} of {len(timed)} steps are of another length: {lengths}"]
    chosen = min(range(len(timed)), key=lambda i: (abs(timed[i].period - middle), -i))
    usual = _usual_pauses(steps, chosen)
    return Steps(how, [*steps[:chosen], usual, *steps[chosen + 1 :]], chosen, tuple(notes))


def _usual_pauses(steps: Sequence[Step], chosen: int) -> Step:
    """A step whose host pauses before its first call and after its last as long as steps usually do.

    One pause that the GPU's queue bridges says nothing of the others. None is longer than the
    period: steps that follow each other have no time for it.
    """
    step, lasts = steps[chosen], [max(c.end for c in s.calls) for s in steps]
    heads = [s.calls[0].start - s.begin for s in steps[1:]] or [0]
    tails = [max(0, s.end - last) for s, last in zip(steps, lasts, strict=True)]
    head, tail = (
        min(round(median(pauses)), step.period) for pauses in (heads, tails[:-1] or tails)
    )
    end = lasts[chosen] + tail if tails[chosen] else step.end
    return replace(step, begin=step.calls[0].start - head, end=end)


def repeats(sequence: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """Where the turns begin, their length, and how many are alike; None if nothing repeats."""
    import numpy as np

    offset = max(0, len(sequence) - LONGEST)
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(token, len(numbers)) for token in sequence[offset:]])
    if len(codes) < 2:
        return None
    exact = {n: float(np.mean(codes[n:] == codes[:-n])) for n in _candidates(codes)}
    best = max(exact.values(), default=0.0)
    if best < 0.5:
        return None
    for length in (n for n, alike in exact.items() if alike >= NEAR_BEST * best):
        if found := _turns(codes, length):
            return offset + found[0], length, found[1]
    return None


def _candidates(codes: NDArray[Any]) -> list[int]:
    """Lags at which the sequence is most like itself, by the correlation of random projections."""
    import numpy as np

    count = len(codes)
    rng = np.random.default_rng(0)
    size = 1 << (2 * count - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for _ in range(_VIEWS):
        signs = rng.choice((-1.0, 1.0), int(codes.max()) + 1)
        power += np.abs(np.fft.rfft(signs[codes], size)) ** 2
    alike = np.fft.irfft(power, size)[:count] / _VIEWS
    most = count * 2 // 3  # the last third may be warm-up's turn; two turns are the least
    ratio = alike[1 : most + 1] / np.arange(count - 1, count - 1 - most, -1)
    if len(ratio) == 0:
        return []
    good = np.flatnonzero(ratio >= max(0.4, 0.9 * float(ratio.max())))[:64] + 1
    top = np.argsort(-ratio, kind="stable")[:64] + 1
    return sorted({int(n) for n in (*good, *top)})


def _turns(codes: NDArray[Any], length: int) -> tuple[int, int] | None:
    """The longest run of turns at the end that are alike: its beginning and count."""
    end = len(codes)
    best: tuple[int, int] | None = None
    # What follows the loop (a last evaluation, say) may be no turn: ends are tried until one fits.
    for tail in range(0, min(2 * length, end - 2 * length + 1), max(1, length // 16)):
        stop, count = end - tail, 1
        while (first := stop - (count + 1) * length) >= 0:
            before, here = codes[first : first + length], codes[first + length :][:length]
            if float((here == before).mean()) < ALIKE:
                break
            count += 1
        if count >= 2 and (best is None or count > best[1]):
            best = stop - count * length, count
    return best


@dataclass(frozen=True)
class KernelGroup:
    """Launches of one kernel with one shape."""

    id: str  # k1, k2 ... by time.
    name: str  # demangled
    kind: str  # see profkit.program.steps.kinds
    grid: Dims | None
    block: Dims | None
    calls: int  # launches a step
    time: int  # nanoseconds a step, all launches together
    works: tuple[int, ...]  # indices among the step's works
    op: str  # the operator that launches most of them
    range: str
    source: str
    place: Place | None = None  # where most of their time comes from


def group(works: Sequence[StepWork]) -> list[KernelGroup]:
    """Kernels, copies and sets of a step, longest first."""
    members: dict[tuple[str, Dims | None, Dims | None], list[int]] = defaultdict(list)
    for i, work in enumerate(works):
        activity = work.activity
        members[activity.name, activity.grid, activity.block].append(i)
    sums = {key: sum(works[i].activity.duration for i in own) for key, own in members.items()}
    ordered = sorted(members, key=lambda key: (-sums[key], str(key)))
    return [_group(works, f"k{n}", sums[key], members[key]) for n, key in enumerate(ordered, 1)]


def _group(works: Sequence[StepWork], name: str, time: int, own: Sequence[int]) -> KernelGroup:
    first, made = works[own[0]], [works[i].maker for i in own]
    activity = first.activity
    found = find_place((works[i].maker.place, works[i].activity.duration) for i in own)
    return KernelGroup(
        id=name,
        name=activity.name,
        kind=first.kind,
        grid=activity.grid,
        block=activity.block,
        calls=len(own),
        time=time,
        works=tuple(own),
        op=_usual(maker.top or maker.op for maker in made),
        range=_usual(maker.range for maker in made),
        source=_usual(maker.source for maker in made),
        place=found.place if found else None,
    )


def _usual(words: Iterable[str]) -> str:
    counted = Counter(word for word in words if word)
    return counted.most_common(1)[0][0] if counted else ""
