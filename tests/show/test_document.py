"""The JSON document: its keys, and that anything in a report survives it."""

from __future__ import annotations

import json
from math import isfinite, nan
from typing import Any

from profkit.diagnosis.document import SCHEMA, make_diagnosis_document
from profkit.reports.metrics import CATALOGUE
from profkit.reports.reader import ReportFile

from .conftest import HOSTILE, Made

FILE = ReportFile("a.ncu-rep", "0" * 64, "ok", "", 1, "2025.3.1.0 (build 1)")


def _read(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_keys_are_those_of_the_schema(made: Made) -> None:
    found = _read(json.dumps(make_diagnosis_document([FILE], [made()]).to_json()))
    assert list(found) == ["schema", "reports", "launches"]
    assert found["schema"] == SCHEMA == "profkit.diagnosis/1"
    assert list(found["reports"][0]) == [
        "path",
        "sha256",
        "status",
        "message",
        "launches",
        "ncu_version",
    ]
    (launch,) = found["launches"]
    assert list(launch) == [
        "report",
        "index",
        "kernel",
        "device",
        "cc",
        "grid",
        "block",
        "variant",
        "case",
        "status",
        "time_s",
        "bound",
        "limiter",
        "because",
        "near_border",
        "headroom",
        "saves_s",
        "metrics",
        "findings",
        "together",
        "missing",
        "ncu_rules",
        "lines",
    ]
    assert list(launch["findings"][0]) == [
        "rule",
        "status",
        "cause",
        "gain",
        "expect",
        "evidence",
        "where",
        "try",
        "note",
    ]
    assert list(launch["ncu_rules"][0]) == ["rule", "title", "message", "speedup", "scope"]
    collected = [name for name in CATALOGUE if name in launch["metrics"]]
    assert list(launch["metrics"]) == collected
    assert launch["grid"] == [64, 2, 1]


def test_firing_findings_come_first(made: Made) -> None:
    found = make_diagnosis_document([FILE], [made()]).to_json()["launches"][0]["findings"]
    order = ["fires", "unknown", "clear"]
    ranks = [order.index(f["status"]) for f in found]
    assert ranks == sorted(ranks)
    assert found[0]["rule"] == "shared-bank-conflicts"


def test_what_was_not_collected_is_null_or_not_listed(made: Made) -> None:
    """A launch with one counter has one metric, and not 215 nulls beside it."""
    run = made(time=nan)
    launch = make_diagnosis_document([FILE], [run]).to_json()["launches"][0]
    assert launch["time_s"] is None
    assert launch["metrics"] == {k: v for k, v in run.values.items() if isfinite(v)}
    numbers = [v for f in launch["findings"] for v in f["evidence"].values()]
    assert numbers
    assert all(map(isfinite, numbers))
    json.dumps(launch, allow_nan=False)


def test_any_kernel_name_survives(made: Made) -> None:
    text = json.dumps(make_diagnosis_document([FILE], [made(name) for name in HOSTILE]).to_json())
    assert text.isascii()
    assert [x["kernel"] for x in _read(text)["launches"]] == list(HOSTILE)


def test_a_failed_launch_is_a_launch(made: Made) -> None:
    launch = make_diagnosis_document(
        [FILE], [made(status="failed", grid=None, block=None)]
    ).to_json()["launches"][0]
    assert (launch["status"], launch["bound"], launch["grid"]) == ("failed", "unknown", None)
    assert launch["missing"][0]["why"]
