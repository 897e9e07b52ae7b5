"""Judged launches  ->  the JSON document "profkit.diagnosis/1".

Keys are added, never renamed. No NaN or Infinity gets into it, and none of the text is changed:
json escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Final, Literal, TypedDict

from profkit.diagnosis.launches import HotLine, Judged, NvidiaRule
from profkit.diagnosis.rule import Finding, SourceShare
from profkit.model.launch import Missing
from profkit.model.scenario import Expectation
from profkit.records.store import plain
from profkit.reports.frame import ReportFile

SCHEMA: Final = "profkit.diagnosis/1"


class NearBorderEntry(TypedDict):
    """The verdict that is nearly as true."""

    other: str
    margin: float


# In the form for keys that are words of Python.
FindingEntry = TypedDict(
    "FindingEntry",
    {
        "rule": str, "status": str, "cause": str, "gain": float | None,
        "expect": Expectation | None, "evidence": dict[str, float | None],
        "where": tuple[SourceShare, ...], "try": str, "note": bool,
    },
)  # fmt: skip


class LaunchEntry(TypedDict):
    """One launch and the verdict on it; SI, shares from 0 to 1, null where not known."""

    report: str
    index: int
    kernel: str
    device: str | None
    cc: str | None
    grid: list[int] | None
    block: list[int] | None
    variant: str | None
    case: str | None
    status: str
    time_s: float | None
    bound: str
    limiter: str | None
    because: str
    near_border: NearBorderEntry | None
    headroom: float | None
    saves_s: float | None
    metrics: dict[str, float | None]
    findings: list[FindingEntry]
    missing: tuple[Missing, ...]
    ncu_rules: tuple[NvidiaRule, ...]
    lines: tuple[HotLine, ...]


class DiagnosisDocument(TypedDict):
    """What `profkit diagnose --json` prints: files, and launches with verdict and findings."""

    schema: Literal["profkit.diagnosis/1"]
    reports: list[ReportFile]
    launches: list[LaunchEntry]


def diagnosis_document(
    files: Iterable[ReportFile], launches: Sequence[Judged]
) -> DiagnosisDocument:
    """The document as plain lists and dicts, in a fixed order of keys."""
    return {
        "schema": SCHEMA,
        "reports": [plain(file) for file in files],
        "launches": [launch_entry(run) for run in launches],
    }


def launch_entry(run: Judged) -> LaunchEntry:
    """One launch of the document. Of metrics it has those that were collected."""
    diagnosis = run.diagnosis
    border = diagnosis.near_border
    return {
        "report": run.report,
        "index": run.index,
        "kernel": run.kernel,
        "device": run.device,
        "cc": run.cc,
        "grid": list(run.grid) if run.grid else None,
        "block": list(run.block) if run.block else None,
        "variant": run.variant,
        "case": run.case,
        "status": run.status,
        "time_s": finite_or_none(run.time),
        "bound": diagnosis.bound,
        "limiter": diagnosis.limiter,
        "because": diagnosis.because,
        "near_border": {"other": border.other, "margin": border.margin} if border else None,
        "headroom": finite_or_none(diagnosis.headroom),
        "saves_s": finite_or_none(diagnosis.saves(run.time)),
        "metrics": _collected(run.values),
        "findings": [_finding(f) for f in diagnosis.findings],
        "missing": plain(diagnosis.missing),
        "ncu_rules": plain(
            tuple(replace(r, speedup=finite_or_none(r.speedup)) for r in run.nvidia)
        ),
        "lines": plain(run.lines),
    }


def _finding(finding: Finding) -> FindingEntry:
    return {
        "rule": finding.rule,
        "status": finding.status,
        "cause": finding.cause,
        "gain": finite_or_none(finding.gain),
        "expect": plain(finding.expect),
        "evidence": _collected(finding.evidence),
        "where": plain(finding.where),
        "try": finding.advice,
        "note": finding.note,
    }


def _collected(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: value for name, value in values.items() if value is not None and isfinite(value)}


def finite_or_none(value: float | None) -> float | None:
    """A value that JSON has a form for: None instead of NaN and infinity."""
    return value if value is not None and isfinite(value) else None
