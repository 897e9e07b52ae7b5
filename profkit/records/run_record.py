"""A report's path  ->  what the run record beside it says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any


def record_beside(path: str | Path) -> dict[str, Any]:
    """The run record `<stem>.json` beside a report, empty when there is none that can be read."""
    try:
        record = json.loads(Path(path).with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def recorded_sha256(record: Mapping[str, Any]) -> str | None:
    """The report's sha256 as a run record says it, None when it says none."""
    report = record.get("report")
    value = report.get("sha256") if isinstance(report, dict) else record.get("report_sha256")
    return value if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else None


_DECLARED = {
    "declared_operations": "operations",
    "declared_bytes": "compulsory_bytes",
    "declared_exps": "exponentials",
}


def declared(record: Mapping[str, Any], launches: int) -> dict[str, float]:
    """What the workload needs by its problem.py, as catalogue metrics.

    Only where one launch is the whole workload: of several, none answers for all of it.
    """
    work = record.get("work")
    if launches != 1 or not isinstance(work, dict):
        return {}
    numbers = {metric: _number(work.get(key)) for metric, key in _DECLARED.items()}
    return {metric: number for metric, number in numbers.items() if number is not None}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:  # an int of 400 digits
        return None
