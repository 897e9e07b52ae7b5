"""What a recording of a program lacks, as sentences: kernels of launches, of steps, of graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.program.timeline import Activity, Call
from profkit.reports.figures import format_three_figures

if TYPE_CHECKING:
    from profkit.units import CallIndex, Nanoseconds, Sentence


LEAST = 0.02  # of launches or of the GPU's work: what less is missing is not worth a word
BETWEEN_NODES = 20_000  # nanoseconds: kernels of a graph follow each other in 1 to 2 microseconds
IDLE_IN_GRAPH = 0.05  # of the step, from which on what is missing in graphs is worth a word


@dataclass(frozen=True)
class Captures:
    """Where the host captures graphs: what it launches there runs later, or never."""

    spans: Sequence[tuple[int, int, int]]  # thread, begin and end

    def is_captured(self, call: Call) -> bool:
        """Return whether a call was captured in place of being run, if nothing that it ran is recorded.

        A backward pass launches from a thread of its own into the capture that another began.
        """
        return any(begin <= call.start <= end for _, begin, end in self.spans)

    @property
    def time(self) -> Nanoseconds:
        """Return nanoseconds of all captures."""
        return sum(end - begin for _, begin, end in self.spans)


def find_graph_captures(calls: Sequence[Call]) -> Captures:
    """Return the captures among some calls, in order of start."""
    begun: dict[int, int] = {}
    spans = []
    for call in calls:
        phase = call.capture_phase
        if phase == "Begin":
            begun[call.thread] = call.start
        elif phase == "End" and call.thread in begun:
            spans.append((call.thread, begun.pop(call.thread), call.end))
    return Captures(spans)


def find_unrecorded_launches(
    calls: Sequence[Call], launching: Collection[CallIndex], captures: Captures
) -> frozenset[CallIndex]:
    """Return indices of launches of which nothing that they ran is in the recording.

    Args:
        calls: Of a process.
        launching: Indices of those whose work is there.
        captures: Launches in them ran nothing.
    """
    lost = set()
    for index, call in enumerate(calls):
        if index in launching or not call.launches_kernels or not call.correlation:
            continue
        if not captures.is_captured(call):
            lost.add(index)
    return frozenset(lost)


def note_lost_launches(
    lost_launches: Collection[CallIndex], launching_call_count: int
) -> Iterator[Sentence]:
    """Say so where launches have no kernel."""
    whole = len(lost_launches) + launching_call_count
    if len(lost_launches) > LEAST * whole:
        yield (
            f"{len(lost_launches):,} of {whole:,} launches have no kernel in the recording: their "
            "records "
            "were lost, and what those kernels took is not known"
        )


def note_captures(captures: Captures) -> Iterator[Sentence]:
    """Say so where graphs are captured: that is no step."""
    if captures.spans:
        count = len(captures.spans)
        if count == 1:
            graphs = "a graph is"
        else:
            graphs = f"{count:,} graphs are"
        yield (
            f"{graphs} captured in the recording ({format_three_figures(captures.time / 1e6)} ms of the "
            "host): what "
            "is launched there is no step; record the replays for what a step takes"
        )


def sum_idle_in_graphs(works: Sequence[Activity], calls: Sequence[Call]) -> Nanoseconds:
    """Return nanoseconds in which nothing runs between two kernels of one launch of a graph.

    Args:
        works: What the GPU did in a step.
        calls: The call of each.
    """
    order = sorted(range(len(works)), key=lambda i: (works[i].start, works[i].end))
    idle = 0
    until = 0
    last = -1
    for index in order:
        gap = works[index].start - until
        same = last >= 0 and calls[last] is calls[index]
        if same and gap > BETWEEN_NODES and calls[index].launches_graph:
            idle += gap
        if works[index].end > until:
            until = works[index].end
            last = index
    return idle


def name_graph_node_option(is_amd: bool) -> str:
    """Name what records every kernel of a graph on such a GPU."""
    if is_amd:
        return "rocprofv3 --kernel-trace"
    return "nsys profile --cuda-graph-trace=node"


def note_idle_in_graphs(
    idle_ns: Nanoseconds, period_ns: Nanoseconds, is_amd: bool = False
) -> Iterator[Sentence]:
    """Say so where kernels of graphs seem to be missing."""
    if idle_ns > IDLE_IN_GRAPH * period_ns:
        yield (
            f"for {format_three_figures(idle_ns / 1e6)} of {format_three_figures(period_ns / 1e6)} ms "
            "of the step "
            "nothing is recorded "
            "between kernels of one launch of a graph: kernels of it are missing, or wait for something "
            f"that was not recorded; {name_graph_node_option(is_amd)} records each"
        )
