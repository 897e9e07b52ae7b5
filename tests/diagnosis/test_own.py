"""What a rule of one's own may index: the row's numbers, and counters of the report by ncu's names."""

from __future__ import annotations

import pytest

from profkit.diagnosis import launches
from profkit.diagnosis.launches import UserRuleColumns
from tests.conftest import ROOT

REPORT = str(ROOT / "artifacts" / "copy.1GiB.ncu-rep")
RAW = "launch__thread_count"


def test_numbers_of_the_row_are_there_and_nothing_else():
    row = UserRuleColumns({"launch": 2, "time": 1.5, "kernel": "copy", "noted": True, "none": None})
    assert (row["launch"], row["time"]) == (2.0, 1.5)
    for name in ("kernel", "noted", "none", "never_heard_of"):
        with pytest.raises(KeyError):
            row[name]
    assert set(row) == {"launch", "time", "noted"}
    assert len(row) == 3


def test_a_counter_of_the_report_is_read_by_its_name_and_the_row_comes_first():
    row = UserRuleColumns({"report": REPORT, "launch": 0})
    assert row[RAW] > 0
    assert UserRuleColumns({"report": REPORT})[RAW] == row[RAW], (
        "the first launch where none is named"
    )
    assert UserRuleColumns({"report": REPORT, RAW: 7})[RAW] == 7
    with pytest.raises(KeyError):
        UserRuleColumns({"report": REPORT, "launch": 99})[RAW]
    with pytest.raises(KeyError):
        UserRuleColumns({"report": "gone.ncu-rep", "launch": 0})[RAW]


def test_no_report_is_opened_for_a_name_that_no_counter_has(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launches, "_read_raw_counters", lambda _: pytest.fail("opened"))
    with pytest.raises(KeyError):
        UserRuleColumns({"report": REPORT, "launch": 0})["my_figure"]
