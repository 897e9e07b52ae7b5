"""Theoretical and achieved occupancy, every limiter, the step to one more block per SM."""

from __future__ import annotations

from math import ceil, floor, nan

from profkit.reports.metrics.derive import Metric, Raw, Source, direct_metric

_ATTR = "device__attribute_"
_LIMIT = "launch__occupancy_limit_"
_LIMITS = ("registers", "shared_mem", "warps", "blocks", "barriers")
_REGISTERS_PER_WARP_UNIT = 256  # registers are given to a warp in units of 256 since Kepler
_SHARED_UNIT = 128  # bytes; shared memory is given to a block in units of 128 since Ampere


def _registers_step(r: Raw) -> float:
    """Registers per thread to give up for one more block per SM by registers."""
    limit, block = r[_LIMIT + "registers"], r["launch__block_size"]
    warps = ceil(block / 32)
    per_scheduler = r[_ATTR + "max_registers_per_multiprocessor"] / 4
    # Warps are spread over the 4 schedulers, each with a quarter of the register file.
    need = ceil((limit + 1) * warps / 4)
    per_warp = floor(per_scheduler / need / _REGISTERS_PER_WARP_UNIT) * _REGISTERS_PER_WARP_UNIT
    step = r["launch__registers_per_thread"] - per_warp / 32
    return step if per_warp > 0 and step > 0 else nan


def _shared_step(r: Raw) -> float:
    """Bytes of shared memory per block to give up for one more block per SM by shared memory."""
    limit, used = r[_LIMIT + "shared_mem"], r["launch__shared_mem_per_block_allocated"]
    room = r[_ATTR + "max_shared_memory_per_multiprocessor"]
    fits = floor(room / (limit + 1) / _SHARED_UNIT) * _SHARED_UNIT
    step = used - fits
    return step if used > 0 and fits > 0 and step > 0 else nan


def _blocks(r: Raw) -> float:
    return min(r[_LIMIT + w] for w in _LIMITS if _LIMIT + w in r)


_ALWAYS = ""
_OCC = "Occupancy"

METRICS = (
    Metric(
        "blocks_per_sm",
        "count",
        "Blocks per SM that the limiters allow",
        _OCC,
        (
            Source(
                (_LIMIT + "registers", _LIMIT + "shared_mem", _LIMIT + "warps", _LIMIT + "blocks"),
                _blocks,
                "min of launch__occupancy_limit_*",
            ),
        ),
    ),
    direct_metric(
        "limit_registers", "count", "Blocks per SM by registers", _OCC, _LIMIT + "registers"
    ),
    direct_metric(
        "limit_shared", "count", "Blocks per SM by shared memory", _OCC, _LIMIT + "shared_mem"
    ),
    direct_metric("limit_warps", "count", "Blocks per SM by warps", _OCC, _LIMIT + "warps"),
    direct_metric(
        "limit_blocks", "count", "Blocks per SM that the hardware holds", _OCC, _LIMIT + "blocks"
    ),
    direct_metric(
        "limit_barriers",
        "count",
        "Blocks per SM by barriers (9.0 and later)",
        _OCC,
        _LIMIT + "barriers",
    ),
    Metric(
        "registers_step",
        "count",
        "Registers per thread less for one more block by registers",
        _OCC,
        (
            Source(
                (
                    _LIMIT + "registers",
                    "launch__block_size",
                    "launch__registers_per_thread",
                    _ATTR + "max_registers_per_multiprocessor",
                ),
                _registers_step,
                "from launch__registers_per_thread, in units of 256 a warp",
            ),
        ),
    ),
    Metric(
        "shared_step",
        "byte",
        "Shared memory per block less for one more block by it",
        _OCC,
        (
            Source(
                (
                    _LIMIT + "shared_mem",
                    "launch__shared_mem_per_block_allocated",
                    _ATTR + "max_shared_memory_per_multiprocessor",
                ),
                _shared_step,
                "from launch__shared_mem_per_block_allocated, in units of 128 bytes",
            ),
        ),
    ),
    direct_metric(
        "max_warps",
        "count",
        "Warps that an SM of the device can hold",
        _ALWAYS,
        _ATTR + "max_warps_per_multiprocessor",
    ),
    direct_metric(
        "occupancy_limit",
        "share",
        "Theoretical occupancy",
        _OCC,
        "sm__maximum_warps_per_active_cycle_pct",
    ),
    direct_metric(
        "occupancy",
        "share",
        "Achieved occupancy (of active cycles)",
        _OCC,
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
    direct_metric(
        "warps_per_sm",
        "count",
        "Warps resident on an active SM, average",
        _OCC,
        "sm__warps_active.avg.per_cycle_active",
    ),
)
