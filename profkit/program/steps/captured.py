"""Captures in a recording  ->  which launches of them a replayed graph's kernels may come from.

A replay is one call for many kernels, so a trace says of all of them who replays them. Where the
capture is in the trace, too, its launches are there, in the order in which a graph on one stream runs
them. Only their count and kinds can be compared: several captures may fit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.program.steps.lost import Captures
from profkit.program.timeline import GRAPH, Activity, Call

if TYPE_CHECKING:
    from profkit.units import CallIndex, TextOrEmpty


KERNEL, MOVE = (
    "kernel",
    "move",
)  # copies and memsets are one kind: a graph may do either as the other
MOVES = ("cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemset", "hipMemcpy", "hipMemset")


@dataclass(frozen=True)
class GraphReplay:
    """What one launch of a graph ran, and the launches of each capture that it may come from."""

    ran: Sequence[Activity]
    captured: Sequence[Sequence[Call]]


def find_one_stream_graph_replays(
    calls: Sequence[Call],
    launched_activities: Sequence[tuple[CallIndex, Activity]],
    captures: Captures,
) -> Iterator[GraphReplay]:
    """Yield the launches of graphs that ran on one stream and of which captures fit.

    Args:
        calls: Of a process, in order of start.
        launched_activities: The index of a call and what it launched, in that order.
        captures: Where graphs are captured.
    """
    known: dict[tuple[str, ...], list[list[Call]]] = {}
    for captured in _list_captured_launches(calls, captures):
        kinds = tuple(_find_node_kind(call) for call in captured)
        known.setdefault(kinds, []).append(captured)
    replays: dict[int, list[Activity]] = {}
    if known:
        for index, activity in launched_activities:
            if calls[index].launches_graph and activity.kind != GRAPH:
                replays.setdefault(index, []).append(activity)
    for ran in replays.values():
        ran.sort(key=lambda activity: (activity.start, activity.end))
        kinds = tuple(KERNEL if activity.kind == "kernel" else MOVE for activity in ran)
        is_in_order = len({activity.stream for activity in ran}) == 1
        if is_in_order and kinds in known:
            yield GraphReplay(ran, known[kinds])


def _list_captured_launches(calls: Sequence[Call], captures: Captures) -> Iterator[list[Call]]:
    """Yield the launches of each capture."""
    starts = [call.start for call in calls]
    for thread, begin, end in captures.spans:
        inside = calls[bisect_left(starts, begin) : bisect_right(starts, end)]
        yield [call for call in inside if call.thread == thread and _find_node_kind(call)]


def _find_node_kind(call: Call) -> TextOrEmpty:
    """Return the kind of node that a captured call makes; empty where it makes none."""
    if call.launches_kernels and not call.launches_graph:
        return KERNEL
    if call.name.startswith(MOVES):
        return MOVE
    return ""
