"""What missed on kernels that nobody had seen: one full slice, masked tiles, waits without a cause."""

from __future__ import annotations

from math import exp, log

import pytest

from profkit.diagnosis.rule import LaunchFinding
from profkit.diagnosis.verdict import judge_launch
from profkit.judge import Estimate
from profkit.model.launch import Launch, get_masked_access_share
from profkit.model.resources import measure_busiest_full_l2_slice, measure_unit_shares_of_peak
from profkit.model.scenario import OFFSET, UNEXPLAINED, reprice_unexplained_wait

# All blocks read and write the same few lines: L2 is idle but for one slice.
ONE_SLICE = {
    "time": 7e-4,
    "sm_active": 0.99,
    "sm_active_max": 1.0,
    "waves": 24.0,
    "dram_busy": 0.0,
    "l1_busy": 0.13,
    "issue_busy": 0.14,
    "issue_busy_active": 0.14,
    "l2_cache_busy": 0.15,
    "l2_busy": 0.15,
    "l2_busy_max": 0.93,
    "l2_atomic_sectors": 0.0,
    "occupancy": 0.25,
    "occupancy_limit": 0.25,
    "blocks_per_sm": 4.0,
    "limit_shared": 4.0,
    "limit_registers": 16.0,
    "limit_warps": 16.0,
    "limit_blocks": 32.0,
    "stall_long_scoreboard": 0.8,
    "stall_wait": 0.1,
    "stall_selected": 0.1,
}
# Blocks of 16,384 for rows of 3,200: four of five loads have no lane that makes them.
MASKED = {
    "threads_per_warp": 32.0,
    "threads_per_warp_predicated": 30.3,
    "instructions": 1e8,
    "inst_global_load": 3.2e6,
    "global_load_requests": 0.64e6,
    "inst_global_store": 1.6e6,
    "global_store_requests": 0.32e6,
    "dram_busy": 0.3,
    "l1_busy": 0.2,
    "l2_cache_busy": 0.2,
    "issue_busy": 0.75,
    "sm_active": 0.99,
    "stall_not_selected": 0.3,
    "stall_selected": 0.3,
    "stall_wait": 0.2,
    "stall_long_scoreboard": 0.2,
}


def finding(launch: dict[str, float], rule: str) -> LaunchFinding:
    return next(found for found in judge_launch(launch).findings if found.rule == rule)


def test_the_busiest_slice_is_what_l2_is_full_of():
    even = {**ONE_SLICE, "l2_busy_max": 0.16}
    assert measure_unit_shares_of_peak(Launch(ONE_SLICE))["l2"] == 0.93
    assert measure_unit_shares_of_peak(Launch(even))["l2"] == 0.15
    assert finding(even, "occupancy-shared").expect.gain > 2
    assert finding(ONE_SLICE, "occupancy-shared").status == "clear"
    assert "one slice of L2 is at 93 %" in judge_launch(ONE_SLICE).because
    assert "slice" not in judge_launch(even).because


@pytest.mark.parametrize(
    "change",
    [{"l2_atomic_sectors": 10.0}, {"l2_busy_max": 0.6}, {"l2_busy": 0.8, "l2_cache_busy": 0.8}],
)
def test_of_atomics_and_of_slices_that_are_not_full_or_not_alone_nothing_is_said(change):
    assert measure_busiest_full_l2_slice(Launch({**ONE_SLICE, **change})) == 0


def test_atomics_that_nobody_counted_are_not_none():
    unknown = {name: value for name, value in ONE_SLICE.items() if name != "l2_atomic_sectors"}
    assert measure_busiest_full_l2_slice(Launch(unknown)) == 0
    assert measure_busiest_full_l2_slice(Launch({**unknown, "inst_atomic": 3.0})) == 0
    assert measure_busiest_full_l2_slice(Launch({**unknown, "inst_atomic": 0.0})) == 0.93
    assert "slice" not in judge_launch(unknown).because


def test_a_slice_fills_from_dram_and_takes_atomics_at_once():
    """A sum of floats: one word takes an atomic every four cycles while the input streams."""
    stream = {
        "cycles": 1e6,
        "l2_atomic_sectors": 2.5e5,
        "l2_sectors": 2.8e7,
        "l2_busy": 0.32,
        "l2_cache_busy": 0.15,
        "l2_busy_max": 0.49,
        "l2_atomics_busy": 0.0,
        "shared_atomics": 0.0,
        "instructions": 1e7,
        "stall_long_scoreboard": 0.46,
        "stall_membar": 0.39,
        "stall_selected": 0.05,
    }
    assert finding(stream, "atomics-contention").status == "fires"
    even = {**stream, "l2_busy_max": 0.38}
    assert finding(even, "atomics-contention").status == "clear"


def test_a_tile_that_is_mostly_mask_computes_for_nothing():
    found = finding(MASKED, "thread-divergence")
    assert get_masked_access_share(Launch(MASKED)) == pytest.approx(0.8)
    assert found.cause.startswith("80 % of the global accesses are masked off")
    assert 1.5 < found.expect.gain < found.gain <= 5.001


def test_a_branch_that_leaves_its_arithmetic_out_is_no_masked_tile():
    branch = {**MASKED, "threads_per_warp_predicated": 27.0}
    assert finding(branch, "thread-divergence").status == "clear"


def test_without_requests_nothing_is_known_to_be_masked():
    counted = {name: value for name, value in MASKED.items() if "requests" not in name}
    assert get_masked_access_share(Launch(counted)) == 0


def test_of_a_wait_without_a_cause_the_median_change_is_expected_where_that_may_be_nothing():
    low, middle, high = UNEXPLAINED
    said = reprice_unexplained_wait(Estimate(1.2, 1.5, 1.9, 4.0))
    size = log(1.5)
    expected = [exp(size + part * (OFFSET + size)) for part in (low, middle, high)]
    assert (said.low, said.expected, said.high) == pytest.approx(expected)
    assert said.low < 1 < said.expected < 1.5
    assert said.bound == 4.0


def test_a_large_gain_of_such_a_wait_stays_as_it_is():
    said = reprice_unexplained_wait(Estimate(2.0, 2.7, 3.5, 2.9))
    assert said.expected == 2.7
    assert 1 < said.low < 2.0
    assert said.high == 2.9


def test_what_is_not_priced_stays_without_a_price():
    assert not reprice_unexplained_wait(Estimate(bound=3.0)).is_known
