"""Theoretical and achieved occupancy, every limiter, the step to one more block per SM."""

from __future__ import annotations

from math import ceil, floor, nan

from profkit.reports.metrics.derive import Raw, Source, metrics

_REGISTERS_PER_WARP_UNIT = 256  # registers are given to a warp in units of 256 since Kepler
_SHARED_UNIT = 128  # bytes; shared memory is given to a block in units of 128 since Ampere


def _registers_step(r: Raw) -> float:
    """Return the registers per thread to give up for one more block per SM by registers."""
    limit, block = r["launch__occupancy_limit_registers"], r["launch__block_size"]
    warps = ceil(block / 32)
    per_scheduler = r["device__attribute_max_registers_per_multiprocessor"] / 4
    # Warps are spread over the 4 schedulers, each with a quarter of the register file.
    need = ceil((limit + 1) * warps / 4)
    per_warp = floor(per_scheduler / need / _REGISTERS_PER_WARP_UNIT) * _REGISTERS_PER_WARP_UNIT
    step = r["launch__registers_per_thread"] - per_warp / 32
    return step if per_warp > 0 and step > 0 else nan


def _shared_step(r: Raw) -> float:
    """Return the bytes of shared memory per block to give up for one more block per SM by it."""
    limit = r["launch__occupancy_limit_shared_mem"]
    used = r["launch__shared_mem_per_block_allocated"]
    room = r["device__attribute_max_shared_memory_per_multiprocessor"]
    fits = floor(room / (limit + 1) / _SHARED_UNIT) * _SHARED_UNIT
    step = used - fits
    return step if used > 0 and fits > 0 and step > 0 else nan


_REGISTERS = Source(
    (
        "launch__occupancy_limit_registers",
        "launch__block_size",
        "launch__registers_per_thread",
        "device__attribute_max_registers_per_multiprocessor",
    ),
    _registers_step,
    "from launch__registers_per_thread, in units of 256 a warp",
)
_SHARED = Source(
    (
        "launch__occupancy_limit_shared_mem",
        "launch__shared_mem_per_block_allocated",
        "device__attribute_max_shared_memory_per_multiprocessor",
    ),
    _shared_step,
    "from launch__shared_mem_per_block_allocated, in units of 128 bytes",
)
METRICS = metrics(
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
