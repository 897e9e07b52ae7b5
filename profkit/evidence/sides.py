"""What the user named (variants, records, reports, folders)  ->  the runs to compare, in pairs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.evidence.compare import COMPARE, Policy, RunComparison, compare_runs
from profkit.evidence.runs import Evidence, Run
from profkit.records.paths import files_of
from profkit.records.record import read_record
from profkit.records.store import Document

Comparand = str | Path | Run


@dataclass(frozen=True)
class Compared(Document):
    """What two sides have in common, compared: what `profkit compare BEFORE AFTER --json` prints."""

    schema = "profkit.compare/1"
    JSON = "schema changes alone problems"

    changes: tuple[RunComparison, ...]  # one per pair of runs
    alone: tuple[str, ...] = ()  # runs that only one side has
    problems: tuple[ProfkitError, ...] = ()  # what in a folder cannot be read


def compare_sides(
    before: Comparand,
    after: Comparand,
    case: str | None = None,
    artifacts: str | Path | Evidence = "artifacts",
    policy: Policy = COMPARE,
) -> Compared:
    """Compare two sides; a ProfkitError where one cannot be found, or they have nothing in common.

    Each is a variant's id ("stage1", "stage1.B"), a run record, a report, a folder, or a Run.
    `artifacts`: where variants' records and reports are: a folder, or what was read of it.
    """
    evidence = artifacts if isinstance(artifacts, Evidence) else Evidence(Path(artifacts))
    problems: list[ProfkitError] = []
    sides = [named_runs(side, evidence, case, problems) for side in (before, after)]
    pairs, alone = pair(sides[0], sides[1])
    if not pairs:
        have = ["; ".join(run.name for run in side) for side in sides]
        hint = "record both at one case: profkit profile --variant ... --case ..."
        raise ProfkitError(f"nothing in common to compare: {have[0]} and {have[1]}", hint)
    changes = tuple(compare_runs(b, a, policy) for b, a in pairs)
    return Compared(changes, alone, tuple(problems))


def named_runs(
    side: Comparand,
    evidence: Evidence,
    case: str | None = None,
    problems: list[ProfkitError] | None = None,
) -> list[Run]:
    """The runs that one side names; never an empty list.

    `problems` takes what in a folder cannot be read; without it, that is raised.
    """
    if isinstance(side, Run):
        return [side]
    path = Path(side)
    if path.is_dir():
        runs, wrong = Evidence(path).readable(lambda name: case in (None, name[1]))
        if wrong and (problems is None or not runs):
            raise wrong[0]
        if problems is not None:
            problems += wrong
    elif path.is_file():
        runs = [run for run in _of_file(path) if case in (None, run.case)]
    else:
        runs = [evidence.load(*name) for name in evidence.named(str(side), case)]
    if not runs:
        at = f" at case {case}" if case else ""
        raise ProfkitError(f"{side}: no run{at}", "profkit list shows what was recorded")
    return runs


def _of_file(path: Path) -> list[Run]:
    """The runs in one record (with the report beside it) or in one report."""
    if path.suffix == ".json":
        record = read_record(path)
        report = files_of(path.with_suffix("")).report
        return [Run(record.variant, record.case, record, None, report).read()]
    beside = path.with_suffix(".json")
    if beside.is_file():
        return _of_file(beside)
    frame = Run(path.stem, None, None, None, path).launches
    marks = {(v, c) for v, c in zip(frame["variant"], frame["case"], strict=True)}
    if len(marks) < 2:
        variant, case = next(iter(marks), (None, None))
        return [Run(variant or path.stem, case, None, frame, path)]
    return [
        Run(v or path.stem, c, None, frame[(frame["variant"] == v) & (frame["case"] == c)], path)
        for v, c in sorted((m for m in marks if m[0]), key=str)
    ]


def pair(before: list[Run], after: list[Run]) -> tuple[list[tuple[Run, Run]], tuple[str, ...]]:
    """Runs that belong together, and the names of those left alone.

    One run a side is a pair whatever it is called; several are paired by case and, where a side
    has several variants, by variant as well.
    """
    if len(before) == len(after) == 1:
        return [(before[0], after[0])], ()
    by_variant = any(len({run.variant for run in side}) > 1 for side in (before, after))

    def key(run: Run) -> tuple[str | None, ...]:
        return (run.variant, run.case) if by_variant else (run.case,)

    partner = {key(run): run for run in after}
    pairs = [(run, partner[key(run)]) for run in before if key(run) in partner]
    paired = set(map(id, chain.from_iterable(pairs)))
    return pairs, tuple(run.name for run in (*before, *after) if id(run) not in paired)
