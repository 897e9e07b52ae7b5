"""A ledger  ->  every prediction with what came of it, and how well each rule's gains hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log
from statistics import median

from profkit.evidence.ledger import PROGRAM, Ledger, Outcome, Prediction, meant_rules
from profkit.evidence.runs import Evidence

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
    outcomes of other steps are left out, and a cause counts as meant only if the header still says
    so.
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
    if parent != prediction.variant:
        return False
    return not outcome.meant or set(prediction.rule.split("+")) <= fixes


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
