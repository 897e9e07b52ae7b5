"""Judged launches  ->  the JSON document "profkit.diagnosis/1".

Keys are added, never renamed. No NaN or Infinity gets into it, and none of the text is changed:
json escapes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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


def dumps(content: Mapping[str, Any]) -> str:
    """The document as text: ASCII, so that no terminal or pipe can trip over it."""
    return json.dumps(content, indent=1, allow_nan=False)


def _launch(run: Judged) -> dict[str, Any]:
    found = run.diagnosis
    border = found.near_border
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
        "bound": found.bound,
        "limiter": found.limiter,
        "because": found.because,
        "near_border": border and {"other": border.other, "margin": border.margin},
        "headroom": finite_or_none(found.headroom),
        "saves_s": finite_or_none(found.saves(run.time)),
        "metrics": {name: finite_or_none(value) for name, value in run.values.items()},
        "findings": [_finding(f) for f in found.findings],
        "missing": [asdict(m) for m in found.missing],
        "ncu_rules": [{**asdict(r), "speedup": finite_or_none(r.speedup)} for r in run.nvidia],
        "lines": [asdict(line) for line in run.lines],
    }


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "status": found.status,
        "cause": found.cause,
        "gain": finite_or_none(found.gain),
        "expect": asdict(found.expect) if found.expect else None,
        "evidence": {name: finite_or_none(value) for name, value in found.evidence.items()},
        "where": [asdict(line) for line in found.where],
        "try": found.advice,
        "note": found.note,
    }


def finite_or_none(value: float | None) -> float | None:
    """A value that JSON has a form for: None instead of NaN and infinity."""
    return value if value is not None and isfinite(value) else None
