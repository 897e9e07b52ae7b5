"""What was counted and timed of a call  ->  its shape, how busy its units were, sums of what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import median

from profkit.lab.ablation import chains, launches, units
from profkit.lab.ablation.change import Code
from profkit.lab.ablation.lab import Lab
from profkit.lab.ablation.timeline import Timeline
from profkit.lab.measure.bench import Times
from profkit.lab.measure.cuda import library
from profkit.lab.measure.cuda.resources import LIMITS, count_fitting_blocks
from profkit.records.ablation import Shape

_SINGLE = frozenset("add sub mul fma".split())


def describe_shape(
    lab: Lab, times: Mapping[str, Times], cold: Times, spans: Timeline | None
) -> Shape:
    base = median(times["original"].warm)
    ratios: dict[str, float] = {}
    for name in ("half-occupancy", "quarter-occupancy", "half-grid", "double-grid"):
        if name in times:
            ratios[name.replace("-", "_")] = median(times[name].warm) / base
    if cold.cold:
        ratios["cold"] = median(cold.cold) / base
    if spans:
        ratios.update(idle=spans.idle, longest_block=spans.longest)
    start = max(lab.call.starts, key=lambda start: start.blocks * start.threads)
    fraction, limit = _find_occupancy(lab, start)
    return Shape(
        **ratios,
        blocks=start.blocks,
        blocks_per_sm=start.count_blocks(),
        occupancy=fraction,
        occupancy_limit=limit,
    )


def _find_occupancy(lab: Lab, start: launches.Start) -> tuple[float | None, str]:
    arch = lab.on.gpu.arch
    if arch not in LIMITS:
        return None, ""
    shared = start.smem + library.read_attribute(start.function, launches.STATIC_SHARED)
    registers = library.read_attribute(start.function, launches.REGISTERS)
    fitting = count_fitting_blocks(arch, registers, start.threads, shared)
    return fitting.fraction, fitting.limiter


def read_busy(code: Code, base: Times, lab: Lab) -> dict[str, float]:
    gpu = lab.on.gpu
    clock = base.after.sm_clock or gpu.sm_clock
    cycles = median(base.warm) * clock * gpu.sms
    return units.measure_busy(code.survey, code.accesses, gpu.arch, cycles)


def read_chains(code: Code, base: Times, lab: Lab, shape: Shape) -> dict[str, float]:
    """The longest chain of dependent instructions, as shares of the time that a warp has."""
    gpu, slots = lab.on.gpu, shape.blocks_per_sm * lab.on.gpu.sms
    clock = base.after.sm_clock or gpu.sm_clock
    waves = 1.0
    if slots:
        waves = max(1.0, shape.blocks / slots)
    cycles = median(base.warm) * clock / waves
    chain = chains.measure_chains(code)
    return {
        "chain_fixed": chain.fixed / cycles,
        "chain_xu": chain.xu / cycles,
        "chain_shared": chain.shared / cycles,
    }


def sum_survey(code: Code) -> dict[str, float]:
    """What the survey saw of the whole call, in few numbers."""
    threads, warps = sum(code.survey.executed.values()), sum(code.survey.issued.values())
    by_warp = [number for number in code.survey.by_warp if number]
    return {
        **_sum_accesses(code),
        **_sum_instructions(code),
        "lanes": threads / (32 * warps) if warps else 1.0,
        "busiest_warp": max(by_warp) * len(by_warp) / sum(by_warp) if by_warp else 1.0,
    }


def _sum_accesses(code: Code) -> Counter[str]:
    sums: Counter[str] = Counter()
    for access in code.accesses:
        seen = code.survey.seen[access.number]
        if not seen.requests:
            continue
        if access.in_global:
            if access.kind == "store":
                kind = "stored_bytes"
            else:
                kind = "loaded_bytes"
            sums[kind] += seen.threads * access.width
            sums["steering_loads"] += access.steers
        elif access.space == "shared":
            sums["steering_shared"] += access.steers
            sums["shared_ways"] += seen.ways
            sums["shared_requests"] += seen.requests
    return sums


def _sum_instructions(code: Code) -> Counter[str]:
    sums: Counter[str] = Counter()
    for opcode, number in code.survey.issued.items():
        words = opcode.split(".")
        if words[-1] == "f32" and words[0] in _SINGLE:
            sums["fp32"] += number
            sums["fp32_rounded"] += number * (words[0] != "fma" and "rn" in words)
        if opcode.startswith("wgmma.mma_async"):
            sums["warpgroup_products"] += number
        if words[0] in ("bar", "barrier") and "warp" not in words:
            sums["barriers"] += number
    return sums
