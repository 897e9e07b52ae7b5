"""Runs  ->  what each finding predicted, and what its removal was worth: an append-only file.

One JSON document per line. A prediction is a firing rule with a gain on one launch, or several that
a child means to mend at once, with one joint estimate; an outcome is a child variant measured
against that parent. Nothing is ever changed or removed: a rule that is
improved predicts anew under its new version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from profkit.diagnosis.rule import Finding
from profkit.errors import ProfkitError
from profkit.evidence.compare import compare_runs
from profkit.evidence.runs import Evidence, Run
from profkit.files import cannot_write, locked, read_bytes, write_bytes
from profkit.model.estimate import Estimate, estimate
from profkit.records.store import digest

SCHEMA = "profkit.ledger/1"
NAME = "ledger.jsonl"
PACKAGE = Path(__file__).parents[1]
PROGRAM = "triage:"  # what a rule begins with that was said of a whole program, not of a variant
Name = tuple[str, str]  # variant and case
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

    meant = _meant(child)
    findings = [f for f in _firing(parent) if f.rule in meant]
    if len(findings) < 2:
        return None
    fixes = [fix for f in findings if (fix := BY_ID[f.rule].fix)]
    worth = estimate(parent.launch, *fixes)
    return _prediction(parent, _sha256(parent), findings, worth)


def rule_version(rule: str, package: Path = PACKAGE) -> str:
    """Twelve hex digits that change with the code that judges and prices."""
    return hashlib.sha256(f"{rule} {_code(package)}".encode()).hexdigest()[:12]


@cache
def _code(package: Path) -> str:
    files = [p for room in ("diagnosis", "model") for p in (package / room).rglob("*.py")]
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(files))).hexdigest()


def _sha256(run: Run) -> str:
    """Of a run's report; "" without one, which predicts nothing."""
    return digest(run.report) if run.report else ""


def _firing(run: Run) -> list[Finding]:
    if run.report is None or run.usable.empty or run.case is None:
        return []
    return [f for f in run.diagnosis().findings if f.status == "fires"]


def _meant(child: Run) -> tuple[str, ...]:
    """The rules that the child's header says it fixes, at its case."""
    header = child.record.header if child.record else None
    return header.fixes if header and header.case in (None, child.case) else ()


def _prediction(run: Run, sha256: str, findings: Sequence[Finding], worth: Estimate) -> Prediction:
    names = sorted(f.rule for f in findings)
    versions = [rule_version(name) for name in names]
    joined = "".join(versions).encode()
    hope = worth.expect
    return Prediction(
        sha256, run.variant, str(run.case), "+".join(names),
        versions[0] if len(names) == 1 else hashlib.sha256(joined).hexdigest()[:12],
        worth.gain, "; ".join(f.cause for f in findings),
        *((hope.gain, hope.low, hope.high) if hope else (None, None, None)),
    )  # fmt: skip


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
    became = {f.rule: f.what for launch in comparison.launches for f in launch.findings}
    wanted = joint.rule if joint else None
    speedup = comparison.time.speedup.to_json()
    return [
        Outcome(
            p.report, p.rule, p.version, child.variant, sha256,
            _became(p.rule, became), p.rule == (wanted or p.rule) and _is_meant(p.rule, child),
            comparison.time.answer, comparison.time.speedup.median, speedup["low"], speedup["high"],
        )
        for p in predicted
    ]  # fmt: skip


def _became(rules: str, became: Mapping[str, str]) -> str:
    """What became of a finding, or of several: gone when all are, else of the first that is not."""
    each = [became.get(rule, "unknown") for rule in rules.split("+")]
    return next((what for what in each if what != "gone"), "gone")


def _is_meant(rules: str, child: Run) -> bool:
    return set(rules.split("+")) <= set(_meant(child))


def update(
    evidence: Evidence, path: Path | None = None, only: Collection[Name] | None = None
) -> Ledger:
    """Append what the artifacts say and the ledger does not have yet.

    `path`: the ledger; ledger.jsonl among the artifacts when None. `only`: variants with their case
    that were measured just now: their predictions, and the outcomes that they are part of. None
    takes everything.

    Returns:
        Only what was appended, and what could not be read: that stops nothing.
    """
    file = path or evidence.root / NAME
    readable, problems = _runs(evidence, only)
    runs = {(run.variant, str(run.case)): run for run in readable}
    measured = runs if only is None else {name: runs[name] for name in only if name in runs}
    predicted = [p for run in measured.values() for p in predictions_of(run)]
    came: list[Outcome] = []
    for parent, child in _steps(runs):
        if {(run.variant, str(run.case)) for run in (parent, child)} & set(measured):
            came += outcomes_of(parent, child)
            predicted += filter(None, [joint_prediction(parent, child)])
    return add(file, Ledger(tuple(predicted), tuple(came), problems=tuple(problems)))


def add(file: Path, entries: Ledger) -> Ledger:
    """Append what a ledger does not have yet.

    `file`: the ledger; made where there is none. `entries`: predictions and outcomes, and problems
    to hand on.

    Returns:
        Only what was appended.
    """
    with locked(file):  # two updates at once: the second sees what the first has written
        known = read_ledger(file) if file.exists() else Ledger()
        new = Ledger(
            _unknown(entries.predictions, known.predictions),
            _unknown(entries.outcomes, known.outcomes),
            problems=entries.problems,
        )
        _append(file, new)
    return new


def _unknown(entries: Iterable[_Entry], known: Iterable[_Entry]) -> tuple[_Entry, ...]:
    """The entries that a ledger does not have, each once."""
    known_keys = {_key(entry) for entry in known}
    fresh: dict[tuple[Any, ...], _Entry] = {}
    for entry in entries:
        fresh.setdefault(_key(entry), entry)
    return tuple(entry for key, entry in fresh.items() if key not in known_keys)


def _runs(
    evidence: Evidence, only: Collection[Name] | None
) -> tuple[list[Run], list[ProfkitError]]:
    """The runs to look at: all, or at the cases of those that were measured.

    Reports are read when they are needed; of a case's other variants that are no parent and no
    child of what was measured, only the record is.
    """
    if only is None:
        return evidence.readable()
    runs, problems = [], []
    cases = {case for _, case in only}
    records, _ = evidence.records(cases)
    wanted = set(only)
    wanted |= {
        (r.header.after, r.case) for r in records if (r.variant, r.case) in only and r.header.after
    }
    wanted |= {(r.variant, r.case) for r in records if (r.header.after, r.case) in only}
    for name in sorted(wanted & set(evidence.names())):
        try:
            runs.append(evidence.load(*name))
        except ProfkitError as problem:
            problems.append(problem)
    return runs, problems


def _steps(runs: Mapping[Name, Run]) -> Iterator[tuple[Run, Run]]:
    """Parent and child at one case."""
    for (_, case), child in runs.items():
        parent = runs.get((child.record.header.after or "", case)) if child.record else None
        if parent:
            yield parent, child


def read_ledger(path: Path) -> Ledger:
    """Read a ledger; lines that are damaged are counted, not dropped from the file."""
    try:
        lines = read_bytes(path, _MOST).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise ProfkitError(
            f"{path}: {error.strerror}",
            "profkit claims --ledger --update writes it from the artifacts",
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
        old = read_bytes(path, _MOST) if path.exists() else b""
    except OSError as error:
        raise cannot_write(path, error) from error
    # A line cut off by a crash must not swallow the next one.
    cut = b"\n" if old and not old.endswith(b"\n") else b""
    write_bytes(path, old + cut + "".join(lines).encode())


def _line(kind: str, fields: Mapping[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, "kind": kind, **fields}, allow_nan=False) + "\n"
