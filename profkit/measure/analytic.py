"""A problem's case and a GPU  ->  the time below which no kernel can be, from data sheets alone.

For machines where counters may not be read. Where there is a report, its own ceilings count
instead: these are the most that the hardware of a compute capability can do at its highest clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, prod

from profkit.measure.cuda.device import Gpu
from profkit.measure.cuda.graph import GraphLaunch
from profkit.measure.variants.occupancy import waves
from profkit.measure.variants.problem import Problem
from profkit.records.parts import LaunchShape

# Dense fp16 operations (a multiply-add is two) with fp32 accumulation per SM and clock, from
# NVIDIA's architecture white papers; of 86, 89 and 120 the full rate, which GeForce cards halve.
_TENSOR = {"80": 2048, "86": 1024, "89": 1024, "90": 4096, "100": 8192, "120": 1024}
_EXP = 16  # ex2 results per SM and clock, on every one of them


def floors(problem: Problem, case: str, gpu: Gpu) -> dict[str, float]:
    """Seconds that each unit needs for the work itself.

    Returns:
        tensor, dram and exp; what is not known is left out.
    """
    shape, clocks = problem.case(case), gpu.sms * gpu.sm_clock
    seconds: dict[str, float] = {}
    per_clock = _TENSOR.get(gpu.arch.rstrip("af"))
    if per_clock and clocks:
        seconds["tensor"] = problem.module.operations(shape) / (per_clock * clocks)
    if gpu.dram_bandwidth:
        seconds["dram"] = problem.module.compulsory_bytes(shape) / gpu.dram_bandwidth
    if clocks and hasattr(problem.module, "exponentials"):
        seconds["exp"] = problem.module.exponentials(shape) / (_EXP * clocks)
    return seconds


def launch_shapes(launches: Sequence[GraphLaunch], sms: int) -> tuple[LaunchShape, ...]:
    """Blocks, waves and idle SMs of each launch, from what the driver says fits on an SM."""
    return tuple(_shape(launch, sms) for launch in launches)


def _shape(launch: GraphLaunch, sms: int) -> LaunchShape:
    blocks, filled = prod(launch.grid), waves(launch.grid, launch.blocks_per_sm, sms)
    return LaunchShape(
        kernel=launch.kernel,
        blocks=blocks,
        blocks_per_sm=launch.blocks_per_sm,
        waves=None if isnan(filled) else filled,
        idle_sms=max(0, sms - blocks),
    )
