"""Runs  ->  what each finding predicted, and what its removal was worth: an append-only file.

One JSON document per line. A prediction is a firing rule with a gain on one launch; an outcome is
a child variant measured against that parent. Nothing is ever changed or removed: a rule that is
improved predicts anew under its new version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.evidence.comparison.compare import compare_runs
from profkit.evidence.predictions.version import rule_version
from profkit.evidence.runs.runs import Evidence, Run

SCHEMA = "profkit.ledger/1"
NAME = "ledger.jsonl"
Name = tuple[str, str]  # variant and case


@dataclass(frozen=True)
class Prediction:
    """What a rule said that removing its cause is worth at most.

    Attributes:
        report: sha256 of the report.
        variant: What was profiled.
        case: At which case.
        rule: The rule's id.
        version: Hash of the rule's code and thresholds.
        gain: The speed-up factor, an upper bound.
        cause: The finding's line.
    """

    report: str
    variant: str
    case: str
    rule: str
    version: str
    gain: float
    cause: str


@dataclass(frozen=True)
class Outcome:
    """What came of a prediction when a child variant was measured.

    Attributes:
        report: sha256 of the report that the prediction was made on.
        rule: The rule's id.
        version: Of the rule that predicted.
        child: The child variant.
        child_report: sha256 of its report.
        finding: gone, stays, changed or unknown on the child.
        meant: Whether the child's header says that it fixes this rule.
        answer: faster, slower, same or cannot tell.
        speedup: Parent over child; low and high are its interval.
        low: NaN is written as null.
        high: NaN is written as null.
    """

    report: str
    rule: str
    version: str
    child: str
    child_report: str
    finding: str
    meant: bool
    answer: str
    speedup: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Ledger:
    """Everything in a ledger file.

    Attributes:
        predictions: In the order written.
        outcomes: In the order written.
        damaged: Numbers of lines that are no entry (kept in the file, not read).
        problems: Of an update: records and reports that could not be read.
    """

    predictions: tuple[Prediction, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    damaged: tuple[int, ...] = ()
    problems: tuple[ProfkitError, ...] = ()


def predictions_of(run: Run) -> list[Prediction]:
    """What the rules predict for a run: the firing ones that give a gain."""
    if run.report is None or run.usable.empty or run.case is None:
        return []
    from profkit.diagnosis.rules import BY_ID

    sha256 = hashlib.sha256(run.report.read_bytes()).hexdigest()
    return [
        Prediction(
            sha256, run.variant, run.case, f.rule, rule_version(BY_ID[f.rule]), f.gain, f.cause
        )
        for f in run.diagnosis().findings
        if f.status == "fires" and f.gain is not None
    ]


def outcomes_of(parent: Run, child: Run) -> list[Outcome]:
    """What came of the parent's predictions in a child; none when they cannot be compared."""
    predicted = predictions_of(parent)
    if not predicted or child.report is None or child.record is None:
        return []
    found = compare_runs(parent, child)
    if found.time is None or not found.launches:
        return []
    sha256 = hashlib.sha256(child.report.read_bytes()).hexdigest()
    became = {f.rule: f.what for launch in found.launches for f in launch.findings}
    speedup = found.time.speedup.to_json()
    return [
        Outcome(
            p.report, p.rule, p.version, child.variant, sha256,
            became.get(p.rule, "unknown"), p.rule in child.record.header.fixes,
            found.time.answer, found.time.speedup.median, speedup["low"], speedup["high"],
        )
        for p in predicted
    ]  # fmt: skip


def update(
    evidence: Evidence, path: Path | None = None, only: Collection[Name] | None = None
) -> Ledger:
    """Append what the artifacts say and the ledger does not have yet.

    Args:
        evidence: The artifacts.
        path: The ledger; ledger.jsonl among the artifacts when None.
        only: Variants with their case that were measured just now: their predictions, and the
            outcomes that they are part of. None takes everything.

    Returns:
        Only what was appended, and what could not be read: that stops nothing.
    """
    file = path or evidence.root / NAME
    known = read_ledger(file) if file.exists() else Ledger()
    readable, problems = _runs(evidence, only)
    runs = {(run.variant, str(run.case)): run for run in readable}
    measured = runs if only is None else {name: runs[name] for name in only if name in runs}
    predicted = [p for run in measured.values() for p in predictions_of(run)]
    came = [
        outcome
        for parent, child in _steps(runs)
        if {(parent.variant, str(parent.case)), (child.variant, str(child.case))} & set(measured)
        for outcome in outcomes_of(parent, child)
    ]
    new = Ledger(
        tuple(
            p for p in dict.fromkeys(predicted) if _key(p) not in set(map(_key, known.predictions))
        ),
        tuple(o for o in dict.fromkeys(came) if _key(o) not in set(map(_key, known.outcomes))),
        problems=tuple(problems),
    )
    _append(file, new)
    return new


def _runs(
    evidence: Evidence, only: Collection[Name] | None
) -> tuple[list[Run], list[ProfkitError]]:
    """The runs to look at: all, or at the cases of those that were measured.

    Reports are read when they are needed; of a case's other variants that are no parent and no
    child of what was measured, only the record is.
    """
    if only is None:
        return evidence.readable()
    found, problems = [], []
    cases = {case for _, case in only}
    records, _ = evidence.records(cases)
    wanted = set(only)
    wanted |= {
        (r.header.after, r.case) for r in records if (r.variant, r.case) in only and r.header.after
    }
    wanted |= {(r.variant, r.case) for r in records if (r.header.after, r.case) in only}
    for name in sorted(wanted & set(evidence.names())):
        try:
            found.append(evidence.load(*name))
        except ProfkitError as problem:
            problems.append(problem)
    return found, problems


def _steps(runs: Mapping[Name, Run]) -> Iterator[tuple[Run, Run]]:
    """Parent and child at one case."""
    for (_, case), child in runs.items():
        parent = runs.get((child.record.header.after or "", case)) if child.record else None
        if parent:
            yield parent, child


def read_ledger(path: Path) -> Ledger:
    """Read a ledger; lines that are damaged are counted, not dropped from the file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise ProfkitError(
            f"{path}: {error.strerror}", "profkit ledger --update writes it from the artifacts"
        ) from error
    predictions: list[Prediction] = []
    outcomes: list[Outcome] = []
    damaged: list[int] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            kind, fields = entry["kind"], {k: v for k, v in entry.items() if k not in _FRAME}
            if kind == "prediction":
                predictions.append(Prediction(**fields))
            elif kind == "outcome":
                outcomes.append(Outcome(**fields))
            else:
                damaged.append(number)
        except (ValueError, TypeError, KeyError):
            damaged.append(number)
    return Ledger(tuple(predictions), tuple(outcomes), tuple(damaged))


_FRAME = ("schema", "kind")


def _key(entry: Prediction | Outcome) -> tuple[Any, ...]:
    """What makes an entry a new one: not the timing's digits, which differ with the seed."""
    if isinstance(entry, Prediction):
        return entry.report, entry.rule, entry.version
    return entry.report, entry.rule, entry.version, entry.child, entry.child_report


def _append(path: Path, new: Ledger) -> None:
    lines = [_line("prediction", asdict(p)) for p in new.predictions]
    lines += [_line("outcome", asdict(o)) for o in new.outcomes]
    if not lines:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A line cut off by a crash must not swallow the next one.
        cut = path.exists() and not path.read_bytes().endswith(b"\n")
        with path.open("a", encoding="utf-8") as file:
            file.write(("\n" if cut else "") + "".join(lines))
    except OSError as error:
        raise ProfkitError(f"cannot write {path}: {error.strerror}") from error


def _line(kind: str, fields: Mapping[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, "kind": kind, **fields}, allow_nan=False) + "\n"
