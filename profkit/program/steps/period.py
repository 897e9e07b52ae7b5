"""Launches  ->  the turns in which they repeat, and when each of those begins.

A launch of a graph is one launch, whatever repeats inside of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import eq
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.program.timeline import GRAPH, Activity, Call

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from profkit.units import (
        CallIndex,
        Clause,
        LaunchPosition,
        Nanoseconds,
        NanosecondsOfModel,
        Share,
        TurnLength,
    )

CallIndexAndActivity = tuple[int, Activity]  # the index of a call, and what it launched
FirstLengthCount = tuple[int, int, int]  # of turns: where the first begins, their length, how many
ALIKE = 0.9  # of a turn's launches that must be the ones of the turn before
NEAR_BEST = 0.98  # layers repeat inside of a step, but not as well as steps do
LONGEST = 1 << 19  # launches looked at, the last ones: the beginning is warm-up anyway
_VIEWS = 8  # random projections: how well a lag matches is known to about 1 / sqrt(8 n)
# Of the GPU's work: what repeats and takes less is no step, but a part of one that came once.
LEAST_REPEATED = 0.1
MOST_WORK = 0.75  # the same, of turns that nothing before them resembles
STEADY = 4  # turns behind a long start, from which on they are steps
MARKS = 3  # launches that come once a turn, in one order: fewer may be so by chance
EVEN_TURNS = 8  # of about as many launches each, from which on one that comes once in each will do
TRIED = 16  # launches that may begin a turn
# Of the GPU's work: what is not in every turn and takes less comes and goes (a value that is logged).
# What takes more is a step's end, and the turn is a part of it.
COMES_AND_GOES = 0.02


@dataclass(frozen=True)
class Period:
    """Launches that repeat."""

    how: str  # as a sentence's end
    begins: Sequence[int]  # when each turn begins, and the last one ends
    warm_up: int  # calls before the first
    notes: Sequence[str] = ()


class CallLaunches(NamedTuple):
    """A call that launches something, with all that it launched."""

    number: int  # of the call
    launched: list[Activity]


class Turns(NamedTuple):
    """Turns of launches that repeat."""

    heads: Sequence[int]  # the first launch of each
    length: int  # launches of most turns

    @property
    def end(self) -> LaunchPosition:
        """Return the launch behind the last turn, which is as long as most."""
        return self.heads[-1] + self.length


def find_period(
    calls: Sequence[Call], launched_activities: Sequence[CallIndexAndActivity]
) -> Period | None:
    """Find steps by the period of the launch sequence; None where there is none."""
    by_call = _group_activities_by_call(launched_activities)
    tokens: list[Hashable] = []
    callers = []
    for index, launched in by_call:
        tokens.append(_make_launch_token(calls[index], launched))
        callers.append(index)
    turns = _find_turns_of_launches(calls, by_call, tokens)
    if turns is None:
        return _find_marked_period(calls, by_call, tokens)
    offset = _find_step_offset_in_turn(calls, callers, turns)
    heads = _shift_turn_starts(tokens, turns, offset)
    if offset == 0 and turns.end < len(callers):
        heads.append(turns.end)
    begins = []
    for head in heads:
        begins.append(calls[callers[head]].start)
    if len(begins) < 2:
        begins.append(find_end_of_work(calls, launched_activities))
    warm_up = 0
    if turns.heads[0]:
        warm_up = callers[heads[0]]
    notes: list[str] = []
    if turns.length == 1 and calls[callers[heads[0]]].launches_graph:
        notes += _note_waits_between_replays(calls, begins)
    return Period(_describe_turns(turns), begins, warm_up, notes)


def _describe_turns(turns: Turns) -> Clause:
    """Name turns by their length and count, as a sentence's end."""
    if turns.length == 1:
        return f"one launch that repeats {len(turns.heads)} times"
    return f"{turns.length:,} launches that repeat {len(turns.heads)} times"


def _note_waits_between_replays(
    calls: Sequence[Call], begins: Sequence[Nanoseconds]
) -> Iterator[str]:
    """Say that the host waits between some replays of a graph, and not between others.

    Behind every fifth one, say: nobody knows whether these are one step or five.
    """
    waited = set()
    for call in calls:
        turn = bisect_right(begins, call.start)
        if call.waits and 0 < turn < len(begins):
            waited.add(turn)
    if waited and 2 * len(waited) < len(begins):
        yield (
            f"each replay of the graph is taken as a step, and the host waits after {len(waited):,} of "
            f"{len(begins) - 1:,}: if a step of the program replays it several times, name the step "
            "(torch.cuda.nvtx.range) and say its name with --range"
        )


def _find_turns_of_launches(
    calls: Sequence[Call], by_call: Sequence[CallLaunches], tokens: Sequence[Hashable]
) -> Turns | None:
    """Find the turns in which all launches repeat, or else those in which graphs are replayed."""
    of_all = _find_turns_of_all_launches(by_call, tokens)
    of_graphs = _drop_insignificant_turns(by_call, _find_turns_of_graph_replays(calls, by_call))
    if of_graphs is None:
        return of_all
    if of_all is None:  # the start may be longer than all steps
        of_all = _drop_insignificant_turns(by_call, _find_turns_from(tokens, of_graphs.heads[0]))
    if of_all is None:
        return of_graphs
    return _choose_turns(by_call, tokens, of_all, of_graphs)


def _find_turns_of_all_launches(
    by_call: Sequence[CallLaunches], tokens: Sequence[Hashable]
) -> Turns | None:
    """Find the turns in which all launches repeat, to the end or behind a long start."""
    turns = _drop_insignificant_turns(by_call, _find_turns_from(tokens, 0))
    if turns is not None:
        return turns
    repeats = _find_repeats_after_start(by_call, tokens)
    if repeats is None:
        return None
    return _drop_insignificant_turns(by_call, _make_even_turns(*repeats))


def _find_turns_from(tokens: Sequence[Hashable], first_launch: LaunchPosition) -> Turns | None:
    """Find the turns in which all launches repeat from one on."""
    repeats = find_longest_repetition(tokens[first_launch:])
    if repeats is None:
        return None
    first, length, count = repeats
    alike = _measure_turn_similarity(tokens, first_launch + first, length, count)
    return _make_even_turns(*_shorten_turns(tokens, first_launch + first, length, count, alike))


def _choose_turns(
    by_call: Sequence[CallLaunches],
    tokens: Sequence[Hashable],
    turns_of_all_launches: Turns,
    turns_of_graph_replays: Turns,
) -> Turns:
    """Choose between turns of all launches and turns in which graphs are replayed.

    Where a graph is replayed several times in a step, its replays alone do not tell where that ends:
    an update comes behind each fourth, say. A value that is logged at each tenth step is no such end.
    """
    own = _sum_gpu_time_of_turns(by_call, turns_of_all_launches)
    work = _sum_gpu_time_of_turns(by_call, turns_of_graph_replays)
    irregular = _list_irregular_launches(tokens, turns_of_graph_replays)
    taken = sum(_sum_gpu_time(by_call[number].launched) for number in irregular)
    count = turns_of_graph_replays.end - turns_of_graph_replays.heads[0]
    if taken > COMES_AND_GOES * work or len(irregular) > (1 - ALIKE) * count:
        is_of_graphs = 2 * own < work
    elif turns_of_graph_replays.length < turns_of_all_launches.length:
        is_of_graphs = work >= ALIKE * own
    else:
        is_of_graphs = work > own
    if is_of_graphs:
        return turns_of_graph_replays
    return turns_of_all_launches


def _list_irregular_launches(tokens: Sequence[Hashable], turns: Turns) -> list[LaunchPosition]:
    """List what is launched in some turns, and in others not."""
    seen: Counter[Hashable] = Counter()
    for head, end in pairwise([*turns.heads, turns.end]):
        seen.update(set(tokens[head:end]))
    least = ALIKE * len(turns.heads)
    irregular = []
    for number in range(turns.heads[0], min(turns.end, len(tokens))):
        if seen[tokens[number]] < least:
            irregular.append(number)
    return irregular


def _find_marked_period(
    calls: Sequence[Call], by_call: Sequence[CallLaunches], tokens: Sequence[Hashable]
) -> Period | None:
    """Find steps by the launches that come once in each, where what lies between them varies.

    A loop over what is there (episodes that end, images that are cropped, a solver that converges)
    launches something else in each step. The update after it does not.
    """
    whole = sum(_sum_gpu_time(launched) for _, launched in by_call)
    for marks in _list_equally_frequent_launches(tokens):
        first = _find_longest_pause(calls, by_call, marks)
        heads = [turn[first] for turn in marks]
        turns = Turns(heads[:-1], heads[-1] - heads[-2])
        if _sum_gpu_time_of_turns(by_call, turns) < MOST_WORK * whole:
            continue
        length = round(median(after - before for before, after in pairwise(heads)))
        begins = [calls[by_call[head].number].start for head in heads]
        how = f"about {length:,} launches, {len(marks[0]):,} of which come once in each of {len(heads)}"
        return Period(how, begins, by_call[heads[0]].number)
    return None


def _list_equally_frequent_launches(
    tokens: Sequence[Hashable],
) -> Iterator[list[list[LaunchPosition]]]:
    """Yield the places of launches that come equally often and always in one order, by turn.

    Those of the fewest turns come first: a loop's turns lie in those of steps.
    """
    places: dict[Hashable, list[int]] = {}
    for place, token in enumerate(tokens):
        places.setdefault(token, []).append(place)
    often: dict[int, list[list[int]]] = {}
    for own in places.values():
        if len(own) >= STEADY:
            often.setdefault(len(own), []).append(own)
    for count in sorted(often):
        marks = max(
            (_list_launches_once_per_turn(head, often[count]) for head in often[count][:TRIED]),
            key=len,
        )
        many = len(marks) >= MARKS or (count >= EVEN_TURNS and _has_similar_turn_lengths(marks[0]))
        if many and 2 * len(marks) > len(often[count]):
            yield [list(turn) for turn in zip(*sorted(marks), strict=True)]


def _list_launches_once_per_turn(
    head: Sequence[LaunchPosition], others: Sequence[list[int]]
) -> list[list[LaunchPosition]]:
    """Return launches that come once in each turn, if some launch begins turns; that one too."""
    found = []
    for own in others:
        inside = all(
            low <= place < high for place, (low, high) in zip(own, pairwise(head), strict=False)
        )
        if inside and own[-1] >= head[-1]:
            found.append(own)
    return found


def _has_similar_turn_lengths(heads: Sequence[LaunchPosition]) -> bool:
    """Return whether turns have about as many launches each; the first may be tuned or compiled."""
    lengths = [after - before for before, after in pairwise(heads[1:])]
    return min(lengths) >= ALIKE * max(lengths)


def _find_longest_pause(
    calls: Sequence[Call], by_call: Sequence[CallLaunches], marks: Sequence[Sequence[int]]
) -> int:
    """Return which launch of a turn usually comes after the host's longest pause."""

    def measure_pause(place_in_turn: int) -> NanosecondsOfModel:
        pauses = []
        for turn in marks[1:]:
            number = by_call[turn[place_in_turn]].number
            pauses.append(calls[number].start - calls[number - 1].end)
        return median(pauses)

    return max(range(len(marks[0])), key=lambda at: (measure_pause(at), -at))


def _make_even_turns(first_launch: LaunchPosition, length: TurnLength, turn_count: int) -> Turns:
    """Return turns that are all as long as each other."""
    return Turns(range(first_launch, first_launch + length * turn_count, length), length)


def _find_turns_of_graph_replays(
    calls: Sequence[Call], by_call: Sequence[CallLaunches]
) -> Turns | None:
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
    repeats = find_longest_repetition(tokens)
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


def _find_repeats_after_start(
    by_call: Sequence[CallLaunches], tokens: Sequence[Hashable]
) -> FirstLengthCount | None:
    """Find turns behind a long start (compiling, tuning): the first, their length and their count.

    A start runs nearly all that the later turns run, and more (the first update of an optimizer may be
    another kernel); or it only makes the tensors, and the turns are most of the GPU's work. What comes
    at the end only, as the update of many parameters in a program of one step, is a part of it.
    """
    whole = sum(_sum_gpu_time(launched) for _, launched in by_call)
    left = len(tokens) // 2
    while left >= STEADY:
        begin = len(tokens) - left
        found = find_longest_repetition(tokens[begin:])
        if found is not None:
            found = _shorten_turns(tokens, begin + found[0], *found[1:])
            first, length, count = _extend_turns_backwards(tokens, *found)
            turn = set(tokens[first : first + length])
            new = turn.difference(tokens[: max(0, first - length)])
            work = _sum_gpu_time_of_turns(by_call, _make_even_turns(first, length, count))
            begun = len(new) <= (1 - ALIKE) * len(turn) or work >= MOST_WORK * whole
            if count >= STEADY and begun:
                return first, length, count
        left //= 2
    return None


def _shorten_turns(
    tokens: Sequence[Hashable],
    first_launch: LaunchPosition,
    length: TurnLength,
    turn_count: int,
    least_share_alike: Share = ALIKE,
) -> FirstLengthCount:
    """Return turns of a part of the length, where so much of those is alike too.

    Where much of what is looked at is no turn, two turns at once may seem to repeat as well as one.
    """
    end = first_launch + length * turn_count
    for part in range(1, length // 2 + 1):
        if length % part == 0 and _is_repeating(tokens[first_launch:end], part, least_share_alike):
            return first_launch, part, length * turn_count // part
    return first_launch, length, turn_count


def _is_repeating(tokens: Sequence[Hashable], length: TurnLength, least_share_alike: Share) -> bool:
    """Return whether so much of each turn of so many launches is like the one before it."""
    for first in range(length, len(tokens), length):
        if _count_equal_launches(tokens, first, length) < least_share_alike * length:
            return False
    return True


def _count_equal_launches(
    tokens: Sequence[Hashable], first_launch: LaunchPosition, length: TurnLength
) -> int:
    """Count the launches of the turn from `first_launch` on that are as in the turn before it."""
    here = tokens[first_launch : first_launch + length]
    before = tokens[first_launch - length : first_launch]
    return sum(map(eq, here, before))


def _measure_turn_similarity(
    tokens: Sequence[Hashable], first_launch: LaunchPosition, length: TurnLength, turn_count: int
) -> Share:
    """Count which share of a turn is as in the turn before it, at least."""
    least = 1.0
    for begin in range(first_launch + length, first_launch + length * turn_count, length):
        least = min(least, _count_equal_launches(tokens, begin, length) / length)
    return least


def _extend_turns_backwards(
    tokens: Sequence[Hashable], first_launch: LaunchPosition, length: TurnLength, turn_count: int
) -> FirstLengthCount:
    """Return where equal turns begin, if those before the first one are looked at too."""
    while first_launch >= length:
        if _count_equal_launches(tokens, first_launch, length) < ALIKE * length:
            break
        first_launch -= length
        turn_count += 1
    return first_launch, length, turn_count


def _drop_insignificant_turns(by_call: Sequence[CallLaunches], turns: Turns | None) -> Turns | None:
    """Keep turns of launches that do more than next to nothing, and than any single launch beside them.

    One launch of a graph may be the whole step: what repeats before and after it is none. A copy is no
    step, however long it takes, and copies that follow each other are none of a program that runs
    kernels before or after them: data are moved to the GPU before the first step.
    """
    if turns is None:
        return None
    repeated = _sum_gpu_time_of_turns(by_call, turns)
    beside = largest = 0
    computes = computes_beside = False
    for number, (_, launched) in enumerate(by_call):
        if turns.heads[0] <= number < turns.end:
            computes = computes or _runs_kernels(launched)
        elif _runs_kernels(launched):
            computes_beside = True
            work = _sum_gpu_time(launched)
            beside += work
            largest = max(largest, work)
    if computes_beside and not computes:
        return None
    if repeated < max(largest, LEAST_REPEATED * (repeated + beside)):
        return None
    return turns


def _sum_gpu_time_of_turns(by_call: Sequence[CallLaunches], turns: Turns) -> Nanoseconds:
    """Sum the nanoseconds of the GPU's work in all turns."""
    return sum(_sum_gpu_time(launched) for _, launched in by_call[turns.heads[0] : turns.end])


def _sum_gpu_time(launched: Iterable[Activity]) -> Nanoseconds:
    """Return nanoseconds of the GPU's work of a launch."""
    return sum(activity.duration for activity in launched)


def _runs_kernels(launched: Iterable[Activity]) -> bool:
    """Return whether a launch runs a kernel or a graph, and not only copies."""
    return any(activity.kind in {"kernel", GRAPH} for activity in launched)


def _group_activities_by_call(
    launched_activities: Sequence[CallIndexAndActivity],
) -> list[CallLaunches]:
    """Return each launching call's index with all that it launched."""
    out: list[CallLaunches] = []
    for index, activity in launched_activities:
        if out and out[-1].number == index:
            out[-1].launched.append(activity)
        else:
            out.append(CallLaunches(index, [activity]))
    return out


def _make_launch_token(call: Call, activities: Sequence[Activity]) -> Hashable:
    """Return what makes one launch like another."""
    if len(activities) == 1 and not call.launches_graph:
        activity = activities[0]
        return activity.name, activity.grid, activity.block, activity.bytes
    return call.name, frozenset(activity.name for activity in activities)


def find_end_of_work(
    calls: Sequence[Call], launched_activities: Sequence[CallIndexAndActivity]
) -> Nanoseconds:
    """Return when the GPU is done with all that was launched and the host knows it."""
    done = max(activity.end for _, activity in launched_activities)
    last = max(calls[index].end for index, _ in launched_activities)
    waited = []
    for c in calls:
        if c.waits and not c.allocates and c.start <= done:
            waited.append(c.end)
    return max([done, last, *waited])


def _find_step_offset_in_turn(
    calls: Sequence[Call], callers: Sequence[CallIndex], turns: Turns
) -> int:
    """Find where in a turn a step begins: after the host's longest pause."""
    usual = []
    for head, after in pairwise([*turns.heads, turns.end]):
        if after - head == turns.length:
            usual.append(head)
    usual = usual[:-1]  # the last one may go on as the program's end does

    def measure_pause(offset: int) -> NanosecondsOfModel:
        gaps = []
        for head in usual:
            index = callers[head + offset]
            gaps.append(calls[index].start - calls[index - 1].end if index else 0)
        if gaps:
            return median(gaps)
        return 0.0

    return max(range(turns.length), key=lambda offset: (measure_pause(offset), -offset))


def _shift_turn_starts(
    tokens: Sequence[Hashable], turns: Turns, offset: int
) -> list[LaunchPosition]:
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


def find_longest_repetition(sequence: Sequence[Hashable]) -> FirstLengthCount | None:
    """Return where the turns begin, their length, and how many are alike; None if nothing repeats."""
    import numpy as np

    offset = max(0, len(sequence) - LONGEST)
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(token, len(numbers)) for token in sequence[offset:]])
    if len(codes) < 2:
        return None
    exact = {}
    for n in _list_candidate_turn_lengths(codes):
        exact[n] = float(np.mean(codes[n:] == codes[:-n]))
    best = max(exact.values(), default=0.0)
    if best < 0.5:
        return None
    for length in (n for n, alike in exact.items() if alike >= NEAR_BEST * best):
        if found := _find_equal_turns_at_end(codes, length):
            return offset + found[0], length, found[1]
    return None


def _list_candidate_turn_lengths(codes: NDArray[Any]) -> list[TurnLength]:
    """Return lags at which the sequence is most like itself, by correlating random projections."""
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


def _find_equal_turns_at_end(
    codes: NDArray[Any], length: TurnLength
) -> tuple[LaunchPosition, int] | None:
    """Return the longest run of turns at the end that are alike: its beginning and count."""
    end = len(codes)
    best: tuple[int, int] | None = None
    # What follows the loop (a last evaluation, say) may be no turn: ends are tried until one fits.
    for tail in range(0, min(2 * length, end - 2 * length + 1), max(1, length // 16)):
        stop = end - tail
        count = 1
        while (first := stop - (count + 1) * length) >= 0:
            before = codes[first : first + length]
            here = codes[first + length :][:length]
            if float((here == before).mean()) < ALIKE:
                break
            count += 1
        if count >= 2 and (best is None or count > best[1]):
            best = stop - count * length, count
    return best
