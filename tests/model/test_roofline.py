"""The roofline: figures worked out by hand, and what must hold on any report."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.model.launch import Launch, compute_counted_share_of_duration
from profkit.model.roofline import (
    FAMILIES,
    LEVELS,
    TOLERANCE,
    explain_why_cache_resident,
    find_nearest_roof,
    list_ceilings,
    list_missing_metrics,
    list_precisions_dominant_first,
    list_roofline_points,
)
from profkit.reports.metrics import CATALOGUE

# A machine of round figures: 1 TB/s DRAM, 4 TB/s L2, 10 TB/s L1, 20 T FP32, 160 T tensor FP16.
MACHINE = {
    "peak_dram": 1e12,
    "peak_l2": 4e12,
    "peak_l1": 10e12,
    "peak_fp32": 20e12,
    "peak_fp64": 1e12,
    "peak_fp16": 40e12,
    "peak_tensor_fp16": 160e12,
    "sm_clock": 1.5e9,
    "dram_clock": 3e9,
    "l2_clock": 1.6e9,
    "time": 1e-3,
}
NO_OPS = {
    "fp32_rate": 0.0,
    "fp64_rate": 0.0,
    "fp16_rate": 0.0,
    "tensor_ops_fp16": 0.0,
    "tensor_ops": 0.0,
}
# 8 Tflop/s of FP32 from 500 GB/s of DRAM, 2 TB/s of L2, 4 TB/s of L1.
FP32 = MACHINE | NO_OPS | {"fp32_rate": 8e12, "dram_rate": 0.5e12, "l2_rate": 2e12, "l1_rate": 4e12}


def by_level(launch, **declared):
    return {p.level: p for p in list_roofline_points(launch, **declared)}


def test_a_point_per_level_by_hand():
    placed = by_level(FP32)
    assert [placed[level].intensity for level in LEVELS] == [16, 4, 2]
    assert {p.rate for p in placed.values()} == {8e12}
    # DRAM: 16 op/byte x 1 TB/s; L2: 4 x 4; L1: 2 x 10 meets the 20 T of FP32.
    assert [placed[level].attainable for level in LEVELS] == [16e12, 16e12, 20e12]
    assert [placed[level].roof for level in LEVELS] == ["dram", "l2", "l1"]
    assert [placed[level].share for level in LEVELS] == [0.5, 0.5, 0.4]
    assert find_nearest_roof(FP32) == ("dram", 0.5)
    assert list_missing_metrics(FP32) == ()


def test_under_the_flat_the_precision_is_the_roof():
    launch = FP32 | {"fp32_rate": 18e12, "dram_rate": 0.1e12}
    assert by_level(launch)["dram"].attainable == 20e12
    assert find_nearest_roof(launch) == ("fp32", 0.9)


def test_ceilings_say_their_clock_and_source():
    by_name = {c.name: c for c in list_ceilings(MACHINE)}
    assert by_name["dram"].clock == 3e9
    assert by_name["l2"].clock == 1.6e9
    assert by_name["tensor_fp16"].clock == 1.5e9
    assert by_name["dram"].is_memory
    assert not by_name["fp32"].is_memory
    assert {c.source for c in by_name.values()} == {"report"}


def test_device_attributes_only_where_the_report_has_nothing():
    basic = {
        "peak_dram_device": 0.9e12,
        "dram_clock_max": 3e9,
        "sm_count": 100.0,
        "sm_clock": 1e9,
        "sm_clock_max": 2e9,
        "cc": "9.0",
        "time": 1e-3,
    }
    dram, fp32 = list_ceilings(basic)
    assert (dram.name, dram.value, dram.clock) == ("dram", 0.9e12, 3e9)
    assert (fp32.name, fp32.value, fp32.clock) == ("fp32", 100 * 128 * 2 * 1e9, 1e9)
    assert {dram.source, fp32.source} == {"device attributes"}
    assert [c.name for c in list_ceilings(basic | {"cc": "99.0"})] == ["dram"]
    assert {c.source for c in list_ceilings(basic | MACHINE)} == {"report"}


def test_a_copy_has_no_intensity_but_a_share_of_its_bandwidth():
    copy = MACHINE | NO_OPS | {"dram_rate": 0.9e12, "l2_rate": 1e12, "l1_rate": 1e12}
    assert list_precisions_dominant_first(copy) == ()
    dram = by_level(copy)["dram"]
    assert (dram.intensity, dram.rate, dram.family) == (0, 0, "")
    assert dram.share == pytest.approx(0.9)
    assert find_nearest_roof(copy) == ("dram", pytest.approx(0.9))


def test_the_dominant_precision():
    tensor = MACHINE | NO_OPS | {"fp32_rate": 9e12, "tensor_ops_fp16": 40e9, "tensor_ops": 40e9}
    assert list_precisions_dominant_first(tensor) == (
        "tensor_fp16",
        "fp32",
    )  # 40 T against 9 T operations per second
    few = tensor | {"tensor_ops_fp16": 1e9, "tensor_ops": 1e9}
    assert list_precisions_dominant_first(few) == ("fp32", "tensor_fp16")
    # One FP64 unit for twenty FP32 ones: fewer operations, but nearer to their peak.
    double = MACHINE | NO_OPS | {"fp32_rate": 2e12, "fp64_rate": 0.8e12}
    assert list_precisions_dominant_first(double) == ("fp64", "fp32")


def test_the_workloads_own_point():
    # 4 Gop and 100 MB in 1 ms; the launch moved 500 MB.
    own = by_level(FP32, declared_operations=4e9, compulsory_bytes=0.1e9)["workload"]
    assert (own.intensity, own.rate, own.attainable) == (40, 4e12, 20e12)
    declared = FP32 | {"declared_operations": 4e9, "declared_bytes": 0.1e9}
    assert by_level(declared)["workload"] == own
    assert "workload" not in by_level(FP32)


def test_the_workloads_own_point_needs_no_counters():
    basic = {"peak_dram_device": 1e12, "time": 1e-3}
    own = list_roofline_points(basic, declared_operations=4e9, compulsory_bytes=0.5e9)
    assert [(p.level, p.intensity, p.share) for p in own] == [("workload", 8, 0.5)]


@pytest.mark.parametrize(
    ("values", "resident"),
    [
        ({"dram_bytes": 4e7, "declared_bytes": 1e8}, True),
        ({"dram_bytes": 6e7, "declared_bytes": 1e8}, False),
        ({"dram_bytes": 8e3, "threads": 1e5, "l2_hit": 0.99}, True),
        # DRAM idle, much reuse in L2, but every byte came from DRAM once: a position.
        ({"dram_bytes": 2e6, "threads": 4096.0, "l2_hit": 0.99, "dram_busy": 0.005}, False),
        ({"dram_bytes": 8e3, "threads": 1e5, "l2_hit": 0.4}, False),
        ({"dram_bytes": 8e3, "threads": 1e5, "l2_hit": 0.99, "declared_bytes": 8e3}, False),
        ({"dram_bytes": 8e3, "l2_hit": 0.99}, False),
        ({}, False),
    ],
)
def test_cache_resident(values, resident):
    assert bool(explain_why_cache_resident(values)) is resident
    notes = {p.level: p.note for p in list_roofline_points(FP32 | values)}
    assert bool(notes["dram"]) is resident
    assert not notes["l2"]


def test_l1_is_no_position_when_asynchronous_copies_pass_it_by():
    launch = FP32 | {"l1_rate": 0.1e12}
    assert not by_level(launch)["l1"].note  # scattered loads also make L2 move more than L1
    assert by_level(launch | {"inst_async_copy": 100.0})["l1"].note


@pytest.mark.parametrize(
    ("lost", "section"),
    [
        ({"time": nan}, "SpeedOfLight"),
        ({"status": "failed"}, ""),
        (dict.fromkeys(NO_OPS, nan), "SpeedOfLight_RooflineChart"),
        ({"tensor_ops": nan, "inst_matrix": 64.0}, "SpeedOfLight_HierarchicalTensorRooflineChart"),
        ({"tensor_ops": nan, "tensor_busy": 0.3}, "SpeedOfLight_HierarchicalTensorRooflineChart"),
        (
            {"fp16_rate": nan, "inst_half": 9.0, "inst_fp32": 2.0, "instructions": 20.0},
            "SpeedOfLight_HierarchicalHalfRooflineChart",
        ),
        ({"l2_rate": nan, "peak_l2": nan}, "SpeedOfLight_HierarchicalSingleRooflineChart"),
    ],
)
def test_what_is_missing_is_said_with_its_section(lost, section):
    launch = FP32 | lost
    assert [m.section for m in list_missing_metrics(launch)] == [section]
    expected = {"dram", "l1"} if "peak_l2" in lost else set()
    if "time" not in lost and "status" not in lost:
        assert set(by_level(launch)) == expected


def test_hfma2_constants_are_no_half_precision_work():
    launch = FP32 | {
        "fp16_rate": nan,
        "fp32_rate": 0.0,
        "inst_half": 2.0,
        "inst_fp32": 0.0,
        "instructions": 1e4,
        "tensor_ops": nan,
        "tensor_busy": 0.03,
    }
    assert list_missing_metrics(launch) == ()
    assert len(list_roofline_points(launch)) == 3


def test_above_its_roof_is_flagged():
    assert by_level(FP32 | {"dram_rate": 1.2e12})["dram"].is_above_roof
    assert not by_level(FP32 | {"dram_rate": 1.02e12})["dram"].is_above_roof


def test_the_ceiling_names_are_catalogue_metrics():
    assert all(f"peak_{name}" in CATALOGUE for name in (*LEVELS, *FAMILIES))
    assert all(f"{level}_rate" in CATALOGUE for level in LEVELS)


def test_nothing_known_is_nothing_claimed():
    for empty in ({}, dict.fromkeys(CATALOGUE, nan), Launch(dict.fromkeys(CATALOGUE, nan))):
        assert (list_ceilings(empty), list_roofline_points(empty), find_nearest_roof(empty)) == (
            (),
            (),
            None,
        )
        assert len(list_missing_metrics(empty)) == 1


def test_a_rules_launch_is_read_as_a_row_is():
    assert list_roofline_points(Launch(FP32 | {"l2_rate": nan})) == list_roofline_points(
        FP32 | {"l2_rate": nan}
    )


RATES = ("fp32_rate", "fp64_rate", "fp16_rate", "dram_rate", "l2_rate", "l1_rate")


@given(st.fixed_dictionaries({name: st.floats(0, 1e13) for name in RATES}))
def test_share_and_attainable_agree(rates):
    for point in list_roofline_points(MACHINE | NO_OPS | rates):
        assert 0 <= point.share < inf
        if point.rate > 1e-3:
            assert point.share == pytest.approx(point.rate / point.attainable)


@pytest.mark.slow
def test_on_the_recorded_reports(own_runs):
    row = {r["variant"]: r for r in own_runs.to_dict("records") if r["case"] in {"1GiB", "4096"}}
    name, share = find_nearest_roof(row["copy"])
    assert name == "dram"
    assert 0.8 < share < 0.95
    assert list_precisions_dominant_first(row["copy"]) == ()
    roof, share = find_nearest_roof(row["matmul"])
    assert roof == "tensor_fp16"
    assert 0.85 < share < 0.97
    # 2 x 4096^3 operations, all of them on the tensor cores.
    dram = by_level(row["matmul"])["dram"]
    assert dram.rate * row["matmul"]["time"] == pytest.approx(2 * 4096**3)
    assert by_level(row["matmul"])["l1"].note  # TMA writes to shared memory


@pytest.mark.slow
def test_attention_moves_its_compulsory_bytes_once(own_runs):
    rows = own_runs[(own_runs.variant == "sdpa-cudnn") & (own_runs.case == "C")].to_dict("records")
    placed = by_level(
        rows[0],
        declared_operations=4 * 4 * 16 * 2048**2 * 64,
        compulsory_bytes=4 * 4 * 16 * 2048 * 64 * 2,
    )
    assert placed["workload"].intensity == pytest.approx(1024)
    assert placed["workload"].rate == pytest.approx(placed["dram"].rate)
    assert 0.9 < placed["dram"].intensity / placed["workload"].intensity < 1.3


@pytest.mark.slow
def test_recorded_with_caches_flushed_nothing_is_resident(own_runs):
    assert not [
        row["variant"] for row in own_runs.to_dict("records") if explain_why_cache_resident(row)
    ]


@pytest.mark.slow
def test_no_point_lies_above_its_roof(own_runs, corpus_runs):
    for row in [*own_runs.to_dict("records"), *corpus_runs.to_dict("records")]:
        for point in list_roofline_points(row):
            assert point.share <= TOLERANCE, (row["report"], row["launch"], point)


@pytest.mark.slow
def test_the_guides_table_agrees_with_what_reports_measure(corpus_runs):
    checked = set()
    for row in corpus_runs.to_dict("records"):
        # Of a launch of some length: short ones change clocks between the passes.
        if row["peak_fp32"] > 0 and row["time"] > 1e-4:
            bare = {k: v for k, v in row.items() if k != "peak_fp32"}
            guide = next(c for c in list_ceilings(bare) if c.name == "fp32")
            assert guide.value == pytest.approx(row["peak_fp32"], rel=0.05), row["cc"]
            checked.add(row["cc"])
    assert len(checked) >= 3


@pytest.mark.slow
def test_every_launch_has_a_point_or_a_reason(own_runs, corpus_runs):
    for row in [*own_runs.to_dict("records"), *corpus_runs.to_dict("records")]:
        assert list_roofline_points(row) or list_missing_metrics(row), row["report"]


def test_clocks_of_a_short_launch_hold_for_the_part_that_was_counted():
    """DRAM's clock does not fall within a launch: if it seems to, the SM clock seems low by the same."""
    low = {"sm_clock_max": 1.8e9, "dram_clock_max": 3e9}
    short = MACHINE | low | {"sm_clock": 0.6e9, "dram_clock": 1.2e9, "peak_dram": 0.4e12}
    assert compute_counted_share_of_duration(short) == pytest.approx(0.4)
    ceilings = {c.name: c for c in list_ceilings(short)}
    assert ceilings["dram"].value == pytest.approx(1e12)
    assert ceilings["fp32"].clock == pytest.approx(1.5e9)
    # So corrected, this SM clock would be above its maximum: the memory clock is lower.
    assert compute_counted_share_of_duration(short | {"sm_clock": 1.7e9}) == 1.0
    assert (
        compute_counted_share_of_duration(MACHINE) == 1.0
    )  # what the clocks can reach is not in the report
    assert (
        compute_counted_share_of_duration(MACHINE | low | {"dram_clock": 2.95e9}) == 1.0
    )  # passes differ by that
