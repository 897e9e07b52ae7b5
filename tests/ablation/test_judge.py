"""What was measured of a call becomes one cause, or what is missing to say so."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from profkit.lab.ablation.change import Refused
from profkit.lab.ablation.comparison import (
    refuse_base_slower_than_original,
    refuse_gain_of_other_work,
)
from profkit.lab.ablation.judge import AblationsOfCall, decide_bound_by_ablations
from profkit.records.ablation import AblationVerdict, LaunchOnlyTimes, MeasuredAblation, Refusal

SHAPE = LaunchOnlyTimes(
    half_occupancy=1.0, half_grid=0.5, idle=0.02, longest_block=1.1, blocks=1056, blocks_per_sm=8
)
QUIET = AblationsOfCall(
    seconds=1e-4,
    measured={},
    refused={},
    shape=SHAPE,
    busy={"fp32": 0.2, "issue": 0.3},
    seen={},
    sms=132,
    dram=3e12,
)


def row(ablation: str, gain: float, reachable: bool, *rules: str) -> dict[str, MeasuredAblation]:
    found = MeasuredAblation(
        ablation=ablation,
        title=ablation,
        reachable=reachable,
        rules=rules,
        time=1e-4 / gain,
        gain=gain,
        low=None,
        high=None,
        control=1.0,
        executed=0.0,
        changed="",
    )
    return {ablation: found}


CONFLICTS = row("conflict-free", 1.5, True, "shared-bank-conflicts")
LOADS = row("hits-l2", 2.0, False, "dram-bandwidth")
BARRIERS = row("no-barriers", 1.4, False, "barrier-wait")


def shaped(**values: Any) -> LaunchOnlyTimes:
    given = {name: getattr(SHAPE, name) for name in SHAPE.__struct_fields__}
    return LaunchOnlyTimes(**{**given, **values})


def judged(**values: Any) -> AblationVerdict:
    return decide_bound_by_ablations(replace(QUIET, **values))


def test_stores_of_more_than_dram_can_carry_are_the_l2s() -> None:
    stores = row("no-stores", 1.9, False, "l2-bandwidth")
    at_most = QUIET.dram * QUIET.seconds
    said = judged(measured=stores, seen={"stored_bytes": 0.9 * at_most})
    assert (said.limiter, said.cause) == ("dram", "dram-bandwidth")
    said = judged(measured=stores, seen={"stored_bytes": 1.1 * at_most})
    assert (said.limiter, said.cause) == ("l2", "l2-bandwidth")


def test_blocks_that_begin_as_fast_as_the_gpu_begins_any_are_too_short() -> None:
    """524,288 blocks in 317 us, as recorded: 1.65 of the 1.66 a nanosecond that 132 SMs are given."""
    said = judged(seconds=317e-6, shape=shaped(blocks=524_288))
    assert (said.bound, said.cause) == ("latency", "short-blocks")
    assert said.because == "blocks begin at 100 % of the rate at which this GPU begins any"
    assert judged(seconds=330e-6, shape=shaped(blocks=524_288)).cause == "", "a twentieth slower"
    other = judged(seconds=317e-6, shape=shaped(blocks=524_288), sms=108)
    assert other.cause == "", "nobody knows how fast that GPU begins blocks"
    loads = judged(seconds=317e-6, shape=shaped(blocks=524_288), measured=LOADS)
    assert loads.cause == "dram-bandwidth", "what was measured comes first"


def test_joined_blocks_are_the_cause_where_blocks_are_short_and_nothing_else_is() -> None:
    """The blocks of a reduction, as recorded, live for 1.2 us; those of a probe that waits for 39 us."""
    pairs = row("joined", 1.7, True, "short-blocks")
    eights = row("joined-eight", 3.6, True, "short-blocks")
    short = {"seconds": 150e-6, "shape": shaped(blocks=131_072)}
    assert judged(**short).cause == ""
    said = judged(**short, measured={**pairs, **eights})
    assert (said.bound, said.cause, said.gain) == ("latency", "short-blocks", 3.6)
    assert judged(**short, measured={**pairs, **CONFLICTS}).cause == "shared-bank-conflicts"
    waits = judged(seconds=77e-6, shape=shaped(blocks=528, blocks_per_sm=2), measured=pairs)
    assert waits.cause == ""


def test_a_cause_that_a_fix_can_take_away_comes_before_any_bound() -> None:
    verdict = judged(measured={**LOADS, **BARRIERS, **CONFLICTS})
    assert (verdict.bound, verdict.cause, verdict.gain) == ("memory", "shared-bank-conflicts", 1.5)


def test_a_fix_that_brings_more_than_busy_sms_would_comes_before_the_grid() -> None:
    """SMs without a block for 0.3 of the time cost 1.43x at most."""
    uneven = {"idle": 0.3, "longest_block": 2.0}
    for gain, cause in ((2.9, "shared-bank-conflicts"), (1.3, "workload-imbalance")):
        measured = row("conflict-free", gain, True, "shared-bank-conflicts")
        assert judged(measured=measured, shape=shaped(**uneven)).cause == cause


def test_a_bound_is_never_a_gain() -> None:
    verdict = judged(measured=LOADS)
    assert verdict.cause == "dram-bandwidth"
    assert verdict.gain is None
    assert "at most" in verdict.because


@pytest.mark.parametrize(
    ("control", "low", "cause"),
    [
        (1.0, None, "shared-bank-conflicts"),
        (0.9, None, "shared-bank-conflicts"),  # a faster control adds nothing to a gain
        (1.4, None, ""),  # it ends what choosing costs: the original was as fast
        (1.0, 1.05, ""),  # within its own noise
    ],
)
def test_what_a_fix_can_reach_is_said_where_it_beats_the_original(
    control: float, low: float | None, cause: str
) -> None:
    (found,) = CONFLICTS.values()
    measured = msgspec.structs.replace(found, control=control, low=low)
    assert judged(measured={"conflict-free": measured}).cause == cause


def test_what_is_all_gone_names_the_bound_where_no_cause_is_known() -> None:
    for measured, bound in ((row("no-memory", 3.0, False), "memory"), ({}, "unknown")):
        verdict = judged(measured=measured)
        assert (verdict.bound, verdict.cause) == (bound, "")
        assert verdict.missing is not None


@pytest.mark.parametrize(
    ("shape", "cause"),
    [
        ({"half_occupancy": 1.0}, "dram-bandwidth"),
        ({"half_occupancy": 1.8}, "long-scoreboard"),
        (
            {"half_occupancy": 1.8, "occupancy": 0.25, "occupancy_limit": "shared"},
            "occupancy-shared",
        ),
        ({"half_occupancy": None, "blocks": 132}, "grid-too-small"),
    ],
)
def test_loads_wait_or_fill_the_dram(shape: dict[str, Any], cause: str) -> None:
    assert judged(measured=LOADS, shape=shaped(**shape)).cause == cause


def test_a_full_dram_is_full_however_few_warps_there_are() -> None:
    seen = {"loaded_bytes": 2.8e12 * 1e-4}
    assert (
        judged(measured=LOADS, seen=seen, shape=shaped(half_occupancy=1.8)).cause
        == "dram-bandwidth"
    )


@pytest.mark.parametrize(
    ("shape", "cause"),
    [
        ({"blocks": 16, "idle": 0.9}, "grid-too-small"),
        ({"idle": 0.4, "longest_block": 3.0}, "workload-imbalance"),
        ({"idle": 0.4, "longest_block": 1.1}, "tail-effect"),
    ],
)
def test_idle_sms_come_first(shape: dict[str, Any], cause: str) -> None:
    assert judged(measured=CONFLICTS, shape=shaped(**shape)).cause == cause


@pytest.mark.parametrize(
    ("busy", "cause"),
    [
        ({"fp32": 0.9, "issue": 0.95}, "fp32-pipe"),
        ({"int": 0.8, "issue": 1.0}, "issue-slots"),
        ({"int": 0.9, "issue": 0.5}, "int-pipe"),
        ({"xu": 0.8, "issue": 0.4}, "xu-pipe"),
        ({"shared": 0.9, "issue": 0.4}, "shared-bandwidth"),
    ],
)
def test_a_full_unit_is_named(busy: dict[str, float], cause: str) -> None:
    assert judged(busy=busy).cause == cause


def test_shared_memory_full_of_conflicts_is_not_short_of_bandwidth() -> None:
    seen = {"shared_ways": 800, "shared_requests": 100}
    assert judged(busy={"shared": 0.9}, seen=seen).cause == "shared-bank-conflicts"


def test_few_lanes_are_the_cause_of_a_full_unit() -> None:
    assert (
        judged(busy={"fp32": 0.9, "issue": 0.95}, seen={"lanes": 0.25}).cause == "thread-divergence"
    )


def test_what_cannot_be_told_says_what_was_seen() -> None:
    refusal = Refusal("hits-l1", "steers", "all 3 loads decide an address", "", "")
    verdict = judged(refused={"hits-l1": refusal})
    assert verdict.cause == ""
    assert verdict.missing is not None
    assert verdict.missing.code == "cannot-tell"
    assert "all 3 loads" in verdict.missing.observed
    assert "issue" in verdict.missing.observed
    assert verdict.missing.remedy


def test_a_call_of_a_microsecond_is_short() -> None:
    assert judged(seconds=1.2e-6).cause == "short-kernel"


@pytest.mark.parametrize(
    ("units", "shape", "cause"),
    [
        ({"l1": 0.45, "fp32": 0.45}, {"blocks": 132, "blocks_per_sm": 6}, "fixed-latency"),
        ({"l1": 0.45, "fp32": 0.45}, {}, "lg-throttle"),
        ({"shared": 0.45, "fp32": 0.45}, {}, "mio-throttle"),
        ({"texture": 0.5, "fp32": 0.5}, {"blocks": 132, "blocks_per_sm": 6}, "tex-throttle"),
        ({"fp64": 0.45, "fp16": 0.45}, {}, "math-throttle"),
        ({"l1": 0.45, "fp32": 0.2}, {}, ""),
        ({"l1": 0.7, "fp32": 0.7}, {}, ""),  # together more than there is: they overlap
    ],
)
def test_units_that_work_in_turns_wait_for_each_other(
    units: dict[str, float], shape: dict[str, Any], cause: str
) -> None:
    seen = {f"turns_{unit}": share for unit, share in units.items()} | {"warps": 4.0}
    assert judged(seen=seen, busy=units, shape=shaped(**shape)).cause == cause


def test_exponentials_that_nothing_hides_are_in_turns_with_products() -> None:
    busy, seen = {"xu": 0.5, "tensor": 0.5}, {"turns_tensor": 0.5}
    serial = row("cheap-functions", 1.6, False, "xu-pipe")
    assert judged(busy=busy, seen=seen, measured=serial).cause == "tensor-xu-serial"
    hidden = row("cheap-functions", 1.2, False, "xu-pipe")
    assert judged(busy=busy, seen=seen, measured=hidden).cause == ""
    shared = judged(busy={"xu": 0.5}, seen={"turns_shared": 0.3}, measured=serial)
    assert shared.cause == "mio-throttle", "without products they take turns with shared memory"


def test_half_products_on_tiles_that_no_tensor_core_does_have_a_rule() -> None:
    tiles = {"half_share": 0.4, "shared_load_share": 0.1}
    assert judged(busy={"fp16": 0.7}, seen=tiles).cause == "tensor-idle"
    assert judged(busy={"fp16": 0.7, "tensor": 0.01}, seen=tiles).cause == ""


def test_warps_that_wait_for_one_wait_at_a_barrier_or_a_product() -> None:
    one = {"busiest_warp": 4.0}
    assert judged(seen=one).cause == "", "nobody waits for it"
    assert judged(seen={**one, "barriers": 2.0}).cause == "barrier-wait"
    assert judged(seen={**one, "warpgroup_products": 2.0}).cause == "gmma-wait"


def test_a_base_is_refused_where_it_is_surely_another() -> None:
    original = [1.0 + 0.001 * (n % 3) for n in range(32)]
    refuse_base_slower_than_original(original, [1.01 * time for time in original])
    with pytest.raises(Refused, match=r"1\.050 times as long"):
        refuse_base_slower_than_original(original, [1.05 * time for time in original])
    unsteady = [1.025 * (1 + 0.04 * (n % 2)) - 0.02 for n in range(32)]
    refuse_base_slower_than_original(original, unsteady)


def test_wide_accesses_need_accesses_that_surely_bring_something() -> None:
    rows = [
        *row("wide", 1.11, True).values(),
        msgspec.structs.replace(*row("no-memory", 1.024, False).values(), low=0.95),
    ]
    with pytest.raises(Refused, match="all accesses gone"):
        refuse_gain_of_other_work(rows)
    refuse_gain_of_other_work([rows[0], msgspec.structs.replace(rows[1], low=1.023)])
