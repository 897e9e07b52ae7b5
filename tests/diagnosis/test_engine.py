"""Verdicts on small launches whose answer follows from the numbers given."""

from math import isfinite, nan

import pytest

from profkit.diagnosis.verdict import judge_launch

BUSY = {  # a launch that fills the machine and is near nothing
    "time": 1e-4,
    "cycles": 1.7e5,
    "sm_active": 0.98,
    "sm_active_max": 1.0,
    "grid_size": 4096,
    "block_size": 256,
    "sm_count": 132,
    "waves": 3.9,
    "memory_busy": 0.3,
    "dram_busy": 0.2,
    "l2_cache_busy": 0.2,
    "l1_busy": 0.2,
    "lsu_data_busy": 0.2,
    "texture_busy": 0.0,
    "constant_busy": 0.0,
    "l2_atomics_busy": 0.0,
    "tensor_busy": 0.0,
    "fma_busy": 0.2,
    "alu_busy": 0.2,
    "fp64_busy": 0.0,
    "fp16_busy": 0.0,
    "xu_busy": 0.1,
    "issue_busy": 0.25,
    "inst_matrix": 0,
    "stall_selected": 0.1,
    "stall_long_scoreboard": 0.6,
    "stall_wait": 0.2,
}


def verdict(**change):
    found = judge_launch({**BUSY, **change})
    return found.bound, found.limiter


def first(**change):
    finding = judge_launch({**BUSY, **change}).findings[0]
    assert finding.status == "fires"
    return finding.rule


def test_waits_without_a_full_unit_are_latency():
    assert verdict() == ("latency", "long_scoreboard")
    assert first() == "long-scoreboard"


def test_launch_shape_comes_before_every_estimate():
    shape = {"grid_size": 32, "sm_active": 0.2, "waves": 0.24, "shared_busy": 0.1}
    assert verdict(**shape) == ("launch", "grid_too_small")
    assert first(**shape, excess_shared_wavefronts=0.9) == "grid-too-small"


def test_a_full_unit_on_a_few_sms_is_still_the_launch():
    assert verdict(grid_size=1, sm_active=1 / 132, issue_busy=0.0075) == (
        "launch",
        "grid_too_small",
    )


def test_memory_busy_through_l1_is_not_dram():
    change = {"memory_busy": 0.92, "l1_busy": 0.92, "lsu_data_busy": 0.9, "dram_busy": 0.002}
    assert verdict(**change) == ("memory", "l1")


def test_shared_memory_is_told_from_l1():
    change = {"memory_busy": 0.9, "l1_busy": 0.9, "lsu_data_busy": 0.9, "shared_busy": 0.88}
    assert verdict(**change) == ("memory", "shared")
    assert first(**change, excess_shared_wavefronts=0.75) == "shared-bank-conflicts"
    assert first(**change, excess_shared_wavefronts=0.0) == "shared-bandwidth"


def test_a_dram_stream_below_70_percent_is_memory_when_its_loads_queue():
    stream = {
        "dram_busy": 0.55,
        "stall_long_scoreboard": 0.9,
        "warp_latency": 200.0,
        "instructions": 1e7,
        "inst_global_load": 1e6,
        "inst_async_copy": 0,
        "inst_texture": 0,
    }
    assert verdict(**stream) == ("memory", "dram")
    assert verdict(**{**stream, "warp_latency": 60.0}) == ("latency", "long_scoreboard")


def test_hfma2_on_the_tensor_pipe_is_not_tensor_work():
    assert verdict(tensor_busy=0.8, inst_matrix=0)[1] != "tensor"
    assert verdict(tensor_busy=0.8, inst_matrix=1e6) == ("compute", "tensor")


def test_issue_slots_full_of_one_pipe_are_that_pipe():
    assert verdict(issue_busy=0.97, fma_busy=0.96) == ("compute", "fp32")
    assert verdict(issue_busy=0.97, fma_busy=0.5) == ("compute", "issue")


def test_a_full_unit_of_each_group_is_balanced():
    assert verdict(issue_busy=0.9, dram_busy=0.85)[0] == "balanced"


def test_tail_and_imbalance_need_idle_sms():
    assert verdict(waves=1.06, sm_active=0.55, grid_size=140) == ("launch", "tail")
    assert verdict(waves=4.0, sm_active=0.4) == ("launch", "imbalance")
    assert verdict(waves=1.06, sm_active=0.97)[0] == "latency"


def test_without_warp_states_the_limiter_is_not_known_and_says_what_to_collect():
    basic = {k: v for k, v in BUSY.items() if not k.startswith("stall")}
    found = judge_launch(basic)
    assert (found.bound, found.limiter) == ("latency", None)
    assert [m.section for m in found.missing] == ["WarpStateStats"]


def test_without_throughput_it_is_unknown_and_never_zero():
    found = judge_launch(
        {"time": 1e-4, "grid_size": 4096, "sm_count": 132, "block_size": 256, "waves": 4}
    )
    assert found.bound == "unknown"
    assert found.missing[0].section == "SpeedOfLight"
    assert all(f.status != "clear" for f in found.findings if f.rule == "dram-bandwidth")


def test_a_failed_launch_is_unknown_without_findings():
    found = judge_launch({**BUSY, "status": "failed"})
    assert (found.bound, found.findings) == ("unknown", ())


@pytest.mark.parametrize("missing", sorted(BUSY))
def test_any_one_metric_may_be_missing(missing):
    found = judge_launch({**BUSY, missing: nan})
    assert found.bound in {"memory", "compute", "latency", "launch", "balanced", "unknown"}
    assert all(f.gain is None or (isfinite(f.gain) and f.gain >= 1) for f in found.findings)
