"""What a mend of each cause takes away, on round figures and at the borders where it turns."""

from __future__ import annotations

import pytest

from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.rules.waits import LOADS_WAIT
from profkit.diagnosis.rules.waste import compute_bank_conflict_share
from profkit.model.launch import Launch, compute_instructions_left_if_widest
from profkit.model.resources import find_attainable_share_of_pins
from profkit.model.scenario import (
    NOTHING,
    USUAL_STREAM,
    Scenario,
    bound_speedup_by_units,
    predict_gain,
)

ISSUE = ("selected", "not_selected", "wait")
IDLE = {
    "issue_busy": 0.1,
    "dram_busy": 0.1,
    "l2_cache_busy": 0.1,
    "l1_busy": 0.1,
    "shared_busy": 0.1,
}


def best(rule: str, **values: float) -> Scenario:
    build = BY_ID[rule].fix.best
    assert build is not None
    return build(Launch(values))


def typical(rule: str, **values: float) -> Scenario:
    build = BY_ID[rule].fix.typical
    assert build is not None
    return build(Launch(values))


def expected(rule: str, **values: float) -> float:
    return predict_gain(Launch(values), typical(rule, **values))


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("l2-bandwidth", {"l2": 0.4, "links": 0.4}),
        ("l1-bandwidth", {"l1": 0.6, "shared": 0.6, "entry": 0.6, "issue": 0.8}),
        ("shared-bandwidth", {"shared": 0.6, "l1": 0.6, "entry": 0.6, "issue": 0.8}),
        ("texture-bandwidth", {"texture": 0.1, "l1": 0.1, "issue": 0.8}),
        ("constant-divergence", {"constant": 1 / 32}),
        ("tensor-pipe", {"tensor": 0.4}),
        ("fp32-pipe", {"fp32": 0.4, "issue": 0.8}),
        ("fp64-pipe", {"fp64": 0.4}),
        ("fp16-pipe", {"fp16": 0.4, "issue": 0.8}),
        ("xu-pipe", {"xu": 0.4}),
    ],
)
def test_a_full_unit_is_relieved_and_its_queue_goes(rule, left):
    mend = typical(rule)
    assert mend.units == pytest.approx(left)
    waits = dict(mend.waits)
    # A value that L1TEX holds has its latency however empty L1TEX is: half of that wait stays.
    loads = waits.pop("long_scoreboard", 0.0) if rule == "l1-bandwidth" else 0.0
    assert loads == (0.8 if rule == "l1-bandwidth" else 0.0)
    assert set(waits.values()) == {0.0}
    most = best(rule)
    # At best the instructions that access, and what finds their addresses, go with it.
    asks = ("l1", "entry", "issue", "int", "constant")
    more = asks if rule in ("l2-bandwidth", "l1-bandwidth", "shared-bandwidth") else ()
    assert most.units == dict.fromkeys((*left, *more), 0.0)
    assert most.waits == NOTHING
    assert (mend.places, mend.ends) == (most.places, most.ends) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("rule", "limiter", "stays"), [("int-pipe", "int", 0.8), ("issue-slots", "issue", 0.8)]
)
def test_instructions_take_their_waits_and_their_work_on_chip_along(rule, limiter, stays):
    mend = typical(rule)
    assert mend.units[limiter] == stays
    assert {mend.units[unit] for unit in ("l1", "shared", "entry", "fp32", "xu")} == {0.8}
    assert set(mend.waits.values()) == {stays}
    # What the problem itself needs stays: matrix products, L2 and DRAM.
    assert not {"tensor", "l2", "dram"} & (set(mend.units) | set(best(rule).units))


@pytest.mark.parametrize("rule", ["int-pipe", "issue-slots"])
def test_floating_point_instructions_stay_whatever_goes_of_the_others(rule):
    counts = {"instructions": 10.0, "inst_fp32": 4.0, "inst_xu": 1.0}
    most = best(rule, **counts)
    assert (most.units["issue"], most.units["int"], most.units["l1"]) == (0.5, 0.0, 0.0)
    assert "fp32" not in most.units
    # Half of the slots that were used at 80 % are arithmetic: at most 2.5x, and not L2's 100x.
    idle = {**IDLE, "l2_cache_busy": 0.01, "dram_busy": 0.01}
    assert bound_speedup_by_units(
        Launch({**idle, **counts, "issue_busy": 0.8}), most
    ) == pytest.approx(2.5)


def test_a_stream_gets_the_same_bytes_faster_and_not_fewer_of_them():
    """Reads usually reach 89 % of the pins' rate: from 67 % that is 1.33 times, from 90 % nothing."""
    for busy, gain in ((0.67, 0.94 * USUAL_STREAM / 0.67), (0.90, 1.0)):
        idle = IDLE | {"dram_busy": busy, "dram_bytes": 1e9, "dram_write": 0.0}
        assert expected("dram-bandwidth", **idle) == pytest.approx(gain)
    assert best("dram-bandwidth").units == {"dram": 0.0, "l2": 0.0}


@pytest.mark.parametrize(
    ("writes", "reached"),
    [
        (0.0, 0.94),
        (0.1, 0.93),
        (0.2, 0.92),
        (0.5, 0.86),
        (0.75, 0.8675),
        (1.0, 0.875),
        (1.1, 0.875),
    ],
)
def test_what_a_stream_reaches_goes_by_its_writes(writes, reached):
    stream = Launch({"dram_bytes": 1e9, "dram_write": writes * 1e9})
    assert find_attainable_share_of_pins(stream) == pytest.approx(reached)


def test_what_a_stream_reaches_is_in_the_middle_where_its_writes_are_not_known():
    assert find_attainable_share_of_pins(Launch({"dram_bytes": 1e9})) == 0.9
    assert find_attainable_share_of_pins(Launch({"dram_bytes": 0.0, "dram_write": 0.0})) == 0.9


@pytest.mark.parametrize(
    ("sectors", "excess", "stays"),
    [
        (4.0, 0.0, 0.2 + 0.8 / 4),  # 4 of 16 bytes: a quarter of what does not compute
        (2.0, 0.0, 0.2 + 0.8 / 8),
        (16.0, 0.0, 1.0),
        (32.0, 0.5, 1.0),  # half of them carry what was asked for: 16 bytes a lane
        (1.0, 0.0, 1.0),  # a word for all, or a byte for each: not known to be narrow
    ],
)
def test_wider_accesses_take_what_is_around_them_along(sectors, excess, stays):
    counts = {"instructions": 10.0, "inst_fp32": 2.0, "excess_sectors": excess}
    launch = Launch({**counts, "global_load_sectors_per_request": sectors})
    assert compute_instructions_left_if_widest(launch) == pytest.approx(stays)


@pytest.mark.parametrize(
    ("values", "waste"),
    [
        ({"excess_shared_wavefronts": 0.75}, 0.75),
        ({"excess_shared_wavefronts": 0.99}, 31 / 32),  # a wavefront of 32 is needed
        ({"excess_shared_wavefronts": 0.5, "shared_ld_conflicts": 0.9}, 0.5),
        ({"shared_ld_conflicts": 0.5, "shared_st_conflicts": 0.25}, 0.5),
        ({"shared_ld_conflicts": 0.25, "shared_st_conflicts": 0.5}, 0.5),
    ],
)
def test_wavefronts_that_no_conflict_would_need(values, waste):
    assert compute_bank_conflict_share(Launch(values)) == pytest.approx(waste)
    mend = typical("shared-bank-conflicts", **values)
    assert mend.units == pytest.approx(
        {"shared": 1 - waste, "l1": 1 - waste}
    )  # no entry: a request each
    assert mend.waits == pytest.approx({"short_scoreboard": 1 - waste, "mio_throttle": 1 - waste})


def test_near_its_peak_any_wait_may_be_for_the_unit():
    few = {**IDLE, "excess_shared_wavefronts": 0.5, "lsu_data_busy": 0.1}
    gone = dict.fromkeys(("short_scoreboard", "mio_throttle", "lg_throttle", "barrier"), 0.0)
    assert best("shared-bank-conflicts", **few).waits == gone
    assert (
        best("shared-bank-conflicts", **few | {"l1_busy": 0.97, "lsu_data_busy": 0.97}).waits
        == NOTHING
    )


def test_coalesced_accesses_leave_the_useful_sectors_and_their_waits():
    values = {
        "excess_sectors": 0.75,
        "dram_busy": 0.8,
        "l2_tag_busy": 0.4,
        "l2_to_xbar_busy": 0.6,
        "xbar_to_l2_busy": 0.1,
        "l2_cache_busy": 0.6,
        "l1_busy": 0.5,
    }
    mend = typical("uncoalesced-access", **values)
    assert mend.units == pytest.approx({"dram": 0.25, "l2": 0.25, "l1": 0.25, "links": 0.25})
    assert mend.waits == pytest.approx(
        {"long_scoreboard": 0.25, "drain": 0.25, "lg_throttle": 0.0, "short_scoreboard": 0.625}
    )
    far = best("uncoalesced-access", **values | {"dram_busy": 0.1})
    assert set(far.waits) == {
        "long_scoreboard",
        "lg_throttle",
        "drain",
        "tex_throttle",
        "membar",
        "not_selected",
        "barrier",
    }
    assert best("uncoalesced-access", **values | {"dram_busy": 0.93}).waits == NOTHING


@pytest.mark.parametrize(
    ("rule", "counts", "waits", "queue"),
    [
        (
            "long-scoreboard",
            {"inst_global_load": 2.0, "inst_texture": 1.0, "inst_async_copy": 1.0},
            "long_scoreboard",
            {"lg_throttle": 0.0},
        ),
        ("lg-throttle", {"inst_global_load": 4.0}, "lg_throttle", {}),
        (
            "short-scoreboard",
            {
                "inst_shared_load": 1.0,
                "inst_shared_store": 1.0,
                "inst_xu": 1.0,
                "inst_shuffle": 1.0,
            },
            "short_scoreboard",
            {"mio_throttle": 0.0},
        ),
        ("mio-throttle", {"inst_shared_load": 4.0}, "mio_throttle", {"short_scoreboard": 0.0}),
        ("barrier-wait", {"inst_barrier": 4.0}, "barrier", {}),
        ("membar", {"inst_membar": 4.0}, "membar", {"lg_throttle": 0.0}),
        ("branch-resolving", {"branches": 4.0}, "branch_resolving", {"no_instruction": 0.0}),
    ],
)
def test_a_wait_takes_its_queue_and_the_issue_of_its_own_instructions(rule, counts, waits, queue):
    """Four of ten instructions are its own: six tenths of what an instruction costs stay."""
    left = LOADS_WAIT if rule == "long-scoreboard" else 0.0
    mend = typical(rule, instructions=10.0, **counts)
    assert mend.waits == pytest.approx({**dict.fromkeys(ISSUE, 0.6), waits: left, **queue})
    assert typical(rule).waits == pytest.approx({**dict.fromkeys(ISSUE, 1.0), waits: left, **queue})
    assert typical(rule, instructions=2.0, **counts).waits["selected"] == 0.0, "no more than all"


@pytest.mark.parametrize("rule", ["short-scoreboard", "mio-throttle"])
def test_fewer_trips_to_shared_memory_are_less_work_on_chip(rule):
    assert typical(rule).units == pytest.approx({"l1": 0.6, "shared": 0.6, "entry": 0.6})
    assert best(rule).units == {"l1": 0.0, "shared": 0.0, "entry": 0.0}
    assert typical("long-scoreboard").units == {}
    assert best("long-scoreboard").units == {"l1": 0.0, "entry": 0.0}


@pytest.mark.parametrize(
    ("rule", "state"),
    [("math-throttle", "math_pipe_throttle"), ("dispatch-stall", "dispatch_stall")],
)
def test_warps_that_stand_behind_a_busy_pipe_are_ready_when_it_is_not(rule, state):
    """Of three cycles that an instruction holds the pipe one is its issue."""
    mend = typical(rule, **{f"stall_{state}": 0.4, "stall_selected": 0.2})
    assert mend.waits["not_selected"] == pytest.approx(1 / 3)
    assert mend.waits[state] == 0.0
    assert mend.waits["selected"] == mend.waits["wait"] == 1.0


def test_at_best_no_wait_of_its_family_stays_and_every_other_family_s_does():
    assert set(best("long-scoreboard").waits) == {
        "long_scoreboard",
        "lg_throttle",
        "drain",
        "tex_throttle",
        "membar",
        *ISSUE,
    }
    assert set(best("constant-miss").waits) == {
        "no_instruction",
        "imc_miss",
        "branch_resolving",
        *ISSUE,
    }
    assert set(best("fixed-latency").waits) == set(ISSUE)
    for rule in ("barrier-wait", "wgmma-wait", "gmma-wait", "sleeping"):
        assert best(rule).waits == NOTHING, "nobody knows what stands behind it"
    assert best("barrier-wait").units == {"l1": 0.0, "shared": 0.0, "entry": 0.0}
    assert best("wgmma-wait").units == {}


@pytest.mark.parametrize(
    ("values", "places", "ends"),
    [
        # Of 132 SMs 66 have a block; a launch with more of them has ends of 4 us under ncu.
        ({"grid_size": 66.0, "sm_count": 132.0, "time": 4e-5}, 2.0, 0.1),
        # Each SM holds 8: a sixteenth of a wave.
        ({"grid_size": 66.0, "sm_count": 132.0, "waves": 0.0625, "time": 4e-5}, 16.0, 0.1),
        ({"grid_size": 264.0, "sm_count": 132.0, "waves": 4.0, "time": 4e-5}, 1.0, 0.1),
        ({"grid_size": 66.0, "sm_count": 132.0}, 2.0, 0.0),
        ({"grid_size": 66.0, "sm_count": 132.0, "time": 2e-6}, 2.0, 1.0),
    ],
)
def test_a_small_grid_fills_every_place_but_pays_its_ends(values, places, ends):
    expected, most = typical("grid-too-small", **values), best("grid-too-small", **values)
    assert (expected.places, most.places) == pytest.approx((places, places))
    assert (expected.ends, most.ends) == pytest.approx((ends, 0.0))


def test_more_warps_are_as_many_as_an_sm_holds():
    for rule in ("occupancy-registers", "occupancy-shared", "occupancy-blocks"):
        assert typical(rule, occupancy_limit=0.25).places == 4.0
        assert best(rule, occupancy_limit=0.25).places == 4.0


def test_smaller_tiles_load_more_and_larger_blocks_do_not():
    """A quarter of a tile serves each value half as often."""
    for rule in ("occupancy-registers", "occupancy-shared"):
        assert typical(rule, occupancy_limit=0.25).units == {"l1": 2.0, "shared": 2.0, "entry": 2.0}
        assert best(rule, occupancy_limit=0.25).units == {}
    assert set(typical("occupancy-blocks", occupancy_limit=0.25).units.values()) == {1.0}


def test_larger_blocks_fill_their_warps_too():
    larger = typical("occupancy-blocks", occupancy_limit=0.5, block_size=16.0)
    assert larger.places == 4.0
    assert larger.units["issue"] == 0.5


def test_longer_blocks_take_the_instructions_of_their_beginnings_along():
    slots = {"occupancy": 0.25, "occupancy_limit": 0.5, "instructions": 10.0, "inst_fp32": 2.0}
    most = best("short-blocks", **slots)
    assert (most.places, most.units["issue"], most.waits) == (2.0, 0.2, NOTHING)


@pytest.mark.parametrize(
    ("counts", "stays"),
    [
        ({"inst_half": 8.0}, 0.3),  # eight of ten become one
        ({"inst_ffma": 8.0}, 0.3),
        ({"inst_half": 4.0, "inst_ffma": 8.0}, 0.3),
        ({}, 1.0),
    ],
)
def test_of_a_product_on_tensor_cores_an_eighth_of_the_instructions_stays(counts, stays):
    mend = typical("tensor-idle", instructions=10.0, **counts)
    assert mend.units == pytest.approx(dict.fromkeys(("fp16", "fp32", "issue"), stays))
    assert mend.waits == pytest.approx(
        dict.fromkeys((*ISSUE, "math_pipe_throttle", "dispatch_stall"), stays)
    )


def test_redundant_work_counts_whole_where_a_unit_is_full_of_it_and_its_root_where_warps_wait():
    few = {**IDLE, "stall_selected": 0.1, "stall_long_scoreboard": 0.9, "threads_per_warp": 8.0}
    assert expected("thread-divergence", **few) == pytest.approx(2.0, rel=0.01)
    assert expected("thread-divergence", **few | {"issue_busy": 0.95}) == pytest.approx(4.0)
    most = best("thread-divergence", **few)
    assert (most.waits, most.gone) == ({}, 0.75), "no less than the needed part stays"


def test_idle_places_are_filled():
    tail = {"waves": 1.5, "sm_active": 0.6, "sm_active_max": 0.9}
    assert typical("tail-effect", **tail) == best("tail-effect", **tail)
    assert typical("tail-effect", **tail).gone == pytest.approx(0.25)
    assert typical("workload-imbalance", sm_active=0.5, sm_active_max=1.0).gone == 0.5
    slots = {"occupancy": 0.25, "occupancy_limit": 0.5}
    assert typical("short-blocks", **slots).places == 2.0
    waits = {"stall_selected": 0.5, "stall_wait": 0.2, "stall_math_pipe_throttle": 0.3}
    assert typical("short-blocks", **slots, **waits).places == pytest.approx(1.25)


def test_no_counter_says_what_comes_of_a_hot_address():
    build = BY_ID["atomics-contention"].fix.typical
    assert build(Launch(IDLE)) is None
    full = build(Launch(IDLE | {"l2_atomics_busy": 0.9}))
    assert full is not None
    assert full.units["atomics"] == 0.4
