"""A problem's case and a GPU  ->  the time below which no kernel can be, from data sheets alone.

For machines where counters may not be read. Where there is a report, its own ceilings count
instead: these are the most that the hardware of a compute capability can do at its highest clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, prod
from typing import Any

from profkit.measure.variants.problem import Problem

# Dense fp16 operations (a multiply-add is two) with fp32 accumulation per SM and clock, from
# NVIDIA's architecture white papers; of 86, 89 and 120 the full rate, which GeForce cards halve.
_TENSOR = {"80": 2048, "86": 1024, "89": 1024, "90": 4096, "100": 8192, "120": 1024}
_EXP = 16  # ex2 results per SM and clock, on every one of them


def floors(problem: Problem, case: str, gpu: Mapping[str, Any]) -> dict[str, float]:
    """Seconds that each unit needs for the work itself.

    Args:
        problem: Says operations, bytes and, if it knows, exponentials.
        case: The case.
        gpu: As device.Gpu.

    Returns:
        tensor, dram and exp; what is not known is left out.
    """
    of, clocks = problem.case(case), gpu["sms"] * gpu["sm_clock"]
    found: dict[str, float] = {}
    per_clock = _TENSOR.get(str(gpu["arch"]).rstrip("af"))
    if per_clock and clocks:
        found["tensor"] = problem.module.operations(of) / (per_clock * clocks)
    if gpu["dram_bandwidth"]:
        found["dram"] = problem.module.compulsory_bytes(of) / gpu["dram_bandwidth"]
    if clocks and hasattr(problem.module, "exponentials"):
        found["exp"] = problem.module.exponentials(of) / (_EXP * clocks)
    return found


def shape(launches: Sequence[Mapping[str, Any]], sms: int) -> list[dict[str, Any]]:
    """Blocks, waves and idle SMs of each launch, from what the driver says fits on an SM."""
    rows = []
    for one in launches:
        blocks, slots = prod(one["grid"]), one["blocks_per_sm"] * sms
        waves = blocks / slots if slots else float("nan")
        rows.append({
            "kernel": one["kernel"],
            "blocks": blocks,
            "blocks_per_sm": one["blocks_per_sm"],
            "waves": None if isnan(waves) else waves,
            "idle_sms": max(0, sms - blocks),
        })  # fmt: skip
    return rows
