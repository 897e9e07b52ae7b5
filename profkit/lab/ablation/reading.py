"""What was counted and timed of a call  ->  its shape, how busy its units were, sums of what it did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING

from profkit.lab.ablation import chains, launches, units
from profkit.lab.ablation.change import SurveyedCode
from profkit.lab.ablation.lab import AblationLab
from profkit.lab.ablation.timeline import BlockTimeline
from profkit.lab.measure.bench import Times
from profkit.lab.measure.cuda import library
from profkit.lab.measure.cuda.resources import LIMITS, compute_occupancy
from profkit.records.ablation import LaunchOnlyTimes

if TYPE_CHECKING:
    from profkit.units import Share, UnitName


_SINGLE = frozenset("add sub mul fma".split())


def make_launch_only_times(
    lab: AblationLab, times: Mapping[str, Times], cold: Times, spans: BlockTimeline | None
) -> LaunchOnlyTimes:
    base = median(times["original"].warm)
    ratios: dict[str, float] = {}
    if "half-occupancy" in times:
        ratios["half_occupancy"] = median(times["half-occupancy"].warm) / base
    if cold.cold:
        ratios["cold"] = median(cold.cold) / base
    if spans:
        ratios.update(idle=spans.idle, longest_block=spans.longest)
    launch = max(lab.call.kernel_launches, key=lambda launch: launch.blocks * launch.threads)
    fraction = None
    limit = ""
    if lab.on.gpu.arch in LIMITS:
        static = library.read_kernel_attribute(launch.function, launches.STATIC_SHARED)
        registers = library.read_kernel_attribute(launch.function, launches.REGISTERS)
        shared = launch.smem + static
        threads = launch.threads
        fitting = compute_occupancy(lab.on.gpu.arch, registers, threads, shared)
        fraction = fitting.fraction
        limit = fitting.limiter
    return LaunchOnlyTimes(
        **ratios,
        blocks=launch.blocks,
        blocks_per_sm=launch.count_blocks(),
        occupancy=fraction,
        occupancy_limit=limit,
    )


def summarize_call(
    code: SurveyedCode, base: Times, lab: AblationLab, shape: LaunchOnlyTimes
) -> tuple[dict[UnitName, Share], dict[str, float]]:
    """How busy each unit was, as shares of the time, and what else the copies that count have seen."""
    gpu = lab.on.gpu
    seconds = median(base.warm)
    cycles = seconds * (base.after.sm_clock or gpu.sm_clock)
    seen = summarize_survey(code)
    if cycles <= 0:
        return {}, seen
    # The longest chain of dependent instructions, as shares of the time that a warp has.
    waves = 1.0
    if shape.blocks_per_sm:
        waves = max(1.0, shape.blocks / (shape.blocks_per_sm * gpu.sms))
    for kind, number in asdict(chains.sum_dependency_chains_of_busiest_warp(code)).items():
        seen[f"chain_{kind}"] = number * waves / cycles
    stretches = units.compute_unit_cycles_of_stretches(
        code.module, code.survey, code.accesses, gpu.arch
    )
    for unit, share in units.measure_units_in_turns(stretches, cycles * gpu.sms).items():
        seen[f"turns_{unit}"] = share
    return units.compute_unit_shares(stretches, cycles * gpu.sms), seen


def summarize_survey(code: SurveyedCode) -> dict[str, float]:
    """Return what the survey saw of the whole call, in few numbers."""
    threads = sum(code.survey.executed.values())
    warps = sum(code.survey.issued.values())
    by_warp = [number for number in code.survey.by_warp if number]
    return {
        **_sum_memory_traffic(code),
        **_sum_instructions(code),
        "warps": len(by_warp),
        "lanes": threads / (32 * warps) if warps else 1.0,
        "busiest_warp": max(by_warp) * len(by_warp) / sum(by_warp) if by_warp else 1.0,
    }


def _sum_memory_traffic(code: SurveyedCode) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for access in code.accesses:
        seen = code.survey.seen[access.number]
        if seen.requests and access.in_global:
            kind = "stored_bytes" if access.kind == "store" else "loaded_bytes"
            sums[kind] += seen.threads * access.width
            sums["steering_loads"] += access.steers
        elif seen.requests and access.space == "shared":
            sums["shared_ways"] += seen.ways
            sums["shared_requests"] += seen.requests
    return sums


def _sum_instructions(code: SurveyedCode) -> dict[str, float]:
    """Counts of some kinds, and the shares of two by which products for tensor cores are known."""
    sums: dict[str, float] = defaultdict(float)
    total = max(1, sum(code.survey.issued.values()))
    sums.update(half_share=0.0, shared_load_share=0.0)
    for opcode, number in code.survey.issued.items():
        words = opcode.split(".")
        if words[-1] == "f32" and words[0] in _SINGLE:
            sums["fp32"] += number
            sums["fp32_rounded"] += number * (words[0] != "fma" and "rn" in words)
        if opcode.startswith("wgmma.mma_async"):
            sums["warpgroup_products"] += number
        if units.is_barrier(words):
            sums["barriers"] += number
        if words[0] == "ld" and "shared" in words:
            sums["shared_load_share"] += number / total
        elif units.get_unit_of_instruction(words) == "fp16":
            sums["half_share"] += number / total
    return sums
