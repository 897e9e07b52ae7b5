"""Timelines of several ranks  ->  one, and which rank the others wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.program.steps.cut import Step, find_steps
from profkit.program.steps.idle import sum_busy_by_device
from profkit.program.steps.kinds import classify_kernel
from profkit.program.timeline import GRAPH, Process, Timeline
from profkit.reports.figures import format_three_figures

if TYPE_CHECKING:
    from profkit.units import KernelName, Nanoseconds, RangeName, Share


LEAST_WAIT = 0.02  # of a step: a rank that waits less for another one waits for none
ALIKE = 0.5  # of the kernels' time in the same kernels: less is another program


@dataclass(frozen=True)
class Rank:
    """One rank's step."""

    rank: int
    period: int  # nanoseconds of its typical step
    computing: int  # in which its GPU computes
    collective: int  # in collectives
    # waiting in them for others to come: what each takes longer here than where it is shortest
    waiting: int

    @property
    def waiting_idle(self) -> int:
        """Return nanoseconds that it waits and computes nothing: collectives run beside kernels."""
        return min(self.waiting, max(0, self.period - self.computing))


@dataclass(frozen=True)
class Ranks:
    """All ranks of a program."""

    rows: tuple[Rank, ...]
    slowest: int | None  # the rank that others wait for; None where none is
    # what it does longer than the others: (kernel, nanoseconds), the largest
    longer: tuple[str, int] | None
    notes: tuple[str, ...]


def merge_timelines(timelines: Sequence[Timeline]) -> Timeline:
    """Return one timeline of all processes, from one a rank.

    Raises:
        ProfkitError: They were recorded in different ways, or are of unlike programs.
    """
    if len(timelines) == 1:
        return timelines[0]
    processes = list(chain.from_iterable(timeline.processes for timeline in timelines))
    hows = {t.how for t in timelines}
    if len(hows) > 1:
        kinds = f"{len(hows)} kinds: {', '.join(sorted(hows))}"
        raise ProfkitError(f"recordings of {kinds}", "give recordings of one kind, one per rank")
    if not _can_be_one_program(processes):
        raise ProfkitError(
            "these recordings are of different programs, not of one program's ranks: they share "
            "no collective, and less than half of their kernel time is in the same kernels",
            "to compare two of them: profkit compare A B",
        )
    numbers = [p.rank for p in processes]
    if len(set(numbers)) < len(numbers):
        processes = [replace(p, rank=i) for i, p in enumerate(processes)]
    notes = chain.from_iterable(timeline.notes for timeline in timelines)
    apart = tuple(note for note in notes if "other ranks" not in note)
    return Timeline(timelines[0].how, sorted(processes, key=lambda p: p.rank), "", apart)


def _can_be_one_program(processes: Sequence[Process]) -> bool:
    """Return whether processes may be one program's: they share collectives, or kernels."""
    shares = [_compute_kernel_time_shares(p) for p in processes]
    common = set.intersection(*map(set, shares))
    if any(classify_kernel(name) == "collective" for name in common):
        return True
    first, *others = shares
    for other in others:
        if sum(min(first.get(name, 0.0), share) for name, share in other.items()) < ALIKE:
            return False
    return True


def _compute_kernel_time_shares(process: Process) -> dict[KernelName, Share]:
    """Return of the time of a process's kernels, each kernel's share."""
    times: Counter[str] = Counter()
    for activity in process.activities:
        if activity.kind in {"kernel", GRAPH}:
            times[activity.name] += activity.duration
    total = max(1, times.total())
    return {name: time / total for name, time in times.items()}


def select_ranks(timeline: Timeline, rank_numbers_or_all: str) -> Timeline:
    """Return the timeline of some ranks: all, or numbers with commas between them.

    Raises:
        ProfkitError: There is no such rank.
    """
    if rank_numbers_or_all == "all":
        return timeline
    names = [word.strip() for word in rank_numbers_or_all.split(",")]
    there = {str(p.rank) for p in timeline.processes}
    if missing := [name for name in names if name not in there]:
        raise ProfkitError(
            f"--ranks {rank_numbers_or_all}: no rank {', '.join(missing)}",
            f"there are: {', '.join(sorted(there, key=int))}; or all",
        )
    return replace(timeline, processes=[p for p in timeline.processes if str(p.rank) in names])


def find_busiest_gpu_of_process(process: Process) -> int:
    """Return the GPU that did most of a process's work."""
    sums: Counter[int] = Counter()
    for activity in process.activities:
        sums[activity.device] += activity.duration
    return max(sums, key=lambda device: sums[device], default=0)


def compare_ranks(processes: Sequence[Process], range_name: RangeName = "") -> Ranks:
    """Return what the ranks of a program do differently in their typical steps."""
    steps = {process.rank: find_steps(process, range_name).typical for process in processes}
    rows = _split_steps_of_ranks(steps)
    # Others wait for the rank that waits least itself, if they wait for long.
    last = min(rows, key=lambda row: row.waiting)
    most = max(rows, key=lambda row: row.waiting)
    lost = most.waiting_idle - last.waiting_idle
    if lost < LEAST_WAIT * most.period:
        return Ranks(rows, None, None, ())
    longer = _find_kernel_with_largest_excess(steps[last.rank], steps[most.rank])
    why = "whose host arrives later"
    if longer:
        name, time = longer
        why = f"which spends {format_three_figures(time / 1e6)} ms longer in {name[:60]}"
    note = (
        f"rank {most.rank} waits {format_three_figures(lost / 1e6)} ms per step in collectives for rank "
        f"{last.rank}, {why}"
    )
    return Ranks(rows, last.rank, longer, (note,))


def _split_steps_of_ranks(steps: Mapping[int, Step]) -> tuple[Rank, ...]:
    """Divide each rank's step; it waits for what a collective takes longer on it than on another."""
    collectives = {rank: _list_collective_times(step) for rank, step in steps.items()}
    shortest = [min(times) for times in zip(*collectives.values(), strict=False)]
    rows = []
    for rank, step in steps.items():
        times = collectives[rank]
        waiting = sum(time - least for time, least in zip(times, shortest, strict=False))
        computing = max(sum_busy_by_device(step).values(), default=0)
        rows.append(Rank(rank, step.period, computing, sum(times), waiting))
    return tuple(rows)


def _find_kernel_with_largest_excess(
    slow: Step, other: Step
) -> tuple[KernelName, Nanoseconds] | None:
    """Return the kernel that takes more on the slow one, by how much.

    None where it is next to nothing.
    """
    more: Counter[str] = Counter()
    for sign, step in ((1, slow), (-1, other)):
        for work in step.works:
            if work.kind != "collective":
                more[work.activity.name] += sign * work.activity.duration
    name = max(more, key=lambda n: more[n], default="")
    if name and more[name] > 0.01 * slow.period:
        return (name, more[name])
    return None


def _list_collective_times(step: Step) -> list[int]:
    """Return the times of a step's collectives, in order of launch."""
    times = []
    for work in step.works:
        if work.kind == "collective" and work.activity.kind in {"kernel", GRAPH}:
            times.append(work.activity.duration)
    return times
