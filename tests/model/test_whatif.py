"""The cost model asked directly."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from glob import glob

import pytest

import profkit as pk
from profkit.diagnosis.rules import compute, waste
from profkit.diagnosis.rules.memory import FEWER
from profkit.diagnosis.rules.occupancy import BEGINNING, count_threads_per_warp
from profkit.diagnosis.verdict import judge_launch
from profkit.errors import ProfkitError
from profkit.model.launch import Launch, measure_sector_waste
from profkit.model.resources import compute_share_of_block_launch_rate
from profkit.model.scenario import RELIEVED, Scenario, compute_least_share_of_ends
from profkit.model.whatif import (
    CounterChange,
    apply_counter_changes,
    bound_speedup_of_changes,
    parse_counter_changes,
    predict_speedup_of_changes,
)
from profkit.reports.metrics import CATALOGUE
from tests.conftest import others

LAUNCH = {
    "cycles": 1e5,
    "warps_per_sm": 8.0,
    "sm_active": 1.0,
    "sm_count": 132.0,
    "max_warps": 64.0,
    "grid_size": 132.0,
    "waves": 0.25,
    "instructions": 1e7,
    "inst_shared_load": 2e6,
    "inst_shared_store": 0.0,
    "shared_wavefronts": 8e6,
    "inst_exp": 1e6,
    "inst_xu": 1e6,
    "shared_busy": 0.6,
    "issue_busy": 0.2,
    "xu_busy": 0.1,
}


def gain(text: str, **values: float) -> float:
    return predict_speedup_of_changes(
        Launch({**LAUNCH, **values}), parse_counter_changes(text)
    ).gain


def test_changes_are_read_with_their_other_names():
    assert parse_counter_changes(
        "inst_mufu/32, shared_wavefronts*0.25; blocks*4, inst_barrier=0"
    ) == (
        CounterChange("inst_exp", "/", 32),
        CounterChange("shared_wavefronts", "*", 0.25),
        CounterChange("grid_size", "*", 4),
        CounterChange("inst_barrier", "=", 0),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no change was given"),
        ("inst_exp", "cannot read the change 'inst_exp'"),
        ("inst_exp/0", "divides by zero"),
        ("shared_wavs*2", "not a count in the cost model"),
        ("stall_wait*0.5", "not a count in the cost model"),
    ],
)
def test_a_mistake_says_what_could_be_meant(text, said):
    with pytest.raises(ProfkitError, match=r".+") as error:
        parse_counter_changes(text)
    assert said in error.value.message
    assert error.value.hint


def test_a_kind_of_instruction_takes_the_total_with_it():
    after = apply_counter_changes(
        Launch(LAUNCH), parse_counter_changes("inst_exp/2, inst_shared_load*0.5")
    )
    assert after["inst_xu"] == 5e5
    assert after["instructions"] == 1e7 - 5e5 - 1e6
    assert after["shared_wavefronts"] == 4e6
    kept = apply_counter_changes(
        Launch(LAUNCH),
        parse_counter_changes("inst_shared_load*0.5, shared_wavefronts*1"),
    )
    assert kept["shared_wavefronts"] == 8e6


def test_no_change_is_no_gain_and_more_work_is_slower():
    assert gain("instructions*1") == pytest.approx(1)
    assert gain("shared_wavefronts*0.25") > 1.3
    assert gain("shared_wavefronts*3") < 0.8
    hope = predict_speedup_of_changes(
        Launch(LAUNCH), parse_counter_changes("shared_wavefronts*0.25")
    )
    assert hope.low < hope.gain < hope.high


def test_a_unit_past_what_others_reached_leaves_no_time_to_wait():
    assert gain("instructions*1", shared_busy=1.2) == pytest.approx(1)
    assert gain("instructions*4", shared_busy=1.2) == pytest.approx(1)
    assert gain("instructions*0.5", shared_busy=1.2) == pytest.approx(1)
    assert gain("shared_wavefronts*0.25", shared_busy=1.2) == pytest.approx(4)


def test_more_blocks_fill_the_places_that_there_are():
    assert gain("blocks*4", shared_busy=0.05, issue_busy=0.05) == pytest.approx(3.9, abs=0.2)
    assert gain("blocks*40", shared_busy=0.05, issue_busy=0.05) == pytest.approx(
        gain("blocks*4", shared_busy=0.05, issue_busy=0.05)
    )


def test_the_time_in_a_state_goes_as_the_events_that_warps_wait_for_in_it():
    waiting = {
        "stall_selected": 0.1,
        "issue_busy": 0.01,
        "shared_busy": 0.01,
        "xu_busy": 0.01,
    }
    fewer = gain("instructions=5", instructions=10, stall_branch_resolving=0.9, **waiting)
    assert fewer == pytest.approx(1 / 0.5, rel=1e-3), "where no data moves, with all instructions"
    loads = {
        "inst_global_load": 10,
        "global_load_sectors": 40,
        "stall_long_scoreboard": 0.9,
        **waiting,
    }
    assert gain("inst_global_load/4", **loads) == pytest.approx(1 / 0.325, rel=1e-3)
    assert gain("global_load_sectors/4", **loads) == pytest.approx(1 / 0.325, rel=1e-3)
    fewer_but_wider = gain("inst_global_load/4, global_load_sectors*1", **loads)
    assert fewer_but_wider == pytest.approx(1 / 0.55, rel=1e-3)


def test_what_waits_behind_atomics_goes_as_they_do():
    queue = {
        "stall_selected": 0.1,
        "stall_lg_throttle": 0.9,
        "issue_busy": 0.01,
        "shared_busy": 0.01,
        "xu_busy": 0.01,
        "l2_sectors": 100.0,
        "l2_atomic_sectors": 80.0,
    }
    assert gain("l2_atomic_sectors/8", **queue) == pytest.approx(1 / 0.2125, rel=1e-3)
    assert gain("l2_atomic_sectors/8", **{**queue, "l2_sectors": 900.0}) == pytest.approx(1)


def test_no_unit_and_no_wait_left_is_no_division_by_zero():
    bare = {
        "instructions": 1e7,
        "warps_per_sm": 8.0,
        "grid_size": 132.0,
        "issue_busy": 1.2,
    }
    found = predict_speedup_of_changes(Launch(bare), parse_counter_changes("instructions=0"))
    assert found.gain == pytest.approx(1000)


def test_a_count_that_was_not_collected_is_said():
    less = {k: v for k, v in LAUNCH.items() if k != "instructions"}
    with pytest.raises(ProfkitError, match="instructions was not collected"):
        predict_speedup_of_changes(Launch(less), parse_counter_changes("blocks*2"))


def test_a_frame_is_asked_launch_by_launch():
    runs = pk.load("artifacts/stage2.B.ncu-rep")
    found = pk.whatif(runs, "shared_wavefronts*0.37")
    assert found["variant"].tolist() == ["stage2"]
    # The swizzle that takes these wavefronts away was measured at 1.53.
    assert found.loc[0, "expect_low"] < 1.53 < found.loc[0, "expect_high"]


def test_a_barrier_shrinks_with_what_the_other_warps_wait_for():
    waiting = {
        "stall_selected": 0.1,
        "stall_short_scoreboard": 0.6,
        "stall_barrier": 0.3,
        "issue_busy": 0.01,
        "shared_busy": 0.01,
        "xu_busy": 0.01,
    }
    assert gain("shared_wavefronts/4", **waiting) == pytest.approx(1 / 0.3575, rel=1e-3)


def test_the_queue_of_a_full_unit_goes_with_its_work():
    queue = {
        "stall_selected": 0.1,
        "stall_math_pipe_throttle": 0.9,
        "issue_busy": 0.3,
        "shared_busy": 0.01,
        "xu_busy": 0.8,
    }
    assert gain("inst_xu/4", **queue) > 2.5
    assert gain("inst_xu/4", **{**queue, "xu_busy": 0.1}) < 1.2


# Rule -> the counts that fixing its cause changes, each with the share that stays.


def _keep_conflict_free(launch):
    return {"shared_wavefronts": 1 - waste.compute_bank_conflict_share(launch)}


def _keep_useful_sectors(launch):
    units = waste.compute_useful_share_by_level(launch)
    useful = 1 - measure_sector_waste(launch)[0]
    at_l1 = min(useful, units.get("l1", 1.0))
    at_l2 = units.get("l2", 1.0)
    return {
        "global_load_sectors": at_l1,
        "global_store_sectors": at_l1,
        "l2_bytes": at_l2,
        "l2_read_bytes": at_l2,
        "l2_write_bytes": at_l2,
        "dram_bytes": units.get("dram", 1.0),
    }


def _keep_useful_exponentials(launch):
    gone = 1 - 1 / compute.count_exps_per_useful_exp(launch)
    around = min(1.0, compute.AROUND_EXP * launch["inst_exp"] / launch["instructions"])
    return {"inst_exp": 1 - gone, "instructions": 1 - gone * around}


def _fill_grid(launch):
    filled = min(1.0, launch["grid_size"] / launch["sm_count"], launch.get("waves", 1.0))
    return {"grid_size": 1 / filled}


def _fill_warps(launch):
    return {"warps_per_sm": 1 / launch["occupancy_limit"]}


def _fill_blocks(launch):
    full = count_threads_per_warp(launch) / 32
    return {"warps_per_sm": 1 / launch["occupancy_limit"] / full, "instructions": full}


def _fill_slots(launch):
    """Where launching blocks is the limit, fewer of them are expected: no count says that."""
    if (compute_share_of_block_launch_rate(launch) or 0.0) >= BEGINNING:
        return {}
    return {"warps_per_sm": launch["occupancy_limit"] / launch["occupancy"]}


def _keep_few_trips(_):
    counts = ("shared_wavefronts", "inst_shared_load", "inst_shared_store")
    return {**dict.fromkeys(counts, RELIEVED), "instructions": FEWER}


SAME_CHANGE = {
    "shared-bank-conflicts": _keep_conflict_free,
    "uncoalesced-access": _keep_useful_sectors,
    "redundant-exp": _keep_useful_exponentials,
    "grid-too-small": _fill_grid,
    "occupancy-registers": _fill_warps,
    "occupancy-shared": _fill_warps,
    "occupancy-blocks": _fill_blocks,
    "short-blocks": _fill_slots,
    "shared-bandwidth": _keep_few_trips,
    "fp64-pipe": lambda _: {"inst_fp64": RELIEVED},
    "fp32-pipe": lambda _: {"inst_fp32": RELIEVED},
    "xu-pipe": lambda _: {"inst_xu": RELIEVED},
}


def _find_contradictions(metrics):
    """Yield for each priced finding of a launch its rule, what it expects and what whatif does."""
    launch = Launch({name: metrics[name] for name in metrics if name in CATALOGUE})
    for found in judge_launch(metrics).findings:
        if found.status != "fires" or not found.expect or found.rule not in SAME_CHANGE:
            continue
        shares = SAME_CHANGE[found.rule](launch)
        if not shares:
            continue
        changes = [CounterChange(n, "*", shares[n]) for n in shares if n in launch]
        answer = predict_speedup_of_changes(launch, changes)
        hope = found.expect
        agree = hope.low <= answer.gain <= hope.high or answer.low <= hope.gain <= answer.high
        yield found.rule, hope, answer, agree


def test_a_finding_and_whatif_agree_on_the_same_change():
    """One model, asked in two ways: what a rule expects and what its counts say differ by no more
    than either interval."""
    with lzma.open("artifacts/pairs.json.xz", "rt") as file:
        launches = [pair["before"] for pair in json.load(file)]
    frame = pk.load(["artifacts/stage1.B.ncu-rep", "artifacts/stage2.B.ncu-rep"])
    stages = frame.to_dict("records")
    launches += stages
    asked = Counter()
    contradictions = []
    for metrics in launches:
        for rule, hope, answer, agree in _find_contradictions(metrics):
            asked[rule] += 1
            if not agree:
                contradictions.append((rule, hope, answer))
    assert not contradictions
    assert asked["uncoalesced-access"] > 20
    assert asked["shared-bandwidth"] > 10
    assert asked["grid-too-small"] > 10
    # At 1 % of its pipe and 0.6 % of the instructions, half of the exponentials are worth nothing.
    names = [f.rule for f in judge_launch(stages[0]).findings if f.status == "fires"]
    assert "redundant-exp" not in names


ONE_CEILING = ("shared-bank-conflicts", "grid-too-small")  # counts say all that goes
COUNTED_IN_PART = "uncoalesced-access"  # half-filled packets and lines have no count of their own


def _compare_ceilings(metrics):
    """Yield for each of these findings its rule, its ceiling, and the one of the same changed counts."""
    launch = Launch({name: metrics[name] for name in metrics if name in CATALOGUE})
    for found in judge_launch(metrics).findings:
        if found.rule not in (*ONE_CEILING, COUNTED_IN_PART) or found.gain is None:
            continue
        shares = SAME_CHANGE[found.rule](launch)
        if not launch.has_collected("instructions", "warps_per_sm"):
            continue
        changes = [CounterChange(n, "*", shares[n]) for n in shares if n in launch]
        yield found.rule, found.gain, bound_speedup_of_changes(launch, changes)


def test_a_change_has_one_ceiling_whoever_is_asked(launches_on_record):
    """All bank conflicts gone, or all places filled: the finding and the counts say the same."""
    asked = Counter()
    for metrics in launches_on_record:
        for rule, ceiling, same in _compare_ceilings(metrics):
            asked[rule] += 1
            assert same <= 1.005 * ceiling, rule
            if rule in ONE_CEILING:
                assert same == pytest.approx(ceiling, rel=0.005), rule
    assert asked["shared-bank-conflicts"] > 25
    assert asked["grid-too-small"] > 15
    assert asked[COUNTED_IN_PART] > 50


def test_changes_of_the_same_blocks_are_no_faster_than_blocks_begin():
    """At 80 % of the most blocks a second of 132 SMs, less work of theirs brings 1.25x at most."""
    begun = {**LAUNCH, "grid_size": 1e6, "waves": 50.0, "time": 1e6 / 1.66e9 / 0.8}
    for text, most in (("instructions/100", 1.25), ("instructions/100, blocks/2", 2.5)):
        changes = parse_counter_changes(text)
        assert bound_speedup_of_changes(Launch(begun), changes) <= most + 1e-9
        assert predict_speedup_of_changes(Launch(begun), changes).high <= most + 1e-9
    larger = parse_counter_changes("instructions/100, warps*2")
    assert bound_speedup_of_changes(Launch(begun), larger) > 1.25


def test_some_more_blocks_bring_no_more_than_all_that_fit(launches_on_record):
    asked = 0
    for metrics in launches_on_record:
        launch = Launch({name: metrics[name] for name in metrics if name in CATALOGUE})
        for found in judge_launch(metrics).findings:
            if found.rule != "grid-too-small" or not found.expect:
                continue
            if not launch.has_collected("instructions", "warps_per_sm"):
                continue
            asked += 1
            more = _fill_grid(launch)["grid_size"]
            half = [CounterChange("grid_size", "*", max(1.0, more / 2))]
            assert predict_speedup_of_changes(launch, half).gain <= 1.05 * found.expect.gain
    assert asked > 15


def test_no_finding_expects_more_than_its_ceiling_nor_takes_time_without_any_work(
    launches_on_record,
):
    """Of the launch's ends only their own rule can take something."""
    asked = 0
    for metrics in launches_on_record:
        launch = Launch({name: metrics[name] for name in metrics if name in CATALOGUE})
        least = compute_least_share_of_ends(launch, Scenario())
        for found in judge_launch(metrics).findings:
            if found.status != "fires" or found.gain is None:
                continue
            asked += 1
            if found.expect:
                assert found.expect.low <= found.expect.gain <= found.expect.high <= found.gain
            if found.rule != "short-kernel" and least > 0:
                assert found.gain <= 1.001 / least, found.rule
            if found.rule == "shared-bank-conflicts":
                assert found.gain <= 1.001 / (1 - waste.compute_bank_conflict_share(launch))
    assert asked > 500


@pytest.fixture(scope="module")
def launches_on_record():
    """The counters of our reports, of other people's kernels and, where they are, of their reports."""
    launches = []
    for kept in ("pairs", "unseen"):
        with lzma.open(f"artifacts/{kept}.json.xz", "rt") as file:
            launches += [pair["before"] for pair in json.load(file)]
    reports = [*sorted(glob("artifacts/*.ncu-rep")), *others()]
    launches += pk.load(reports).to_dict("records")
    return launches


def test_no_part_of_an_interval_is_above_what_the_changes_can_bring():
    few_blocks = {"shared_busy": 0.05, "issue_busy": 0.05}
    for changes, values in (("blocks*4", few_blocks), ("shared_wavefronts*0.25", {})):
        launch, counts = Launch({**LAUNCH, **values}), parse_counter_changes(changes)
        bound = bound_speedup_of_changes(launch, counts)
        hope = predict_speedup_of_changes(launch, counts)
        assert bound is not None
        assert hope.low <= hope.gain <= hope.high <= bound
    wider = predict_speedup_of_changes(Launch(LAUNCH), parse_counter_changes("instructions*0.5"))
    assert wider.high <= bound_speedup_of_changes(
        Launch(LAUNCH), parse_counter_changes("instructions*0.5")
    )
