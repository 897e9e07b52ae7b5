"""Judged launches  ->  the JSON document "profkit.diagnosis/1".

Keys are added, never renamed. No NaN or Infinity gets into it, and none of the text is changed:
json escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Final, Literal, TypedDict, cast

from profkit.diagnosis.launches import HotLine, Judged, NvidiaRule
from profkit.diagnosis.rule import Finding, SourceShare
from profkit.model.launch import Missing
from profkit.model.scenario import Expectation
from profkit.records.store import json_safe, plain
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
        "rule": str,
        "status": str,
        "cause": str,
        "gain": float | None,
        "expect": Expectation | None,
        "evidence": dict[str, float | None],
        "where": tuple[SourceShare, ...],
        "try": str,
        "note": bool,
    },
)


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
    """Return the document as plain lists and dicts, in a fixed order of keys."""
    return {
        "schema": SCHEMA,
        "reports": plain(list(files)),
        "launches": [launch_entry(run) for run in launches],
    }


def launch_entry(run: Judged) -> LaunchEntry:
    """Return one launch of the document. Of metrics it has those that were collected."""
    diagnosis, border = run.diagnosis, run.diagnosis.near_border
    values = vars(run) | vars(diagnosis)
    values |= {
        "time_s": json_safe(run.time),
        "near_border": {"other": border.other, "margin": border.margin} if border else None,
        "headroom": json_safe(diagnosis.headroom),
        "saves_s": json_safe(diagnosis.saves(run.time)),
        "metrics": _collected(run.values),
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "ncu_rules": [replace(r, speedup=json_safe(r.speedup)) for r in run.nvidia],
    }
    return plain(cast("LaunchEntry", {key: values[key] for key in LaunchEntry.__annotations__}))


def _finding(finding: Finding) -> dict[str, Any]:
    values = vars(finding) | {
        "gain": json_safe(finding.gain),
        "evidence": _collected(finding.evidence),
        "try": finding.advice,
    }
    return {key: values[key] for key in FindingEntry.__annotations__}


def _collected(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: value for name, value in values.items() if value is not None and isfinite(value)}
