"""Time, clocks, launch configuration, how busy the launch was over all; occupancy and its limiters."""

from __future__ import annotations

from math import ceil, floor, nan
from typing import TYPE_CHECKING

from profkit.reports.metrics.derive import MetricFormula, RawMetricValues, parse_metrics

if TYPE_CHECKING:
    from profkit.units import FloatOrNan


_REGISTERS_PER_WARP_UNIT = 256  # registers are given to a warp in units of 256 since Kepler
_SHARED_UNIT = 128  # bytes; shared memory is given to a block in units of 128 since Ampere


def _compute_registers_to_give_up(r: RawMetricValues) -> FloatOrNan:
    """Return the registers per thread to give up for one more block per SM by registers."""
    limit = r["launch__occupancy_limit_registers"]
    block = r["launch__block_size"]
    warps = ceil(block / 32)
    per_scheduler = r["device__attribute_max_registers_per_multiprocessor"] / 4
    # Warps are spread over the 4 schedulers, each with a quarter of the register file.
    need = ceil((limit + 1) * warps / 4)
    per_warp = floor(per_scheduler / need / _REGISTERS_PER_WARP_UNIT) * _REGISTERS_PER_WARP_UNIT
    step = r["launch__registers_per_thread"] - per_warp / 32
    if per_warp > 0 and step > 0:
        return step
    return nan


def _compute_shared_to_give_up(r: RawMetricValues) -> FloatOrNan:
    """Return the bytes of shared memory per block to give up for one more block per SM by it."""
    limit = r["launch__occupancy_limit_shared_mem"]
    used = r["launch__shared_mem_per_block_allocated"]
    room = r["device__attribute_max_shared_memory_per_multiprocessor"]
    fits = floor(room / (limit + 1) / _SHARED_UNIT) * _SHARED_UNIT
    step = used - fits
    if used > 0 and fits > 0 and step > 0:
        return step
    return nan


_REGISTERS = MetricFormula(
    (
        "launch__occupancy_limit_registers",
        "launch__block_size",
        "launch__registers_per_thread",
        "device__attribute_max_registers_per_multiprocessor",
    ),
    _compute_registers_to_give_up,
    "from launch__registers_per_thread, in units of 256 a warp",
)
_SHARED = MetricFormula(
    (
        "launch__occupancy_limit_shared_mem",
        "launch__shared_mem_per_block_allocated",
        "device__attribute_max_shared_memory_per_multiprocessor",
    ),
    _compute_shared_to_give_up,
    "from launch__shared_mem_per_block_allocated, in units of 128 bytes",
)
# A "run record" fills what it names, from the record next to the report; ncu does not.
LAUNCH = parse_metrics("""
[SpeedOfLight]
time | s | Duration of the launch under ncu, at the clocks ncu ran it with
  gpu__time_duration.sum
cycles | cycle | Elapsed SM clock cycles
  gpc__cycles_elapsed.max
sm_clock | Hz | SM clock during the measurement
  gpc__cycles_elapsed.avg.per_second
  sm__cycles_elapsed.avg.per_second
  smsp__cycles_elapsed.avg.per_second
dram_clock | Hz | DRAM clock during the measurement
  dram__cycles_elapsed.avg.per_second
[]
sm_clock_max | Hz | Highest SM clock of the device
  device__attribute_max_gpu_frequency_khz
  device__attribute_clock_rate
dram_clock_max | Hz | Highest memory clock of the device
  device__attribute_max_mem_frequency_khz
  device__attribute_memory_clock_rate
[SpeedOfLight]
sm_active | share | Share of the elapsed cycles in which an SM had a warp, average SM
  sm__cycles_active.avg / gpc__cycles_elapsed.max
[WorkloadDistribution since 2024.1]
sm_active_max | share | The same for the busiest SM
  sm__cycles_active.max / gpc__cycles_elapsed.max
sm_active_min | share | The same for the idlest SM
  sm__cycles_active.min / gpc__cycles_elapsed.max
[]
replay_passes | count | How often ncu ran the launch to collect everything
  profiler__replayer_passes
sm_count | count | SMs of the device that the launch could use
  launch__sm_count
  device__attribute_multiprocessor_count
[LaunchStats]
grid_size | count | Blocks in the grid
  launch__grid_size
block_size | count | Threads per block
  launch__block_size
cluster_size | count | Blocks per cluster (0 or 1: none)
  launch__cluster_size
threads | count | Threads of the launch
  launch__thread_count
registers | count | Registers per thread
  launch__registers_per_thread
shared_static | byte | Static shared memory per block
  launch__shared_mem_per_block_static
shared_dynamic | byte | Dynamic shared memory per block
  launch__shared_mem_per_block_dynamic
shared_driver | byte | Shared memory per block that the driver takes
  launch__shared_mem_per_block_driver
shared_block | byte | Shared memory per block as allocated, all included
  launch__shared_mem_per_block_allocated
shared_config | byte | Shared memory that the SM was configured with
  launch__shared_mem_config_size
waves | count | Blocks in the grid divided by the blocks that fit on the GPU at once
  launch__waves_per_multiprocessor
[]
l2_size | byte | L2 cache of the device
  device__attribute_l2_cache_size
[SpeedOfLight]
sm_busy | share | SM throughput (its busiest unit), share of peak, elapsed cycles
  sm__throughput.avg.pct_of_peak_sustained_elapsed
[WorkloadDistribution since 2024.1]
sm_busy_max | share | SM throughput on the busiest SM
  sm__throughput.max.pct_of_peak_sustained_elapsed
[SpeedOfLight]
memory_busy | share | Memory throughput, share of peak: the busiest of L1TEX, L2 and DRAM (not DRAM \
    alone), elapsed cycles
  gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed
[InstructionStats since 2024.1]
smsp_imbalance | count | Warp instructions of the busiest SM sub-partition over the average one
  smsp__inst_executed.max / smsp__inst_executed.avg
[WorkloadDistribution since 2024.1]
l2_active | share | Share of elapsed cycles in which an L2 slice worked
  lts__cycles_active.avg / lts__cycles_elapsed.avg
[run record]
declared_operations | op | Operations of the workload by its problem.py
declared_bytes | byte | Compulsory bytes: every input read once, every output written once, by \
    problem.py
declared_exps | op | Exponentials of the workload by its problem.py
""")
# Theoretical and achieved occupancy, every limiter, the step to one more block per SM.
OCCUPANCY = parse_metrics(
    """
[Occupancy]
blocks_per_sm | count | Blocks per SM that the limiters allow
  min(launch__occupancy_limit_registers, launch__occupancy_limit_shared_mem, \
    launch__occupancy_limit_warps, launch__occupancy_limit_blocks, launch__occupancy_limit_barriers)
  min(launch__occupancy_limit_registers, launch__occupancy_limit_shared_mem, \
    launch__occupancy_limit_warps, launch__occupancy_limit_blocks)
limit_registers | count | Blocks per SM by registers
  launch__occupancy_limit_registers
limit_shared | count | Blocks per SM by shared memory
  launch__occupancy_limit_shared_mem
limit_warps | count | Blocks per SM by warps
  launch__occupancy_limit_warps
limit_blocks | count | Blocks per SM that the hardware holds
  launch__occupancy_limit_blocks
limit_barriers | count | Blocks per SM by barriers (9.0 and later)
  launch__occupancy_limit_barriers
registers_step | count | Registers per thread less for one more block by registers
  from launch__registers_per_thread, in units of 256 a warp
shared_step | byte | Shared memory per block less for one more block by it
  from launch__shared_mem_per_block_allocated, in units of 128 bytes
[]
max_warps | count | Warps that an SM of the device can hold
  device__attribute_max_warps_per_multiprocessor
[Occupancy]
occupancy_limit | share | Theoretical occupancy
  sm__maximum_warps_per_active_cycle_pct
occupancy | share | Achieved occupancy (of active cycles)
  sm__warps_active.avg.pct_of_peak_sustained_active
warps_per_sm | count | Warps resident on an active SM, average
  sm__warps_active.avg.per_cycle_active
""",
    _REGISTERS,
    _SHARED,
)
