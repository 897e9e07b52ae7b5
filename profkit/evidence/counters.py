"""One launch before and after  ->  the metrics that moved, findings gone and new; as its header said?

Two rows of the frame and two diagnoses go in; nothing here knows of files or of time. A prediction is
in the header of a variant before it is profiled: `fixes: rule`, or `moves: stall_barrier<0.5x`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan, log, nan
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec
from msgspec import structs

from profkit.diagnosis.rule import Diagnosis, LaunchFinding, LaunchRule, Measure
from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError
from profkit.evidence.ablated import judge_fix_by_ablation
from profkit.evidence.moves import compute_factor_of_change, parse_expected_changes
from profkit.judge import Status
from profkit.model.launch import NotCollected, StrictLaunch
from profkit.model.resources import RESOURCES
from profkit.records.store import Document, Unprinted
from profkit.reports.figures import format_speedup, format_value_with_unit, format_values_with_unit
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from profkit.evidence.runs import Run
    from profkit.records.header import VariantHeader
    from profkit.units import (
        Clause,
        ClauseOrEmpty,
        Factor,
        FactorOrOne,
        FloatOrNan,
        FrameRow,
        MetricName,
        Quantity,
        RuleName,
        Share,
        TextOrEmpty,
    )

HoldsAndWhy = tuple[bool | None, str]  # None: it cannot be told

# What a change has to come to before it is shown. ncu measures in several passes: on launches of a
# few microseconds, shares of one binary differ by about a point and counts by a per cent.
POINTS = 0.01
RELATIVE = 0.02
GAIN = 0.1  # a finding whose gain differs by less than a tenth has not changed
# How the names of facts about the device or about ncu begin, which are not about the kernel.
_DEVICE = ("peak_", "sm_count", "sm_clock_max", "dram_clock_max", "l2_size", "max_warps")
NOT_THE_KERNEL = (*_DEVICE, "replay_passes", "limit_blocks", "limit_warps")


class MovedMetric(Document, frozen=True, kw_only=True):
    """A metric that differs."""

    metric: str = ""
    unit: str = ""  # its unit; "share" is a fraction of 1
    before: float = nan
    after: float = nan
    points: float | None = None  # the difference in percentage points, None for what is not a share
    factor: float = nan  # the value after over the one before; infinite when it was 0

    @property
    def distance_moved(self) -> float:
        """Return how far it moved, to sort by: a doubling weighs as much as 25 percentage points.

        From 16x on everything is far: what appears from nothing does not hide what decided. So few
        digits that equal moves of counters that go together are equal, not in the order of noise.
        """
        if self.unit == "share":
            return round(abs(self.after - self.before) * 4, 6)
        known = 0 < self.factor < inf
        if known:
            return min(round(abs(log(self.factor) / log(2)), 6), 4.0)
        return 4.0


# gone (fired, is clear, and there is too little of it left), new (fires, was clear, and there was too
# little of it), hidden (fired, is clear, and enough of it is there: another finding explains it, or it
# is no longer worth a line), uncovered (the same the other way), changed (fires on both, its gain or its
# amount differs), unknown (it fires on one side and was not decidable on the other), or stays; in the
# order of documents.
Became = Literal["gone", "new", "hidden", "uncovered", "changed", "unknown", "stays"]


# The same as a person would say it: explained (another finding now accounts for it), better or worse
# (there is clearly less or more of its cause), still there. Of a share of the launch's time, what counts
# is the time: the rest of a launch may have become shorter.
FindingState = Literal["gone", "new", "worse", "better", "still there", "explained", "unknown"]


def make_moved_metric(metric: MetricName, unit: str, before: float, after: float) -> MovedMetric:
    """Return a metric's move: percentage points of a share, and the factor, infinite from 0."""
    points = None
    if unit == "share":
        points = 100 * (after - before)
    factor = inf
    if before:
        factor = after / before
    return MovedMetric(
        metric=metric, unit=unit, before=before, after=after, points=points, factor=factor
    )


class TextChange(Document, frozen=True, kw_only=True):
    """The words of either side."""

    before: str = ""
    after: str = ""


class SecondsChange(Document, frozen=True, kw_only=True):
    """The times of either side; NaN where not collected."""

    before: float = nan
    after: float = nan


class FindingSide(Document, frozen=True, kw_only=True):
    """One rule's finding on one side."""

    status: Status = "unknown"
    cause: str = ""
    gain: float | None = None
    looked_at: Unprinted[tuple[str, ...]] = ()  # the metrics of its evidence
    repeats: Unprinted[str] = ""  # the rule that says the same of this launch


class CauseAmounts(Document, frozen=True, kw_only=True):
    """How much of a rule's cause there is on either side, whether or not it fires."""

    what: str = ""  # behind the number: "of the warps' time"
    unit: str = ""  # as of a metric; "ratio" of a number without one
    before: float = nan
    after: float = nan
    # Of a share of the launch's time: that time in the SMs' cycles, which no clock changes. NaN where
    # it is no share of the time, or the clock was not collected.
    cycles_before: Unprinted[float] = nan
    cycles_after: Unprinted[float] = nan

    @property
    def sentence(self) -> Clause:
        """Return both sides: "35 % -> 66 % of the warps' time", or "19 % ..., as before".

        Where a share went another way than the time that is judged, that time comes first: a share
        can rise because the launch became shorter, and that is said.
        """
        numbers = format_values_with_unit((self.before, self.after), self.unit)
        said = f"{' -> '.join(numbers)} {self.what}"
        if numbers[0] == numbers[1]:
            said = f"{numbers[0]} {self.what}, as before"
        if isnan(self.cycles_before) or isnan(self.cycles_after):
            return said
        cycles = (
            f"{format_value_with_unit(self.cycles_before, '')} -> "
            f"{format_value_with_unit(self.cycles_after, '')} cycles"
        )
        if self.is_share_against_cycles:
            share = "smaller share of a longer launch"
            if self.after > self.before:
                share = "larger share of a shorter launch"
            return f"{cycles}, but a {share}: {said}"
        is_share_changed = is_amount_clearly_changed(self.unit, self.before, self.after)
        if is_share_changed or not is_amount_clearly_changed("count", *self.compared_values):
            return said
        return f"{cycles}, about the same share: {said}"

    @property
    def is_share_against_cycles(self) -> bool:
        """Return whether a share of the time moved, and the time itself did not move the same way."""
        if isnan(self.cycles_before) or not is_amount_clearly_changed(
            self.unit, self.before, self.after
        ):
            return False
        is_same_way = (self.cycles_after > self.cycles_before) == (self.after > self.before)
        return not (is_same_way and is_amount_clearly_changed("count", *self.compared_values))

    @property
    def compared_values(self) -> tuple[Quantity, Quantity]:
        """Return what is compared: cycles where they are known, else the amounts themselves."""
        if isnan(self.cycles_before) or isnan(self.cycles_after):
            return self.before, self.after
        return self.cycles_before, self.cycles_after


class FindingChange(Document, frozen=True, kw_only=True):
    """What became of one rule."""

    rule: str = ""
    what: Became = "unknown"
    before: FindingSide = FindingSide()
    after: FindingSide = FindingSide()
    amount: CauseAmounts | None = None  # None where the rule has none, or it was not collected
    # The rule that explains it on the side where it is clear; of one that is hidden or uncovered.
    explained_by: str | None = None
    state: FindingState = "unknown"  # the same as `what`, in the words of the screen

    @property
    def repeated_rule(self) -> TextOrEmpty:
        """Return the rule that says the same on each side where this one fires; "" for none."""
        said = {side.repeats for side in (self.before, self.after) if side.status == "fires"}
        if len(said) == 1:
            return said.pop()
        return ""

    @property
    def why(self) -> ClauseOrEmpty:
        """Return how much of the cause there is, and why it is clear on a side that has enough of it."""
        amount = ""
        if self.amount is not None:
            amount = self.amount.sentence
        rule = BY_ID.get(self.rule)
        relation = "caused"
        if rule is not None and rule.shape:
            relation = "hidden"
        if self.what == "hidden" and self.explained_by:
            return f"{amount}; now {relation} by {self.explained_by}"
        if self.what == "hidden":
            return f"no longer reported ({amount})"
        if self.what == "uncovered" and self.explained_by:
            return f"{amount}; {relation} by {self.explained_by} until now"
        if self.what == "uncovered":
            return f"not reported before ({amount})"
        return amount


class LaunchChange(Document, frozen=True, kw_only=True):
    """One launch before and after."""

    kernel: TextChange = TextChange()
    bound: TextChange = TextChange()  # "bound: limiter"
    # duration under ncu, seconds: at ncu's clocks and cache control, one sample each. Never a verdict
    profiled_time: SecondsChange = msgspec.field(default=SecondsChange(), name="profiled_time_s")
    moved: tuple[MovedMetric, ...] = ()
    only_before: tuple[str, ...] = ()  # metrics that only BEFORE has
    only_after: tuple[str, ...] = ()  # metrics that only AFTER has
    findings: tuple[FindingChange, ...] = ()  # those that fire on either side
    leads: Unprinted[TextChange] = TextChange()  # the rule that each verdict begins with


def compare_launches(
    before: FrameRow, after: FrameRow, verdicts: tuple[Diagnosis, Diagnosis]
) -> LaunchChange:
    """Compare the metrics and findings of a launch before and after a change."""
    only_before = []
    only_after = []
    for name in CATALOGUE:
        is_before = not isnan(read_metric(before, name))
        is_after = not isnan(read_metric(after, name))
        if is_before and not is_after:
            only_before.append(name)
        elif is_after and not is_before:
            only_after.append(name)
    return LaunchChange(
        kernel=TextChange(before=str(before["kernel"]), after=str(after["kernel"])),
        bound=TextChange(before=verdicts[0].label, after=verdicts[1].label),
        profiled_time=SecondsChange(
            before=read_metric(before, "time"), after=read_metric(after, "time")
        ),
        moved=list_moved_metrics(before, after),
        only_before=tuple(only_before),
        only_after=tuple(only_after),
        findings=compare_findings(verdicts[0], verdicts[1], (before, after)),
        leads=TextChange(
            before=verdicts[0].top.rule if verdicts[0].top else "",
            after=verdicts[1].top.rule if verdicts[1].top else "",
        ),
    )


def list_moved_metrics(before: FrameRow, after: FrameRow) -> tuple[MovedMetric, ...]:
    """Return every catalogue metric that both have and that differs, farthest first."""
    found = []
    for metric in CATALOGUE.values():
        if metric.name.startswith(NOT_THE_KERNEL):
            continue
        was = read_metric(before, metric.name)
        now = read_metric(after, metric.name)
        if not isnan(was) and not isnan(now) and is_beyond_repeat_noise(metric.unit, was, now):
            found.append(make_moved_metric(metric.name, metric.unit, was, now))
    return tuple(sorted(found, key=lambda m: -m.distance_moved))


def compare_findings(
    before: Diagnosis,
    after: Diagnosis,
    rows: tuple[FrameRow, FrameRow] = ({}, {}),
) -> tuple[FindingChange, ...]:
    """Return what became of each rule that fires on either side: gone and new ones first."""
    was = index_findings_by_rule(before)
    now = index_findings_by_rule(after)
    launches = (
        StrictLaunch(list_catalogue_metrics_of_row(rows[0])),
        StrictLaunch(list_catalogue_metrics_of_row(rows[1])),
    )
    found = []
    for rule, old in was.items():
        new = now.get(rule)
        if new is None or "fires" not in (old.status, new.status):
            continue
        measured = measure_cause_on_both_sides(
            BY_ID.get(rule), launches, fired_before=old.status == "fires"
        )
        change = compare_finding(old, new, measured)
        explained_by = None
        if change.what == "hidden":
            explained_by = find_explaining_rule(old, after)
        elif change.what == "uncovered":
            explained_by = find_explaining_rule(new, before)
        sides = change.before, change.after
        state = choose_word_for_finding_state(change.what, explained_by, sides, measured)
        if state == "explained" and _has_better_shape(rule, measured):
            state = "better"
        found.append(structs.replace(change, explained_by=explained_by, state=state))
    return tuple(sorted(found, key=_rank_change))


def _has_better_shape(rule_id: RuleName, measured: MeasuredCause | None) -> bool:
    """Return whether a launch has a better shape: a full unit hides a shape, and is no cause of it."""
    rule = BY_ID.get(rule_id)
    if rule is None or not rule.shape or measured is None:
        return False
    return judge_amounts_of_cause(measured) == "better"


def index_findings_by_rule(diagnosis: Diagnosis) -> dict[RuleName, LaunchFinding]:
    """Return rule -> its finding."""
    return {finding.rule: finding for finding in diagnosis.findings}


def _rank_change(change: FindingChange) -> tuple[int, float]:
    """Rank the change of a finding: gone and new ones first, then by what they are worth."""
    order = get_args(Became).index(change.what)
    return order, -find_largest_gain(change.before, change.after)


def compare_finding(
    old: LaunchFinding, new: LaunchFinding, measured: MeasuredCause | None
) -> FindingChange:
    """Return what became of a finding, by itself: no other finding is looked at."""
    before = make_finding_side(old)
    after = make_finding_side(new)
    return FindingChange(
        rule=old.rule,
        what=judge_finding_change(before, after, measured),
        before=before,
        after=after,
        amount=measured.amount if measured else None,
    )


def make_finding_side(finding: LaunchFinding) -> FindingSide:
    """Return one side of a finding's change."""
    return FindingSide(
        status=finding.status,
        cause=finding.cause,
        gain=finding.gain,
        looked_at=tuple(finding.evidence),
        repeats=finding.repeats,
    )


class MeasuredCause(NamedTuple):
    """How much of a cause two launches have, and by which measure."""

    amount: CauseAmounts
    measure: Measure


def measure_cause_on_both_sides(
    rule: LaunchRule | None, launches: tuple[StrictLaunch, StrictLaunch], *, fired_before: bool
) -> MeasuredCause | None:
    """Return the amounts of a rule's cause, by the measure that is enough where it fired.

    None where the rule has no measure, or none that both launches have.
    """
    if rule is None:
        return None
    found: list[MeasuredCause] = []
    for measure in rule.measures:
        try:
            sides = measure.of(launches[0]), measure.of(launches[1])
        except (NotCollected, ArithmeticError):
            continue
        if not all(map(isfinite, sides)):
            continue
        cycles = (nan, nan)
        if measure.of_time:
            cycles = (
                convert_share_to_cycles(sides[0], launches[0]),
                convert_share_to_cycles(sides[1], launches[1]),
            )
        amount = CauseAmounts(
            what=measure.what,
            unit=measure.unit,
            before=sides[0],
            after=sides[1],
            cycles_before=cycles[0],
            cycles_after=cycles[1],
        )
        measured = MeasuredCause(amount, measure)
        if fired_before:
            firing = amount.before
        else:
            firing = amount.after
        if measure.is_enough_for_cause(firing):
            return measured
        found.append(measured)
    if found:
        return found[0]
    return None


def convert_share_to_cycles(share: Share, launch: StrictLaunch) -> FloatOrNan:
    """Return a share of a launch's time in cycles of the SMs; NaN where no clock was collected."""
    try:
        return share * launch["time"] * launch["sm_clock"]
    except NotCollected:
        return nan


def choose_word_for_finding_state(
    became: Became,
    explained_by: RuleName | None,
    sides: tuple[FindingSide, FindingSide],
    measured: MeasuredCause | None,
) -> FindingState:
    """Return what became of a finding in the words of the screen."""
    if became in ("gone", "new", "unknown"):
        return became
    if became == "stays":
        return "still there"
    if became == "hidden" and explained_by:
        return "explained"
    if measured is not None:
        return judge_amounts_of_cause(measured)
    before = sides[0].gain
    after = sides[1].gain
    if before is None or after is None:
        return "still there"
    if after < before:
        return "better"
    return "worse"


def judge_amounts_of_cause(measured: MeasuredCause) -> Literal["worse", "better", "still there"]:
    """Return whether there is clearly more or less of a cause."""
    before, after = measured.amount.compared_values
    is_cycles = not isnan(measured.amount.cycles_before)
    unit = measured.amount.unit
    if is_cycles:
        unit = "count"
    if not is_amount_clearly_changed(unit, before, after):
        return "still there"
    if measured.measure.is_less_of_cause(after, before):
        return "better"
    return "worse"


def judge_finding_change(
    before: FindingSide, after: FindingSide, measured: MeasuredCause | None = None
) -> Became:
    """Return what became of a finding; a cause that is still there keeps it from being gone."""
    if "unknown" in (before.status, after.status):
        return "unknown"
    if after.status == "clear":
        if measured is None or is_cause_gone(
            measured.measure, measured.amount.before, measured.amount.after
        ):
            return "gone"
        return "hidden"
    if before.status == "clear":
        if measured is None or is_cause_gone(
            measured.measure, measured.amount.after, measured.amount.before
        ):
            return "new"
        return "uncovered"
    if (before.gain is None) != (after.gain is None):
        return "changed"
    if before.gain and after.gain and abs(log(before.gain / after.gain)) > GAIN:
        return "changed"
    if measured is not None and is_amount_clearly_changed(
        measured.amount.unit, measured.amount.before, measured.amount.after
    ):
        return "changed"
    return "stays"


def is_cause_gone(measure: Measure, amount_firing: float, amount_clear: float) -> bool:
    """Return whether the side without the finding has less of its cause, and too little of it."""
    if not measure.is_less_of_cause(amount_clear, amount_firing):
        return False
    return measure.border is None or not measure.is_enough_for_cause(amount_clear)


def is_amount_clearly_changed(unit: str, before: float, after: float) -> bool:
    """Return whether two amounts differ by a tenth, and by more than two runs of one kernel."""
    if not is_beyond_repeat_noise(unit, before, after):
        return False
    if before <= 0 or after <= 0:
        return True
    return abs(log(before / after)) > GAIN


def find_explaining_rule(finding: LaunchFinding, verdict: Diagnosis) -> RuleName | None:
    """Return the first finding of a launch that explains what this one saw in another launch.

    A wait and a full unit are explained by what can be the cause of them, or by a full unit that warps
    wait for. The shape of a launch costs nothing while a unit is full: what leads there hides it.
    Wasted work is wasted whatever else there is.
    """
    rule = BY_ID.get(finding.rule)
    is_symptom = len(finding.explains) == 1
    is_unit_full = verdict.bound in UNIT_BOUNDS
    for other in verdict.findings:
        if not other.is_cause or other.rule == finding.rule:
            continue
        if is_symptom and not list_limiters_finding_can_cause(other).isdisjoint(finding.explains):
            return other.rule
        # A launch has one shape: a grid that fills no wave has no tail.
        other_rule = BY_ID.get(other.rule)
        is_other_shape = other_rule is not None and bool(other_rule.shape)
        if rule and rule.shape and (is_unit_full or is_other_shape):
            return other.rule
    return None


UNIT_BOUNDS = ("memory", "compute", "balanced")  # of launches in which a unit is full


def list_limiters_finding_can_cause(finding: LaunchFinding) -> set[str]:
    """Return the limiters that a finding can be the cause of, with the waits for a unit that is full."""
    return set(finding.explains) | _QUEUES.get(finding.rule, frozenset())


# Rule of a unit -> the waits that it causes when it is full.
_QUEUES: Mapping[str, frozenset[str]] = {
    resource.rule: frozenset(resource.queue) for resource in RESOURCES
}


def find_largest_gain(*findings: FindingSide) -> FactorOrOne:
    """Return the largest gain, as a factor, of those findings that fire; 1 where none does."""
    largest: Factor = 1.0
    for finding in findings:
        if finding.status == "fires" and finding.gain:
            largest = max(largest, finding.gain)
    return largest


def list_catalogue_metrics_of_row(row: FrameRow) -> dict[MetricName, float]:
    """Return the metrics of a row of the frame."""
    metrics = {}
    for name in CATALOGUE:
        if name in row:
            metrics[name] = read_metric(row, name)
    return metrics


def read_metric(row: FrameRow, metric: MetricName) -> FloatOrNan:
    """Return a metric of a row, in its unit of the catalogue; NaN where it was not collected."""
    return float(row.get(metric, float("nan")))


def is_beyond_repeat_noise(unit: str, before: float, after: float) -> bool:
    """Return whether two values differ by more than two runs of one binary do."""
    if unit == "share":
        return abs(after - before) >= POINTS
    return abs(after - before) > RELATIVE * max(abs(before), abs(after))


# What the header of the variant predicted.

PredictionKind = Literal["fixes", "fixes-not", "moves", "moves-not"]


class HeaderPrediction(Document, frozen=True, kw_only=True):
    """What the AFTER header said, and whether the counters agree."""

    rule: str = ""  # the rule's id; of a move the prediction as written: stall_barrier<0.5x
    said: PredictionKind = "fixes"
    kept: bool | None = None  # None when it is not decidable on one side
    because: str = ""


def _list_declared_predictions(header: VariantHeader) -> list[tuple[str, PredictionKind]]:
    """Return each prediction that a header declares, and of what kind it is."""
    declared: list[tuple[str, PredictionKind]] = []
    for kind in get_args(PredictionKind):
        for rule in getattr(header, kind.replace("-", "_")):
            declared.append((rule, kind))
    return declared


def judge_predictions_of_header(before: Run, after: Run) -> tuple[HeaderPrediction, ...]:
    """Return every prediction of AFTER's header; none when it does not change BEFORE."""
    record = after.record
    if record is None or record.header.after != before.variant:
        return ()
    declared = _list_declared_predictions(record.header)
    if record.header.case not in (None, after.case):
        why = f"applies to case {record.header.case}"
        return tuple(HeaderPrediction(rule=rule, said=kind, because=why) for rule, kind in declared)
    if before.usable.empty or after.usable.empty:
        why = "no report on both sides"
        return tuple(
            _judge_prediction_by_ablation(rule, kind, why, before, after) for rule, kind in declared
        )
    if not declared:
        return ()
    return _judge_predictions_by_counters(declared, before, after)


def _judge_predictions_by_counters(
    declared: Sequence[tuple[str, PredictionKind]], before: Run, after: Run
) -> tuple[HeaderPrediction, ...]:
    """Return predictions with what the reports of both sides say of them."""
    compared = compare_findings(before.diagnosis(), after.diagnosis(), (before.row, after.row))
    changes = {change.rule: change for change in compared}
    was = _get_finding_statuses_by_rule(before)
    now = _get_finding_statuses_by_rule(after)
    predictions = []
    for rule, kind in declared:
        if kind in ("moves", "moves-not"):
            predictions.append(judge_metric_prediction(rule, kind, before, after))
            continue
        kept, because = judge_rule_prediction(kind, was.get(rule), now.get(rule), changes.get(rule))
        predictions.append(HeaderPrediction(rule=rule, said=kind, kept=kept, because=because))
    return tuple(predictions)


def _get_finding_statuses_by_rule(run: Run) -> dict[RuleName, str]:
    """Return rule -> fires, clear or unknown."""
    return {finding.rule: finding.status for finding in run.diagnosis().findings}


def _judge_prediction_by_ablation(
    rule: str, kind: PredictionKind, otherwise: str, before: Run, after: Run
) -> HeaderPrediction:
    """Return a prediction that counters cannot check: of a fix, an ablation of both sides may."""
    kept = None
    because = ""
    if kind == "fixes":
        kept, because = judge_fix_by_ablation(rule, before.record, after.record)
    return HeaderPrediction(rule=rule, said=kind, kept=kept, because=because or otherwise)


def judge_rule_prediction(
    kind: PredictionKind,
    status_before: str | None,
    status_after: str | None,
    change: FindingChange | None = None,
) -> HoldsAndWhy:
    """Return whether a prediction about a rule holds, and why; None where it cannot be told."""
    if status_before is None or status_after is None:
        return None, "unknown rule"
    if "unknown" in (status_before, status_after):
        return None, "the rule's counters were not collected"
    if status_before == "clear":
        return False, "it did not fire before, so there was nothing to fix"
    if change is not None and change.what == "hidden":
        return kind != "fixes", f"still there: {change.why}"
    if status_after == "clear":
        return kind == "fixes", "clear now"
    return kind != "fixes", "it still fires" if kind == "fixes" else "it fires as before"


def judge_metric_prediction(
    prediction: str, kind: PredictionKind, before: Run, after: Run
) -> HeaderPrediction:
    """Return whether a metric moved as a header predicts."""
    try:
        (move,) = parse_expected_changes(prediction, "its header")
    except ProfkitError as error:
        return HeaderPrediction(rule=prediction, said=kind, because=error.message)
    pair = read_metric(before.row, move.metric), read_metric(after.row, move.metric)
    if any(map(isnan, pair)):
        because = f"{move.metric} was not collected"
        return HeaderPrediction(rule=prediction, said=kind, because=because)
    was, now = format_values_with_unit(pair, CATALOGUE[move.metric].unit)
    factor = compute_factor_of_change(*pair)
    because = f"{was} -> {now}" + (f", {format_speedup(factor)}" if factor < inf else "")
    kept = move.is_fulfilled_by_values(*pair) == (kind == "moves")
    return HeaderPrediction(rule=prediction, said=kind, kept=kept, because=because)
