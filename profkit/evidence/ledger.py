"""Runs  ->  what each finding predicted, and what its removal was worth: an append-only file.

One JSON document per line. A prediction is a firing rule with a gain on one launch, or several that
a child means to mend at once, with one joint estimate; an outcome is a child variant measured
against that parent. Nothing is ever changed or removed: a rule that is
improved predicts anew under its new version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from profkit.diagnosis.rule import Finding
from profkit.errors import ProfkitError
from profkit.evidence.compare import compare_runs
from profkit.evidence.runs import Evidence, Run
from profkit.files import cannot_write, locked, read_bytes, write_bytes
from profkit.model.scenario import Estimate, estimate
from profkit.records.paths import RunName
from profkit.records.record import Record
from profkit.records.store import digest

SCHEMA = "profkit.ledger/1"
NAME = "ledger.jsonl"
PACKAGE = Path(__file__).parents[1]
PROGRAM = "triage:"  # what a rule begins with that was said of a whole program, not of a variant
_MOST = 256 << 20  # bytes of a ledger: a million entries
_Entry = TypeVar("_Entry", "Prediction", "Outcome")


@dataclass(frozen=True)
class Prediction:
    """What removing a rule's cause was said to be worth."""

    report: str  # sha256 of the report
    variant: str  # what was profiled
    case: str  # at which case
    rule: str  # the rule's id; several in a row, "a+b", where a child mends them at once
    version: str  # hash of the rule's code and thresholds, and of its estimate's
    gain: float | None  # the speed-up factor, an upper bound; None where no counter bounds it
    cause: str  # the finding's line
    # the speed-up to expect; None where nothing was ever measured, and in old entries
    expect: float | None = None
    low: float | None = None  # of the interval, which is to hold four times of five
    high: float | None = None  # of the same


@dataclass(frozen=True)
class Outcome:
    """What came of a prediction when a child variant was measured."""

    report: str  # sha256 of the report that the prediction was made on
    rule: str
    version: str  # of the rule that predicted
    child: str  # the child variant
    child_report: str  # sha256 of its report
    finding: str  # gone, stays, changed or unknown on the child
    meant: bool  # whether the child's header says that it fixes this, and nothing else that fires
    answer: str  # faster, slower, same or cannot tell
    speedup: float  # parent over child; low and high are its interval
    low: float | None  # NaN is written as null
    high: float | None  # NaN is written as null


@dataclass(frozen=True)
class Ledger:
    """Everything in a ledger file."""

    predictions: tuple[Prediction, ...] = ()  # in the order written
    outcomes: tuple[Outcome, ...] = ()  # in the order written
    damaged: tuple[int, ...] = ()  # numbers of lines that are no entry (kept in the file, not read)
    # of an update: records and reports that could not be read
    problems: tuple[ProfkitError, ...] = ()


def predictions_of(run: Run) -> list[Prediction]:
    """What the rules predict for a run: the firing ones that give a gain or an expectation."""
    sha256 = _sha256(run)
    findings = [f for f in _firing(run) if f.gain is not None or f.expect is not None]
    return [_prediction(run, sha256, [f], Estimate(f.gain, f.expect)) for f in findings]


def joint_prediction(parent: Run, child: Run) -> Prediction | None:
    """What fixing at once all that the child means to fix is worth; None for one or none."""
    from profkit.diagnosis.rules import BY_ID

    meant = meant_rules(child.record)
    findings = [f for f in _firing(parent) if f.rule in meant]
    if len(findings) < 2:
        return None
    fixes = [fix for f in findings if (fix := BY_ID[f.rule].fix)]
    worth = estimate(parent.launch, *fixes)
    return _prediction(parent, _sha256(parent), findings, worth)


def rule_version(rule: str, package: Path = PACKAGE) -> str:
    """Twelve hex digits that change with the code that judges and prices."""
    of_program = rule.startswith(PROGRAM)
    folders = ("program/findings", "program/replay") if of_program else ("diagnosis", "model")
    return hashlib.sha256(f"{rule} {_code(package, *folders)}".encode()).hexdigest()[:12]


@cache
def _code(package: Path, *folders: str) -> str:
    files = chain.from_iterable((package / folder).rglob("*.py") for folder in folders)
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(files))).hexdigest()


def _sha256(run: Run) -> str:
    """Of a run's report; "" without one, which predicts nothing."""
    return digest(run.report) if run.report else ""


def _firing(run: Run) -> list[Finding]:
    if run.report is None or run.usable.empty or run.case is None:
        return []
    return [f for f in run.diagnosis().findings if f.status == "fires"]


def meant_rules(child: Record | None) -> tuple[str, ...]:
    """The rules that a child's header says it fixes, at its case."""
    if child is None or child.header.case not in (None, child.case):
        return ()
    return child.header.fixes


def _prediction(run: Run, sha256: str, findings: Sequence[Finding], worth: Estimate) -> Prediction:
    names = sorted(f.rule for f in findings)
    version, *more = [rule_version(name) for name in names]
    if more:
        version = hashlib.sha256("".join([version, *more]).encode()).hexdigest()[:12]
    cause, hope = "; ".join(f.cause for f in findings), worth.expect
    whose = sha256, run.variant, str(run.case), "+".join(names), version
    interval = (hope.gain, hope.low, hope.high) if hope else (None, None, None)
    return Prediction(*whose, worth.gain, cause, *interval)


def outcomes_of(parent: Run, child: Run) -> list[Outcome]:
    """What came of the parent's predictions in a child; none when they cannot be compared."""
    joint = joint_prediction(parent, child)
    predicted = [*predictions_of(parent), *([joint] if joint else [])]
    if not predicted or child.report is None or child.record is None:
        return []
    comparison = compare_runs(parent, child)
    if comparison.time is None or not comparison.launches:
        return []
    sha256 = digest(child.report)
    findings = chain.from_iterable(launch.findings for launch in comparison.launches)
    became = {f.rule: f.what for f in findings}
    time, speedup = comparison.time, comparison.time.speedup.to_json()
    measured = time.answer, time.speedup.median, speedup["low"], speedup["high"]
    meant, wanted = {*meant_rules(child.record)}, joint.rule if joint else None
    came = []
    for p in predicted:
        rules = p.rule.split("+")
        # gone when all are, else what became of the first that is not
        what = next((b for b in (became.get(r, "unknown") for r in rules) if b != "gone"), "gone")
        is_meant = p.rule == (wanted or p.rule) and meant.issuperset(rules)
        whose = p.report, p.rule, p.version, child.variant, sha256
        came.append(Outcome(*whose, what, is_meant, *measured))
    return came


def entries_of_program(before: Path, after: Path, change: Mapping[str, Any]) -> Ledger:
    """Each finding of one triage as a prediction, and what a later one says as its outcome.

    `before`, `after`: their documents. `change`: what became of each, "profkit.triages/1".
    """
    sha256, child_sha256 = digest(before), digest(after)
    step, gone = change["before_ms"], [p for p in change["promises"] if p["state"] == "gone"]
    became = {"gone": "gone", "smaller": "changed", "there": "stays"}
    predictions, outcomes = [], []
    for promise in change["promises"]:
        rule = f"{PROGRAM}{promise['category']}"
        whose = sha256, before.parent.name, "program", rule, rule_version(rule)
        hope = [step / max(step - saved, 1e-3 * step) for saved in promise["said"]]
        predictions.append(Prediction(*whose, None, promise["say"], *hope))
        meant = gone == [promise]  # what several changes saved together is no one's
        came = change["answer"], step / change["after_ms"], None, None
        child = after.parent.name, child_sha256, became[promise["state"]], meant
        outcomes.append(Outcome(sha256, rule, rule_version(rule), *child, *came))
    return Ledger(tuple(predictions), tuple(outcomes))


def update(
    evidence: Evidence, path: Path | None = None, only: Collection[RunName] | None = None
) -> Ledger:
    """Append, and return, what the artifacts say and the ledger does not have yet.

    `only`: variants with their case that were measured just now: their predictions, and the
    outcomes that they are part of.
    """
    readable, problems = _runs(evidence, only)
    runs = {(run.variant, str(run.case)): run for run in readable}
    measured = [name for name in (runs if only is None else only) if name in runs]
    predicted: list[Prediction] = []
    for name in measured:
        predicted += predictions_of(runs[name])
    came: list[Outcome] = []
    for (variant, case), child in runs.items():
        parent = ((child.record.header.after or "") if child.record else "", case)
        if parent in runs and {parent, (variant, case)} & set(measured):
            came += outcomes_of(runs[parent], child)
            predicted += filter(None, [joint_prediction(runs[parent], child)])
    new = Ledger(tuple(predicted), tuple(came), problems=tuple(problems))
    return add(path or evidence.root / NAME, new)


def add(file: Path, entries: Ledger) -> Ledger:
    """Append what a ledger, made where there is none, does not have yet; return that."""
    with locked(file):  # two updates at once: the second sees what the first has written
        known = read_ledger(file) if file.exists() else Ledger()
        predictions = _unknown(entries.predictions, known.predictions)
        outcomes = _unknown(entries.outcomes, known.outcomes)
        _append(file, [*predictions, *outcomes])
    return Ledger(predictions, outcomes, problems=entries.problems)


def _unknown(entries: Iterable[_Entry], known: Iterable[_Entry]) -> tuple[_Entry, ...]:
    seen = {_key(entry) for entry in known}
    fresh: dict[tuple[Any, ...], _Entry] = {}
    for entry in entries:
        fresh.setdefault(_key(entry), entry)
    return tuple(entry for key, entry in fresh.items() if key not in seen)


def _runs(
    evidence: Evidence, only: Collection[RunName] | None
) -> tuple[list[Run], list[ProfkitError]]:
    """The runs to look at: all, or at the cases of those that were measured.

    Reports are read when they are needed; of a case's other variants that are no parent and no
    child of what was measured, only the record is.
    """
    if only is None:
        return evidence.readable()
    cases = {case for _, case in only}
    known, _ = evidence.readable(lambda name: name[1] in cases, counters=False)
    wanted = set(only)
    for record in filter(None, (run.record for run in known)):
        pair = {(record.variant, record.case), (record.header.after or "", record.case)}
        wanted |= pair if pair & set(only) else set()
    return evidence.readable(lambda name: name in wanted)


def read_ledger(path: Path) -> Ledger:
    """Read a ledger; lines that are damaged are counted, not dropped from the file."""
    try:
        lines = read_bytes(path, _MOST).decode("utf-8", "replace").splitlines()
    except OSError as error:
        hint = "profkit claims --ledger --update writes it from the artifacts"
        raise ProfkitError(f"{path}: {error.strerror}", hint) from error
    entries: list[Prediction | Outcome] = []
    damaged: list[int] = []
    for number, line in enumerate(lines, 1):
        try:
            fields = dict(json.loads(line))
            fields.pop("schema", None)
            entries.append(_KINDS[fields.pop("kind")](**fields))
        except (ValueError, TypeError, KeyError):
            damaged.append(number)
    predictions = tuple(e for e in entries if isinstance(e, Prediction))
    outcomes = tuple(e for e in entries if isinstance(e, Outcome))
    return Ledger(predictions, outcomes, tuple(damaged))


_KINDS: dict[str, type[Prediction | Outcome]] = {"prediction": Prediction, "outcome": Outcome}


def _key(entry: Prediction | Outcome) -> tuple[Any, ...]:
    """What makes an entry a new one: not the timing's digits, which differ with the seed."""
    if isinstance(entry, Prediction):
        return entry.report, entry.rule, entry.version
    return entry.report, entry.rule, entry.version, entry.child, entry.child_report


def _append(path: Path, new: Sequence[Prediction | Outcome]) -> None:
    if not new:
        return
    kinds = {kind: name for name, kind in _KINDS.items()}
    plain = ({"schema": SCHEMA, "kind": kinds[type(entry)], **asdict(entry)} for entry in new)
    text = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in plain)
    try:
        old = read_bytes(path, _MOST) if path.exists() else b""
    except OSError as error:
        raise cannot_write(path, error) from error
    # A line cut off by a crash must not swallow the next one.
    cut = b"\n" if old and not old.endswith(b"\n") else b""
    write_bytes(path, old + cut + text.encode())
