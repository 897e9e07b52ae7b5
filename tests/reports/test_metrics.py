"""The catalogue: unique names, sources that mean the same, nothing invented."""

from math import isnan, nan

import pytest

from profkit.reports.metrics import CATALOGUE, OPCODES, RAW_NAMES, evaluate_metrics
from profkit.reports.metrics.compute import INSTRUCTIONS, PEAKS, PIPES
from profkit.reports.metrics.launch import LAUNCH, OCCUPANCY
from profkit.reports.metrics.memory import ACCESS, MEMORY
from profkit.reports.metrics.warps import WARPS

FAMILIES = (ACCESS, INSTRUCTIONS, LAUNCH, MEMORY, OCCUPANCY, PEAKS, PIPES, WARPS)
UNITS = {"s", "Hz", "share", "byte", "byte/s", "op", "op/s", "count", "cycle"}


def test_each_metric_stands_once_with_unit_and_meaning():
    assert sum(map(len, FAMILIES)) == len(CATALOGUE)
    for metric in CATALOGUE.values():
        assert metric.unit in UNITS, metric.name
        assert metric.meaning


def test_nothing_collected_is_nan_everywhere():
    values = evaluate_metrics({})
    assert set(values) == set(CATALOGUE)
    assert all(isnan(v) for v in values.values())


def test_no_source_mixes_elapsed_and_active():
    for metric in CATALOGUE.values():
        names = " ".join(n for s in metric.sources for n in s.names + s.optional)
        assert not ("sustained_elapsed" in names and "sustained_active" in names), metric.name


def test_names_in_reports_never_start_with_a_prefix():
    assert not [n for n in RAW_NAMES if ":" in n or "Triage" in n]


@pytest.mark.parametrize(
    ("raw", "name", "value"),
    [
        ({"gpu__time_duration.sum": 158400.0}, "time", 158.4e-6),
        ({"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 82.7}, "dram_busy", 0.827),
        ({"dram__bytes_read.sum": 3.0, "dram__bytes_write.sum": 4.0}, "dram_bytes", 7.0),
        ({"dram__bytes_op_read.sum": 3.0, "dram__bytes_op_write.sum": 4.0}, "dram_bytes", 7.0),
        ({"dram__bytes.sum.per_second": 2e9, "gpu__time_duration.sum": 1e9}, "dram_bytes", 2e9),
        ({"lts__t_sector_hit_rate.pct": 101.7}, "l2_hit", 1.017),
        ({"lts__t_sectors_srcunit_tex_op_red.sum": -16013.0}, "l2_atomic_sectors", 0.0),
        ({"lts__t_sectors_srcunit_tex_op_red.sum": nan}, "l2_atomic_sectors", nan),
        ({OPCODES: 9.0, f"{OPCODES}[HMMA.16816]": 5.0}, "inst_matrix", 5.0),
        ({OPCODES: 9.0, f"{OPCODES}[HFMA2.MMA]": 4.0}, "inst_matrix", 0.0),
        (
            {
                "device__attribute_memory_clock_rate": 3201000.0,
                "device__attribute_global_memory_bus_width": 6016.0,
            },
            "peak_dram_device",
            4.814304e12,
        ),
    ],
)
def test_values_are_si_and_fractions(raw, name, value):
    assert evaluate_metrics(raw)[name] == pytest.approx(value, nan_ok=True)


def test_the_steps_to_one_more_block_are_the_hardware_s_units():
    raw = {
        "launch__occupancy_limit_registers": 4.0,
        "launch__block_size": 128.0,
        "launch__registers_per_thread": 128.0,
        "launch__occupancy_limit_shared_mem": 2.0,
        "launch__shared_mem_per_block_allocated": 41984.0,
        "device__attribute_max_registers_per_multiprocessor": 65536.0,
        "device__attribute_max_shared_memory_per_multiprocessor": 102400.0,
    }
    values = evaluate_metrics(raw)
    assert values["registers_step"] == 32  # 96 registers admit 5 blocks of 4 warps
    assert values["shared_step"] == 41984 - 34048  # 3 blocks: 102400 / 3, down to 128 bytes
