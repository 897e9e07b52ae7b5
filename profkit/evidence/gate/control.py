"""Library calls that both sides timed  ->  what the machine did, where the code cannot have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profkit.errors import ProfkitError
from profkit.evidence.comparison.compare import (
    SpreadOf,
    between_processes,
    how_taken,
    with_spread,
)
from profkit.evidence.gate.power import GATE
from profkit.evidence.timing.stats import TimeComparison, compare_samples
from profkit.records.artifacts import RunName
from profkit.records.record import Record

RunFound = Record | str  # the record; of a report without one, its hash


def control_of(
    base: Mapping[RunName, RunFound],
    head: Mapping[RunName, RunFound],
    spread_of: SpreadOf,
    problems: list[ProfkitError],
) -> dict[str, TimeComparison]:
    """Case -> how the library calls that both sides timed compare: the most typical one.

    Wrong results took no time worth knowing. `problems` takes calls whose samples are no times.
    """
    by_case: dict[str, list[TimeComparison]] = {}
    for name, before in base.items():
        after = head.get(name)
        if not (isinstance(before, Record) and isinstance(after, Record)):
            continue
        if before.reference and after.reference and _same_library(before, after):
            numbers = with_spread(GATE, between_processes(before, after, GATE, spread_of))
            taken = how_taken(before, after)
            try:
                time = compare_samples(before.warm, after.warm, taken=taken, thresholds=numbers)
                by_case.setdefault(name[1], []).append(time)
            except ProfkitError as problem:
                problems.append(ProfkitError(f"{'.'.join(name)}: {problem}", problem.hint))
    return {case: _typical(found) for case, found in by_case.items()}


def _same_library(before: Record, after: Record) -> bool:
    timed = bool(before.warm and after.warm) and before.session != after.session
    return (
        timed
        and not (before.faults or after.faults)
        and (before.versions.torch, before.backend)
        == (
            after.versions.torch,
            after.backend,
        )
    )


def _typical(found: Sequence[TimeComparison]) -> TimeComparison:
    return sorted(found, key=lambda c: c.speedup.median)[len(found) // 2]
