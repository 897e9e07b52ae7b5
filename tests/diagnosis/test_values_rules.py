"""Cause and gain of rules on round figures, on both sides of each border that they have."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from profkit.diagnosis.rules import BY_ID
from profkit.model.launch import Launch, NotCollected, compute_counted_share_of_duration

WAITS = {"stall_selected": 0.1, "issue_busy": 0.1}


def hit(rule: str, **values: float) -> SimpleNamespace | None:
    """What a rule says of a launch, with the bound that the model gives."""
    asked = BY_ID[rule].evaluate_launch(Launch(values))
    return asked and SimpleNamespace(
        cause=asked[0].cause, looked=asked[0].looked, gain=asked[1].bound
    )


# --- waiting

RULE_OF = {
    "long_scoreboard": "long-scoreboard",
    "short_scoreboard": "short-scoreboard",
    "barrier": "barrier-wait",
    "wait": "fixed-latency",
    "membar": "membar",
    "sleeping": "sleeping",
    "no_instruction": "instruction-cache",
    "imc_miss": "constant-miss",
    "mio_throttle": "mio-throttle",
    "lg_throttle": "lg-throttle",
    "tex_throttle": "tex-throttle",
    "drain": "store-drain",
    "gmma": "gmma-wait",
}


@pytest.mark.parametrize("state", RULE_OF)
def test_a_wait_is_named_from_15_per_cent_on_or_when_it_leads(state):
    other = "stall_wait" if state != "wait" else "stall_barrier"

    def asked(part: float, leading: float):
        return hit(RULE_OF[state], **WAITS, **{f"stall_{state}": part, other: leading})

    found = asked(0.15, 0.5)
    assert found.cause.startswith("warps spend 15 % of their time ")
    assert found.looked[:2] == (f"stall_{state}", "warp_latency")
    assert asked(0.149, 0.5) is None
    assert asked(0.14, 0.13) is not None  # nothing is larger
    assert asked(0.0, 0.0) is None


def test_a_wait_that_is_a_full_unit_s_queue_is_the_unit_s():
    values = {**WAITS, "stall_math_pipe_throttle": 0.5, "alu_busy": 0.65}
    assert hit("math-throttle", **values) is None
    assert hit("math-throttle", **{**values, "alu_busy": 0.55}) is not None


# --- few warps

FEW = {
    "blocks_per_sm": 2,
    "limit_registers": 2,
    "limit_shared": 9,
    "limit_warps": 9,
    "limit_blocks": 9,
    "occupancy_limit": 0.5,
    "waves": 8,
    "issue_busy_active": 0.2,
    "issue_busy": 0.1,
}


@pytest.mark.parametrize(
    ("change", "fires"),
    [
        ({}, True),
        ({"occupancy_limit": 0.74}, True),
        ({"occupancy_limit": 0.75}, False),
        ({"waves": 1.0}, True),
        ({"waves": 0.99}, False),
        ({"issue_busy_active": 0.75}, True),
        ({"issue_busy_active": 0.76}, False),
        ({"limit_shared": 2}, False),  # another one allows no more either
        ({"limit_shared": 3}, True),
        ({"limit_registers": 3}, False),
        ({"xu_busy": 0.95}, False),
    ],
)
def test_registers_leave_few_warps(change, fires):
    found = hit("occupancy-registers", **{**FEW, **change})
    assert (found is not None) is fires
    if found:
        assert found.cause.startswith("2 blocks per SM because of registers, ")
        assert found.looked[0] == "limit_registers"


def test_the_step_to_one_more_block_is_said():
    found = hit("occupancy-registers", **FEW, registers_step=24.0)
    assert found.cause == (
        "2 blocks per SM because of registers, 50 % occupancy; 24 fewer registers per thread would "
        "allow one more; schedulers have no ready warp 80 % of the time"
    )
    assert found.looked[-1] == "registers_step"
    shared = {**FEW, "limit_registers": 9, "limit_shared": 2, "shared_step": 512.0}
    assert "; 512 fewer bytes of shared memory per block" in hit("occupancy-shared", **shared).cause
    small = {**FEW, "limit_registers": 9, "limit_blocks": 2, "limit_shared": 2}
    assert hit("occupancy-blocks", **small) is not None  # the driver's own 1 KB of each block
    assert hit("occupancy-blocks", **small).looked[-1] == "limit_blocks"


# --- the work itself


@pytest.mark.parametrize(
    ("values", "gain"),
    [
        ({"threads_per_warp": 23.9}, 32 / 23.9),
        ({"threads_per_warp": 24.0}, None),
        ({"threads_per_warp": 8.0}, 4.0),
        ({"threads_per_warp": 8.0, "dram_busy": 0.5}, 2.0),
        ({"threads_per_warp": 8.0, "dram_busy": 0.5, "shared_busy": 0.8}, 2.0),
        ({"threads_per_warp": 8.0, "dram_busy": 0.92}, None),
        ({"threads_per_warp": 1.0}, 32.0),
    ],
)
def test_few_threads_of_a_warp(values, gain):
    found = hit("thread-divergence", **values)
    assert (found and found.gain) == (gain and pytest.approx(gain))
    if found:
        assert (
            found.cause
            == f"{values['threads_per_warp']:.3g} of 32 threads are active per instruction"
        )


APART = {
    "fp32_fused": 0.05,
    "inst_fp32": 50.0,
    "instructions": 100.0,
    "issue_busy": 0.5,
    "fma_busy": 0.5,
}


@pytest.mark.parametrize(
    ("change", "gain"),
    [
        ({}, 1 / (1 - 0.5 * 0.95 * 0.5)),
        ({"fp32_fused": 0.0}, 1 / 0.75),
        ({"fp32_fused": 0.09}, 1 / (1 - 0.5 * 0.91 * 0.5)),
        ({"fp32_fused": 0.1}, None),
        ({"fp32_fusable": 0.05}, None),  # a sum: nothing to multiply
        ({"fp32_fused": 0.0, "fp32_fusable": 0.25}, 1 / (1 - 0.25 * 0.5)),
        ({"fp32_fused": 0.42}, None),  # contracted: what is left has no partner
        ({"inst_fp32": 20.0}, 1 / (1 - 0.5 * 0.95 * 0.2)),
        ({"inst_fp32": 19.0}, None),
        ({"issue_busy": 0.3, "fma_busy": 0.4}, 1 / (1 - 0.5 * 0.95 * 0.5)),
        ({"issue_busy": 0.4, "fma_busy": 0.1}, 1 / (1 - 0.5 * 0.95 * 0.5)),
        ({"issue_busy": 0.3, "fma_busy": 0.39}, None),
    ],
)
def test_adds_and_multiplies_apart(change, gain):
    found = hit("non-fused-math", **{**APART, **change})
    assert (found and found.gain) == (gain and pytest.approx(gain))


MATRIX = {
    "inst_matrix": 0.0,
    "instructions": 100.0,
    "inst_half": 25.0,
    "inst_shared_load": 3.0,
    "inst_ffma": 0.0,
}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({}, "25 % of the instructions are half-precision arithmetic on tiles"),
        ({"inst_matrix": 1.0}, None),
        ({"inst_half": 24.9}, None),
        ({"inst_shared_load": 2.9}, None),
        (
            {"inst_half": 0.0, "inst_ffma": 25.0, "declared_operations": 3200.0},
            "scalar FMAs do 50 % of the declared operations",
        ),
        (
            {"inst_half": 0.0, "inst_ffma": 25.0, "declared_operations": 1000.0},
            "scalar FMAs do 100 % of the declared operations",
        ),
        ({"inst_half": 0.0, "inst_ffma": 25.0, "declared_operations": 3201.0}, None),
        ({"inst_half": 0.0, "inst_ffma": 24.9, "declared_operations": 100.0}, None),
    ],
)
def test_matrix_work_off_the_tensor_cores(change, cause):
    found = hit("tensor-idle", **{**MATRIX, **change})
    assert (found is None) is (cause is None)
    if found:
        assert found.cause.startswith(cause)
        assert found.gain is None


@pytest.mark.parametrize(
    ("executed", "busy", "gain"),
    [(6.25, 0.0, 2.0), (6.24, 0.0, None), (50.0, 0.0, 16.0), (50.0, 0.125, 8.0)],
)
def test_exponentials_done_again(executed, busy, gain):
    found = hit("redundant-exp", inst_exp=executed, declared_exps=100.0, dram_busy=busy)
    assert (found and found.gain) == gain
    assert hit("redundant-exp", inst_exp=executed, declared_exps=0.0) is None


@pytest.mark.parametrize(
    ("tensor", "xu", "gain"),
    [
        (0.5, 0.5, 2.0),
        (0.5, 0.3, 1.6),
        (0.25, 0.55, 0.8 / 0.55),
        (0.24, 0.6, None),
        (0.4, 0.39, None),
        (0.6, 0.24, None),
        (0.6, 0.25, 0.85 / 0.6),
    ],
)
def test_two_pipes_in_turn(tensor, xu, gain):
    found = hit("tensor-xu-serial", tensor_busy=tensor, xu_busy=xu, inst_matrix=1.0)
    assert (found and found.gain) == (gain and pytest.approx(gain))


# --- memory


@pytest.mark.parametrize(
    ("values", "gain"),
    [
        ({"dram_busy": 0.85, "dram_bytes": 260.0}, 2.6),
        ({"dram_busy": 0.85, "dram_bytes": 130.0}, 1.3),
        ({"dram_busy": 0.85, "dram_bytes": 129.0}, None),
        ({"dram_busy": 0.2, "dram_bytes": 260.0}, None),
        ({"dram_busy": 0.85, "dram_bytes": 260.0, "xu_busy": 0.5}, 2.0),
    ],
)
def test_l2_misses_while_dram_is_full(values, gain):
    found = hit("low-l2-hit", l2_hit=0.3, declared_bytes=100.0, **values)
    assert (found and found.gain) == (gain and pytest.approx(gain))
    if found:
        times = values["dram_bytes"] / 100
        assert found.cause == f"L2 hits 30 %; DRAM moves {times:.3g} times the compulsory bytes"


BANKS = {"shared_busy": 0.9, "sm_active": 1.0}


@pytest.mark.parametrize(
    ("waste", "each"),
    [
        (0.5, "2 wavefronts"),
        (0.75, "4 wavefronts"),
        (0.2, "1.2 wavefronts"),
        (0.19, ""),
        (1.0, "32 wavefronts"),
        (0.99, "32 wavefronts"),
    ],
)
def test_bank_conflicts(waste, each):
    found = hit("shared-bank-conflicts", **BANKS, excess_shared_wavefronts=waste)
    assert (found is None) is (each == "")
    assert found is None or f"({each} where 1 would do)" in found.cause
    counted = hit(
        "shared-bank-conflicts", **BANKS, shared_ld_conflicts=waste, shared_st_conflicts=0.0
    )
    assert (counted is None) is (each == "")


def test_conflicts_that_nobody_waits_for():
    idle = {"shared_busy": 0.03, **WAITS, "stall_short_scoreboard": 0.02, "stall_wait": 0.88}
    assert hit("shared-bank-conflicts", **idle, excess_shared_wavefronts=0.9) is None


HOT = {
    "l2_atomic_sectors": 300.0,
    "l2_sectors": 1000.0,
    "cycles": 1000.0,
    "l2_busy": 0.02,
    "l2_atomics_busy": 0.01,
    "shared_atomics": 0.0,
    "instructions": 1e4,
    **WAITS,
    "stall_lg_throttle": 0.3,
}


@pytest.mark.parametrize(
    ("change", "fires"),
    [
        ({}, True),
        ({"l2_atomic_sectors": 299.0}, False),
        ({"l2_busy": 0.5}, False),
        ({"stall_lg_throttle": 0.29}, False),
        ({"cycles": 1500.0}, True),
        ({"cycles": 1501.0}, False),
        ({"cycles": 200.0}, True),
        ({"cycles": 199.0}, False),
        # What the busiest slice does beyond the others counts, whatever these do, and who waits.
        ({"l2_busy_max": 0.28}, True),
        ({"l2_busy_max": 0.26}, False),
        ({"l2_busy_max": 0.46, "l2_busy": 0.2}, True),
        ({"l2_busy_max": 0.44, "l2_busy": 0.2}, False),
        ({"l2_busy_max": 0.46, "l2_busy": 0.2, "l2_atomic_sectors": 60.0}, False),
        (
            {"stall_lg_throttle": 0.0, "stall_membar": 0.3, "l2_busy_max": 0.4, "l2_busy": 0.05},
            True,
        ),
        ({"l2_atomic_sectors": 0.0, "shared_atomics": 100.0}, True),
        ({"l2_atomic_sectors": 0.0, "shared_atomics": 99.0}, False),
        (
            {
                "l2_atomic_sectors": 0.0,
                "shared_atomics": 100.0,
                "stall_lg_throttle": 0.0,
                "stall_membar": 0.5,
            },
            False,
        ),
        ({"l2_atomics_busy": 0.9, "l2_atomic_sectors": 0.0}, True),
    ],
)
def test_atomics_that_queue(change, fires):
    found = hit("atomics-contention", **{**HOT, **change})
    assert (found is not None) is fires
    assert found is None or found.gain is None


@pytest.mark.parametrize(
    ("rule", "name"),
    [("register-spills", "spill_instructions"), ("local-memory", "local_instructions")],
)
def test_local_memory(rule, name):
    base = {
        "instructions": 100.0,
        "local_share": 0.5,
        **WAITS,
        "stall_long_scoreboard": 0.6,
        "spill_instructions": 0.0,
    }
    # 10 % of the instructions, and half of the accesses that take 60 % of the time: 40 %.
    assert hit(rule, **{**base, name: 10.0}).gain == pytest.approx(1 / 0.6)
    assert hit(rule, **{**base, name: 2.0}).gain == pytest.approx(1 / 0.68)
    assert hit(rule, **{**base, name: 1.9}) is None
    assert hit(rule, **{**base, name: 90.0}).gain == pytest.approx(1 / 0.03)
    assert (
        hit("local-memory", **{**base, "local_instructions": 5.0, "spill_instructions": 4.0})
        is None
    )


# --- doubts of the measurement


@pytest.mark.parametrize(
    ("counted", "cause"),
    [
        (1.11e9, "1.11 times the declared operations ran"),
        (1.1e9, None),
        (0.92e9, None),
        (0.9e9, "only 90 % of the declared operations"),
        (0.0, "only 0 % of the declared"),
    ],
)
def test_counted_and_declared_operations(counted, cause):
    found = hit(
        "operations-mismatch", declared_operations=1e9, tensor_ops=counted, fp32_rate=0.0, time=1.0
    )
    assert (found is None) is (cause is None)
    assert found is None or found.cause.startswith(cause)


def test_scalar_operations_count_too():
    base = {"declared_operations": 10.0, "tensor_ops": 0.0, "time": 2.0}
    assert hit("operations-mismatch", **base, fp32_rate=5.0) is None
    assert hit("operations-mismatch", **base, fp32_rate=4.0).cause.startswith("only 80 %")
    assert hit("operations-mismatch", **base, fp32_rate=50.0) is None  # exponentials and the like


CLOCKS = {
    "sm_clock": 1.9e9,
    "sm_clock_max": 2e9,
    "dram_clock": 1e9,
    "dram_clock_max": 2e9,
    "time": 1.0,
}


@pytest.mark.parametrize(
    ("change", "fires"),
    [
        ({}, False),
        ({"sm_clock": 1.8e9}, False),
        ({"sm_clock": 1.79e9}, True),
        ({"dram_clock": 0.99e9}, False),
        ({"dram_clock": 0.89e9}, True),
        ({"dram_clock": 1.7e9}, True),
        ({"dram_clock": 1.9e9, "sm_clock": 0.75e9}, True),
        ({"sm_clock": 1e9, "time": 4.9e-6}, False),
        ({"sm_clock": 1e9, "time": 5e-6}, True),
    ],
)
def test_clocks_below_the_machine_s_best(change, fires):
    found = hit("clocks-unsteady", **{**CLOCKS, **change})
    assert (found is not None) is fires
    if next(iter(change), "") == "sm_clock" and found:
        said = change["sm_clock"] / 1e6
        assert f"the SM clock was {said:,.0f} of 2,000 MHz (" in found.cause
    if "dram_clock" in change and found:
        said = change["dram_clock"] / 1e6
        assert f"the DRAM clock was {said:,.0f} of 2,000 MHz (" in found.cause
        # With the SM at its highest clock the whole launch was counted: the memory was slow.
        part = "sm_clock" in change
        assert ("cover only 95 % of the run" in found.cause) is part


def test_a_dram_clock_is_read_as_the_roofline_reads_it():
    """A T4 at its base clock, where DRAM's cycles were counted for 92.6 % of the time."""
    clocks = {
        "sm_clock": 584e6,
        "sm_clock_max": 1590e6,
        "dram_clock": 4631e6,
        "dram_clock_max": 5001e6,
        "time": 47.1e-6,
    }
    found = hit("clocks-unsteady", **clocks)
    assert "cover only 92.6 % of the run" in found.cause
    assert found.cause.endswith("it ran at 631 MHz")
    assert compute_counted_share_of_duration(clocks) == pytest.approx(0.926, abs=1e-3)
    halved = {**clocks, "dram_clock": 2500.5e6}  # counted once where the attribute counts twice
    assert compute_counted_share_of_duration(halved) == 1.0
    assert "counters ran" not in hit("clocks-unsteady", **halved).cause


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"l2_hit": 1.03}, None),
        ({"l2_hit": 1.04}, "out of range: l2_hit 104 %; ncu's 1 passes"),
        ({"occupancy": 0.5, "occupancy_limit": 0.5}, None),
        (
            {"occupancy": 0.52, "occupancy_limit": 0.5, "replay_passes": 7},
            "out of range: achieved occupancy 52 % over the theoretical 50 %; ncu's 7 passes",
        ),
        ({"l1_hit": 1.5, "sm_active": 1.2}, "out of range: l1_hit 150 %, sm_active 120 %; "),
    ],
)
def test_shares_out_of_range(values, cause):
    found = hit("replay-unsteady", time=1.0, **values)
    assert (found is None) is (cause is None)
    assert found is None or found.cause.startswith(cause)


# --- nothing else


def test_nothing_stands_out_names_the_two_fullest_and_the_room_above_them():
    values = {
        "issue_busy": 0.13,
        "dram_busy": 0.44,
        "sm_active": 0.98,
        "waves": 482.0,
        "occupancy": 0.5,
    }
    found = hit("nothing-stands-out", **values)
    assert "(dram 44 % and issue 13 %)" in found.cause
    assert found.cause.endswith("what the warps wait for was not collected")
    assert found.gain == pytest.approx(1 / 0.44)
    assert found.looked == ("occupancy", "issue_busy", "sm_active")
    states = {"stall_selected": 1.0}
    assert hit("nothing-stands-out", **values, **states).cause.endswith("and no rule finds why")
    assert hit("nothing-stands-out", dram_busy=0.52).looked == ()
    assert hit("nothing-stands-out", **values | {"dram_busy": 0.9}) is None
    with pytest.raises(NotCollected):
        hit("nothing-stands-out", occupancy=0.5)
