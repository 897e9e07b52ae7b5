"""What was counted and timed of a call  ->  its shape, how busy its units were, sums of what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import median

from profkit.lab.ablation import chains, launches, units
from profkit.lab.ablation.change import SurveyedCode
from profkit.lab.ablation.lab import AblationLab
from profkit.lab.ablation.timeline import BlockTimeline
from profkit.lab.measure.bench import Times
from profkit.lab.measure.cuda import library
from profkit.lab.measure.cuda.resources import LIMITS, count_fitting_blocks
from profkit.records.ablation import LaunchOnlyTimes

_SINGLE = frozenset("add sub mul fma".split())


def describe_shape(
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
    fraction, limit = _find_occupancy(lab, launch)
    return LaunchOnlyTimes(
        **ratios,
        blocks=launch.blocks,
        blocks_per_sm=launch.count_blocks(),
        occupancy=fraction,
        occupancy_limit=limit,
    )


def _find_occupancy(lab: AblationLab, launch: launches.KernelLaunch) -> tuple[float | None, str]:
    arch = lab.on.gpu.arch
    if arch not in LIMITS:
        return None, ""
    shared = launch.smem + library.read_kernel_attribute(launch.function, launches.STATIC_SHARED)
    registers = library.read_kernel_attribute(launch.function, launches.REGISTERS)
    fitting = count_fitting_blocks(arch, registers, launch.threads, shared)
    return fitting.fraction, fitting.limiter


def measure_units(
    code: SurveyedCode, base: Times, lab: AblationLab
) -> tuple[dict[str, float], dict[str, float]]:
    """How busy each unit was, and how long each of those that work in turns: shares of the time."""
    gpu = lab.on.gpu
    clock = base.after.sm_clock or gpu.sm_clock
    cycles = median(base.warm) * clock * gpu.sms
    if cycles <= 0:
        return {}, {}
    stretches = units.measure_work(code.module, code.survey, code.accesses, gpu.arch)
    turns = units.measure_units_in_turns(stretches, cycles)
    seen = {f"turns_{unit}": share for unit, share in turns.items()}
    return units.compute_unit_shares(stretches, cycles), seen


def measure_longest_chains(
    code: SurveyedCode, base: Times, lab: AblationLab, shape: LaunchOnlyTimes
) -> dict[str, float]:
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


def summarize_survey(code: SurveyedCode) -> dict[str, float]:
    """What the survey saw of the whole call, in few numbers."""
    threads, warps = sum(code.survey.executed.values()), sum(code.survey.issued.values())
    by_warp = [number for number in code.survey.by_warp if number]
    return {
        **_sum_memory_traffic(code),
        **_sum_instructions(code),
        **_compute_instruction_shares(code),
        "warps": len(by_warp),
        "lanes": threads / (32 * warps) if warps else 1.0,
        "busiest_warp": max(by_warp) * len(by_warp) / sum(by_warp) if by_warp else 1.0,
    }


def _sum_memory_traffic(code: SurveyedCode) -> Counter[str]:
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


def _sum_instructions(code: SurveyedCode) -> Counter[str]:
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


def _compute_instruction_shares(code: SurveyedCode) -> dict[str, float]:
    """Shares of all instructions by which products are known that tensor cores could do."""
    counted = {"half_share": 0, "shared_load_share": 0}
    for opcode, number in code.survey.issued.items():
        words = opcode.split(".")
        if words[0] == "ld" and "shared" in words:
            counted["shared_load_share"] += number
        elif units.get_unit_of_instruction(words) == "fp16":
            counted["half_share"] += number
    total = sum(code.survey.issued.values())
    return {name: number / max(1, total) for name, number in counted.items()}
