"""What a program does once, before its work and in its first calls: loading of its code.

Only where nothing repeats is it looked for: in steps that repeat, the first ones are warm-up.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from profkit.program.timeline import Activity, Call, HostSpan, Process
from profkit.reports.figures import format_three_figures

if TYPE_CHECKING:
    from profkit.units import BeginAndEndNs, CallIndex, Nanoseconds, Sentence


Row = TypeVar("Row", Activity, Call, HostSpan)

# Calls that load or unload code, or make or end a context: no program needs them in a step.
_SETS_UP = re.compile(
    r"^(cuda|cu|hip)\w*(Module(Get)?Load|ModuleUnload|Library(Load|Unload)|Link(Create|Add|Complete)|"
    r"Ctx(Create|Destroy)|PrimaryCtx|DeviceReset|InitDevice|Init\b|Register(FatBinary|Function|Module))"
)
# A kernel's first launch loads its code (lazily, since CUDA 11.7), a program's first calls make the
# context: times the median launch, and nanoseconds, from which on they did.
COLD = 20
COLD_LEAST = 500_000
LEAST = 0.02  # of the recording: what takes less is left in


@dataclass(frozen=True)
class SetUpSpans:
    """When the host sets up and the GPU has nothing to do."""

    spans: Sequence[tuple[int, int]]  # begin and end, in order
    calls: int  # how many do it
    name: str  # the call that takes longest

    @property
    def time(self) -> Nanoseconds:
        """Return nanoseconds of all."""
        return sum(end - begin for begin, end in self.spans)

    def remove_set_up_from(self, process: Process) -> Process:
        """Return the process as if that had taken no time."""
        begins = [begin for begin, _ in self.spans]
        gone = list(accumulate((end - begin for begin, end in self.spans), initial=0))

        def move_time(time: Nanoseconds) -> Nanoseconds:
            at = bisect_right(begins, time)
            inside = 0
            if at:
                inside = max(0, self.spans[at - 1][1] - time)
            return time - gone[at] + inside

        return replace(
            process,
            activities=[_shift_times(row, move_time) for row in process.activities],
            calls=[_shift_times(row, move_time) for row in process.calls],
            spans=[_shift_times(row, move_time) for row in process.spans],
        )

    def note_left_out_time(self) -> Iterator[Sentence]:
        """Say what was left out."""
        yield (
            f"start-up is left out of the step: {format_three_figures(self.time / 1e6)} ms in which "
            "the host "
            "loads "
            f"code or makes a context ({self.calls:,} calls, the longest {self.name})"
        )


def _shift_times(row: Row, moved: Callable[[Nanoseconds], Nanoseconds]) -> Row:
    return replace(row, start=moved(row.start), end=moved(row.end))


def find_later_set_up(
    calls: Sequence[Call], launched_activities: Sequence[tuple[CallIndex, Activity]]
) -> SetUpSpans | None:
    """Return where the host sets up between the first and the last launch; None where that is little."""
    first = calls[launched_activities[0][0]].start
    last = calls[launched_activities[-1][0]].end
    found = []
    spans = []
    for call, begin in [
        *_list_loading_calls(calls),
        *_iterate_slow_first_calls(calls, launched_activities),
    ]:
        if first <= call.start < last:
            found.append(call)
            spans.append((begin, call.end))
    idle = _find_spans_without_gpu_work(spans, launched_activities)
    time = sum(end - begin for begin, end in idle)
    if time <= LEAST * (last - first):
        return None
    longest = max(found, key=lambda call: call.end - call.start)
    return SetUpSpans(idle, len(found), longest.name)


def _list_loading_calls(calls: Sequence[Call]) -> Iterator[tuple[Call, Nanoseconds]]:
    """Yield calls that load code or make a context, each with when it begins to: at its start."""
    for call in calls:
        if _SETS_UP.match(call.name):
            yield call, call.start


def _iterate_slow_first_calls(
    calls: Sequence[Call], launched_activities: Sequence[tuple[CallIndex, Activity]]
) -> Iterator[tuple[Call, Nanoseconds]]:
    """First launches and calls that take far longer than a launch, each with where a usual one ends."""
    usual = median(calls[index].end - calls[index].start for index, _ in launched_activities)
    least = max(COLD * usual, COLD_LEAST)
    for call in [*_list_first_launches(calls, launched_activities), *_list_first_calls(calls)]:
        if call.end - call.start > least:
            yield call, call.start + round(usual)


def _list_first_launches(
    calls: Sequence[Call], launched_activities: Sequence[tuple[CallIndex, Activity]]
) -> Iterator[Call]:
    """Yield the first launch of each kernel, which may load its code."""
    seen: set[str] = set()
    for index, activity in launched_activities:
        if activity.kind == "kernel" and activity.name not in seen:
            seen.add(activity.name)
            yield calls[index]


def _list_first_calls(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield the first call of each name that is no wait: it may make the context or start a library."""
    seen: set[str] = set()
    for call in calls:
        if call.name not in seen and (call.allocates or not call.waits):
            seen.add(call.name)
            yield call


def _find_spans_without_gpu_work(
    spans: Sequence[BeginAndEndNs], launched_activities: Sequence[tuple[CallIndex, Activity]]
) -> list[BeginAndEndNs]:
    """Return the parts of some spans in which the GPU does nothing, merged and in order."""
    busy = sorted((activity.start, activity.end) for _, activity in launched_activities)
    out: list[tuple[int, int]] = []
    at = 0
    until = 0
    for begin, end in sorted(spans):
        low = max(begin, until)
        until = max(until, end)
        while at < len(busy) and busy[at][1] <= low:
            at += 1
        for start, stop in busy[at:]:
            if start >= end:
                break
            if start > low:
                out.append((low, start))
            low = max(low, stop)
        if low < end:
            out.append((low, end))
    return out
