"""Timelines of several ranks  ->  one, and which rank the others wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from profkit.errors import ProfkitError
from profkit.program.steps.cut import Step, find_steps
from profkit.program.steps.kinds import classify_kernel
from profkit.program.timeline import GRAPH, Process, Timeline
from profkit.reports.figures import figures

ALIKE = 0.5  # of the kernels' time in the same kernels: less is another program


@dataclass(frozen=True)
class Rank:
    """One rank's step."""

    rank: int
    period: int  # nanoseconds of its typical step
    computing: int  # of kernels that are no collective
    collective: int  # in collectives
    # waiting in them for others to come: what each takes longer here than where it is shortest
    waiting: int


@dataclass(frozen=True)
class Ranks:
    """All ranks of a program."""

    rows: tuple[Rank, ...]
    slowest: int | None  # the rank that others wait for; None where none is
    # what it does longer than the others: (kernel, nanoseconds), the largest
    longer: tuple[str, int] | None
    notes: tuple[str, ...]


def merge_timelines(timelines: Sequence[Timeline]) -> Timeline:
    """One timeline of all processes, from one a rank.

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
    if not _is_one_program(processes):
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


def _is_one_program(processes: Sequence[Process]) -> bool:
    """Whether processes may be one program's: they meet in collectives, or run the same kernels."""
    shares = [_compute_shares(p) for p in processes]
    if any(classify_kernel(name) == "collective" for name in set.intersection(*map(set, shares))):
        return True
    first, *others = shares
    alike = (sum(min(first.get(n, 0.0), part) for n, part in other.items()) for other in others)
    return all(part >= ALIKE for part in alike)


def _compute_shares(process: Process) -> dict[str, float]:
    """Of the time of a process's kernels, each kernel's share."""
    times: Counter[str] = Counter()
    for activity in process.activities:
        if activity.kind in {"kernel", GRAPH}:
            times[activity.name] += activity.duration
    total = max(1, times.total())
    return {name: time / total for name, time in times.items()}


def select_ranks(timeline: Timeline, wanted: str) -> Timeline:
    """The timeline of some ranks: all, or numbers with commas between them.

    Raises:
        ProfkitError: There is no such rank.
    """
    if wanted == "all":
        return timeline
    names = [word.strip() for word in wanted.split(",")]
    there = {str(p.rank) for p in timeline.processes}
    if missing := [name for name in names if name not in there]:
        raise ProfkitError(
            f"--ranks {wanted}: no rank {', '.join(missing)}",
            f"there are: {', '.join(sorted(there, key=int))}; or all",
        )
    return replace(timeline, processes=[p for p in timeline.processes if str(p.rank) in names])


def find_main_gpu(process: Process) -> int:
    """The GPU that did most of a process's work."""
    sums: Counter[int] = Counter()
    for activity in process.activities:
        sums[activity.device] += activity.duration
    return max(sums, key=lambda device: sums[device], default=0)


def compare_ranks(processes: Sequence[Process], step: str = "") -> Ranks:
    """What the ranks of a program do differently in their typical steps, which a range may name."""
    found = {p.rank: find_steps(p, step).typical for p in processes}
    collectives = [_list_times(typical, collective=True) for typical in found.values()]
    shortest = [min(times) for times in zip(*collectives, strict=False)]
    rows = []
    for (rank, typical), times in zip(found.items(), collectives, strict=True):
        waiting = sum(t - s for t, s in zip(times, shortest, strict=False))
        computing = sum(_list_times(typical, collective=False))
        rows.append(Rank(rank, typical.period, computing, sum(times), waiting))
    # Others wait for the rank that waits least itself, if they wait for long.
    last, most = (f(rows, key=lambda r: r.waiting) for f in (min, max))
    lost = most.waiting - last.waiting
    if lost < 0.02 * most.period:
        return Ranks(tuple(rows), None, None, ())
    longer = _find_longer_kernel(found[last.rank], found[most.rank])
    why = "whose host arrives later"
    if longer:
        why = f"which spends {figures(longer[1] / 1e6)} ms longer in {longer[0][:60]}"
    time = f"{figures(lost / 1e6)} ms per step"
    waits = f"rank {most.rank} waits {time} in collectives for rank {last.rank}"
    return Ranks(tuple(rows), last.rank, longer, (f"{waits}, {why}",))


def _find_longer_kernel(slow: Step, other: Step) -> tuple[str, int] | None:
    """The kernel that takes more on the slow one, by how much; None where it is next to nothing."""
    more: Counter[str] = Counter()
    for sign, step in ((1, slow), (-1, other)):
        for work in step.works:
            if work.kind != "collective":
                more[work.activity.name] += sign * work.activity.duration
    name = max(more, key=lambda n: more[n], default="")
    if name and more[name] > 0.01 * slow.period:
        return (name, more[name])
    return None


def _list_times(step: Step, *, collective: bool) -> list[int]:
    kernels = (work for work in step.works if work.activity.kind in {"kernel", GRAPH})
    return [w.activity.duration for w in kernels if (w.kind == "collective") == collective]
