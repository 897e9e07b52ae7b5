"""Launches  ->  the turns in which they repeat, and when each of those begins.

A launch of a graph is one launch, whatever repeats inside of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.program.timeline import GRAPH, Activity, Call

if TYPE_CHECKING:
    from numpy.typing import NDArray

Launched = tuple[int, Activity]  # the index of a call, and what it launched
ALIKE = 0.9  # of a turn's launches that must be the ones of the turn before
NEAR_BEST = 0.98  # layers repeat inside of a step, but not as well as steps do
LONGEST = 1 << 19  # launches looked at, the last ones: the beginning is warm-up anyway
_VIEWS = 8  # random projections: how well a lag matches is known to about 1 / sqrt(8 n)
# Of the GPU's work: what repeats and takes less is no step, but a part of one that came once.
LEAST_REPEATED = 0.1
STEADY = 4  # turns behind a long start, from which on they are steps


@dataclass(frozen=True)
class Period:
    """Launches that repeat."""

    how: str  # as a sentence's end
    begins: Sequence[int]  # when each turn begins, and the last one ends
    warm_up: int  # calls before the first


class CallLaunches(NamedTuple):
    """A call that launches something, with all that it launched."""

    number: int  # of the call
    launched: list[Activity]


class Turns(NamedTuple):
    """Turns of launches that repeat."""

    heads: Sequence[int]  # the first launch of each
    length: int  # launches of most turns

    @property
    def end(self) -> int:
        """The launch behind the last turn, which is as long as most."""
        return self.heads[-1] + self.length


def find_period(calls: Sequence[Call], order: Sequence[Launched]) -> Period | None:
    """Find steps by the period of the launch sequence; None where there is none."""
    by_call = _group_by_call(order)
    tokens: list[Hashable] = []
    callers = []
    for index, launched in by_call:
        tokens.append(_make_token(calls[index], launched))
        callers.append(index)
    turns = _find_turns_of_launches(calls, by_call, tokens)
    if turns is None:
        return None
    offset = _find_phase(calls, callers, turns)
    heads = _shift_heads(tokens, turns, offset)
    if offset == 0 and turns.end < len(callers):
        heads.append(turns.end)
    begins = []
    for head in heads:
        begins.append(calls[callers[head]].start)
    if len(begins) < 2:
        begins.append(find_end_of_work(calls, order))
    warm_up = 0
    if turns.heads[0]:
        warm_up = callers[heads[0]]
    if turns.length == 1:
        how = f"one launch that repeats {len(turns.heads)} times"
    else:
        how = f"{turns.length:,} launches that repeat {len(turns.heads)} times"
    return Period(how, begins, warm_up)


def _find_turns_of_launches(
    calls: Sequence[Call], by_call: Sequence[CallLaunches], tokens: Sequence[Hashable]
) -> Turns | None:
    """Find the turns in which all launches repeat, or else those that hold most of the GPU's work."""
    repeats = find_repeats(tokens) or _find_repeats_after_start(tokens)
    candidates = []
    if repeats is not None:
        candidates.append(_make_even_turns(*repeats))
    turns = _find_turns_of_graphs(calls, by_call)
    if turns is not None:
        candidates.append(turns)
    best = None
    most = 0
    for turns in candidates:
        work = _sum_repeated_work(by_call, turns)
        if work > most and _is_step_pattern(by_call, turns):
            best, most = turns, work
    return best


def _make_even_turns(first: int, length: int, count: int) -> Turns:
    """Return turns that are all as long as each other."""
    return Turns(range(first, first + length * count, length), length)


def _find_turns_of_graphs(calls: Sequence[Call], by_call: Sequence[CallLaunches]) -> Turns | None:
    """Find turns in which the same graphs are replayed, whatever is launched between them.

    Graphs that are replayed come behind a start that is launched one by one (compiling, capturing),
    and small launches between them come and go: a value that is logged, a copy more at an epoch's end.
    """
    replays = []
    tokens: list[Hashable] = []
    for number, (index, launched) in enumerate(by_call):
        if calls[index].launches_graph:
            replays.append(number)
            tokens.append(_make_token_of_graph(launched))
    repeats = find_repeats(tokens)
    if repeats is None:
        return None
    first, replayed, count = repeats
    if count < STEADY:
        return None
    heads = replays[first : first + replayed * count : replayed]
    lengths = Counter(after - before for before, after in pairwise(heads))
    ((length, _),) = lengths.most_common(1)
    return Turns(heads, length)


def _make_token_of_graph(launched: Sequence[Activity]) -> Hashable:
    """Return what makes one replay like another: what was captured, or the kernels that ran."""
    captured = max(activity.captured for activity in launched)
    return captured or frozenset(activity.name for activity in launched)


def _find_repeats_after_start(tokens: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """Find turns behind a long start (compiling, tuning): the first, their length and their count.

    A start runs what the later turns run, and more. What comes at the end only, as the update of many
    parameters in a program of one step, is a part of it.
    """
    left = len(tokens) // 2
    while left >= STEADY:
        begin = len(tokens) - left
        found = find_repeats(tokens[begin:])
        if found is not None:
            found = _shorten_turns(tokens, begin + found[0], *found[1:])
            first, length, count = _extend_back(tokens, *found)
            turn = set(tokens[first : first + length])
            if count >= STEADY and turn <= set(tokens[: max(0, first - length)]):
                return first, length, count
        left //= 2
    return None


def _shorten_turns(
    tokens: Sequence[Hashable], first: int, length: int, count: int
) -> tuple[int, int, int]:
    """Return turns of a part of the length, where those are alike too.

    Where much of what is looked at is no turn, two turns at once may seem to repeat as well as one.
    """
    end = first + length * count
    for part in range(1, length // 2 + 1):
        if length % part == 0 and _is_repeating(tokens[first:end], part):
            return first, part, length * count // part
    return first, length, count


def _is_repeating(tokens: Sequence[Hashable], length: int) -> bool:
    """Whether each turn of so many launches is like the one before it."""
    for first in range(length, len(tokens), length):
        pairs = zip(tokens[first - length : first], tokens[first : first + length], strict=True)
        if sum(before == here for before, here in pairs) < ALIKE * length:
            return False
    return True


def _extend_back(
    tokens: Sequence[Hashable], first: int, length: int, count: int
) -> tuple[int, int, int]:
    """Where equal turns begin, if those before the first one are looked at too."""
    while first >= length:
        pairs = zip(tokens[first - length : first], tokens[first : first + length], strict=True)
        if sum(before == here for before, here in pairs) < ALIKE * length:
            break
        first -= length
        count += 1
    return first, length, count


def _is_step_pattern(by_call: Sequence[CallLaunches], turns: Turns) -> bool:
    """Whether launches that repeat do more than next to nothing, and than any single launch beside them.

    One launch of a graph may be the whole step: what repeats before and after it is none. Copies that
    follow each other are no steps of a program that runs kernels before or after them.
    """
    repeated = _sum_repeated_work(by_call, turns)
    beside = largest = 0
    computes = computes_beside = False
    for number, (_, launched) in enumerate(by_call):
        if turns.heads[0] <= number < turns.end:
            computes = computes or _runs_kernels(launched)
            continue
        work = _sum_work(launched)
        beside += work
        largest = max(largest, work)
        computes_beside = computes_beside or _runs_kernels(launched)
    if computes_beside and not computes:
        return False
    return repeated >= max(largest, LEAST_REPEATED * (repeated + beside))


def _sum_repeated_work(by_call: Sequence[CallLaunches], turns: Turns) -> int:
    """Sum the nanoseconds of the GPU's work in all turns."""
    return sum(_sum_work(launched) for _, launched in by_call[turns.heads[0] : turns.end])


def _sum_work(launched: Iterable[Activity]) -> int:
    """Nanoseconds of the GPU's work of a launch."""
    return sum(activity.duration for activity in launched)


def _runs_kernels(launched: Iterable[Activity]) -> bool:
    """Whether a launch runs a kernel or a graph, and not only copies."""
    return any(activity.kind in {"kernel", GRAPH} for activity in launched)


def _group_by_call(order: Sequence[Launched]) -> list[CallLaunches]:
    """Each launching call's index with all that it launched."""
    out: list[CallLaunches] = []
    for index, activity in order:
        if out and out[-1].number == index:
            out[-1].launched.append(activity)
        else:
            out.append(CallLaunches(index, [activity]))
    return out


def _make_token(call: Call, activities: Sequence[Activity]) -> Hashable:
    """What makes one launch like another."""
    if len(activities) == 1 and not call.launches_graph:
        activity = activities[0]
        return activity.name, activity.grid, activity.block, activity.bytes
    return call.name, frozenset(activity.name for activity in activities)


def find_end_of_work(calls: Sequence[Call], order: Sequence[Launched]) -> int:
    """When the GPU is done with all that was launched and the host knows it."""
    done = max(activity.end for _, activity in order)
    last = max(calls[index].end for index, _ in order)
    waited = []
    for c in calls:
        if c.waits and not c.allocates and c.start <= done:
            waited.append(c.end)
    return max([done, last, *waited])


def _find_phase(calls: Sequence[Call], callers: Sequence[int], turns: Turns) -> int:
    """Find where in a turn a step begins: after the host's longest pause."""
    usual = []
    for head, after in pairwise([*turns.heads, turns.end]):
        if after - head == turns.length:
            usual.append(head)
    usual = usual[:-1]  # the last one may go on as the program's end does

    def measure_pause(offset: int) -> float:
        gaps = []
        for head in usual:
            index = callers[head + offset]
            gaps.append(calls[index].start - calls[index - 1].end if index else 0)
        if gaps:
            return median(gaps)
        return 0.0

    return max(range(turns.length), key=lambda offset: (measure_pause(offset), -offset))


def _shift_heads(tokens: Sequence[Hashable], turns: Turns, offset: int) -> list[int]:
    """Return the launches that are so far behind the heads, where a step begins.

    In a turn of another length it is the one like those of the others that is nearest to there.
    """
    ends = [*turns.heads[1:], turns.end]
    usual = Counter(tokens[head + offset] for head in turns.heads if head + offset < len(tokens))
    ((wanted, _),) = usual.most_common(1)
    shifted = []
    for head, end in zip(turns.heads, ends, strict=True):
        middle = head + offset
        nearest = middle
        if end - head != turns.length and offset:
            alike = (at for at in range(head, end) if tokens[at] == wanted)
            nearest = min(alike, key=lambda at: abs(at - middle), default=middle)
        if nearest < len(tokens):
            shifted.append(nearest)
    return shifted


def find_repeats(sequence: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """Where the turns begin, their length, and how many are alike; None if nothing repeats."""
    import numpy as np

    offset = max(0, len(sequence) - LONGEST)
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(token, len(numbers)) for token in sequence[offset:]])
    if len(codes) < 2:
        return None
    exact = {}
    for n in _list_lags(codes):
        exact[n] = float(np.mean(codes[n:] == codes[:-n]))
    best = max(exact.values(), default=0.0)
    if best < 0.5:
        return None
    for length in (n for n, alike in exact.items() if alike >= NEAR_BEST * best):
        if found := _find_turns(codes, length):
            return offset + found[0], length, found[1]
    return None


def _list_lags(codes: NDArray[Any]) -> list[int]:
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


def _find_turns(codes: NDArray[Any], length: int) -> tuple[int, int] | None:
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
