"""Counters from elsewhere: the frame that the report itself gives."""

from __future__ import annotations

from math import isnan, nan

import pytest

import profkit as pk
from profkit.errors import ProfkitError
from profkit.reports.metrics import CATALOGUE, INSTANCED
from profkit.reports.raw_counters import make_raw_frame
from profkit.reports.reader import load_reports, read_raw_frame
from tests.conftest import committed

REPORT = next(p for p in committed() if p.name == "copy.1GiB.ncu-rep")
COUNTERS = {"gpu__time_duration.sum": 1500.0, "launch__grid_size": 264}


def test_raw_values_of_a_report_give_the_frame_of_the_report():
    values = read_raw_frame(REPORT).iloc[0].dropna().to_dict()
    made, read = pk.from_raw([values]), load_reports(REPORT)
    assert list(made.columns) == list(read.columns)
    # Declared work is the run record's; opcodes are instances, which read_raw_frame() leaves out.
    not_in_raw = {m for m in CATALOGUE if m.startswith(("inst_", "declared_"))}
    for name in set(CATALOGUE) - not_in_raw:
        assert made[name].iloc[0] == pytest.approx(read[name].iloc[0], nan_ok=True), name
    for name in ("device", "cc", "grid", "block", "status", "workload"):
        assert made[name].iloc[0] == read[name].iloc[0]


def test_instances_stand_under_their_key():
    row = {**COUNTERS, f"{INSTANCED[0]}[FFMA]": 7, f"{INSTANCED[0]}[MUFU]": 2, INSTANCED[0]: 9}
    frame = pk.from_raw([row])
    assert frame.loc[0, ["inst_ffma", "inst_exp"]].tolist() == [7, 2]


def test_values_are_in_si_and_what_is_missing_is_nan():
    frame = pk.from_raw(
        [{"kernel": "f(int)", "variant": "v", **COUNTERS}, {"launch__grid_size": 1}]
    )
    assert frame.loc[0, "time"] == pytest.approx(1.5e-6)
    assert frame.loc[0, ["kernel", "variant", "status"]].tolist() == ["f(int)", "v", "ok"]
    assert isnan(frame.loc[1, "time"])
    assert frame["launch"].tolist() == [0, 1]


def test_none_nan_and_names_that_nobody_reads_are_ignored():
    row = {
        **COUNTERS,
        "sm__x.sum": "seven",
        "dram__bytes.sum": None,
        "launch__waves_per_multiprocessor": nan,
    }
    frame = pk.from_raw([row])
    assert isnan(frame.loc[0, "waves"])
    assert len(pk.diagnose(frame)) > 40


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([["gpu__time_duration.sum", 1]], "row 0 is a list, not a mapping"),
        (
            [COUNTERS, {"gpu__time_duration.sum": "1,500"}],
            "row 1: gpu__time_duration.sum is '1,500'",
        ),
        ([{**COUNTERS, "kernel": 7}], "row 0: kernel is 7, not a text"),
        ([{"time": 1e-3, "waves": 2}], "none of the rows has a counter that profkit reads"),
    ],
)
def test_a_mistake_names_the_row_and_what_is_wrong(rows, said):
    with pytest.raises(ProfkitError, match=r"from_raw") as error:
        pk.from_raw(rows)
    assert said in error.value.message


def test_no_rows_are_an_empty_frame():
    assert pk.from_raw([]).empty


def test_rows_are_launches_of_no_report():
    device = "device__attribute_display_name"
    frame = make_raw_frame([{**COUNTERS, device: "", "kernel": ""}, {**COUNTERS, "case": "c"}])
    (file,) = frame.attrs["reports"]
    assert (file.path, file.status, file.launches, file.sha256) == ("", "ok", 2, None)
    assert frame[["kernel", "device", "case"]].to_numpy().tolist() == [
        [None, None, None],
        [None, None, "c"],
    ]
    with pytest.raises(ProfkitError, match=f"row 1: {device} is 9, not a text"):
        pk.from_raw([COUNTERS, {**COUNTERS, device: 9}])


def test_one_row_with_a_counter_is_enough():
    assert pk.from_raw([{"kernel": "a"}, COUNTERS]).time.notna().tolist() == [False, True]
