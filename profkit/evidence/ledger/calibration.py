"""A ledger  ->  every prediction with what came of it, and how well each rule's gains hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from profkit.evidence.ledger.ledger import Ledger, Outcome, Prediction


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


def score_ledger(ledger: Ledger) -> list[Score]:
    """Every prediction with its outcome: of a variant, case, rule and child only the latest.

    What an older version of a rule said, or of an older report, stays in the file and is not
    counted again.
    """
    by_key = {(p.report, p.rule, p.version): p for p in ledger.predictions}
    latest: dict[tuple[str, ...], Score] = {}
    for outcome in ledger.outcomes:
        made = by_key.get((outcome.report, outcome.rule, outcome.version))
        if made:
            key = made.variant, made.case, made.rule, outcome.child
            latest[key] = Score(made, outcome)
    return list(latest.values())


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
