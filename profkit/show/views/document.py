"""Judged launches  ->  the JSON document "profkit.diagnosis/1".

Keys are added, never renamed. No NaN or Infinity gets into it, and none of the text is changed:
json escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.launches import Judged
from profkit.diagnosis.rule import Finding

if TYPE_CHECKING:
    from profkit.reports.reader import ReportFile

SCHEMA = "profkit.diagnosis/1"


def diagnosis_document(files: Iterable[ReportFile], launches: Sequence[Judged]) -> dict[str, Any]:
    """The document as plain lists and dicts, in a fixed order of keys.

    Args:
        files: Every file that was asked for, readable or not.
        launches: Judged launches in the order to list them in.
    """
    return {
        "schema": SCHEMA,
        "reports": [
            {"path": f.path, "sha256": f.sha256, "status": f.status, "message": f.message,
             "launches": f.launches, "ncu_version": f.ncu_version}
            for f in files
        ],
        "launches": [_launch(run) for run in launches],
    }  # fmt: skip


def _launch(run: Judged) -> dict[str, Any]:
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
        "near_border": border and {"other": border.other, "margin": border.margin},
        "headroom": finite_or_none(diagnosis.headroom),
        "saves_s": finite_or_none(diagnosis.saves(run.time)),
        "metrics": {name: finite_or_none(value) for name, value in run.values.items()},
        "findings": [_finding(f) for f in diagnosis.findings],
        "missing": [asdict(m) for m in diagnosis.missing],
        "ncu_rules": [{**asdict(r), "speedup": finite_or_none(r.speedup)} for r in run.nvidia],
        "lines": [asdict(line) for line in run.lines],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "status": finding.status,
        "cause": finding.cause,
        "gain": finite_or_none(finding.gain),
        "expect": asdict(finding.expect) if finding.expect else None,
        "evidence": {name: finite_or_none(value) for name, value in finding.evidence.items()},
        "where": [asdict(line) for line in finding.where],
        "try": finding.advice,
        "note": finding.note,
    }


def finite_or_none(value: float | None) -> float | None:
    """A value that JSON has a form for: None instead of NaN and infinity."""
    return value if value is not None and isfinite(value) else None
