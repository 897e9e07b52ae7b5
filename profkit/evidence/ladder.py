"""Runs of one case  ->  the ablation table: each step against its parent and every reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from profkit.errors import ProfkitError
from profkit.evidence.compare import (
    RunComparison,
    SpreadOf,
    compare_runs,
    compare_times,
    nobody_measured,
)
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.samples import Interval, IntervalEntry, as_groups
from profkit.evidence.sides import ChangeEntry
from profkit.evidence.stats import (
    TimeComparison,
    TimeEntry,
    median_interval,
)
from profkit.records.store import as_document


class RungEntry(TypedDict):
    """One variant of a ladder; null where not known."""

    variant: str
    title: str
    parent: str | None
    depth: int
    time_s: IntervalEntry | None
    bound: str | None
    change: ChangeEntry | None
    references: dict[str, TimeEntry]
    note: str | None


class LadderEntry(TypedDict):
    """All variants of one case, each after its parent."""

    schema: Literal["profkit.ladder/1"]
    case: str
    steps: list[RungEntry]
    problems: list[str]


class LaddersDocument(TypedDict):
    """What `profkit compare --ladder --json` prints: each variant against its parent."""

    schema: Literal["profkit.ladders/1"]
    ladders: list[LadderEntry]


@dataclass(frozen=True)
class Rung:
    """One variant of the ladder."""

    variant: str
    title: str  # first line of its header
    parent: str | None  # the variant it changes, None for a first one
    depth: int  # steps from the first one
    time: Interval | None  # median with a warm L2, seconds; None without timing
    bound: str  # "bound: limiter", "" without a report
    # against the parent; None for a first one or when the parent was not recorded
    change: RunComparison | None
    # reference -> this variant compared to it: its speed-up is reference over variant, above
    # 1 where the variant is faster
    references: Mapping[str, TimeComparison]
    note: str = ""  # what is missing

    @property
    def best(self) -> TimeComparison | None:
        """The comparison with the fastest reference."""
        return min(self.references.values(), key=lambda c: c.before.median, default=None)


@dataclass(frozen=True)
class Ladder:
    """All variants of a case, each after its parent."""

    case: str  # the problem's case
    steps: tuple[Rung, ...]  # in ladder order
    # records and reports that cannot be read, headers that go round in a circle
    problems: tuple[ProfkitError, ...] = ()

    def to_json(self) -> LadderEntry:
        """One ladder of the document that `profkit compare --ladder --json` prints."""
        return as_document(LadderEntry, self)


def build_ladder(
    evidence: Evidence, case: str, anyway: bool = False, spread_of: SpreadOf = nobody_measured
) -> Ladder:
    """The ablation table of everything recorded at one case.

    Raises:
        ProfkitError: Nothing was recorded at this case.
    """
    runs, problems = evidence.readable(case)
    if not problems and not any(run.record and not run.record.reference for run in runs):
        cases = sorted({c for _, c in evidence.names()})
        hint = f"recorded cases: {', '.join(cases)}" if cases else "profkit profile --all"
        raise ProfkitError(f"no run record at case {case} in {evidence.root}", hint)
    return of_runs(runs, case, anyway, problems, spread_of)


def of_runs(
    runs: Sequence[Run],
    case: str,
    anyway: bool = False,
    unreadable: Iterable[ProfkitError] = (),
    spread_of: SpreadOf = nobody_measured,
) -> Ladder:
    """The same of runs that are there already; those without a record have no place in it."""
    problems = list(unreadable)
    recorded = {run.variant: run for run in runs if run.record and not run.record.reference}
    bad = {run.variant: fault for run in runs if (fault := _bad_samples(run))}
    problems += bad.values()
    recorded |= {v: _untimed(recorded[v]) for v in bad if v in recorded}
    references = [
        r for r in runs
        if r.record and r.record.reference and r.record.warm and r.variant not in bad
    ]  # fmt: skip
    order, lost = ladder_order({v: r.record.header.after for v, r in recorded.items() if r.record})
    if lost:
        problems.append(
            ProfkitError(
                f"case {case}: `after:` goes round in a circle: {', '.join(lost)}",
                "one of these headers has to name a variant outside the circle, or none",
            )
        )
    steps = tuple(_step(recorded, references, place, anyway, spread_of) for place in order)
    return Ladder(case, steps, tuple(problems))


def _bad_samples(run: Run) -> ProfkitError | None:
    """Why a run's samples are no times; None if they are, or if there are none."""
    if run.record is None or not run.record.warm:
        return None
    try:
        as_groups(run.record.warm, f"warm samples of {run.name}", positive=True)
    except ProfkitError as error:
        return error
    return None


def _untimed(run: Run) -> Run:
    return replace(run, record=replace(run.record, timing=None)) if run.record else run


def ladder_order(parents: Mapping[str, str | None]) -> tuple[list[tuple[str, int]], list[str]]:
    """Variants with their depth, each after its parent, siblings in the order given.

    Returns:
        All of them, and those that come, through others, after themselves (they stand last).
    """
    order: list[tuple[str, int]] = []

    def place(variants: Iterable[str], depth: int) -> None:
        for variant in variants:
            order.append((variant, depth))
            place([v for v, parent in parents.items() if parent == variant], depth + 1)

    place([v for v, parent in parents.items() if parent is None or parent not in parents], 0)
    lost = sorted(set(parents) - {v for v, _ in order})
    return order + [(v, 0) for v in lost], lost


def _step(
    runs: Mapping[str, Run],
    references: Iterable[Run],
    place: tuple[str, int],
    anyway: bool,
    spread_of: SpreadOf,
) -> Rung:
    variant, depth = place
    run = runs[variant]
    record = run.record
    after = record.header.after if record else None
    parent = runs.get(after) if after else None
    verdict = run.diagnosis() if not run.usable.empty else None
    # A kernel that is wrong gets no time: what it saved it may have saved by being wrong.
    timed = bool(record and record.warm and not record.faults)
    return Rung(
        variant=variant,
        title=record.header.title if record else "",
        parent=after,
        depth=depth,
        time=median_interval(run.samples) if timed else None,
        bound=verdict.label if verdict else "",
        change=compare_runs(parent, run, anyway, spread_of=spread_of) if parent else None,
        references={
            r.variant: compare_times(r.timed, run.timed, spread_of=spread_of)
            for r in references
            if timed
        },
        note="" if parent or not after else f"its parent {after} is not among these runs",
    )
