"""A counter that no launch can have costs its launch a sentence, and nothing else.

0, infinity, NaN, a negative number, the largest and the smallest float, a whole number of 5,000 digits
or a text, in each counter and each part of a launch's identity: every other launch is judged as before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.diagnosis.document import make_diagnosis_document
from profkit.diagnosis.launches import group_and_rank_launches, judge_reports
from profkit.diagnosis.verdict import judge_launch
from profkit.evidence.compare import compare_sides
from profkit.evidence.runs import Evidence, Run
from profkit.model.launch import is_impossible_value
from profkit.reports.frame import ReportFile, ReportLaunches, Reports, list_frame_rows_as_dicts
from profkit.reports.metrics import CATALOGUE, IDENTITY, RAW_NAMES
from profkit.reports.raw_counters import make_report_of_raw_counters
from profkit.reports.reader import load_reports, read_raw_frame
from profkit.show import page as pages
from profkit.show import plots
from profkit.show.text.blocks import render_markdown
from profkit.show.text.escape import iterate_csv
from profkit.show.text.terminal import make_console, render_text
from profkit.show.views.diagnosis import show_diagnosis, write_brief_diagnosis
from tests.conftest import ROOT
from tests.reports.made import METRICS, report, result
from tests.sweeps import choose_count, take_part

WHOLE = ROOT / "artifacts" / "stage2.B.ncu-rep"
NUMBERS = (
    0.0,
    -0.0,
    -1.0,
    0.5,
    math.inf,
    -math.inf,
    math.nan,
    1e300,
    -1e300,
    5e-324,
    2.0**63,
    1e20,
)
ODD = st.sampled_from([*NUMBERS, *range(3), 10**400]) | st.floats()


@pytest.fixture(scope="module")
def raw() -> dict[str, Any]:
    """The same under ncu's own names."""
    known = read_raw_frame(WHOLE).to_dict("records")[0]
    names = {*IDENTITY, *RAW_NAMES}
    return {"kernel": "whole"} | {str(k): v for k, v in known.items() if k in names and v == v}


def judge_part(rows: list[dict[str, Any]]) -> Reports:
    file = ReportFile("x.csv", None, "ok", "", len(rows), None)
    part: ReportLaunches = make_report_of_raw_counters(rows, file)
    return Reports((part,))


def show_everywhere(reports: Reports) -> dict[str, Any]:
    """Every form of the answer that needs no picture; the JSON document."""
    launches = judge_reports(reports)
    rows = group_and_rank_launches(launches)
    blocks = list(show_diagnosis(rows, rows[:3], list_all_rows=True))
    render_text(blocks, make_console(width=100))
    render_markdown(blocks)
    write_brief_diagnosis(rows)
    "".join(iterate_csv(reports.launches))
    return make_diagnosis_document(reports.files, launches).to_json()


def test_any_value_of_any_metric_is_judged() -> None:
    """235 metrics x 12 values: 2,820 launches, 88 of two reports' 5,184 were exceptions."""
    row = _whole()
    every = [(name, value) for name in CATALOGUE for value in NUMBERS]
    # 11 and 12 share no factor: every value, every name
    for name, value in take_part(every, one_of=11):
        found = judge_launch({**row, name: value})
        if is_impossible_value(name, value):
            assert name in found.because, (name, value)


@settings(max_examples=choose_count(300, 100), deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(CATALOGUE)), ODD, min_size=1, max_size=8))
def test_several_odd_metrics_at_once_are_judged(odd: dict[str, float]) -> None:
    """300 launches, with up to 8 metrics that may be anything."""
    diagnosis = judge_launch({**_whole(), **odd})
    bounds = {"memory", "compute", "latency", "launch", "balanced", "unknown"}
    assert diagnosis.bound in bounds
    gains = [finding.gain for finding in diagnosis.findings if finding.gain is not None]
    assert all(isfinite(gain) for gain in gains)


@cache
def _whole() -> dict[str, Any]:
    return list_frame_rows_as_dicts(load_reports(WHOLE))[0]


def list_odd_launches(raw: dict[str, Any]) -> Iterator[tuple[str, float, dict[str, Any]]]:
    for name, known in raw.items():
        if isinstance(known, str):
            continue
        for value in (*NUMBERS, 10**400):
            yield name, value, {**raw, "kernel": f"odd_{name}_{value!r}"[:60], name: value}


def test_a_bad_launch_costs_no_other(raw: dict[str, Any]) -> None:
    """Each raw counter x 13 values through every form of the answer, some at a time."""
    alone = show_everywhere(judge_part([raw]))["launches"][0]
    every = list(list_odd_launches(raw))
    assert len(every) > 2000
    odd = take_part(every, one_of=29)
    for first in range(0, len(odd), 100):
        some = [launch for _, _, launch in odd[first : first + 100]]
        launches = show_everywhere(judge_part([*some, raw]))["launches"]
        assert len(launches) == len(some) + 1
        good = [x for x in launches if x["kernel"] == "whole"]
        assert [{**x, "index": 0} for x in good] == [{**alone, "index": 0}]


@pytest.mark.slow
def test_a_bad_launch_is_drawn_and_compared(raw: dict[str, Any]) -> None:
    odd = [launch for _, value, launch in list_odd_launches(raw) if value in (0, 1e300, math.inf)]
    reports = judge_part([*take_part(odd[::14], one_of=2), raw])
    html = pages.render_page(reports, judge_reports(reports), "odd", 500).html
    assert "whole" in html
    assert plots.png(plots.roofline(reports.launches)).startswith(b"\x89PNG")
    evidence = Evidence(Path("nowhere"))
    for launch in take_part(odd[::80], one_of=2):
        sides = [Run("a", "B", None, judge_part([x]).launches) for x in (launch, raw)]
        json.dumps(compare_sides(*sides, None, evidence).to_json(), default=str)


IN_REPORTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(IDENTITY, (0, math.inf, math.nan, -1.0, 1e300, 2.5, "text", "", "9" * 5000)),
    **dict.fromkeys(
        (
            "launch__block_size",
            "launch__grid_size",
            "launch__waves_per_multiprocessor",
            "device__attribute_multiprocessor_count",
            "device__attribute_clock_rate",
            "device__attribute_max_warps_per_multiprocessor",
            "gpu__time_duration.sum",
            "smsp__thread_inst_executed_per_inst_executed.ratio",
            "smsp__inst_executed.sum",
            "device__attribute_memory_clock_rate",
            "device__attribute_l2_cache_size",
        ),
        (0, math.inf, math.nan, -1.0, 1e300, 5e-324, "text", "9" * 5000),
    ),
}


def test_a_bad_report_costs_no_other(run: Callable[..., Any], tmp_path: Path) -> None:
    """20 counters x 8 or 9 values, each a report of its own, in one folder with a good one."""
    count = 0
    for name, values in IN_REPORTS.items():
        for number, value in enumerate(values):
            odd = {**METRICS, name: value}
            content = report([result(list(odd), odd, kernel=f"odd{count}")], tuple(odd))
            (tmp_path / f"{name}.{number}.ncu-rep").write_bytes(content)
            count += 1
    (tmp_path / "good.ncu-rep").write_bytes(report())
    for form in ("--json", "--brief", "--markdown", "--all"):
        found = run("diagnose", str(tmp_path), form)
        assert found.exception is None or isinstance(found.exception, SystemExit), form
        assert found.exit_code in (0, 2)
        assert form != "--all" or "scale" in found.stdout
    document = json.loads(run("diagnose", str(tmp_path), "--json").stdout)
    assert len(document["launches"]) == count + 1
    (good,) = [x for x in document["launches"] if x["report"].endswith("good.ncu-rep")]
    assert (good["cc"], good["grid"], good["block"]) == ("9.0", [132, 2, 1], [128, 1, 1])


@pytest.mark.parametrize(
    "change",
    [
        "blocks*0",
        "blocks=0",
        "warps*0",
        "inst_exp*1e999",
        "inst_exp/1e300",
        "inst_exp=1e300",
        "blocks/1e-300",
        "instructions*0",
        "inst_exp*0",
        "blocks*1e11",
    ],
)
def test_a_change_that_no_launch_survives_is_refused(run: Callable[..., Any], change: str) -> None:
    found = run(
        "diagnose",
        "stage2",
        "--with",
        change,
        "--artifacts",
        str(ROOT / "artifacts"),
        "--case",
        "B",
    )
    assert isinstance(found.exception, SystemExit | None), found.exception
    assert found.exit_code in (0, 2)
    assert "nan" not in found.stdout
    assert "inf" not in found.stdout.replace("info", "")
