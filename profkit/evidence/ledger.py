"""Runs  ->  what each finding predicted, and what its removal was worth: an append-only file.

One JSON document per line. A prediction is a firing rule with a gain on one launch; an outcome is
a child variant measured against that parent. Nothing is ever changed or removed: a rule that is
improved predicts anew under its new version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from profkit.errors import ProfkitError
from profkit.evidence.compare import compare_runs
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.version import version

SCHEMA = "profkit.ledger/1"
NAME = "ledger.jsonl"


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
    """

    predictions: tuple[Prediction, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    damaged: tuple[int, ...] = ()


@dataclass(frozen=True)
class Score:
    """One prediction with one outcome; see both for the fields."""

    prediction: Prediction
    outcome: Outcome

    @property
    def tried(self) -> bool:
        """Whether the child removed the cause: only then can the gain come true."""
        return self.outcome.finding == "gone"


@dataclass(frozen=True)
class Calibration:
    """How one rule's gains came out, over the children that removed its cause.

    Attributes:
        rule: Its id.
        tried: Predictions whose cause a child removed.
        bounded: Measured speed-ups at or below the gain.
        close: Those within a factor of two below it.
        ratio: Median of measured over predicted; None when nothing was tried.
    """

    rule: str
    tried: int
    bounded: int
    close: int
    ratio: float | None


def predictions_of(run: Run) -> list[Prediction]:
    """What the rules predict for a run: the firing ones that give a gain."""
    if run.report is None or run.usable.empty or run.case is None:
        return []
    from profkit.diagnosis.rules import BY_ID

    sha256 = hashlib.sha256(run.report.read_bytes()).hexdigest()
    return [
        Prediction(sha256, run.variant, run.case, f.rule, version(BY_ID[f.rule]), f.gain, f.cause)
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
            became.get(p.rule, "unknown"), p.rule in child.record.fixes,
            found.time.answer, found.time.speedup.median, speedup["low"], speedup["high"],
        )
        for p in predicted
    ]  # fmt: skip


def update(evidence: Evidence, path: Path | None = None) -> Ledger:
    """Append what the artifacts say and the ledger does not have yet.

    Args:
        evidence: The artifacts.
        path: The ledger; ledger.jsonl among the artifacts when None.

    Returns:
        Only what was appended.
    """
    file = path or evidence.root / NAME
    known = read_ledger(file) if file.exists() else Ledger()
    runs = {name: evidence.load(*name) for name in evidence.names()}
    predicted = [p for run in runs.values() for p in predictions_of(run)]
    came = [
        outcome
        for (_, case), child in runs.items()
        if child.record and child.record.after and (parent := runs.get((child.record.after, case)))
        for outcome in outcomes_of(parent, child)
    ]
    new = Ledger(
        tuple(
            p for p in dict.fromkeys(predicted) if _key(p) not in set(map(_key, known.predictions))
        ),
        tuple(o for o in dict.fromkeys(came) if _key(o) not in set(map(_key, known.outcomes))),
    )
    _append(file, new)
    return new


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


def scores(ledger: Ledger) -> list[Score]:
    """Every prediction with each of its outcomes, the latest outcome of a child only."""
    by_key = {(p.report, p.rule, p.version): p for p in ledger.predictions}
    latest = {(o.report, o.rule, o.version, o.child): o for o in ledger.outcomes}
    return [Score(by_key[key[:3]], outcome) for key, outcome in latest.items() if key[:3] in by_key]


def calibration(found: Iterable[Score]) -> list[Calibration]:
    """Per rule, how the gains came out; most tried first."""
    by_rule: dict[str, list[Score]] = {}
    for score in found:
        by_rule.setdefault(score.prediction.rule, []).append(score)
    table = [_calibrated(rule, [s for s in rows if s.tried]) for rule, rows in by_rule.items()]
    return sorted(table, key=lambda c: (-c.tried, c.rule))


def _calibrated(rule: str, tried: list[Score]) -> Calibration:
    ratios = [s.outcome.speedup / s.prediction.gain for s in tried]
    return Calibration(
        rule,
        len(ratios),
        sum(r <= 1 for r in ratios),
        sum(0.5 <= r <= 1 for r in ratios),
        median(ratios) if ratios else None,
    )


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
