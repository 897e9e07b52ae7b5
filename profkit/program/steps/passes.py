"""Ranges that a program names round its work  ->  its passes: what a server or a solver calls a step.

What a range is called plays no part, only which ranges bear one name: those that hold nearly all
that is launched, one after another, outermost first. A range round the whole program, or round an
epoch, holds steps that can be told by themselves: each of those waits for the GPU, or copies from or
to the host, which the layers of one pass do not.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from profkit.program.timeline import Activity, Call, HostSpan

if TYPE_CHECKING:
    from profkit.units import BeginAndEndNs, CallIndex, Nanoseconds


NEARLY_ALL = 0.8  # of the GPU's work that passes must hold together
WAITING = 0.9  # of inner ranges or turns that must wait or copy, to be steps
# Layers of one pass: 126 in the deepest model of today that many run. What repeats more often inside
# of a range are steps.
LAYERS_MOST = 256
MANY = 5  # ranges of one name, from which on one more or less is the recording's end
_NUMBER = re.compile(r"\d+")
_DETAIL = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}")


@dataclass(frozen=True)
class Passes:
    """Passes in order."""

    family: str  # what they have in common in their names, numbers as #
    spans: Sequence[HostSpan]  # the range that begins each
    end: int  # where the last one ends


@dataclass(frozen=True)
class HostWork:
    """What the host launches, and where it waits or copies, as sorted times."""

    launches: Sequence[int]  # when each launch begins
    sums: Sequence[int]  # nanoseconds of the GPU's work up to each, from 0
    waits: Sequence[int]  # when each wait, and each copy from or to the host, begins

    def sum_launched_gpu_time(self, begin: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
        """Return nanoseconds of the GPU's work that is launched in a span of time."""
        low = bisect_left(self.launches, begin)
        return self.sums[bisect_right(self.launches, end)] - self.sums[low]

    def has_wait_or_copy(self, begin: Nanoseconds, end: Nanoseconds) -> bool:
        """Return whether the host waits for the GPU, or copies from or to it, in a span of time."""
        return bisect_right(self.waits, end) > bisect_left(self.waits, begin)


def make_host_work(
    calls: Sequence[Call], launched_activities: Sequence[tuple[CallIndex, Activity]]
) -> HostWork:
    """Return what the host does, from calls and what each launched, in order of launch."""
    launches = [calls[index].start for index, _ in launched_activities]
    sums = list(accumulate((activity.duration for _, activity in launched_activities), initial=0))
    waits = {call.start for call in calls if call.waits}
    for index, activity in launched_activities:
        if activity.kind == "copy" and activity.direction in {"HtoD", "DtoH"}:
            waits.add(calls[index].start)
    return HostWork(launches, sums, sorted(waits))


def find_passes(
    spans: Sequence[HostSpan], host: HostWork, turns: Sequence[BeginAndEndNs]
) -> Passes | None:
    """Return the passes that ranges mark; None where none do.

    Args:
        spans: Of the program, in order of start.
        host: What it launches, and where it waits.
        turns: When each turn of what repeats begins and ends; none where nothing does.
    """
    ranges = []
    for span in spans:
        if (
            span.kind == "range"
            and span.ended
            and host.sum_launched_gpu_time(span.start, span.end) > 0
        ):
            ranges.append(span)
    outermost = keep_outermost_ranges(ranges)
    whole = host.sums[-1]
    while outermost and _sum_launched_gpu_time(host, outermost) >= NEARLY_ALL * whole:
        main = _find_heaviest_family(outermost, host)
        inner = _find_steps_inside(main, ranges, host)
        if not inner:
            return _choose_passes(outermost, main, host, turns)
        outermost = inner
    return None


def make_family_name(name: str) -> str:
    """Return what a name has in common with its like: numbers and details in brackets left out."""
    bare = _DETAIL.sub("", name)
    return _NUMBER.sub("#", bare if bare.strip() else name)


def keep_outermost_ranges(ranges: Sequence[HostSpan]) -> list[HostSpan]:
    """Return ranges that lie in no other, one after another; ends may overlap a little."""
    out: list[HostSpan] = []
    for span in ranges:
        if out:
            middle = (out[-1].start + out[-1].end) / 2
        else:
            middle = span.start
        if not out or (span.start >= middle and span.end > out[-1].end):
            out.append(span)
    return out


def _sum_launched_gpu_time(host: HostWork, spans: Sequence[HostSpan]) -> Nanoseconds:
    return sum(host.sum_launched_gpu_time(span.start, span.end) for span in spans)


def _find_heaviest_family(spans: Sequence[HostSpan], host: HostWork) -> list[HostSpan]:
    """Return those of one family whose launches keep the GPU busy longest."""
    families: dict[str, list[HostSpan]] = defaultdict(list)
    for span in spans:
        families[make_family_name(span.name)].append(span)
    return max(families.values(), key=lambda own: _sum_launched_gpu_time(host, own))


def _find_steps_inside(
    outer: Sequence[HostSpan], ranges: Sequence[HostSpan], host: HostWork
) -> list[HostSpan]:
    """Return ranges inside of others that are steps by themselves; none where there are none."""
    starts = [span.start for span in outer]
    inside = []
    for span in ranges:
        at = bisect_right(starts, span.start) - 1
        if at >= 0 and span.end <= outer[at].end and span is not outer[at]:
            inside.append(span)
    inner = keep_outermost_ranges(inside)
    if not inner:
        return []
    main = _find_heaviest_family(inner, host)
    if len(main) < 2 * len(outer) or _sum_launched_gpu_time(
        host, main
    ) < NEARLY_ALL * _sum_launched_gpu_time(host, outer):
        return []
    if _do_most_turns_wait([(span.start, span.end) for span in main], host):
        return inner
    return []


def _do_most_turns_wait(turns: Sequence[BeginAndEndNs], host: HostWork) -> bool:
    """Return whether nearly all of some spans of time have a wait or a copy of the host."""
    waiting = sum(host.has_wait_or_copy(begin, end) for begin, end in turns)
    return waiting >= WAITING * len(turns)


def _choose_passes(
    outermost: Sequence[HostSpan],
    main: Sequence[HostSpan],
    host: HostWork,
    turns: Sequence[BeginAndEndNs],
) -> Passes | None:
    """Return passes by what begins each; None where what repeats inside of them are the steps."""
    inside = _keep_turns_inside(turns, main)
    several = len(inside) >= 2 * len(main)
    if several and (len(inside) > LAYERS_MOST * len(main) or _do_most_turns_wait(inside, host)):
        return None
    as_often = _find_equally_frequent_families(outermost, main)
    if sum(_sum_launched_gpu_time(host, own) for own in as_often) < NEARLY_ALL * host.sums[-1]:
        return None  # ranges of many names, each as often as its like: operators, no passes
    lead = as_often[0]
    waiting = _do_most_turns_wait([(span.start, span.end) for span in lead], host)
    if waiting:
        heads = list(lead)
    else:
        heads = _keep_first_numbered(lead)
    end = max(span.end for span in outermost if span.start >= heads[-1].start)
    if len(lead) == 1:
        end = lead[0].end
    return Passes(make_family_name(lead[0].name), heads, end)


def _keep_turns_inside(
    turns: Sequence[BeginAndEndNs], spans: Sequence[HostSpan]
) -> list[BeginAndEndNs]:
    """Return turns that lie inside of one of some spans that follow one another."""
    starts = [span.start for span in spans]
    inside = []
    for begin, end in turns:
        at = bisect_right(starts, begin) - 1
        if at >= 0 and end <= spans[at].end:
            inside.append((begin, end))
    return inside


def _find_equally_frequent_families(
    outermost: Sequence[HostSpan], main: Sequence[HostSpan]
) -> list[list[HostSpan]]:
    """Return the families that come as often as the heaviest, in order of their first range."""
    if len(main) == 1:
        return [list(main)]
    if len(main) >= MANY:
        spare = 1
    else:
        spare = 0
    families: dict[str, list[HostSpan]] = defaultdict(list)
    for span in outermost:
        families[make_family_name(span.name)].append(span)
    return [own for own in families.values() if abs(len(own) - len(main)) <= spare]


def _keep_first_numbered(spans: Sequence[HostSpan]) -> list[HostSpan]:
    """Return where ranges are numbered from one on and begin again (layer 0 to 35): those that begin."""
    names = [span.name for span in spans]
    if names[0] not in names[1:]:
        return list(spans)
    length = names.index(names[0], 1)
    numbers = []
    for name in names[:length]:
        numbers.append(_NUMBER.findall(name))
    counted = all(
        len(before) == 1 and len(after) == 1 and int(after[0]) == int(before[0]) + 1
        for before, after in pairwise(numbers)
    )
    again = all(name == names[i % length] for i, name in enumerate(names))
    if length > 1 and counted and again:
        return list(spans[::length])
    return list(spans)
