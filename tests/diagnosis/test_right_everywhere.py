"""Verdicts on any GPU, any set of sections and any build: each was wrong on a real report once."""

from __future__ import annotations

import pytest

from profkit.diagnosis.rule import Diagnosis, LaunchFinding
from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.verdict import judge_launch
from profkit.model.launch import Launch, is_narrow_stream, measure_idleness
from profkit.model.resources import ISSUE
from profkit.model.scenario import USUAL_STREAM
from profkit.reports.figures import format_share
from profkit.reports.metrics import evaluate_metrics
from profkit.reports.reader import read_report_files
from tests.conftest import ROOT, others
from tests.diagnosis.test_engine import BUSY
from tests.found import find_files

PCT = ".avg.pct_of_peak_sustained_elapsed"
STALLS = {k: v for k, v in BUSY.items() if k.startswith("stall_")}
BASIC = {k: v for k, v in BUSY.items() if not k.startswith("stall_") and k != "inst_matrix"}


def finding(diagnosis: Diagnosis, rule: str) -> LaunchFinding:
    return next(f for f in diagnosis.findings if f.rule == rule)


def fires(diagnosis: Diagnosis) -> list[str]:
    return [f.rule for f in diagnosis.findings if f.status == "fires"]


def real(word: str, launch: int = 0) -> Diagnosis:
    """The diagnosis of a launch of somebody's report; skips where there is none."""
    paths = [p for p in others() if word in p.name]
    if not paths:
        pytest.skip("no reports of others beside the project (../shared/corpus)")
    run = next(
        r for r in read_report_files(paths[:1]).parts[0].iterate_launches() if r["launch"] == launch
    )
    return judge_launch(run)


def own(name: str) -> Diagnosis:
    (path,) = find_files(ROOT / "artifacts", f"**/{name}.ncu-rep*")
    run = next(read_report_files([path]).parts[0].iterate_launches())
    return judge_launch(run)


def on(major: int, minor: int, **units: float) -> dict[str, float]:
    """The catalogue's values of L1TEX units in per cent, on a compute capability."""
    cc = "device__attribute_compute_capability_"
    raw = {f"l1tex__{unit}{PCT}": value for unit, value in units.items()}
    return evaluate_metrics({**raw, f"{cc}major": major, f"{cc}minor": minor})


@pytest.mark.parametrize(
    ("cc", "data", "links"),
    [
        ((7, 5), 0.86, 0.4),
        ((7, 0), 0.43, 0.4),
        ((8, 6), 0.43, 0.4),
        ((8, 9), 0.43, 0.4),
        ((12, 0), 0.43, 0.4),
        ((8, 0), 0.43, 0.2),
        ((9, 0), 0.43, 0.2),
        ((10, 0), 0.43, 0.2),
    ],
)
def test_stages_that_ncu_gives_at_half_count_whole(
    cc: tuple[int, int], data: float, links: float
) -> None:
    values = on(*cc, data_pipe_lsu_wavefronts=43.0, m_l1tex2xbar_req_cycles_active=20.0)
    assert values["lsu_data_busy"] == pytest.approx(data)
    assert values["l1_to_xbar_busy"] == pytest.approx(links)
    assert values["l1_busy"] == pytest.approx(max(data, links))


def test_a_full_data_stage_on_a_t4_is_l1() -> None:
    diagnosis = real("Tesla-T4_2025.1.1.0", 2)
    assert (diagnosis.bound, diagnosis.limiter) == ("memory", "l1")
    assert "l1 at 99.9 %" in diagnosis.because


def test_a_data_stage_that_is_mostly_shared_memorys_is_taken_whole() -> None:
    stage = {"l1_busy": 0.87, "lsu_data_busy": 0.87, "shared_busy": 0.65, "lsu_in_busy": 0.3}
    diagnosis = judge_launch({**BUSY, **stage})
    assert (diagnosis.bound, diagnosis.limiter) == ("memory", "shared")
    assert "87 %" in diagnosis.because


def test_a_verdict_near_its_border_says_which_and_by_how_much() -> None:
    border = (ISSUE.sure + ISSUE.likely) / 2  # where nothing says whether warps queue
    diagnosis = judge_launch({**BASIC, "issue_busy": border / 1.02, "sm_active": 1.0})
    assert diagnosis.bound == "latency"
    assert diagnosis.near_border is not None
    assert diagnosis.near_border.other == "compute"
    assert diagnosis.near_border.margin == pytest.approx(0.02, abs=0.001)
    figures = f"with issue above {format_share(border)} the verdict would be compute"
    assert diagnosis.because.endswith(f"(close call: {figures})")
    clear = judge_launch({**BASIC, "issue_busy": border / 1.1, "sm_active": 1.0})
    assert (clear.bound, clear.near_border) == ("latency", None)


def test_both_sides_of_a_border_name_each_other() -> None:
    below, above = (
        judge_launch({**BUSY, "dram_busy": busy, "sm_active": 1.0}) for busy in (0.74, 0.76)
    )
    assert (below.bound, above.bound) == ("latency", "memory")
    assert below.near_border is not None
    assert above.near_border is not None
    assert (below.near_border.other, above.near_border.other) == ("memory", "latency")


SHORT = {"time": 4.0e-6, "sm_active": 0.546, "sm_active_max": 0.575}


def test_a_launch_whose_busiest_sm_idles_is_the_launch() -> None:
    diagnosis = judge_launch({**BUSY, **SHORT})
    assert (diagnosis.bound, diagnosis.limiter) == ("launch", "too_short")
    assert finding(diagnosis, "short-kernel").gain == pytest.approx(1 / 0.575)
    assert finding(diagnosis, "short-kernel").cause == (
        "even the busiest SM works for only 57.5 % of 4.00 µs; starting and ending the launch takes "
        "the remaining 1.70 µs"
    )


@pytest.mark.parametrize("time", [2e-6, 3e-6, 4e-6, 9e-6, 11e-6, 20e-6])
def test_no_border_is_a_number_of_microseconds(time: float) -> None:
    shape = {"time": time, "sm_active": 0.5, "sm_active_max": 0.6}
    assert judge_launch({**BUSY, **shape}).limiter == "too_short"


def test_blocks_are_counted_before_imbalance() -> None:
    shape = {"grid_size": 128, "sm_count": 170, "waves": 0.75, "sm_active": 0.7}
    diagnosis = judge_launch({**BUSY, **shape, "sm_active_max": 0.95})
    assert (diagnosis.bound, diagnosis.limiter) == ("launch", "grid_too_small")
    assert "workload-imbalance" not in fires(diagnosis)
    assert finding(diagnosis, "grid-too-small").cause.startswith("128 blocks for 170 SMs")


def test_four_idle_sms_of_132_are_not_the_launch() -> None:
    shape = {"grid_size": 128, "sm_count": 132, "block_size": 128, "waves": 0.194}
    assert (
        judge_launch({**BUSY, **shape, "sm_active": 0.92, "sm_active_max": 0.95}).bound == "latency"
    )


def test_longest_first_is_no_advice_where_all_blocks_begin_at_once() -> None:
    waves = {"sm_active": 0.3, "sm_active_min": 0.2, "sm_active_max": 0.99}
    assert (
        "longest first"
        in finding(judge_launch({**BUSY, **waves, "waves": 8.0}), "workload-imbalance").advice
    )
    at_once = finding(judge_launch({**BUSY, **waves, "waves": 1.0}), "workload-imbalance")
    assert "longest first" not in at_once.advice


def test_a_busiest_sm_that_nobody_counted_is_assumed_and_said_to_be() -> None:
    old = {k: v for k, v in BUSY.items() if k != "sm_active_max"}
    idle = measure_idleness(Launch({**old, "sm_active": 0.4}))
    assert idle.assumed
    assert idle.busiest == pytest.approx(0.95)
    diagnosis = judge_launch({**old, "sm_active": 0.4})
    assert (diagnosis.bound, diagnosis.limiter) == ("launch", "imbalance")
    assert "was not counted" in diagnosis.because
    assert "100 %" not in diagnosis.because


def test_a_v100_launch_of_13_us_says_what_it_assumes() -> None:
    diagnosis = real("V100", 0)
    assert (diagnosis.bound, diagnosis.limiter) == ("launch", "too_short")
    assert "estimated from the average SM: the busiest one was not recorded" in diagnosis.because


FEW = {
    "blocks_per_sm": 2,
    "limit_registers": 2,
    "limit_shared": 9,
    "limit_warps": 9,
    "limit_blocks": 9,
    "occupancy_limit": 0.33,
    "occupancy": 0.32,
    "waves": 8,
}


def test_a_basic_set_has_an_occupancy_finding() -> None:
    basic = {k: v for k, v in BASIC.items() if k != "issue_busy_active"}
    assert "occupancy-registers" in fires(judge_launch({**basic, **FEW}))


def test_more_warps_are_no_advice_where_they_would_meet_a_queue() -> None:
    queue = {**dict.fromkeys(STALLS, 0.0), "stall_selected": 0.1, "stall_lg_throttle": 0.8}
    assert "occupancy-registers" not in fires(
        judge_launch({**BUSY, **FEW, **queue, "issue_busy_active": 0.2})
    )
    waits = judge_launch({**BUSY, **FEW, "issue_busy_active": 0.2})
    assert finding(waits, "occupancy-registers").gain == pytest.approx(1 / 0.33, rel=0.05)


def test_the_heavy_half_of_alu_is_read_where_a_basic_set_has_no_more() -> None:
    assert evaluate_metrics({f"sm__pipe_aluheavy_cycles_active{PCT}": 70.0})[
        "alu_busy"
    ] == pytest.approx(0.7)


def test_dram_is_known_from_its_rate_and_the_device_attributes() -> None:
    rate = {"time": 1e-4, "dram_rate": 0.8e12, "peak_dram_device": 1.0e12, "sm_active": 0.98}
    diagnosis = judge_launch(rate)
    assert (diagnosis.bound, diagnosis.limiter) == ("memory", "dram")
    assert "by the device attributes" in finding(diagnosis, "dram-bandwidth").cause


def test_any_throughput_gives_a_bound_and_something_to_act_on() -> None:
    diagnosis = judge_launch({"time": 1e-4, "dram_busy": 0.3})
    assert diagnosis.bound == "latency"
    assert diagnosis.because.startswith("of what was collected nothing is near its peak")
    assert fires(diagnosis) == ["nothing-stands-out"]
    assert [m.section for m in diagnosis.missing] == ["SpeedOfLight", "WarpStateStats"]


def test_a_partial_set_of_an_rtx_4090_has_a_bound_and_a_finding() -> None:
    diagnosis = real("RTX-4090_2023.1.0.0_partial")
    assert diagnosis.bound == "latency"
    assert fires(diagnosis) == ["nothing-stands-out"]


DEBUG = {"inst_mov": 4.4e6, "inst_generic": 2.3e5, "instructions": 1e7}


def test_a_debug_build_leads_whatever_the_verdict() -> None:
    for more in ({}, {"dram_busy": 0.9}, SHORT):
        diagnosis = judge_launch({**BUSY, **DEBUG, **more})
        assert diagnosis.top is not None
        assert diagnosis.top.rule == "debug-build"


def test_lanes_without_a_thread_are_not_divergence() -> None:
    diagnosis = judge_launch({**BUSY, "block_size": 10, "threads_per_warp": 9.9})
    assert "thread-divergence" not in fires(diagnosis)
    assert finding(diagnosis, "partial-warps").gain == pytest.approx(3.2)
    diverged = judge_launch({**BUSY, "block_size": 256, "threads_per_warp": 9.9})
    assert "thread-divergence" in fires(diverged)
    assert "partial-warps" not in fires(diverged)


def test_blocks_of_ten_threads_on_an_a100() -> None:
    assert "partial-warps" in fires(real("2020.3.1.0_partial_extrap"))


def test_blocks_too_short_to_fill_their_places_on_a_t4() -> None:
    diagnosis = real("Tesla-T4_2025.1.1.0", 0)
    assert diagnosis.top is not None
    assert diagnosis.top.rule == "short-blocks"
    assert diagnosis.top.cause.startswith(
        "occupancy is 44.8 %, where 100 % would fit: lives of 243 ns"
    )
    # As empty, but DRAM is full: more blocks would bring nothing.
    assert "short-blocks" not in fires(real("RTX-4090_2023.1.0.0_full_Cuda", 1))


def test_the_last_round_of_a_persistent_grid_is_named() -> None:
    wgmma = finding(own("C/wgmma"), "hidden-tail")
    average, busiest = (wgmma.evidence[name] for name in ("sm_active", "sm_active_max"))
    assert average is not None
    assert busiest is not None
    assert wgmma.status == "fires"
    assert wgmma.gain == pytest.approx(busiest / average)
    assert f"the average SM is busy {format_share(average)}" in wgmma.cause
    assert "seems to run on 3" in wgmma.cause  # a third of the SMs: 5.33 rounds are paid as 6
    assert finding(own("B/persistent"), "hidden-tail").status == "clear"
    assert finding(own("B/tailwave"), "tail-effect").status == "fires"


def test_a_share_of_few_samples_is_none() -> None:
    samples = "smsp__pcsamp_warps_issue_stalled_"
    few = evaluate_metrics({f"{samples}wait": 1.0, f"{samples}selected": 0.0})
    assert few["warp_samples"] == 1
    assert few["stall_wait"] != few["stall_wait"]
    assert (
        evaluate_metrics({f"{samples}wait": 60.0, f"{samples}selected": 40.0})["stall_wait"] == 0.6
    )
    said = judge_launch({**BASIC, "warp_samples": 1.0}).missing[0].why
    assert "1 samples are too few to tell" in said


def test_what_an_old_ncu_does_not_count_is_not_asked_for() -> None:
    spills = finding(judge_launch({**BUSY, "ncu_version": "2023.3.0.0"}), "register-spills")
    assert spills.cause.endswith("this ncu (2023.3) did not count it; from 2025.1 on")
    assert spills.advice == "profile with ncu 2025.1 or newer"
    new = finding(judge_launch({**BUSY, "ncu_version": "2025.1.0.0"}), "register-spills")
    assert new.cause.endswith("this ncu (2025.1) did not count it on this GPU in this launch")
    assert new.advice == ""
    basic = {k: v for k, v in BASIC.items() if not k.startswith("inst")}
    asked = finding(judge_launch({**basic, "ncu_version": "2025.1.0.0"}), "register-spills")
    assert asked.advice == "--section InstructionStats"


def test_a_run_record_is_written_by_profkit_and_not_by_a_section() -> None:
    assert finding(judge_launch(BUSY), "redundant-exp").advice == "profkit profile"


def test_a_fuller_unit_is_not_called_the_next() -> None:
    mixed = {
        "shared_busy": 0.578,
        "lsu_data_busy": 0.578,
        "l1_busy": 0.578,
        "alu_busy": 0.668,
        "sm_active": 1.0,
        "stall_mio_throttle": 0.6,
        "stall_long_scoreboard": 0.1,
    }
    cause = finding(judge_launch({**BUSY, **mixed}), "shared-bandwidth").cause
    assert cause == "Shared memory at 57.8 % of its peak; int is at 66.8 %"


def test_a_wave_that_is_hardly_more_than_one_shows_it() -> None:
    cause = finding(judge_launch({**BUSY, "waves": 1.00392, "sm_active": 0.6}), "tail-effect").cause
    assert cause.startswith("1.004 waves, the last of which fills 0.392 %")


def test_the_dispatcher_is_told_in_a_sentence() -> None:
    held = {**dict.fromkeys(STALLS, 0.0), "stall_selected": 0.1, "stall_dispatch_stall": 0.7}
    assert judge_launch({**BUSY, **held}).because.endswith("time waiting for the dispatcher")


def test_notes_on_the_measurement_come_last() -> None:
    slow = {"sm_clock": 0.8e9, "sm_clock_max": 2.0e9, "dram_clock": 6e9, "dram_clock_max": 6e9}
    diagnosis = judge_launch({**BUSY, **slow})
    assert fires(diagnosis)[-1] == "clocks-unsteady"
    assert diagnosis.top is not None
    assert diagnosis.top.rule == "long-scoreboard"


STREAM = {
    **BUSY,
    **STALLS,
    "dram_bytes": 1e9,
    "dram_write": 0.0,
    "stall_long_scoreboard": 0.9,
    "stall_selected": 0.05,
    "stall_barrier": 0.0,
    "occupancy": 0.95,
    "inst_global_load": 1e6,
    "warp_latency": 400.0,
    "instructions": 1e6,
}


@pytest.mark.parametrize(
    ("sectors", "bound"),
    [
        (4.0, "latency"),  # a quarter of the bytes that as many requests could ask for
        (16.0, "memory"),
    ],
)
def test_dram_at_two_thirds_is_full_only_where_the_requests_in_flight_are_wide(sectors, bound):
    launch = {**STREAM, "dram_busy": 0.67, "global_load_sectors_per_request": sectors}
    assert judge_launch(launch).bound == bound


@pytest.mark.parametrize("busy", [0.70, 0.76, 0.80])
def test_of_a_stream_with_room_it_is_said_what_the_same_bytes_could_gain(busy):
    """Reads usually get 89 % of the pins' rate; the wait for them is a cause beside DRAM."""
    wide = {"global_load_sectors_per_request": 16.0, "time": 1e-2}
    said = judge_launch({**STREAM, **wide, "dram_busy": busy})
    dram = finding(said, "dram-bandwidth")
    assert said.top == dram
    assert dram.expect is not None
    assert dram.expect.gain == pytest.approx(0.94 * USUAL_STREAM / busy, rel=0.01)
    assert finding(said, "long-scoreboard").status == "fires"


def test_of_a_stream_without_room_nothing_is_promised():
    said = judge_launch({**STREAM, "dram_busy": 0.9, "global_load_sectors_per_request": 4.0})
    assert said.top is not None
    assert said.top.at_roof
    for rule in ("long-scoreboard", "narrow-accesses"):
        assert finding(said, rule).status == "clear"


SMALL = {
    **BUSY,
    **STALLS,
    "grid_size": 192.0,
    "sm_count": 132.0,
    "block_size": 32.0,
    "waves": 0.2,
    "sm_active": 0.95,
    "sm_active_max": 0.97,
    "time": 7e-4,
    "shared_busy": 0.4,
    "lsu_data_busy": 0.4,
    "l1_busy": 0.4,
    "issue_busy": 0.02,
    "stall_short_scoreboard": 0.75,
    "stall_selected": 0.05,
    "stall_long_scoreboard": 0.05,
    "stall_barrier": 0.0,
}


@pytest.mark.parametrize(
    ("excess", "first"), [(0.9, "shared-bank-conflicts"), (0.0, "grid-too-small")]
)
def test_a_launchs_shape_leads_where_no_wasted_work_is_worth_more(excess, first):
    said = judge_launch({**SMALL, "excess_shared_wavefronts": excess})
    assert said.top is not None
    assert said.top.rule == first


def test_a_shape_and_wasted_work_are_priced_together():
    said = judge_launch({**SMALL, "excess_shared_wavefronts": 0.9})
    both = said.together
    assert both is not None
    assert set(both.rules) == {"grid-too-small", "shared-bank-conflicts"}
    single = [finding(said, rule).expect.gain for rule in both.rules]
    assert both.expect.gain > 1.1 * max(single)
    assert judge_launch({**SMALL, "excess_shared_wavefronts": 0.0}).together is None


def test_a_tie_that_the_carve_out_makes_does_not_hide_the_registers():
    """One block of 1,024 threads by registers; the driver chose shared memory for that one block."""
    launch = {
        **BUSY,
        **STALLS,
        "stall_long_scoreboard": 0.7,
        "blocks_per_sm": 1.0,
        "limit_registers": 1.0,
        "limit_shared": 1.0,
        "limit_warps": 2.0,
        "limit_blocks": 32.0,
        "occupancy_limit": 0.5,
        "waves": 60.0,
        "issue_busy": 0.3,
        "issue_busy_active": 0.3,
        "shared_block": 5120.0,
    }
    assert finding(judge_launch(launch), "occupancy-registers").status == "fires"
    # With 4 KB less there would be room for a second: shared memory is a limit of its own.
    assert (
        finding(judge_launch({**launch, "shared_step": 4096.0}), "occupancy-registers").status
        == "clear"
    )


HOT = {
    **BUSY,
    **STALLS,
    "l2_atomic_sectors": 0.8e6,
    "l2_sectors": 1e7,
    "cycles": 1e6,
    "l2_busy": 0.105,
    "l2_busy_max": 0.78,
    "l2_atomics_busy": 0.02,
    "shared_atomics": 0.0,
    "instructions": 1e7,
    "inst_global_load": 1e5,
    "inst_async_copy": 0.0,
    "inst_texture": 0.0,
    "warp_latency": 2000.0,
    "stall_long_scoreboard": 0.95,
    "stall_barrier": 0.0,
}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "fires"),
        # Hardly any atomics: something else fills that slice.
        ({"l2_atomic_sectors": 1e5}, "clear"),
        # Slices are filled unevenly, but none by a hot word.
        ({"l2_busy_max": 0.2}, "clear"),
    ],
)
def test_what_fills_one_slice_is_told_by_the_atomics_that_could(change, status):
    """nvcc makes one atomic of a warp's 32: 8 % of L2's sectors, and all of a slice's time."""
    said = judge_launch({**HOT, **change})
    found = finding(said, "atomics-contention")
    assert found.status == status
    if status == "fires":
        assert said.top == found
        assert (found.gain, found.expect) == (None, None)


def test_what_nobody_would_see_on_a_clock_is_no_finding():
    """Bank conflicts that the warps hardly wait for: their bound is 1.1x, and 1.02x is expected."""
    launch = {
        **BUSY,
        **STALLS,
        "shared_busy": 0.2,
        "stall_short_scoreboard": 0.2,
        "stall_mio_throttle": 0.0,
        "stall_barrier": 0.0,
    }
    few, many = (
        finding(judge_launch({**launch, "excess_shared_wavefronts": part}), "shared-bank-conflicts")
        for part in (0.21, 0.9)
    )
    assert (few.status, many.status) == ("clear", "fires")
    assert many.expect.gain >= 1.05
    assert BY_ID["shared-bank-conflicts"].check(
        Launch({**launch, "excess_shared_wavefronts": 0.21})
    )


def test_a_cause_that_explains_little_of_a_wait_is_not_named_for_it():
    """Half of the places taken is worth 2x; that barriers expose everything before them, 6x."""
    launch = {
        **BUSY,
        "stall_barrier": 0.94,
        "stall_selected": 0.02,
        "stall_long_scoreboard": 0.02,
        "stall_wait": 0.02,
        "blocks_per_sm": 1.0,
        "limit_registers": 1.0,
        "limit_shared": 9.0,
        "limit_warps": 2.0,
        "limit_blocks": 32.0,
        "occupancy_limit": 0.5,
        "waves": 60.0,
        "issue_busy": 0.05,
        "issue_busy_active": 0.05,
        "l1_busy": 0.1,
        "dram_busy": 0.04,
    }
    said = judge_launch(launch)
    assert said.top is not None
    assert said.top.rule == "barrier-wait"
    assert finding(said, "occupancy-registers").status == "fires"


# A sum over the threads of a block: shared memory at three quarters of its peak, a barrier after every
# twelve instructions of a warp, 20 of 32 lanes at work. Counters of a step of NVIDIA's reduction sample.
TREE = {
    **BUSY,
    **STALLS,
    "time": 3e-4,
    "shared_busy": 0.73,
    "lsu_data_busy": 0.79,
    "lsu_in_busy": 0.73,
    "issue_busy": 0.6,
    "instructions": 2.2e8,
    "inst_barrier": 1.89e7,
    "inst_shared_load": 3.38e7,
    "inst_shared_store": 1.89e7,
    "threads_per_warp": 31.7,
    "threads_per_warp_predicated": 20.4,
    "excess_shared_wavefronts": 0.0,
    "stall_short_scoreboard": 0.4,
    "stall_barrier": 0.14,
}


def test_the_steps_of_a_tree_are_its_cause_and_not_full_shared_memory():
    said = judge_launch(TREE)
    assert (said.bound, said.limiter) == ("memory", "shared")
    assert said.top is not None
    assert said.top.rule == "barrier-wait"
    assert "20.4 of 32 lanes active" in said.top.cause
    assert "shuffles" in said.top.advice


@pytest.mark.parametrize(
    "other",
    [
        {"threads_per_warp_predicated": 31.5},  # a tile: all lanes at work
        {"inst_barrier": 1e6},  # hundreds of instructions from one barrier to the next
    ],
)
def test_other_causes_of_full_shared_memory_are_no_tree(other):
    said = judge_launch({**TREE, **other})
    assert said.limiter == "shared"
    assert said.top is not None
    assert said.top.rule != "barrier-wait"


@pytest.mark.parametrize(
    ("values", "narrow"),
    [
        ({"issue_busy": 0.9, "inst_global_load": 3e8}, True),  # instructions are full of loads
        ({"issue_busy": 0.9, "inst_global_load": 1e7}, False),  # the loads are few of them
        ({"issue_busy": 0.2, "inst_global_load": 3e8}, False),  # what waits is long-scoreboard's
    ],
)
def test_narrow_accesses_are_a_cause_where_instructions_are_full_of_them(values, narrow):
    loads = {"global_load_sectors_per_request": 4.0, "excess_sectors": 0.0, "instructions": 1e9}
    tile = {"inst_shared_load": 4e8, "stall_long_scoreboard": 0.6, "stall_not_selected": 0.3}
    said = judge_launch({**BUSY, **STALLS, **loads, **tile, **values})
    assert (finding(said, "narrow-accesses").status == "fires") == narrow


def test_the_wait_for_a_narrow_stream_says_how_wide_its_loads_are():
    stream = {
        **STREAM,
        "dram_busy": 0.3,
        "global_load_sectors_per_request": 4.0,
        "excess_sectors": 0.0,
        "l1_hit": 0.1,
        "inst_shared_load": 0.0,
        "inst_shared_store": 0.0,
        "inst_shuffle": 0.0,
        "inst_barrier": 0.0,
    }
    wait = finding(judge_launch(stream), "long-scoreboard")
    assert "each lane loads 4 of the 16 bytes it could load at once" in wait.cause
    assert wait.advice.startswith("Use wider loads")
    tile = finding(judge_launch({**stream, "inst_shared_load": 1e7}), "long-scoreboard")
    assert "each lane loads" not in tile.cause
    assert not tile.advice.startswith("Use wider loads")
    assert tile.expect is not None
    assert wait.expect is not None
    assert tile.expect.gain < wait.expect.gain


@pytest.mark.parametrize(
    "name", ["l1_hit", "inst_shared_load", "inst_shuffle", "inst_barrier", "inst_global_load"]
)
def test_loads_are_a_stream_only_where_what_tells_it_was_counted(name: str) -> None:
    counters = dict.fromkeys(("inst_shared_load", "inst_shared_store", "inst_shuffle"), 0.0)
    narrow = {"global_load_sectors_per_request": 4.0, "excess_sectors": 0.0}
    stream = {**counters, **narrow, "inst_barrier": 0.0, "l1_hit": 0.1, "inst_global_load": 1e7}
    assert is_narrow_stream(Launch(stream))
    del stream[name]
    assert not is_narrow_stream(Launch(stream))


def test_a_short_launch_is_promised_less_than_a_long_one_with_the_same_counters():
    wait = {
        **STREAM,
        "dram_busy": 0.3,
        "sm_active_max": 0.99,
        "global_load_sectors_per_request": 16.0,
    }
    worth = []
    for microseconds in (1000, 20, 8, 4):
        ends = min(0.5, 2 / microseconds)
        shares = {"sm_active": 1 - ends, "sm_active_max": 1 - ends}
        said = judge_launch({**wait, **shares, "time": microseconds * 1e-6})
        worth.append(finding(said, "long-scoreboard").ranking_gain)
    assert worth == sorted(worth, reverse=True)
    assert worth[0] > 1.7
    assert worth[-1] < 1.5


def test_a_copy_of_a_few_microseconds_is_at_its_limit_earlier():
    copy = {**STREAM, "dram_busy": 0.7, "global_load_sectors_per_request": 16.0}
    long = judge_launch({**copy, "time": 1e-2, "sm_active_max": 1.0})
    short = judge_launch({**copy, "time": 8e-6, "sm_active": 0.8, "sm_active_max": 0.8})
    assert long.headroom is not None
    assert short.headroom is not None
    assert long.headroom > 1.3
    assert short.headroom < 1.1


def test_what_a_cause_makes_warps_wait_for_promises_no_more_than_the_cause():
    conflicts = {**TREE, "threads_per_warp_predicated": 31.5, "excess_shared_wavefronts": 0.75}
    said = judge_launch(conflicts)
    assert said.top is not None
    assert said.top.rule == "shared-bank-conflicts"
    full = finding(said, "shared-bandwidth")
    assert full.cause.endswith("shared-bank-conflicts is the cause of it")
    assert full.ranking_gain <= said.top.ranking_gain


def test_below_a_cause_without_a_price_its_wait_has_none():
    hot = {
        "l2_atomic_sectors": 1e6,
        "l2_sectors": 1.1e6,
        "cycles": 1e6,
        "l2_busy": 0.02,
        "l2_atomics_busy": 0.01,
        "stall_lg_throttle": 0.0,
        "stall_long_scoreboard": 0.95,
        "warp_latency": 5e4,
        "inst_global_load": 1e5,
        "inst_async_copy": 0.0,
        "inst_texture": 0.0,
        "shared_atomics": 0.0,
        "instructions": 1e6,
    }
    said = judge_launch({**BUSY, **dict.fromkeys(STALLS, 0.0), "stall_selected": 0.02, **hot})
    assert said.top is not None
    assert said.top.rule == "atomics-contention"
    wait = finding(said, "long-scoreboard")
    assert (wait.gain, wait.expect) == (None, None)
    assert "atomics-contention is the cause of it" in wait.cause


def test_a_finding_that_may_as_well_be_nothing_is_none_unless_it_leads():
    for values in (TREE, {**STREAM, "dram_busy": 0.8}, {**BUSY, "issue_busy": 0.9}):
        said = judge_launch(values)
        for found in said.findings:
            if found.status == "fires" and found != said.top and found.expect:
                assert found.expect.gain >= 1.1 or found.expect.low >= 1


def test_atomics_that_a_fence_orders_are_no_bound_on_its_price():
    fences = {**BUSY, **STALLS, "stall_membar": 0.6, "l2_cache_busy": 0.38, "l2_to_xbar_busy": 0.2}
    links = {"xbar_to_l2_busy": 0.3, "l2_sectors": 1e6, "l2_atomic_sectors": 0.0}
    alone = finding(
        judge_launch({**fences, **links, "dram_busy": 0.1, "issue_busy": 0.1}), "membar"
    )
    atomics = {**fences, **links, "l2_atomic_sectors": 5e5, "dram_busy": 0.1, "issue_busy": 0.1}
    ordered = finding(judge_launch(atomics), "membar")
    assert alone.gain is not None
    assert ordered.gain is not None
    assert ordered.gain > alone.gain
