"""Judged launches  ->  the JSON document "profkit.diagnosis/1". Keys are added, never renamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite, nan
from typing import TYPE_CHECKING

import msgspec

from profkit.diagnosis.launches import Dims, HotLine, JudgedLaunch, NvidiaRule
from profkit.diagnosis.rule import CombinedGain, Diagnosis, LaunchFinding, MeasuredGain, SourceShare
from profkit.model.launch import Missing
from profkit.model.scenario import Expectation
from profkit.records.store import Document
from profkit.reports.addresses import Layouts
from profkit.reports.frame import ReportFile

if TYPE_CHECKING:
    from profkit.units import MetricName


SCHEMA = "profkit.diagnosis/1"


class NearBorderEntry(Document, frozen=True, kw_only=True):
    """The verdict that is nearly as true."""

    other: str = ""
    margin: float = nan


class FindingEntry(Document, frozen=True, kw_only=True):
    """What a rule says about one launch."""

    rule: str = ""
    status: str = "unknown"
    cause: str = ""
    gain: float | None = None
    expect: Expectation | None = None
    evidence: dict[str, float] = msgspec.field(default_factory=dict)
    where: tuple[SourceShare, ...] = ()
    advice: str = msgspec.field(default="", name="try")
    note: bool = False
    # Where an ablation lies beside the report.
    measured: MeasuredGain | msgspec.UnsetType = msgspec.UNSET
    # Of bank conflicts, where the report has source counters.
    layouts: Layouts | msgspec.UnsetType = msgspec.UNSET


class TogetherEntry(Document, frozen=True, kw_only=True):
    """Two findings whose gains multiply, priced at once."""

    rules: tuple[str, ...] = ()
    gain: float | None = None
    expect: Expectation | None = None


class LaunchEntry(Document, frozen=True, kw_only=True):
    """One launch and the verdict on it; SI, shares from 0 to 1, null where not known."""

    report: str = ""
    index: int = 0
    kernel: str = ""
    device: str | None = None
    cc: str | None = None
    grid: Dims | None = None
    block: Dims | None = None
    variant: str | None = None
    case: str | None = None
    status: str = ""
    time: float = msgspec.field(default=nan, name="time_s")
    bound: str = "unknown"
    limiter: str | None = None
    because: str = ""
    near_border: NearBorderEntry | None = None
    headroom: float | None = None
    saves: float = msgspec.field(default=nan, name="saves_s")
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    findings: tuple[FindingEntry, ...] = ()
    together: TogetherEntry | None = None
    missing: tuple[Missing, ...] = ()
    ncu_rules: tuple[NvidiaRule, ...] = ()
    lines: tuple[HotLine, ...] = ()


class DiagnosisDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """What `profkit diagnose --json` prints: files, and launches with verdict and findings."""

    reports: tuple[ReportFile, ...] = ()
    launches: tuple[LaunchEntry, ...] = ()


def make_diagnosis_document(
    files: Iterable[ReportFile], launches: Iterable[JudgedLaunch]
) -> DiagnosisDocument:
    """Return these files and launches as the document that `diagnose --json` prints."""
    entries = tuple(make_launch_entry(run) for run in launches)
    return DiagnosisDocument(reports=tuple(files), launches=entries)


def make_launch_entry(run: JudgedLaunch) -> LaunchEntry:
    """Return one launch of the document. Of metrics it has those that were collected."""
    diagnosis = run.diagnosis
    near_border = _make_near_border_entry(diagnosis)
    together = _make_together_entry(diagnosis.together)
    findings = tuple(map(make_finding_entry, diagnosis.findings))
    return LaunchEntry(
        report=run.report,
        index=run.index,
        kernel=run.kernel,
        device=run.device,
        cc=run.cc,
        grid=run.grid,
        block=run.block,
        variant=run.variant,
        case=run.case,
        status=run.status,
        time=run.time,
        bound=diagnosis.bound,
        limiter=diagnosis.limiter,
        because=diagnosis.because,
        near_border=near_border,
        headroom=diagnosis.headroom,
        saves=diagnosis.estimate_saved_time(run.time),
        metrics=list_collected_metrics(run.values),
        findings=findings,
        together=together,
        missing=tuple(diagnosis.missing),
        ncu_rules=run.nvidia,
        lines=run.lines,
    )


def make_finding_entry(finding: LaunchFinding) -> FindingEntry:
    """Return one finding of the document."""
    return FindingEntry(
        rule=finding.rule,
        status=finding.status,
        cause=finding.cause,
        gain=finding.gain,
        expect=finding.expect,
        evidence=list_collected_metrics(finding.evidence),
        where=finding.where,
        advice=finding.advice,
        note=finding.note,
        measured=finding.measured or msgspec.UNSET,
        layouts=finding.layouts or msgspec.UNSET,
    )


def _make_near_border_entry(diagnosis: Diagnosis) -> NearBorderEntry | None:
    border = diagnosis.near_border
    if border:
        return NearBorderEntry(other=border.other, margin=border.margin)
    return None


def _make_together_entry(both: CombinedGain | None) -> TogetherEntry | None:
    if both is None:
        return None
    return TogetherEntry(rules=both.rules, gain=both.gain, expect=both.expect)


def list_collected_metrics(values: Mapping[MetricName, float | None]) -> dict[MetricName, float]:
    """Return the metrics that have a finite value."""
    collected = {}
    for name, value in values.items():
        if value is not None and isfinite(value):
            collected[name] = value
    return collected
