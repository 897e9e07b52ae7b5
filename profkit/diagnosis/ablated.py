"""A verdict and the ablation beside its report  ->  what was measured, beside what is expected.

A gain that was measured and that a fix can reach is worth more than one that is expected. What only
bounds a gain is shown and never ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from profkit.diagnosis.rule import Diagnosis, LaunchFinding, MeasuredGain
from profkit.diagnosis.verdict import NOTHING_TO_WIN
from profkit.records.ablation import AblationRecord, MeasuredAblation
from profkit.records.record import Record

if TYPE_CHECKING:
    from profkit.units import GpuName, RankValue, RuleName


def find_ablation_of_same_gpu(
    record: Record | None, report_gpu: GpuName | None
) -> AblationRecord | None:
    """Return a record's ablation, if it is of one kernel and of the GPU that the report is of."""
    if record is None or record.ablation is None:
        return None
    found = AblationRecord.from_record(record.ablation)
    if found is None or len(found.kernels) != 1:
        return None  # of several kernels, none is as much faster as all of them together
    if report_gpu and found.gpu and report_gpu != found.gpu:
        return None
    return found


def add_measured_gains(diagnosis: Diagnosis, ablation: AblationRecord) -> Diagnosis:
    """Return the verdict with what was measured of its findings, which come in another order then."""
    findings = []
    for finding in diagnosis.findings:
        row = _find_ablation_of_rule(ablation.measured, finding.rule)
        if row and finding.status == "fires":
            finding = replace(finding, measured=_convert_to_measured_gain(row))  # noqa: PLW2901
        findings.append(finding)
    return replace(diagnosis, findings=tuple(sorted(findings, key=_rank_by_measured_gain)))


def _find_ablation_of_rule(
    rows: Sequence[MeasuredAblation], rule: RuleName
) -> MeasuredAblation | None:
    """Return what measures a rule: the largest gain that a fix can reach, else the largest bound."""
    rows = [row for row in rows if rule in row.rules]
    return max(rows, key=lambda row: (row.reachable, row.gain), default=None)


def _convert_to_measured_gain(row: MeasuredAblation) -> MeasuredGain:
    gain = row.gain
    low = row.low
    high = row.high
    if (
        row.reachable and row.sure_gain < NOTHING_TO_WIN <= gain
    ):  # only the control is so much slower
        gain = row.sure_gain
        low = row.sure_gain
        high = row.gain
    return MeasuredGain(
        ablation=row.ablation,
        title=row.title,
        gain=gain,
        low=low,
        high=high,
        reachable=row.reachable,
    )


def _rank_by_measured_gain(finding: LaunchFinding) -> tuple[RankValue, float]:
    """Rank what was measured and is worth it, then what is expected, then what brought nothing."""
    if not finding.is_cause:
        return 3, 0.0
    if finding.measured_reachable_gain is None:
        return 1, 0.0
    if finding.measured_reachable_gain >= NOTHING_TO_WIN:
        return 0, -finding.measured_reachable_gain
    return 2, -finding.measured_reachable_gain
