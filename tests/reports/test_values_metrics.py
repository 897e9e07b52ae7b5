"""Each formula of the catalogue on round figures, and at its borders: nothing there, zero, one part."""

from __future__ import annotations

from math import inf, isnan, nan

import pytest

from profkit.reports.metrics import OPCODES, evaluate_metrics
from profkit.reports.metrics.derive import (
    Metric,
    count_instructions_by_opcode,
    get_factor_to_si,
    parse_catalogue_formula,
    parse_metrics,
)


def of(source, values, unit="op"):
    return Metric("m", unit, "", "", (source,)).compute_from(
        values | count_instructions_by_opcode(values)
    )


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
        ("lts__t_sector_hit_rate.pct", 0.01),
        ("sm__maximum_warps_per_active_cycle_pct", 0.01),
        ("gpu__time_duration.sum", 1e-9),
        ("device__attribute_clock_rate", 1e3),
        ("device__attribute_memory_clock_rate", 1e3),
        ("device__attribute_max_gpu_frequency_khz", 1e3),
        ("device__attribute_warp_size", 1.0),
        ("sm__cycles_elapsed_khz", 1.0),
        ("my_clock_rate", 1.0),
        ("dram__bytes.sum", 1.0),
    ],
)
def test_the_unit_of_a_raw_name(name, factor):
    assert get_factor_to_si(name) == factor


T, P = "gpu__time_duration.sum", "x.pct"  # 1e-9 and 0.01


@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ("a", {"a": 3.0}, 3.0),
        (P, {P: 50.0}, 0.5),
        ("a + b", {"a": 3.0, "b": 4.0}, 7.0),
        ("32 * (a + b)", {"a": 3.0, "b": 4.0}, 224.0),
        ("2 * (a + b)", {"a": 3.0, "b": 4.0}, 14.0),
        ("a + x.pct", {"a": 3.0, P: 50.0}, 3.5),
        ("a + b", {"a": 3.0}, nan),
        ("a - b", {"a": 3.0, "b": 4.0}, -1.0),
        ("max(a, b)", {"a": 3.0, "b": 4.0}, 4.0),
        ("max(a, x.pct)", {"a": 0.3, P: 50.0}, 0.5),
        ("max(a, b)", {"a": 3.0}, nan),
        ("min(a, b, c)", {"a": 3.0, "b": 2.0, "c": 4.0}, 2.0),
        ("max of those collected: a, x.pct", {P: 50.0}, 0.5),
        ("max of those collected: a, x.pct", {"a": 0.7, P: 50.0}, 0.7),
        ("max of those collected: a, b", {}, nan),
        ("sum of those collected: a, b", {"b": 3.0}, 3.0),
        ("sum of those collected: a, b", {"a": 1.0, "b": 3.0}, 4.0),
        ("sum of those collected: a, b", {}, nan),
        ("a * b", {"a": 3.0, "b": 4.0}, 12.0),
        ("0.25 * a", {"a": 3.0}, 0.75),
        ("8 * a * x.pct", {"a": 3.0, P: 50.0}, 12.0),
        ("a / b", {"a": 3.0, "b": 4.0}, 0.75),
        ("a / b", {"a": 3.0, "b": 0.5}, 6.0),
        ("(a + b) / (c + d)", {"a": 1.0, "b": 2.0, "c": 3.0, "d": 9.0}, 0.25),
        ("x.pct / x.pct", {P: 8.0}, 1.0),
        ("a / b", {"a": 3.0, "b": 0.0}, nan),
        ("a / b", {"a": 3.0, "b": -1.0}, nan),
        ("a / b", {"a": 3.0, "b": inf}, 0.0),
        ("a / b", {"a": 0.0, "b": 1.0}, 0.0),
        ("1 - i / a else 0", {"a": 8.0, "i": 2.0}, 0.75),
        ("1 - i / a else 0", {"a": 1.0, "i": 1.0}, 0.0),
        ("1 - i / a else 0", {"a": 0.5, "i": 0.0}, 1.0),
        ("1 - i / a else 0", {"a": 0.0, "i": 0.0}, 0.0),
        ("1 - i / a else 0", {"a": 0.0}, nan),
        ("1 - i / a else 0", {"a": nan, "i": 1.0}, nan),
        ("a / (a + b) else 1", {"a": 0.0, "b": 0.0}, 1.0),
    ],
)
def test_every_kind_of_source(text, values, result):
    source = parse_catalogue_formula(text)
    assert of(source, values) == pytest.approx(result, nan_ok=True)
    assert source.text == text


@pytest.mark.parametrize(
    "text", ["f(a, b)", "a ** b", "a if b else c", "a, b", "a; b", "mean of those collected: a"]
)
def test_a_source_that_is_no_formula_is_refused(text):
    with pytest.raises((ValueError, KeyError, SyntaxError)):
        parse_catalogue_formula(text)


def test_ncus_halved_shares_are_doubled_on_the_gpus_where_it_halves_them():
    share, count = ".avg.pct_of_peak_sustained_elapsed", ".sum"
    unit, cc = "l1tex__data_pipe_lsu_wavefronts", "device__attribute_compute_capability_"
    turing, ampere = (
        {cc + "major": major, cc + "minor": minor} for major, minor in ((7, 5), (8, 0))
    )
    source = parse_catalogue_formula(unit + share)
    assert source.text == f"{unit}{share}; {unit} twice on 7.5"
    assert of(source, turing | {unit + share: 40.0}) == pytest.approx(0.8)
    assert of(source, ampere | {unit + share: 40.0}) == pytest.approx(0.4)
    assert of(source, {unit + share: 40.0}) == pytest.approx(0.4)
    assert of(parse_catalogue_formula(unit + count), turing | {unit + count: 40.0}) == 40.0


def test_a_share_is_doubled_on_no_other_gpu():
    """A wrong one would be more than everything, or half of what binds."""
    cc = "device__attribute_compute_capability_"
    gpus = [(major, minor) for major in range(5, 14) for minor in range(10)]
    doubled = {}
    for unit in ("l1tex__data_pipe_lsu_wavefronts", "l1tex__m_l1tex2xbar_req_cycles_active"):
        name = f"{unit}.avg.pct_of_peak_sustained_elapsed"
        source = parse_catalogue_formula(name)
        shares = {
            gpu: of(source, {name: 50.0, cc + "major": gpu[0], cc + "minor": gpu[1]})
            for gpu in gpus
        }
        assert set(shares.values()) == {0.5, 1.0}
        doubled[unit] = [gpu for gpu in gpus if shares[gpu] == 1.0]
    assert [*doubled.values()] == [[(7, 5)], [(7, 0), (7, 5), (8, 6), (8, 9), (12, 0)]]


def test_a_metric_of_ncus_own_is_read_under_the_first_name_that_is_there():
    (metric,) = parse_metrics(f"[Part since 2024.1]\nm | share | What it is\n  {P}\n  y.pct")
    assert [metric.compute_from(raw) for raw in ({P: 50.0, "y.pct": 20.0}, {"y.pct": 20.0})] == [
        0.5,
        0.2,
    ]
    assert isnan(metric.compute_from({"z": 1.0}))
    assert (metric.section, metric.since) == ("Part", "2024.1")
    assert [s.names for s in metric.sources] == [(P,), ("y.pct",)]


def test_the_first_source_that_is_all_there_decides():
    metric = Metric(
        "m", "count", "", "", (parse_catalogue_formula("a + b"), parse_catalogue_formula("c"))
    )
    assert metric.compute_from({"a": 1.0, "b": 2.0, "c": 9.0}) == 3.0
    assert metric.compute_from({"a": 1.0, "c": 9.0}) == 9.0
    assert metric.compute_from({"a": nan, "b": 2.0, "c": 9.0}) == 9.0
    assert metric.compute_from({"a": inf, "b": 2.0, "c": 9.0}) == 9.0
    assert isnan(metric.compute_from({"a": 1.0}))


@pytest.mark.parametrize(
    ("unit", "value"), [("count", 0.0), ("byte", 0.0), ("share", 0.0), ("op", -2.0), ("s", -2.0)]
)
def test_less_than_nothing_is_nothing_where_something_is_counted(unit, value):
    assert of(parse_catalogue_formula("a"), {"a": -2.0}, unit) == value
    assert of(parse_catalogue_formula("a"), {"a": 0.5}, unit) == 0.5


def test_opcodes_are_whole_words_before_their_modifiers():
    counted = {
        OPCODES: 100.0,
        f"{OPCODES}[LDG]": 1.0,
        f"{OPCODES}[LDG.E.128]": 2.0,
        f"{OPCODES}[LDGSTS.E]": 4.0,
        f"{OPCODES}[STG]": 8.0,
        f"{OPCODES}[LDG": 16.0,
        "x" * len(OPCODES) + "[LDG]": 32.0,
    }
    assert of(parse_catalogue_formula(f"{OPCODES} of LDG"), counted) == 3.0
    assert of(parse_catalogue_formula(f"{OPCODES} of LDG, STG"), counted) == 11.0
    assert of(parse_catalogue_formula(f"{OPCODES} of NOP"), counted) == 0.0
    assert isnan(of(parse_catalogue_formula(f"{OPCODES} of LDG"), {f"{OPCODES}[LDG]": 1.0}))


# --- catalogue entries: raw values -> short name, SI value

OPS, OFF, ON = "sm__ops_path_tensor_", "_sparsity_off.sum", "_sparsity_on.sum"
CLOCK, PEAK = "sm__cycles_elapsed.avg.per_second", ".sum.peak_sustained"
PER_CYCLE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
SMSP = "smsp__cycles_elapsed.avg.per_second"
LSU = "l1tex__t_{}_pipe_lsu_mem_{}_op_{}.sum"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
SAMPLED = "smsp__pcsamp_warps_issue_stalled_{}"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
LIMIT = "launch__occupancy_limit_"
LIMITS = {
    LIMIT + "registers": 5.0,
    LIMIT + "shared_mem": 4.0,
    LIMIT + "warps": 16.0,
    LIMIT + "blocks": 32.0,
}
LOCAL = dict(
    zip(
        (LSU.format("sectors", space, op) for space in ("local", "global") for op in ("ld", "st")),
        (3.0, 1.0, 5.0, 7.0),
        strict=True,
    )
)
NOTHING = dict.fromkeys(LOCAL, 0.0)
FMA = {PER_CYCLE.format(op): value for op, value in (("ffma", 6.0), ("fadd", 1.0), ("fmul", 3.0))}
HALF = {PER_CYCLE.format("hadd"): 5.0, PER_CYCLE.format("hmul"): 7.0, SMSP: 2.0}
HFMA = "derived__smsp__sass_thread_inst_executed_op_hfma_pred_on_x{}"


@pytest.mark.parametrize(
    ("values", "name", "result"),
    [
        # Tensor cores: dense peaks where ncu splits by sparsity; GeForce's doubled fp16 sums.
        ({CLOCK: 2.0, f"{OPS}src_fp16{PEAK}": 10.0}, "peak_tensor_fp16", 20.0),
        (
            {CLOCK: 2.0, f"{OPS}src_fp16{PEAK}": 10.0, f"{OPS}src_fp16_sparsity_off{PEAK}": 5.0},
            "peak_tensor_fp16",
            10.0,
        ),
        (
            {
                CLOCK: 2.0,
                f"{OPS}op_hmma_src_fp16_dst_fp16_sparsity_off{PEAK}": 8.0,
                f"{OPS}op_hmma_src_fp16_dst_fp32_sparsity_off{PEAK}": 4.0,
            },
            "peak_tensor_fp16",
            8.0,
        ),
        (
            {
                CLOCK: 2.0,
                f"{OPS}op_hmma_src_fp16_dst_fp16_sparsity_off{PEAK}": 8.0,
                f"{OPS}op_hmma_src_fp16_dst_fp32_sparsity_off{PEAK}": 4.0,
                f"{OPS}src_fp16_dst_fp16.sum": 1.0,
            },
            "peak_tensor_fp16",
            16.0,
        ),
        (
            {CLOCK: 2.0, f"{OPS}op_hmma_src_fp16_dst_fp16_sparsity_off{PEAK}": 8.0},
            "peak_tensor_fp16",
            16.0,
        ),
        ({CLOCK: 2.0}, "peak_tensor_fp16", nan),
        ({f"{OPS}src_fp16{PEAK}": 10.0}, "peak_tensor_fp16", nan),
        (
            {
                f"{OPS}src_fp16_dst_fp32.sum": 3.0,
                f"{OPS}src_fp16_dst_fp16{OFF}": 4.0,
                f"{OPS}src_fp16_dst_fp16{ON}": 5.0,
            },
            "tensor_ops_fp16",
            12.0,
        ),
        ({f"{OPS}src_int8{ON}": 5.0}, "tensor_ops_int8", 5.0),
        ({f"{OPS}src_int8{ON}": 5.0}, "tensor_ops_fp16", nan),
        ({f"{OPS}src_int8.sum": 5.0, f"{OPS}src_fp64.sum": 2.0}, "tensor_ops", 7.0),
        (
            {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 3.0, CLOCK: 5.0},
            "peak_fp32",
            30.0,
        ),
        (
            {"sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained": 3.0, CLOCK: 5.0},
            "peak_fp64",
            30.0,
        ),
        (
            {"derived__sm__sass_thread_inst_executed_op_hfma_pred_on_x2": 3.0, CLOCK: 5.0},
            "peak_fp16",
            15.0,
        ),
        (
            {"dram__bytes.sum.peak_sustained": 4.0, "dram__cycles_elapsed.avg.per_second": 5.0},
            "peak_dram",
            20.0,
        ),
        (
            {
                "lts__lts2xbar_cycles_active.sum.peak_sustained": 2.0,
                "lts__cycles_elapsed.avg.per_second": 3.0,
            },
            "peak_l2",
            192.0,
        ),
        # Arithmetic rates.
        ({**FMA, SMSP: 2.0}, "fp32_rate", 2.0 * (1 + 3 + 12)),
        (
            {
                PER_CYCLE.format("dfma"): 6.0,
                PER_CYCLE.format("dadd"): 1.0,
                PER_CYCLE.format("dmul"): 3.0,
                SMSP: 2.0,
            },
            "fp64_rate",
            32.0,
        ),
        (FMA, "fp32_rate", nan),
        (FMA, "fp32_fused", 0.6),
        (FMA, "fp64_fused", nan),
        (dict.fromkeys(FMA, 0.0), "fp32_fused", 1.0),
        ({**dict.fromkeys(FMA, 0.0), PER_CYCLE.format("fadd"): 1.0}, "fp32_fused", 0.0),
        # Less than one instruction in a cycle is some.
        (
            {
                PER_CYCLE.format("ffma"): 0.3,
                PER_CYCLE.format("fadd"): 0.1,
                PER_CYCLE.format("fmul"): 0.1,
            },
            "fp32_fused",
            0.6,
        ),
        ({HFMA.format("x4"): 0.0, HFMA.format("4"): 3.0, **HALF}, "fp16_rate", 2 * (3 + 2 * 12.0)),
        ({HFMA.format("2"): 3.0, **HALF}, "fp16_rate", 2 * (3 + 12.0)),
        ({"smsp__inst_executed.sum": 7.0, OPCODES: 9.0}, "instructions", 7.0),
        ({OPCODES: 9.0}, "instructions", 9.0),
        # Memory.
        ({CONFLICTS.format("ld"): 3.0, WAVEFRONTS.format("ld"): 4.0}, "shared_ld_conflicts", 0.75),
        ({CONFLICTS.format("st"): 1.0, WAVEFRONTS.format("st"): 1.0}, "shared_st_conflicts", 1.0),
        ({CONFLICTS.format("st"): 0.0, WAVEFRONTS.format("st"): 0.0}, "shared_st_conflicts", 0.0),
        ({"lts__t_sectors.sum": 3.0}, "l2_bytes", 96.0),
        ({"lts__t_sectors_srcunit_tex_op_read.sum": 3.0}, "l2_read_bytes", 96.0),
        ({"lts__t_sectors_srcunit_tex_op_write.sum": 2.0}, "l2_write_bytes", 64.0),
        ({"fbpa__dram_read_bytes.sum": 3.0, "fbpa__dram_write_bytes.sum": 4.0}, "dram_bytes", 7.0),
        (LOCAL, "local_bytes", 128.0),
        (LOCAL, "local_share", 0.25),
        (NOTHING, "local_share", 0.0),
        ({**NOTHING, LSU.format("sectors", "local", "ld"): 1.0}, "local_share", 1.0),
        (
            {
                LSU.format("sectors", "global", "ld"): 9.0,
                LSU.format("requests", "global", "ld"): 2.0,
            },
            "global_load_sectors_per_request",
            4.5,
        ),
        ({"lts__t_sectors_srcunit_tex_op_atom_dot_cas.sum": 3.0}, "l2_atomic_sectors", 3.0),
        (
            {
                "lts__t_sectors_srcunit_tex_op_atom.sum": 2.0,
                "lts__t_sectors_srcunit_tex_op_red.sum": 3.0,
                "lts__t_sectors_srcunit_tex_op_atom_dot_cas.sum": 3.0,
            },
            "l2_atomic_sectors",
            5.0,
        ),
        (
            {
                "memory_l2_theoretical_sectors_global": 8.0,
                "memory_l2_theoretical_sectors_global_ideal": 2.0,
            },
            "excess_sectors",
            0.75,
        ),
        # Warp states: of all that are there, by ratios, else by samples.
        ({STALL.format("wait"): 1.0, STALL.format("barrier"): 3.0}, "stall_wait", 0.25),
        ({STALL.format("wait"): 1.0, STALL.format("barrier"): -3.0}, "stall_wait", 1.0),
        ({STALL.format("wait"): -1.0, STALL.format("barrier"): 3.0}, "stall_wait", 0.0),
        ({STALL.format("wait"): 0.0}, "stall_wait", nan),
        (
            {STALL.format("wait"): 1.0, STALL.format("barrier"): 1.0, SAMPLED.format("wait"): 9.0},
            "stall_wait",
            0.5,
        ),
        (
            {SAMPLED.format("no_instructions"): 100.0, SAMPLED.format("warpgroup_arrive"): 300.0},
            "stall_no_instruction",
            0.25,
        ),
        (
            {SAMPLED.format("no_instructions"): 100.0, SAMPLED.format("warpgroup_arrive"): 300.0},
            "stall_gmma",
            0.75,
        ),
        # Occupancy.
        (LIMITS, "blocks_per_sm", 4.0),
        ({**LIMITS, LIMIT + "barriers": 2.0}, "blocks_per_sm", 2.0),
        ({LIMIT + "registers": 5.0}, "blocks_per_sm", nan),
        ({"sm__maximum_warps_per_active_cycle_pct": 50.0}, "occupancy_limit", 0.5),
    ],
)
def test_a_metric_of_raw_values(values, name, result):
    assert evaluate_metrics(values)[name] == pytest.approx(result, nan_ok=True)


def registers_step(limit, block, used, size=65536.0):
    return evaluate_metrics(
        {
            LIMIT + "registers": limit,
            "launch__block_size": block,
            "launch__registers_per_thread": used,
            "device__attribute_max_registers_per_multiprocessor": size,
        }
    )["registers_step"]


@pytest.mark.parametrize(
    ("limit", "block", "used", "step"),
    [
        # A quarter of 65,536 registers to each scheduler; 256 at a time to a warp.
        (4.0, 128.0, 128.0, 32.0),  # 5 warps a scheduler: 3,276 each, 3,072 in units, 96 a thread
        (1.0, 256.0, 200.0, 72.0),  # 2 blocks of 8 warps: 4 a scheduler, 4,096 each, 128
        (2.0, 384.0, 80.0, 24.0),  # 3 of 12: 9 a scheduler, 1,820 each, 1,792, 56
        (1.0, 33.0, 255.0, 0.0),  # 2 of 2 warps: 1 a scheduler
        (15.0, 128.0, 32.0, nan),  # 16 of 4 warps have 32 each: nothing to give up
        (64.0, 1024.0, 32.0, nan),  # no unit is left for each warp
        (7.0, 128.0, 80.0, 16.0),  # 8 of 4: 8 a scheduler, 2,048 each, 64
    ],
)
def test_registers_to_give_up_for_one_more_block(limit, block, used, step):
    expected = nan if step == 0.0 else step
    assert registers_step(limit, block, used) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("limit", "used", "room", "step"),
    [
        (2.0, 41984.0, 102400.0, 7936.0),  # 3 blocks: 34,133, down to 34,048
        (1.0, 60000.0, 102400.0, 8800.0),
        (1.0, 51328.0, 102400.0, 128.0),
        (1.0, 51200.0, 102400.0, nan),
        (0.0, 0.0, 102400.0, nan),
        (3.0, 1024.0, 256.0, nan),  # less than a unit for each
        (1.0, 384.0, 256.0, 256.0),  # exactly one unit
    ],
)
def test_shared_memory_to_give_up_for_one_more_block(limit, used, room, step):
    found = evaluate_metrics(
        {
            LIMIT + "shared_mem": limit,
            "launch__shared_mem_per_block_allocated": used,
            "device__attribute_max_shared_memory_per_multiprocessor": room,
        }
    )["shared_step"]
    assert found == pytest.approx(step, nan_ok=True)
