"""Runs of one case  ->  the ablation table: each step against its parent and every reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from profkit.errors import ProfkitError
from profkit.evidence.compare import Change, compare_runs
from profkit.evidence.records import Timing
from profkit.evidence.runs import Evidence, MissingEvidence, Run
from profkit.evidence.samples import Interval
from profkit.evidence.stats import Comparison, Taken, compare_samples, median_interval


@dataclass(frozen=True)
class Step:
    """One variant of the ladder.

    Attributes:
        variant: Its id.
        title: First line of its header.
        parent: The variant it changes, None for a first one.
        depth: Steps from the first one.
        time: Median with a warm L2, seconds; None without timing.
        bound: "bound: limiter", "" without a report.
        change: Against the parent; None for a first one or when the parent was not recorded.
        references: Reference -> this variant compared to it: its speed-up is reference over
            variant, above 1 where the variant is faster. Measured in the variant's own session.
        note: What is missing.
    """

    variant: str
    title: str
    parent: str | None
    depth: int
    time: Interval | None
    bound: str
    change: Change | None
    references: Mapping[str, Comparison]
    note: str = ""


@dataclass(frozen=True)
class Ladder:
    """All variants of a case, each after its parent."""

    case: str
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """The document that `profkit compare --ladder --json` prints."""
        from profkit.evidence.sides import change_json

        return {
            "schema": "profkit.ladder/1",
            "case": self.case,
            "steps": [
                {
                    "variant": s.variant,
                    "title": s.title,
                    "parent": s.parent,
                    "depth": s.depth,
                    "time_s": s.time.to_json() if s.time else None,
                    "bound": s.bound or None,
                    "change": change_json(s.change) if s.change else None,
                    "references": {name: c.to_json() for name, c in s.references.items()},
                    "note": s.note or None,
                }
                for s in self.steps
            ],
        }


def ladder(evidence: Evidence, case: str, anyway: bool = False) -> Ladder:
    """The ablation table of everything recorded at one case.

    Raises:
        ProfkitError: Nothing was recorded at this case, or `after:` goes round in a circle.
    """
    runs = [evidence.load(variant, c) for variant, c in evidence.names() if c == case]
    recorded = {run.variant: run for run in runs if run.record is not None}
    if not recorded:
        cases = sorted({c for _, c in evidence.names()})
        hint = f"recorded cases: {', '.join(cases)}" if cases else "profkit profile --all"
        raise ProfkitError(f"no run record at case {case} in {evidence.root}", hint)
    order = ladder_order({v: r.record.after for v, r in recorded.items() if r.record})
    return Ladder(case, tuple(_step(recorded, v, depth, anyway) for v, depth in order))


def ladder_order(parents: Mapping[str, str | None]) -> list[tuple[str, int]]:
    """Variants with their depth, each after its parent, siblings in the order given.

    Raises:
        ProfkitError: A variant comes, through others, after itself.
    """
    found: list[tuple[str, int]] = []

    def place(variants: Iterable[str], depth: int) -> None:
        for variant in variants:
            found.append((variant, depth))
            place([v for v, parent in parents.items() if parent == variant], depth + 1)

    place([v for v, parent in parents.items() if parent is None or parent not in parents], 0)
    lost = sorted(set(parents) - {v for v, _ in found})
    if lost:
        raise ProfkitError(
            f"`after:` goes round in a circle: {', '.join(lost)}",
            "one of these headers has to name a variant outside the circle, or none",
        )
    return found


def _step(runs: Mapping[str, Run], variant: str, depth: int, anyway: bool) -> Step:
    run = runs[variant]
    record = run.record
    assert record is not None  # noqa: S101 - only recorded runs are placed on the ladder
    parent = runs.get(record.after) if record.after else None
    note = "" if parent or not record.after else f"its parent {record.after} was not recorded"
    try:
        time = run.time
    except MissingEvidence:
        time = None
    verdict = run.diagnosis() if not run.usable.empty else None
    return Step(
        variant=variant,
        title=record.title,
        parent=record.after,
        depth=depth,
        time=median_interval(time.samples) if time else None,
        bound=f"{verdict.bound}: {verdict.limiter}" if verdict else "",
        change=compare_runs(parent, run, anyway) if parent else None,
        references=_against(time, record.references) if time else {},
        note=note,
    )


def _against(time: Timing, references: Mapping[str, Mapping[str, Timing]]) -> dict[str, Comparison]:
    found = {}
    for name, timings in references.items():
        other = timings.get("warm")
        if other is None:
            continue
        rounds = time.interleaved and other.interleaved
        equal = len(time.samples) == len(other.samples)
        taken: Taken = "interleaved" if rounds and equal else "one process"
        found[name] = compare_samples(other.samples, time.samples, taken=taken)
    return found
