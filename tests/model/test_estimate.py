"""Mends on launches whose answer follows from the numbers given."""

from __future__ import annotations

from typing import get_args

import pytest

from profkit.diagnosis.rule import Hit, LaunchRule
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.diagnosis.verdict import judge_launch
from profkit.judge import NOT_PRICED, Estimate
from profkit.model.launch import Launch
from profkit.model.resources import REACH, RESOURCES, measure_unit_shares_of_peak
from profkit.model.scenario import (
    SPREAD,
    Fix,
    Kind,
    Scenario,
    bound_speedup_by_units,
    compute_fullest_unit_share,
    compute_headroom,
    compute_issue_wait_ratio,
    estimate_gain_of_fixes,
    join_scenarios,
    make_bounded_expectation,
    predict_gain,
)

# Nothing is near its peak; half of the warps' time goes to shared memory, a fifth to barriers.
WAITS = {
    "sm_active": 1.0,
    "sm_active_max": 1.0,
    "dram_busy": 0.2,
    "l1_busy": 0.2,
    "lsu_data_busy": 0.2,
    "lsu_in_busy": 0.1,
    "shared_busy": 0.2,
    "issue_busy": 0.2,
    "stall_selected": 0.1,
    "stall_wait": 0.2,
    "stall_short_scoreboard": 0.4,
    "stall_mio_throttle": 0.1,
    "stall_barrier": 0.2,
    "excess_shared_wavefronts": 0.75,
}
COPY = {
    "time": 5e-4,
    "sm_active": 0.97,
    "sm_active_max": 1.0,
    "dram_busy": 0.83,
    "dram_bytes": 2e9,
    "dram_rate": 4e12,
    "l2_cache_busy": 0.5,
    "l1_busy": 0.15,
    "issue_busy": 0.05,
    "memory_busy": 0.83,
    "stall_selected": 0.02,
    "stall_long_scoreboard": 0.95,
}


def fix(rule: str) -> Fix:
    found = BY_ID[rule].fix
    assert found is not None
    return found


def launch(**changes: float) -> Launch:
    return Launch({**WAITS, **changes})


def test_every_rule_has_an_estimate_or_says_that_nobody_measured_one():
    fixes = {rule.id: rule.fix for rule in ALL if rule.fix and rule.fix.kind}
    assert {rule.id for rule in ALL} - set(fixes) == {
        "debug-build",
        "nothing-stands-out",
        "short-kernel",
        "cache-resident",
        "operations-mismatch",
        "clocks-unsteady",
        "replay-unsteady",
    }
    assert {fix.kind for fix in fixes.values()} == set(get_args(Kind))
    assert all(fix.formula for fix in fixes.values())
    assert {r.limiter for r in RESOURCES} <= set(REACH)


@pytest.mark.parametrize("unit", REACH)
def test_what_a_unit_reaches_is_most_of_its_peak_and_never_more(unit: str):
    assert 0.8 < REACH[unit] <= 0.98


def test_a_unit_at_what_it_reaches_is_full_and_half_way_there_is_half():
    assert compute_fullest_unit_share(Launch({"dram_busy": 0.45}), Scenario()) == pytest.approx(0.5)
    assert compute_fullest_unit_share(Launch({"issue_busy": 0.95}), Scenario()) == pytest.approx(
        1.0
    )
    assert compute_fullest_unit_share(
        Launch({"dram_busy": 0.45, "issue_busy": 0.19}), Scenario()
    ) == pytest.approx(0.5)
    work = Scenario(units={"dram": 0.5})
    left = compute_fullest_unit_share(Launch({"dram_busy": 0.45, "issue_busy": 0.19}), work)
    assert left == pytest.approx(0.45 * 0.5 / REACH["dram"])  # less of it streams at the full rate


def test_no_mend_brings_nothing_and_no_mend_passes_its_bound():
    assert predict_gain(launch(), Scenario()) == 1
    assert bound_speedup_by_units(launch(), Scenario()) == 1
    waits = {"stall_math_pipe_throttle": 0.1, "stall_dispatch_stall": 0.1}
    busy = launch(**waits, instructions=1e7, global_load_sectors_per_request=4.0)
    for rule in ALL:
        fix = rule.fix
        if fix and fix.best and fix.typical and fix.kind in ("throughput", "wait"):
            most = bound_speedup_by_units(busy, fix.best(busy))
            assert 1 <= predict_gain(busy, fix.typical(busy)) <= 1.001 * most, rule.id


def test_without_warp_states_waits_go_as_the_work_of_the_fullest_unit():
    """DRAM half full: with half of its work, waits halve, and twice as much is what it can bring."""
    half = Scenario(units={"dram": 0.5}, waits={"long_scoreboard": 0.5})
    unseen = Launch({"dram_busy": 0.5 * REACH["dram"], "dram_bytes": 1e9, "dram_write": 0.0})
    assert predict_gain(unseen, half) == pytest.approx(2.0)
    stays = Scenario(units={"dram": 0.5}, waits={"long_scoreboard": 0.5}, ends=0.5)
    assert 1.3 < predict_gain(unseen, stays) < 1.4
    other = Scenario(units={"l2": 0.5}, waits={"long_scoreboard": 0.5})
    assert predict_gain(unseen, other) == pytest.approx(1.0)


def test_a_wait_goes_from_the_time_between_two_issues_and_barriers_shrink_with_it():
    mend = Scenario(waits={"short_scoreboard": 0.0, "mio_throttle": 0.0})
    # 0.8 of waits become 0.3, and the barrier's 0.2 becomes 0.2 x 3/8.
    assert compute_issue_wait_ratio(launch(), mend) == pytest.approx(1 / (0.3 + 0.2 * 3 / 8))
    kept = Scenario(waits={"short_scoreboard": 0.0, "barrier": 1.0})
    assert compute_issue_wait_ratio(launch(), kept) == pytest.approx(1 / 0.6)


def test_a_full_unit_is_all_throughput_and_an_idle_one_all_latency():
    half = Scenario(units={"dram": 0.5}, waits={"long_scoreboard": 0.5})
    full = Launch({**COPY, "dram_busy": 0.92})
    assert predict_gain(full, half) == pytest.approx(1 / max(0.5, 0.5 / 0.85), rel=0.02)
    idle = launch(
        stall_long_scoreboard=0.4,
        dram_busy=0.01,
        shared_busy=0.01,
        l1_busy=0.01,
        lsu_data_busy=0.01,
        lsu_in_busy=0.01,
        issue_busy=0.01,
    )
    assert predict_gain(idle, half) == pytest.approx(compute_issue_wait_ratio(idle, half), rel=0.02)


def test_causes_mended_at_once_are_joined_not_added():
    one = Scenario({"l1": 0.5, "issue": 0.8}, {"wait": 0.0}, places=2.0, ends=0.1)
    other = Scenario({"l1": 0.3}, {"barrier": 0.2}, places=3.0, ends=0.05)
    both = join_scenarios([one, other])
    assert both == Scenario({"issue": 0.8, "l1": 0.3}, {"barrier": 0.2, "wait": 0.0}, 6.0, 0.1)
    waits = [BY_ID[rule].fix for rule in ("shared-bank-conflicts", "short-scoreboard")]
    single = [estimate_gain_of_fixes(launch(), fix) for fix in waits if fix]
    together_ = estimate_gain_of_fixes(launch(), *filter(None, waits))
    product = single[0].expected * single[1].expected
    assert max(saving.expected for saving in single) <= together_.expected < product


def test_conflicts_bound_and_expectation():
    worth = estimate_gain_of_fixes(launch(), fix("shared-bank-conflicts"))
    # At best no wait for shared memory, nor for the warps that come late because of it: 0.3 are left.
    assert worth.bound == pytest.approx(1 / 0.3)
    assert worth.is_known
    assert worth.expected == pytest.approx(1.88, abs=0.02)
    assert worth.low < worth.expected < worth.high <= worth.bound


def test_more_blocks_bring_more_warps():
    values = {
        **WAITS,
        "time": 1e-3,
        "grid_size": 66.0,
        "sm_count": 132.0,
        "waves": 0.0625,
        "block_size": 256.0,
        "stall_barrier": 0.0,
    }
    worth = estimate_gain_of_fixes(Launch(values), fix("grid-too-small"))
    # All places are sixteen times as many; the fullest unit at its peak allows five times.
    assert worth.bound == pytest.approx(5.0, rel=0.02)
    assert worth.is_known
    assert 3 < worth.expected < 5
    alone = {k: v for k, v in values.items() if not k.endswith("_busy")}
    assert estimate_gain_of_fixes(Launch(alone), fix("grid-too-small")).bound == pytest.approx(
        16, rel=0.02
    )


def test_scattered_stores_cost_packets_and_useful_bytes_cross_dram():
    """A naive transpose: 7.2 times was measured, and every byte is used in the end.

    Expected are no more than 4.2: of the wait for memory the useful two ninths remain.
    """
    naive = Launch(
        {
            "sm_active": 1.0,
            "dram_busy": 0.117,
            "l2_cache_busy": 0.8136,
            "l2_tag_busy": 0.66,
            "l2_to_xbar_busy": 0.0251,
            "xbar_to_l2_busy": 0.8136,
            "l1_busy": 0.5,
            "issue_busy": 0.01,
            "excess_sectors": 0.7778,
            "global_load_sectors": 8.389e6,
            "global_store_sectors": 6.709e7,
            "global_store_sectors_per_request": 32.0,
            "l2_read_bytes": 2.684e8,
            "l2_write_bytes": 2.147e9,
            "l2_sectors_per_request": 1.09,
            "dram_bytes": 6.22e8,
            "dram_read": 3.21e8,
            "l2_read_hit": 0.0,
            "stall_selected": 0.02,
            "stall_long_scoreboard": 0.9,
        }
    )
    worth = estimate_gain_of_fixes(naive, fix("uncoalesced-access"))
    assert worth.bound == pytest.approx(9.0, rel=0.02)
    assert worth.expected == pytest.approx(0.92 / (0.9 * (1 - 0.7778) + 0.02), rel=0.02)
    assert worth.low < worth.expected < 7.2 < worth.bound


def test_a_copy_is_at_its_roof_and_a_wasteful_one_is_not():
    found = judge_launch(COPY)
    top = found.findings[0]
    assert (top.rule, top.at_roof, top.expect, top.ranking_gain) == (
        "dram-bandwidth",
        True,
        None,
        1.0,
    )
    assert top.cause.endswith(
        "at the best rate on record the same work would take 7.68 % less time"
    )
    assert found.headroom == pytest.approx(0.9 / 0.83, rel=0.02)
    assert found.estimate_saved_time(5e-4) == 0
    again = judge_launch({**COPY, "declared_bytes": 1e9, "l2_hit": 0.1})
    assert not any(f.at_roof for f in again.findings)
    assert again.estimate_saved_time(5e-4) > 0


def test_headroom_needs_the_units_that_could_be_full():
    assert compute_headroom(Launch({"dram_busy": 0.5})) is None
    assert compute_headroom(launch(dram_busy=0.45)) == pytest.approx(2.0)
    assert measure_unit_shares_of_peak(Launch({})) == {}


def test_what_no_counter_bounds_has_no_bound_but_an_expectation():
    worth = estimate_gain_of_fixes(launch(inst_half=5e6, instructions=1e7), fix("tensor-idle"))
    assert worth.bound is None
    assert worth.is_known
    assert worth.expected > 1


def test_an_interval_is_around_its_expectation_and_below_the_bound():
    plain = make_bounded_expectation(2.0, SPREAD, None)
    assert plain.low < plain.gain == 2.0 < plain.high
    capped = make_bounded_expectation(2.0, SPREAD, 2.1)
    assert capped.high == 2.1
    assert make_bounded_expectation(3.0, SPREAD, 2.1).gain == 2.1


def test_a_rule_of_somebody_keeps_its_own_gain():
    rule = LaunchRule(
        id="mine",
        title="t",
        meaning="m",
        advice="a",
        check=lambda _: Hit("mine", 1.5, ()),
        fires=({},),
        clear=({},),
    )
    assert rule.evaluate_launch(launch()) == (Hit("mine", 1.5), Estimate(bound=1.5))


def test_what_is_not_collected_has_no_price():
    fix_ = Fix("waste", best=lambda launch: Scenario(gone=1 / launch["dram_bytes"]))
    assert estimate_gain_of_fixes(launch(), fix_) == NOT_PRICED


def test_wasted_accesses_gain_nothing_where_blocks_begin_as_fast_as_they_can():
    """524,288 blocks in 320 µs on an H100: as many blocks take as long, whatever they access."""
    launch = {"grid_size": 524288.0, "sm_count": 132.0, "time": 320e-6, "issue_busy": 0.6}
    half = Scenario({"issue": 0.5}, {"long_scoreboard": 0.0})
    waste = Fix("waste", "", lambda _: half, lambda _: half)
    bound = estimate_gain_of_fixes(Launch(launch), waste).bound
    assert bound == pytest.approx(1.013, abs=0.001)
    unlike = Fix("wait", "", waste.best, waste.typical)  # more work per thread needs fewer blocks
    for other in (
        estimate_gain_of_fixes(Launch(launch), unlike),
        estimate_gain_of_fixes(
            Launch({**launch, "sm_count": 108.0}), waste
        ),  # nobody measured such a GPU
        estimate_gain_of_fixes(Launch({**launch, "grid_size": 50000.0}), waste),
    ):
        assert other.bound == pytest.approx(10 / 3, rel=0.02)
