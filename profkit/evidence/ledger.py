"""Runs  ->  what each finding predicted, and what its removal was worth: an append-only file.

One JSON document per line. A prediction is a firing rule with a gain on one launch, or several that
a child means to fix at once, with one joint estimate; an outcome is a child variant measured against
that parent. Nothing is ever changed or removed: a rule that is improved predicts anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from profkit.diagnosis.rule import Finding
from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError
from profkit.evidence.compare import compare_runs
from profkit.evidence.runs import Evidence, Run
from profkit.files import cannot_write, is_there, locked, read_bytes, write_bytes
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
    rule: str  # the rule's id; several in a row, "a+b", where a child fixes them at once
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


_KINDS: dict[str, type[Prediction | Outcome]] = {"prediction": Prediction, "outcome": Outcome}


@dataclass(frozen=True)
class Ledger:
    predictions: tuple[Prediction, ...] = ()  # in the order written
    outcomes: tuple[Outcome, ...] = ()  # in the order written
    damaged: tuple[int, ...] = ()  # numbers of lines that are no entry (kept in the file, not read)
    problems: tuple[ProfkitError, ...] = ()  # of an update: what could not be read


def predictions_of(run: Run) -> list[Prediction]:
    """What the rules predict for a run: the firing ones that give a gain or an expectation."""
    findings = [f for f in _firing(run) if f.gain is not None or f.expect is not None]
    return [_prediction(run, [f], Estimate(f.gain, f.expect)) for f in findings]


def joint_prediction(parent: Run, child: Run) -> Prediction | None:
    """What fixing at once all that the child means to fix is worth; None for one or none."""
    meant = meant_rules(child.record)
    findings = [f for f in _firing(parent) if f.rule in meant]
    if len(findings) < 2:
        return None
    fixes = [fix for f in findings if (fix := BY_ID[f.rule].fix)]
    return _prediction(parent, findings, estimate(parent.launch, *fixes))


def rule_version(rule: str, package: Path = PACKAGE) -> str:
    """Twelve hex digits that change with the code that judges and prices."""
    of_program = rule.startswith(PROGRAM)
    folders = ("program/findings", "program/replay") if of_program else ("diagnosis", "model")
    return hashlib.sha256(f"{rule} {_code(package, *folders)}".encode()).hexdigest()[:12]


@cache
def _code(package: Path, *folders: str) -> str:
    files = chain.from_iterable((package / folder).rglob("*.py") for folder in folders)
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(files))).hexdigest()


def _firing(run: Run) -> list[Finding]:
    if run.report is None or run.usable.empty or run.case is None:
        return []
    return [f for f in run.diagnosis().findings if f.status == "fires"]


def meant_rules(child: Record | None) -> tuple[str, ...]:
    """The rules that a child's header says it fixes, at its case."""
    said = child is not None and child.header.case in (None, child.case)
    return child.header.fixes if child and said else ()


def _prediction(run: Run, findings: Sequence[Finding], worth: Estimate) -> Prediction:
    names = sorted(f.rule for f in findings)
    version, *more = [rule_version(name) for name in names]
    if more:
        version = hashlib.sha256("".join([version, *more]).encode()).hexdigest()[:12]
    cause, hope = "; ".join(f.cause for f in findings), worth.expect
    whose = run.sha256, run.variant, str(run.case), "+".join(names), version
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
    findings = chain.from_iterable(launch.findings for launch in comparison.launches)
    became = {f.rule: f.what for f in findings}
    time, sha256 = comparison.time, child.sha256
    speedup = time.speedup.to_json()
    measured = time.answer, time.speedup.median, speedup["low"], speedup["high"]
    meant, wanted = {*meant_rules(child.record)}, joint.rule if joint else None
    came = []
    for p in predicted:
        rules = p.rule.split("+")  # gone when all are, else what became of the first that is not
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

    `only`: of variants with their case the predictions, and the outcomes that they are part of.
    """
    readable, problems = _runs(evidence, only)
    runs = {(run.variant, str(run.case)): run for run in readable}
    measured = [name for name in (runs if only is None else only) if name in runs]
    predicted = [*chain.from_iterable(predictions_of(runs[name]) for name in measured)]
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
        known = read_ledger(file) if is_there(file) else Ledger()
        predictions = _unknown(entries.predictions, known.predictions)
        outcomes = _unknown(entries.outcomes, known.outcomes)
        new: list[Prediction | Outcome] = [*predictions, *outcomes]
        kinds = ((type(entry).__name__.lower(), asdict(entry)) for entry in new)
        plain = ({"schema": SCHEMA, "kind": kind, **fields} for kind, fields in kinds)
        text = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in plain)
        try:
            old = read_bytes(file, _MOST) if text and is_there(file) else b""
        except OSError as error:
            raise cannot_write(file, error) from error
        # A line cut off by a crash must not swallow the next one.
        cut = b"\n" if old and not old.endswith(b"\n") else b""
        if text:
            write_bytes(file, old + cut + text.encode())
    return Ledger(predictions, outcomes, problems=entries.problems)


def _unknown(entries: Iterable[_Entry], known: Iterable[_Entry]) -> tuple[_Entry, ...]:
    seen, fresh = set(map(_key, known)), dict[tuple[Any, ...], _Entry]()
    for entry in entries:
        fresh.setdefault(_key(entry), entry)
    return tuple(entry for key, entry in fresh.items() if key not in seen)


def _runs(
    evidence: Evidence, only: Collection[RunName] | None
) -> tuple[list[Run], list[ProfkitError]]:
    """The runs to look at: all, or those that were measured, with their parents and children."""
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


def _key(entry: Prediction | Outcome) -> tuple[Any, ...]:
    """What makes an entry a new one: not the timing's digits, which differ with the seed."""
    if isinstance(entry, Prediction):
        return entry.report, entry.rule, entry.version
    return entry.report, entry.rule, entry.version, entry.child, entry.child_report


HOLDS = 1.05  # a bound that the measured speed-up passes by less still held: timing's own spread
CLOSE = 1.5  # an expectation is good if the measured speed-up is within this factor
FARTHEST = 20.0  # a factor error counts as this at most: one miss is not the mean of all
ALL = "all"  # the row of the table that is no rule's

# Child and case -> its parent and the rules that its header says it fixes.
Edges = Mapping[tuple[str, str], tuple[str | None, frozenset[str]]]


@dataclass(frozen=True)
class Score:
    """One prediction with one outcome; see both for the fields."""

    prediction: Prediction
    outcome: Outcome

    @property
    def tried(self) -> bool:
        """Whether the child meant to remove the cause and did: only then can the gain come true."""
        return self.outcome.meant and self.outcome.finding == "gone"

    @property
    def slower(self) -> bool:
        """Whether the child became slower all the same: something else went wrong in it."""
        return self.outcome.answer == "slower"

    @property
    def held(self) -> bool | None:
        """Whether the bound held; None without one."""
        gain = self.prediction.gain
        return None if gain is None else self.outcome.speedup <= gain * HOLDS

    @property
    def inside(self) -> bool | None:
        """Whether the speed-up is in the interval; None without one."""
        low, high = self.prediction.low, self.prediction.high
        return None if low is None or high is None else low <= self.outcome.speedup <= high

    @property
    def error(self) -> float | None:
        """Expected over measured gain, what is above 1 of each; None without an expectation."""
        expect, came = self.prediction.expect, self.outcome.speedup
        if expect is None or came <= 1:
            return None
        return min(FARTHEST, max(1 / FARTHEST, (expect - 1) / (came - 1)))


@dataclass(frozen=True)
class Calibration:
    """How one rule's gains came out, over the children that meant to remove its cause and did."""

    rule: str  # its id, several in a row where they were removed at once, or "all"
    tried: int  # such children that did not become slower
    bounded: int  # of those with a bound, measured speed-ups at or below it (by 5 %)
    close: int  # those within a factor of two below it
    ratio: float | None  # median of measured over bound; None when nothing was tried
    bounds: int  # how many had a bound
    expected: int  # how many had an expectation
    near: int  # of those, measured speed-ups within a factor of 1.5 of it
    inside: int  # measured speed-ups in their interval
    # factor error of what is gained, exp(mean |ln((expected - 1) / (measured - 1))|)
    factor: float | None
    slower: int  # children that removed the cause and became slower; not counted above


def edges_today(evidence: Evidence) -> Edges:
    """What the headers of today say of every recorded variant: its parent, and what it fixes."""
    runs, _ = evidence.readable(counters=False)
    records = filter(None, (run.record for run in runs))
    return {(r.variant, r.case): (r.header.after, frozenset(meant_rules(r))) for r in records}


def score_ledger(ledger: Ledger, today: Edges | None = None) -> list[Score]:
    """Return every prediction with its outcome: of a variant, case, rule and child only the latest.

    What an older version of a rule said, or of an older report, is not counted again. `today`:
    outcomes of other steps are left out, and a cause that the header no longer names is not meant.
    """
    by_key = {(p.report, p.rule, p.version): p for p in ledger.predictions}
    latest: dict[tuple[str, ...], Score] = {}
    for outcome in ledger.outcomes:
        prediction = by_key.get((outcome.report, outcome.rule, outcome.version))
        if prediction and (today is None or _still_meant(prediction, outcome, today)):
            key = prediction.variant, prediction.case, prediction.rule, outcome.child
            latest[key] = Score(prediction, outcome)
    return list(latest.values())


def _still_meant(prediction: Prediction, outcome: Outcome, today: Edges) -> bool:
    if prediction.rule.startswith(PROGRAM):
        return True  # a program has no header
    parent, fixes = today.get((outcome.child, prediction.case), (None, frozenset()))
    meant = not outcome.meant or set(prediction.rule.split("+")) <= fixes
    return meant and parent == prediction.variant


def calibration(scores: Iterable[Score]) -> list[Calibration]:
    """Per rule, how the gains came out, most tried first; before them, all rules together."""
    by_rule: dict[str, list[Score]] = {ALL: []}
    for score in scores:
        by_rule.setdefault(score.prediction.rule, []).append(score)
        by_rule[ALL].append(score)
    table = [_calibrated(rule, [s for s in rows if s.tried]) for rule, rows in by_rule.items()]
    return sorted(table, key=lambda c: (c.rule != ALL, -c.tried, c.rule))


def _calibrated(rule: str, tried: list[Score]) -> Calibration:
    faster = [s for s in tried if not s.slower]
    ratios = [s.outcome.speedup / s.prediction.gain for s in faster if s.prediction.gain]
    near = [s.prediction.expect / s.outcome.speedup for s in faster if s.prediction.expect]
    errors = [abs(log(s.error)) for s in faster if s.error is not None]
    return Calibration(
        rule,
        tried=len(faster),
        bounded=sum(r <= HOLDS for r in ratios),
        close=sum(0.5 <= r <= HOLDS for r in ratios),
        ratio=median(ratios) if ratios else None,
        bounds=len(ratios),
        expected=len(near),
        near=sum(1 / CLOSE <= n <= CLOSE for n in near),
        inside=sum(s.inside is True for s in faster),
        factor=exp(sum(errors) / len(errors)) if errors else None,
        slower=len(tried) - len(faster),
    )
