"""Operators that were recorded in a few steps  ->  spans around the calls of all steps.

The profiler of the CPU sees operators with their sizes, and slows the steps in which it runs. Other
steps make the same calls in the same order: a call has the operator of the one that is between the
same calls, by their stacks of Python and by the nodes of autograd that run. Where two of those had
unlike operators, it has none.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.files import is_file, open_regular_file
from profkit.program.readers import COMPILED
from profkit.program.timeline import Call, HostSpan, read_operand_sizes

if TYPE_CHECKING:
    from profkit.units import CorrelationId, Nanoseconds, OperatorName, ThreadId


# Calls on each side that must be the same: more where fewer do not tell, as in a loop of a step.
AROUND = (3, 15, 63)
# Of the recorded calls, from where to where they are looked at: of four steps at least one is
# whole there, while operators that were open at the begin or the end were seen in part.
FROM = 1 / 3
TO = 2 / 3
WRAPPERS = {"PythonDispatchMode"}  # what torch records around operators that are handed to Python
MOST = 1_000_000  # operators that are read
LONGEST_LINE = 1 << 16  # bytes
OperatorStack = tuple[HostSpan, ...]  # operators around a call, outermost first
CallAndNodeStack = tuple[int, int]  # a call's stack, and that of the node of autograd that ran


def read_recorded_operators(
    path: Path,
    first_time_ns: Nanoseconds,
    needless: Mapping[tuple[Nanoseconds, OperatorName], str] | None = None,
) -> list[list[HostSpan]]:
    """Read the operators of a process, those of each recording in their order.

    There is none where the file is not there or is none.

    Args:
        path: What the recorder's hook wrote.
        first_time_ns: CUPTI's time at which the timeline begins.
        needless: Why operators are needless, by their begin and name.
    """
    recordings: list[list[HostSpan]] = []
    if not is_file(path):
        return recordings
    count = 0
    try:
        with open_regular_file(path) as file:
            shift = 0
            while (line := file.readline(LONGEST_LINE)) and count < MOST:
                row = json.loads(line)
                if "clocks" in row:
                    shift = _find_clock_offset(row["clocks"]) + first_time_ns
                    recordings.append([])
                    continue
                span = _make_operator_span(row, shift)
                if needless:
                    why = needless.get((int(row["start"]), span.name), "")
                    span = replace(span, needless=why)
                if not is_wrapper_operator(span.name):
                    recordings[-1].append(span)
                    count += 1
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        pass  # a program that was ended has written a part: that is what is known
    for spans in recordings:
        spans.sort(key=lambda span: (span.start, -span.end))
    return recordings


def is_wrapper_operator(name: OperatorName) -> bool:
    """Return whether what torch records is no operator that launches anything."""
    return name in WRAPPERS or name.startswith(COMPILED)


def _find_clock_offset(clocks: Sequence[Sequence[int]]) -> Nanoseconds:
    """Return how far Python's clock is before CUPTI's, where the two were read at most at once."""
    before, stamp, after = min(clocks, key=lambda pair: pair[2] - pair[0])
    return int(before + after) // 2 - int(stamp)


def _make_operator_span(row: Mapping[str, Any], shift: Nanoseconds) -> HostSpan:
    return HostSpan(
        kind="op",
        name=str(row["name"]),
        start=int(row["start"]) - shift,
        end=int(row["end"]) - shift,
        thread=int(row["thread"]),
        shapes=read_operand_sizes(str(row["name"]), row["shapes"]),
        types=tuple(str(name) for name in row["types"]),
        sequence=int(row["sequence"]),
        backward=row["backward"] is True,
    )


def assign_operators_to_all_steps(
    recordings: Sequence[Sequence[HostSpan]],
    calls: Sequence[Call],
    origins: Sequence[Mapping[CorrelationId, CallAndNodeStack]],
    threads: Mapping[CorrelationId, ThreadId],
    launched: Mapping[CorrelationId, Hashable],
) -> list[HostSpan]:
    """Give the calls of all steps the operators of those that were recorded.

    Their sizes, too, where the kernels launched there and nearby are alike: a pass over more rows has
    the same operators, and other sizes.

    Args:
        recordings: Each the operators of some steps, on threads as the system numbers them.
        calls: What launches anything, in order of start.
        origins: Of each call, by its correlation number; and others, where those are not found again.
        threads: The system's number of each call's thread, by the call's correlation number.
        launched: What each call launched (kernel, grid and block), by its correlation number.
    """
    stacks: dict[Call, OperatorStack] = {}
    inner: dict[Call, OperatorStack] = {}
    for spans in recordings:
        seen_there = _find_operator_stacks_of_calls(spans, calls, threads)
        stacks |= seen_there
        inner |= _select_middle_calls(seen_there)
    if not stacks:
        return []
    found: list[HostSpan] = []
    for own in _group_calls_by_thread(calls):
        matched: list[Call | None] = [None] * len(own)
        for seen in (inner, stacks):  # of fewer than three steps the middle is not all of one
            for known in origins:
                told = [known.get(call.correlation, (0, 0)) for call in own]
                _match_calls_to_recorded_ones(own, told, seen, matched)
        found += _make_spans_around_calls(
            own, matched, stacks, _list_nearby_launches(own, launched)
        )
    return sorted(found, key=lambda span: (span.start, -span.end))


def _select_middle_calls(stacks: Mapping[Call, OperatorStack]) -> dict[Call, OperatorStack]:
    """Select the calls in the middle of a recording: between FROM and TO of its time."""
    if not stacks:
        return {}
    begin = min(call.start for call in stacks)
    end = max(call.start for call in stacks)
    low = begin + FROM * (end - begin)
    high = begin + TO * (end - begin)
    middle = {}
    for call, stack in stacks.items():
        if low <= call.start <= high:
            middle[call] = stack
    return middle


def _group_calls_by_thread(calls: Sequence[Call]) -> Iterable[list[Call]]:
    """Return the calls of each thread, in their order."""
    made: dict[int, list[Call]] = {}
    for call in calls:
        made.setdefault(call.thread, []).append(call)
    return made.values()


def make_spans_around_captured_calls(
    spans: Sequence[HostSpan],
    captured_calls: Sequence[Call],
    system_thread_by_correlation: Mapping[CorrelationId, ThreadId],
) -> list[HostSpan]:
    """Put operators round the calls that were captured into graphs, which were seen themselves.

    Args:
        spans: Operators, on threads as the system numbers them.
        captured_calls: In order of start.
        system_thread_by_correlation: The system's number of the thread of each call.
    """
    in_order = sorted(spans, key=lambda span: (span.start, -span.end))
    stacks = _find_operator_stacks_of_calls(in_order, captured_calls, system_thread_by_correlation)
    found: list[HostSpan] = []
    for own in _group_calls_by_thread(captured_calls):
        seen = [call if call in stacks else None for call in own]
        found += _make_spans_around_calls(
            own, seen, stacks, dict.fromkeys(own, ())
        )  # each is its own
    return found


def _match_calls_to_recorded_ones(
    calls: Sequence[Call],
    origins_of_calls: Sequence[CallAndNodeStack],
    stacks: Mapping[Call, OperatorStack],
    matched: list[Call | None],
) -> None:
    """Find for each call of a thread that has none yet one that was recorded between the same calls."""
    for around in AROUND:
        keys = []
        for at in range(len(calls)):
            keys.append(tuple(origins_of_calls[max(0, at - around) : at + around + 1]))
        known: dict[tuple[CallAndNodeStack, ...], Call | None] = {}
        for key, call in zip(keys, calls, strict=True):
            if call in stacks:
                other = known.setdefault(key, call)
                if other is not None and not _are_stacks_alike(stacks[other], stacks[call]):
                    known[key] = None
        for at, key in enumerate(keys):
            if matched[at] is None:
                matched[at] = known.get(key)
        if None not in matched:
            break


def _are_stacks_alike(one: OperatorStack, other: OperatorStack) -> bool:
    """Return whether two stacks are of the same operators, with inputs of the same sizes and types."""
    if len(one) != len(other):
        return False
    for span, twin in zip(one, other, strict=True):
        if (span.name, span.shapes, span.types) != (twin.name, twin.shapes, twin.types):
            return False
    return True


def _find_operator_stacks_of_calls(
    spans: Sequence[HostSpan], calls: Sequence[Call], threads: Mapping[CorrelationId, ThreadId]
) -> dict[Call, OperatorStack]:
    """Find the operators in which each call was made, on its own thread."""
    opened: dict[int, list[HostSpan]] = {}
    for span in spans:
        opened.setdefault(span.thread, []).append(span)
    made: dict[int, list[Call]] = {}
    for call in calls:
        made.setdefault(threads.get(call.correlation, 0), []).append(call)
    stacks: dict[Call, OperatorStack] = {}
    for thread, own in opened.items():
        stacks.update(_iterate_calls_inside_operators(own, made.get(thread, [])))
    return stacks


def _iterate_calls_inside_operators(
    spans: Sequence[HostSpan], calls: Sequence[Call]
) -> Iterator[tuple[Call, OperatorStack]]:
    """Yield the calls that begin inside of a thread's operators, with those that are open then."""
    stack: list[HostSpan] = []
    position = 0
    for call in calls:
        while position < len(spans) and spans[position].start <= call.start:
            span = spans[position]
            stack = [outer for outer in stack if outer.end > span.start]
            stack.append(span)
            position += 1
        stack = [outer for outer in stack if outer.end > call.start]
        if stack:
            yield call, tuple(stack)


def _list_nearby_launches(
    calls: Sequence[Call], launched: Mapping[CorrelationId, Hashable]
) -> dict[Call, list[Hashable]]:
    """Return what each call of a thread launched, and those around it."""
    shown = [launched.get(call.correlation) for call in calls]
    nearest = AROUND[0]
    nearby = {}
    for at, call in enumerate(calls):
        nearby[call] = shown[max(0, at - nearest) : at + nearest + 1]
    return nearby


def _make_spans_around_calls(
    calls: Sequence[Call],
    matched: Sequence[Call | None],
    stacks: Mapping[Call, OperatorStack],
    nearby: Mapping[Call, Sequence[Hashable]],
) -> Iterator[HostSpan]:
    """Yield spans around calls; those of one outermost operator that follow each other share it."""
    for pairs in _group_by_outermost(calls, matched, stacks):
        alike = [nearby[source] == nearby[call] for call, source in pairs]
        first_call, first_source = pairs[0]
        last_call, _ = pairs[-1]
        outer = stacks[first_source][0]
        yield _fit_span_to_calls(outer, first_call, last_call, all(alike))
        for (call, source), is_alike in zip(pairs, alike, strict=True):
            if len(stacks[source]) > 1:
                yield _fit_span_to_calls(stacks[source][-1], call, call, is_alike)


def _group_by_outermost(
    calls: Sequence[Call], matched: Sequence[Call | None], stacks: Mapping[Call, OperatorStack]
) -> list[list[tuple[Call, Call]]]:
    """Group matched calls, each with its match, as they follow each other in one outermost operator."""
    groups: list[list[tuple[Call, Call]]] = []
    last: HostSpan | None = None
    for call, source in zip(calls, matched, strict=True):
        if source is None:
            last = None
            continue
        outer = stacks[source][0]
        if outer is not last:
            groups.append([])
        groups[-1].append((call, source))
        last = outer
    return groups


def _fit_span_to_calls(span: HostSpan, first: Call, last: Call, sized: bool) -> HostSpan:
    fitted = replace(span, start=first.start, end=last.end, thread=first.thread)
    if sized:
        return fitted
    return replace(fitted, shapes=(), types=())
