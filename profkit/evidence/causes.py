"""What became of the findings, and the time  ->  was the estimate right, and what explains the change?

Only what is gone or clearly smaller can have made a kernel faster, and only what is new or clearly
larger can have made it slower. Everything else was there on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, isnan, log
from typing import TYPE_CHECKING, Literal

from profkit.diagnosis.rule import Diagnosis
from profkit.diagnosis.rules import BY_ID
from profkit.evidence.counters import (
    FindingChange,
    FindingState,
    LaunchChange,
    index_findings_by_rule,
)
from profkit.evidence.stats import TimeComparison
from profkit.records.store import Document

if TYPE_CHECKING:
    from profkit.units import FactorOrOne, RuleName


# A cause has to account for at least so much of a change in time: what accounts for less is a part of
# the answer, and the larger part is unknown.
MOST_OF_IT = 0.5


class EstimateAndGain(Document, frozen=True, kw_only=True):
    """The gain that BEFORE's diagnosis expected of a fix, and the one that was measured."""

    rule: str = ""  # the finding that is gone or smaller
    state: FindingState = "gone"
    expected: float = 1.0  # speed-up factors, as in the diagnosis of BEFORE
    low: float = 1.0
    high: float = 1.0
    at_most: float | None = None
    measured: float = 1.0  # median(before) / median(after)
    is_inside: bool = False  # whether what was measured lies between low and high

    @property
    def outcome(self) -> Literal["inside", "above", "below"]:
        """Return where the measured gain lies: in the expected range, above or below it."""
        if self.is_inside:
            return "inside"
        if self.measured > self.high:
            return "above"
        return "below"


class ChangeCause(Document, frozen=True, kw_only=True):
    """The finding that explains why the time changed."""

    rule: str = ""
    state: FindingState = "gone"
    # the part of the time saved or lost that it accounts for, where the finding is measured in time
    share: float | None = None


def compare_fix_with_measured_gain(
    launch: LaunchChange, before: Diagnosis, time_comparison: TimeComparison | None
) -> EstimateAndGain | None:
    """Return the estimate for the finding that the change fixed; None where it fixed none."""
    if (
        time_comparison is None
        or time_comparison.reason == "identical"
        or not isfinite(time_comparison.speedup.median)
    ):
        return None
    estimates = index_findings_by_rule(before)
    for change in _iterate_findings_in_states_by_gain(
        launch, launch.leads.before, ("gone", "better")
    ):
        finding = estimates.get(change.rule)
        if finding is None or finding.expect is None:
            continue
        expect = finding.expect
        measured = time_comparison.speedup.median
        return EstimateAndGain(
            rule=change.rule,
            state=change.state,
            expected=expect.gain,
            low=expect.low,
            high=expect.high,
            at_most=finding.gain,
            measured=measured,
            is_inside=expect.low <= measured <= expect.high,
        )
    return None


def find_cause_of_time_change(
    launch: LaunchChange, time: TimeComparison | None
) -> ChangeCause | None:
    """Return the finding that explains a change in time; None where none does, or nothing changed."""
    if time is None or time.answer not in ("faster", "slower"):
        return None
    if time.answer == "faster":
        candidates = _iterate_findings_in_states_by_gain(
            launch, launch.leads.before, ("gone", "better")
        )
    else:
        candidates = _iterate_findings_in_states_by_gain(
            launch, launch.leads.after, ("new", "worse")
        )
    for change in candidates:
        share = estimate_explained_share(change, time)
        if can_explain_most_of_change(change, time, share):
            return ChangeCause(rule=change.rule, state=change.state, share=share)
    return None


def _iterate_findings_in_states_by_gain(
    launch: LaunchChange, leading_rule: RuleName, states: tuple[FindingState, ...]
) -> Iterator[FindingChange]:
    """Yield the findings in these states: the one that led first, then by what they were worth."""
    chosen = []
    for change in launch.findings:
        rule = BY_ID.get(change.rule)
        is_note = rule is not None and rule.note
        if change.state in states and not is_note:
            chosen.append(change)
    chosen.sort(
        key=lambda change: (change.rule != leading_rule, -_get_bound_on_gain_factor(change))
    )
    yield from chosen


def _get_bound_on_gain_factor(change: FindingChange) -> FactorOrOne:
    """Return the bound on the gain of a finding, on the side where it fires."""
    if change.state in ("gone", "better"):
        return change.before.gain or 1.0
    return change.after.gain or 1.0


def estimate_explained_share(change: FindingChange, time: TimeComparison) -> float | None:
    """Return the part of the time saved or lost that a finding accounts for.

    Known of a share of the launch's time only: the seconds of it before, less those after.
    """
    amount = change.amount
    if amount is None or isnan(amount.cycles_before):
        return None
    before = time.before.median
    after = time.after.median
    if before == after:
        return None
    return (amount.before * before - amount.after * after) / (before - after)


def can_explain_most_of_change(
    change: FindingChange, time: TimeComparison, explained_share: float | None
) -> bool:
    """Return whether a finding can account for most of a change in time."""
    change_in_time = abs(log(time.speedup.median))
    if log(_get_bound_on_gain_factor(change)) < MOST_OF_IT * change_in_time:
        return False  # not even without any of it
    if explained_share is not None:
        return explained_share >= MOST_OF_IT
    if change.state in ("gone", "new") or change.amount is None:
        return True
    small, large = sorted(change.amount.compared_values)
    return small <= (1 - MOST_OF_IT) * large
