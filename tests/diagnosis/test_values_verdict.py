"""The verdict at its borders, what it says of the two figures that decide, and rows of launches."""

from __future__ import annotations

from dataclasses import replace
from math import isnan, nan
from typing import Any

import pytest

from profkit.diagnosis.launches import HotLine, JudgedLaunch, LaunchRow, group_and_rank_launches
from profkit.diagnosis.rule import Diagnosis
from profkit.diagnosis.verdict import decide_bound, judge_launch
from profkit.model.launch import Launch, Missing

# Fills the machine; nothing is near its peak.
BUSY = {
    "time": 1e-3,
    "cycles": 1.7e6,
    "sm_active": 1.0,
    "sm_active_max": 1.0,
    "grid_size": 4096.0,
    "block_size": 256.0,
    "sm_count": 132.0,
    "waves": 31.0,
    "memory_busy": 0.3,
    "dram_busy": 0.2,
    "l2_cache_busy": 0.1,
    "l1_busy": 0.1,
    "alu_busy": 0.1,
    "xu_busy": 0.1,
    "issue_busy": 0.15,
    "stall_selected": 0.1,
    "stall_long_scoreboard": 0.5,
    "stall_wait": 0.2,
}


def verdict(**change: float) -> tuple[str, str | None, str]:
    found = decide_bound(Launch({**BUSY, **change}))
    return found.bound, found.limiter, found.because


@pytest.mark.parametrize(
    ("change", "bound", "limiter", "because"),
    [
        (
            {},
            "latency",
            "long_scoreboard",
            "nothing is near its peak (busiest: dram 20 % and issue 15 %), and the warps spend 50 %",
        ),
        (
            {"alu_busy": 0.4},
            "latency",
            "long_scoreboard",
            "nothing is near its peak (busiest: int 40 % and dram 20 %), and",
        ),
        ({"stall_wait": 0.51}, "latency", "wait", "nothing is near"),
        ({"dram_busy": 0.9}, "memory", "dram", "dram at 90 % of peak"),
        ({"xu_busy": 0.9}, "compute", "xu", "xu at 90 % of peak"),
        ({"xu_busy": 0.9, "alu_busy": 0.8}, "compute", "xu", "xu at 90 % of peak; int at 80 %"),
        ({"xu_busy": 0.8, "alu_busy": 0.9}, "compute", "int", "int at 90 % of peak; xu at 80 %"),
        # Two groups are balanced when the second is nine tenths of the first.
        (
            {"xu_busy": 1.0, "dram_busy": 0.9},
            "balanced",
            "xu+dram",
            "xu at 100 % of peak and dram at 90 %: both near what they reach",
        ),
        ({"xu_busy": 1.0, "dram_busy": 0.89}, "compute", "xu", "xu at 100 % of peak"),
        # Of L2 and the DRAM stream that passes it, the busier one.
        ({"dram_busy": 0.86, "l2_cache_busy": 0.86}, "memory", "dram", "dram at 86 % of peak"),
        ({"dram_busy": 0.80, "l2_cache_busy": 0.86}, "memory", "l2", "l2 at 86 % of peak; dram at"),
    ],
)
def test_what_decides(change, bound, limiter, because):
    found = verdict(**change)
    assert found[:2] == (bound, limiter)
    assert found[2].startswith(because)


@pytest.mark.parametrize(
    ("pipe", "limiter"), [(0.8, "int"), (0.79, "issue"), (0.95, "int"), (0.2, "issue")]
)
def test_issue_slots_full_of_one_pipe_s_instructions(pipe, limiter):
    assert verdict(issue_busy=1.0, alu_busy=pipe)[1] == limiter


@pytest.mark.parametrize(
    ("lost", "bound"),
    [
        ((), "latency"),
        (("memory_busy",), "latency"),
        (("dram_busy", "issue_busy"), "latency"),  # the memory's throughput says enough
        (("memory_busy", "issue_busy"), "latency"),
    ],
)
def test_half_a_machine_is_said_to_be_half(lost, bound):
    found = decide_bound(Launch({k: v for k, v in BUSY.items() if k not in lost}))
    assert found.bound == bound
    partial = "memory_busy" in lost and len(lost) > 1
    assert ("of what was collected" in found.because) is partial
    assert bool(found.missing) is partial


def test_nothing_at_all_is_unknown():
    found = decide_bound(Launch({"time": 1.0}))
    assert (found.bound, found.limiter) == ("unknown", None)
    assert [m.section for m in found.missing] == ["SpeedOfLight"]


def test_a_hot_slice_is_memory_and_shared_atomics_are_not():
    hot = {
        "l2_busy": 0.02,
        "l2_busy_max": 0.5,
        "l2_atomics_busy": 0.02,
        "l2_sectors": 1e6,
        "shared_atomics": 0.0,
        "instructions": 1e7,
        "l2_atomic_sectors": 9e5,
    }
    assert verdict(**hot)[:2] == ("memory", "atomics")
    shared = {**hot, "l2_atomic_sectors": 0.0, "shared_atomics": 1e6, "stall_short_scoreboard": 0.6}
    assert verdict(**shared)[:2] == ("latency", "short_scoreboard")


def test_firing_findings_come_first_then_what_is_not_known_then_the_clear():
    found = judge_launch({**BUSY, "threads_per_warp": 8.0})
    order = [f.status for f in found.findings]
    assert order == sorted(order, key=["fires", "unknown", "clear"].index)
    assert order.count("fires") >= 2
    assert all(f.gain is None for f in found.findings if f.status != "fires")
    assert all(f.evidence for f in found.findings if f.status == "fires")


# --- rows of launches


def launch(time: float, report: str = "a", kernel: str = "k", **about: Any) -> JudgedLaunch:
    given = {
        "report": report,
        "index": 0,
        "kernel": kernel,
        "device": None,
        "cc": None,
        "grid": (1, 1, 1),
        "block": (32, 1, 1),
        "variant": None,
        "case": None,
        "status": "ok",
        "values": {"time": time},
        "diagnosis": judge_launch({**BUSY, "time": time}),
        **about,
    }
    return JudgedLaunch(**given)


def test_alike_launches_share_a_row():
    runs = [
        launch(3.0),
        launch(1.0),
        launch(2.0),
        launch(5.0, block=(64, 1, 1)),
        launch(1.0, kernel="other"),
        launch(1.0, report="b"),
        launch(1.0, grid=(2, 1, 1)),
        launch(1.0, status="failed"),
    ]
    found = group_and_rank_launches(runs)
    assert len(found) == 6
    row = next(r for r in found if len(r.launches) == 3)
    assert (row.known_times_sorted, row.total, row.median_launch) == ([1.0, 2.0, 3.0], 6.0, runs[2])
    assert row.seconds_saved == pytest.approx(sum(run.seconds_saved for run in runs[:3]))
    assert len(group_and_rank_launches(runs, one_row_per_launch=True)) == 8


@pytest.mark.parametrize(("share", "leads"), [(0.4, False), (0.6, True), (0.998, True)])
def test_most_of_the_time_of_no_known_cause_is_first(share: float, leads: bool):
    """A kernel of 0.2 % with a known saving was first, and one of 99.8 % was behind it."""
    lacking = Missing("WarpStateStats", "not collected")
    unknown = Diagnosis("latency", None, "", (), (lacking,))
    runs = [launch(1 - share), launch(share, kernel="dominant", diagnosis=unknown)]
    assert (group_and_rank_launches(runs)[0].median_launch.kernel == "dominant") == leads
    complete = replace(unknown, missing=())
    runs = [launch(1 - share), launch(share, kernel="dominant", diagnosis=complete)]
    assert group_and_rank_launches(runs)[0].median_launch.kernel == "k", (
        "what is known to be at no fault does not lead"
    )


def test_the_row_that_could_save_most_is_first():
    quiet = Diagnosis("unknown", None, "", (), ())
    runs = [
        launch(1.0),
        launch(2.0, kernel="b"),
        launch(9.0, kernel="c", diagnosis=quiet),
        launch(10.0, kernel="d", diagnosis=quiet),
    ]
    assert [row.median_launch.kernel for row in group_and_rank_launches(runs)] == [
        "b",
        "k",
        "d",
        "c",
    ]
    assert runs[2].seconds_saved == 0.0
    assert runs[2].top is None
    assert 0 < runs[0].seconds_saved < 1.0


def test_an_even_number_of_launches_is_shown_by_the_lower_middle():
    row = LaunchRow((launch(4.0), launch(1.0), launch(2.0), launch(3.0)))
    assert row.median_launch.time == 2.0
    unknown = launch(nan)
    assert isnan(unknown.time)
    assert unknown.seconds_saved == 0.0
    none = LaunchRow((unknown, launch(nan, kernel="z")))
    assert (none.known_times_sorted, none.total, none.median_launch) == ([], 0, unknown)
    assert LaunchRow((unknown, launch(1.0))).median_launch.time == 1.0
    assert isnan(launch(1.0, values={}).time)


def test_one_launch_takes_the_place_of_another():
    first, second = launch(1.0), launch(2.0)
    line = HotLine("a.cu", 1, "x", 1, 1.0, "wait", 1.0)
    changed = replace(second, lines=(line,))
    row = LaunchRow((first, second)).replace_launch(second, changed)
    assert row.launches == (first, changed)
    assert row.launches[0] is first
