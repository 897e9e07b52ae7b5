"""Time, clocks, launch configuration, and how busy the launch was over all."""

from __future__ import annotations

from profkit.reports.metrics.derive import Metric, direct_metric, ratio_of

_ATTR = "device__attribute_"


_ALWAYS = ""
_RECORD = "run record"  # filled from the record beside the report, not from ncu
_SOL, _STATS, _WORK = "SpeedOfLight", "LaunchStats", "WorkloadDistribution"

METRICS = (
    direct_metric(
        "time",
        "s",
        "Duration of the launch under ncu, at the clocks ncu ran it with",
        _SOL,
        "gpu__time_duration.sum",
    ),
    direct_metric("cycles", "cycle", "Elapsed SM clock cycles", _SOL, "gpc__cycles_elapsed.max"),
    direct_metric(
        "sm_clock",
        "Hz",
        "SM clock during the measurement",
        _SOL,
        "gpc__cycles_elapsed.avg.per_second",
        "sm__cycles_elapsed.avg.per_second",
        "smsp__cycles_elapsed.avg.per_second",
    ),
    direct_metric(
        "dram_clock",
        "Hz",
        "DRAM clock during the measurement",
        _SOL,
        "dram__cycles_elapsed.avg.per_second",
    ),
    direct_metric(
        "sm_clock_max",
        "Hz",
        "Highest SM clock of the device",
        _ALWAYS,
        _ATTR + "max_gpu_frequency_khz",
        _ATTR + "clock_rate",
    ),
    direct_metric(
        "dram_clock_max",
        "Hz",
        "Highest memory clock of the device",
        _ALWAYS,
        _ATTR + "max_mem_frequency_khz",
        _ATTR + "memory_clock_rate",
    ),
    Metric(
        "sm_active",
        "share",
        "Share of the elapsed cycles in which an SM had a warp, average SM",
        _SOL,
        (ratio_of("sm__cycles_active.avg", "gpc__cycles_elapsed.max"),),
    ),
    Metric(
        "sm_active_max",
        "share",
        "The same for the busiest SM",
        _WORK,
        (ratio_of("sm__cycles_active.max", "gpc__cycles_elapsed.max"),),
        since="2024.1",
    ),
    Metric(
        "sm_active_min",
        "share",
        "The same for the idlest SM",
        _WORK,
        (ratio_of("sm__cycles_active.min", "gpc__cycles_elapsed.max"),),
        since="2024.1",
    ),
    direct_metric(
        "replay_passes",
        "count",
        "How often ncu ran the launch to collect everything",
        _ALWAYS,
        "profiler__replayer_passes",
    ),
    direct_metric(
        "sm_count",
        "count",
        "SMs of the device that the launch could use",
        _ALWAYS,
        "launch__sm_count",
        _ATTR + "multiprocessor_count",
    ),
    direct_metric("grid_size", "count", "Blocks in the grid", _STATS, "launch__grid_size"),
    direct_metric("block_size", "count", "Threads per block", _STATS, "launch__block_size"),
    direct_metric(
        "cluster_size", "count", "Blocks per cluster (0 or 1: none)", _STATS, "launch__cluster_size"
    ),
    direct_metric("threads", "count", "Threads of the launch", _STATS, "launch__thread_count"),
    direct_metric(
        "registers", "count", "Registers per thread", _STATS, "launch__registers_per_thread"
    ),
    direct_metric(
        "shared_static",
        "byte",
        "Static shared memory per block",
        _STATS,
        "launch__shared_mem_per_block_static",
    ),
    direct_metric(
        "shared_dynamic",
        "byte",
        "Dynamic shared memory per block",
        _STATS,
        "launch__shared_mem_per_block_dynamic",
    ),
    direct_metric(
        "shared_driver",
        "byte",
        "Shared memory per block that the driver takes",
        _STATS,
        "launch__shared_mem_per_block_driver",
    ),
    direct_metric(
        "shared_block",
        "byte",
        "Shared memory per block as allocated, all included",
        _STATS,
        "launch__shared_mem_per_block_allocated",
    ),
    direct_metric(
        "shared_config",
        "byte",
        "Shared memory that the SM was configured with",
        _STATS,
        "launch__shared_mem_config_size",
    ),
    direct_metric(
        "waves",
        "count",
        "Grid size over the blocks that fit on the machine at once",
        _STATS,
        "launch__waves_per_multiprocessor",
    ),
    direct_metric("l2_size", "byte", "L2 cache of the device", _ALWAYS, _ATTR + "l2_cache_size"),
    direct_metric(
        "sm_busy",
        "share",
        "SM throughput of peak: busiest SM unit, elapsed",
        _SOL,
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    direct_metric(
        "sm_busy_max",
        "share",
        "SM throughput on the busiest SM",
        _WORK,
        "sm__throughput.max.pct_of_peak_sustained_elapsed",
        since="2024.1",
    ),
    direct_metric(
        "memory_busy",
        "share",
        "Memory throughput of peak: busiest of L1TEX, L2 and DRAM (not DRAM alone), elapsed",
        _SOL,
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    Metric(
        "smsp_imbalance",
        "count",
        "Warp instructions of the busiest SM sub-partition over the average one",
        "InstructionStats",
        (ratio_of("smsp__inst_executed.max", "smsp__inst_executed.avg"),),
        since="2024.1",
    ),
    Metric(
        "l2_active",
        "share",
        "Share of elapsed cycles in which an L2 slice worked",
        _WORK,
        (ratio_of("lts__cycles_active.avg", "lts__cycles_elapsed.avg"),),
        since="2024.1",
    ),
    Metric(
        "declared_operations", "op", "Operations of the workload by its problem.py", _RECORD, ()
    ),
    Metric(
        "declared_bytes",
        "byte",
        "Compulsory bytes: every input read once, every output written once, by problem.py",
        _RECORD,
        (),
    ),
    Metric("declared_exps", "op", "Exponentials of the workload by its problem.py", _RECORD, ()),
)
