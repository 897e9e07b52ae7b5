"""What a run record beside a report says of it, and what one cannot say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.records.record import (
    SCHEMA,
    get_declared_work,
    get_report_sha256,
    parse_record,
    read_record_beside,
)

NAMED = {"variant": "stage2", "case": "A-causal"}


@pytest.mark.parametrize(
    ("record", "sha256"),
    [
        ({"report": {"sha256": "a" * 64}}, "a" * 64),
        ({"report": {"sha256": "short"}}, None),
        ({"report": None}, None),
        ({"source": {"sha256": "a" * 64}}, None),
    ],
)
def test_sha256(record: dict, sha256: str | None) -> None:
    assert get_report_sha256(parse_record({**NAMED, **record})) == sha256


@pytest.mark.parametrize(
    ("work", "launches", "found"),
    [
        (
            {"operations": 4, "compulsory_bytes": 2.5},
            1,
            {"declared_operations": 4.0, "declared_bytes": 2.5},
        ),
        ({"operations": 4}, 2, {}),
        ({"operations": True, "compulsory_bytes": "7", "exponentials": None}, 1, {}),
        ({"operations": 10**400, "compulsory_bytes": float("nan")}, 1, {}),
        ([], 1, {}),
    ],
)
def test_declared(work, launches: int, found: dict) -> None:
    assert get_declared_work(parse_record({**NAMED, "work": work}), launches) == found


def test_the_record_lies_beside(tmp_path: Path) -> None:
    report = tmp_path / "stage2.A-causal.ncu-repz"
    assert read_record_beside(report) is None
    beside = tmp_path / "stage2.A-causal.json"
    beside.write_text(json.dumps({"schema": SCHEMA, **NAMED}))
    record = read_record_beside(report)
    assert record is not None
    assert (record.variant, record.path) == ("stage2", beside)
    beside.write_text(json.dumps(NAMED))
    assert read_record_beside(report) is None, "of no known version"
