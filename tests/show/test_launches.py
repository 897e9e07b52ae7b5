"""Launches in rows, worst first; the reader's frame judged."""

from __future__ import annotations

from dataclasses import replace
from math import isnan, nan

import pytest

from profkit.diagnosis.launches import (
    JudgedLaunch,
    add_verdict_columns,
    group_and_rank_launches,
    judge_reports,
)
from profkit.model.scenario import Expectation
from profkit.reports.metrics import CATALOGUE
from profkit.reports.reader import read_report_files
from profkit.show.text.words import describe_row_order
from tests.conftest import committed

from .conftest import Made


def test_saved_is_time_less_time_over_what_to_expect(made: Made) -> None:
    run = made(time=2e-3)
    assert run.top is not None
    assert run.top.rule == "shared-bank-conflicts"
    # One wavefront of eight stays, and a microsecond of the launch's ends stays anyway.
    assert run.top.gain == pytest.approx(2e-3 / (0.125 * 2e-3 + 1e-6), rel=2e-3)
    assert run.top.expect is not None
    assert run.seconds_saved == pytest.approx(2e-3 * (1 - 1 / run.top.expect.gain))


def test_at_a_roof_nothing_is_saved(own: tuple[object, list[JudgedLaunch]]) -> None:
    (run,) = own[1]
    assert run.top is not None
    assert (run.top.rule, run.top.at_roof, run.top.expect) == ("dram-bandwidth", True, None)
    assert "at the best rate on record" in run.top.cause
    assert run.diagnosis.headroom == pytest.approx(1.04, abs=0.01)
    assert run.seconds_saved == 0


def test_nothing_is_saved_where_nothing_is_known(made: Made) -> None:
    assert made(time=nan).seconds_saved == 0
    assert made(status="failed").seconds_saved == 0
    assert made(status="failed").top is None


def test_the_same_kernel_and_shape_is_one_row(made: Made) -> None:
    runs = [made(time=t, index=i) for i, t in enumerate((3e-3, 1e-3, 2e-3))]
    (row,) = group_and_rank_launches(runs)
    assert row.known_times_sorted == [1e-3, 2e-3, 3e-3]
    assert row.median_launch.index == 2
    assert row.total == pytest.approx(6e-3)
    # By the launch in the middle; what a launch takes to begin and end is no share of its time.
    assert row.seconds_saved == pytest.approx(sum(run.seconds_saved for run in runs), rel=1e-3)
    assert len(group_and_rank_launches(runs, one_row_per_launch=True)) == 3


@pytest.mark.parametrize(
    "other", [{"grid": (1, 1, 1)}, {"block": (32, 1, 1)}, {"report": "b.ncu-rep"}, {"kernel": "g"}]
)
def test_another_shape_report_or_kernel_is_another_row(
    made: Made, other: dict[str, object]
) -> None:
    assert len(group_and_rank_launches([made(), made(**other)])) == 2


def test_worst_first_is_by_time_saved_then_by_time(made: Made) -> None:
    slow_fine = made("fine", 1.0, rule="grid-too-small", diagnosis=made(status="failed").diagnosis)
    quick_bad, slow_bad = made("quick", 1e-5), made("slow", 1e-3)
    unknown = made("unknown", nan)
    names = [
        row.median_launch.kernel
        for row in group_and_rank_launches([unknown, slow_fine, quick_bad, slow_bad])
    ]
    # What takes most of the time and whose cause is not known leads.
    assert names == ["fine", "slow", "quick", "unknown"]


def _expecting(made: Made, name: str, time: float, hope: Expectation) -> JudgedLaunch:
    """A launch whose leading finding has an expectation."""
    run = made(name, time)
    first, *rest = run.diagnosis.findings
    saving = first.saving._replace(low=hope.low, expected=hope.gain, high=hope.high)
    findings = (replace(first, saving=saving), *rest)
    return replace(run, diagnosis=replace(run.diagnosis, findings=findings))


@pytest.mark.parametrize(
    ("low", "time", "first"), [(0.94, 1e-3, "sure"), (1.05, 1e-3, "large"), (0.94, 1e-4, "large")]
)
def test_a_saving_that_may_be_nothing_does_not_lead(
    made: Made, low: float, time: float, first: str
) -> None:
    """One of 1.15x (0.94 to 1.43) stood before one of 2.76x (1.72 to 4.68) that saves half as much."""
    large = _expecting(made, "large", 1e-2, Expectation(1.15, low, 1.43))
    sure = _expecting(made, "sure", time, Expectation(2.76, 1.72, 4.68))
    rows = group_and_rank_launches([large, sure])
    assert rows[0].median_launch.kernel == first
    assert ("largest saving that is sure" in describe_row_order(rows)) == (first == "sure")


@pytest.fixture(scope="module")
def own() -> tuple[object, list[JudgedLaunch]]:
    found = read_report_files([p for p in committed() if p.name == "copy.1GiB.ncu-rep"])
    return found, judge_reports(found)


def test_a_real_copy_is_bound_by_dram(own: tuple[object, list[JudgedLaunch]]) -> None:
    (run,) = own[1]
    assert run.diagnosis.bound == "memory"
    assert run.diagnosis.limiter == "dram"
    assert (run.variant, run.case, run.cc) == ("copy", "1GiB", "9.0")
    assert run.grid == (1056, 1, 1)
    assert set(run.values) == set(CATALOGUE)
    assert any(found.rule == "SOLBottleneck" for found in run.nvidia)


def test_the_table_has_the_verdict_beside_the_metrics(
    own: tuple[object, list[JudgedLaunch]],
) -> None:
    frame = add_verdict_columns(*own)  # type: ignore[arg-type]
    assert frame.loc[0, ["bound", "limiter", "finding"]].tolist() == [
        "memory",
        "dram",
        "dram-bandwidth",
    ]
    assert frame.loc[0, "gain"] > 1
    assert frame.loc[0, "saves"] == 0
    assert frame.loc[0, "headroom"] == pytest.approx(1.04, abs=0.01)
    assert isnan(frame.loc[0, "expect"])
    assert list(frame.columns).index("bound") < list(frame.columns).index("time")
