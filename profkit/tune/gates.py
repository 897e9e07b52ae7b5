"""What a configuration takes and gives  ->  why it may not be the champion, or nothing.

Arithmetic refuses before building (tunables.py), ptxas after it, the check and the launches on the
GPU at last. Occupancy is reported; it refuses only where that was asked for: a gate of 50 % would
refuse FlashAttention-2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from pathlib import Path

from profkit.measure.check.check import Check
from profkit.measure.cuda.library import GraphLaunch
from profkit.measure.cuda.resources import CARDS, LIMITS, REGISTERS
from profkit.measure.variants import dry
from profkit.measure.variants.build import Build
from profkit.measure.variants.problem import Problem
from profkit.measure.variants.tunables import MOST_REGISTERS, InvalidConfig, block_limits
from profkit.records.store import JsonObject
from profkit.reports.launch import base_name


def built(build: Build, used: Sequence[str] | None) -> InvalidConfig | None:
    """Why a build may not run.

    `used`: demangled names of the kernels that the case launches; None where that is not known, and
    then every kernel of the file is held to the gates.
    """
    if build.error is not None:
        lines = build.error.splitlines()
        first = next((s for s in lines if "error" in s), lines[-1] if lines else "")
        return InvalidConfig("does not compile", first.strip()[:200])
    for kernel in build.kernels:
        if used is not None and kernel.name not in used:
            continue
        name = base_name(kernel.name)
        allowed = build.variant.budget.spills or 0
        if kernel.spills > allowed:
            return InvalidConfig("spills", f"{name}: {kernel.spills} bytes of spills")
        most = build.variant.budget.regs or MOST_REGISTERS
        if kernel.regs > most:
            return InvalidConfig(
                "registers of a thread", f"{name}: {kernel.regs} registers, most {most}"
            )
        if (build.variant.budget.stack or kernel.stack) < kernel.stack:
            return InvalidConfig("stack frame", f"{name}: {kernel.stack} bytes of stack")
    return None


def refuse_launches(
    build: Build, launches: Sequence[GraphLaunch], least_occupancy: float | None
) -> InvalidConfig | None:
    """Why what the launcher really starts may not be."""
    most, kind = block_limits(build.arch, build.variant.budget).get("smem", (None, ""))
    for launch in launches:
        taken = launch.dynamic_smem + launch.static_smem
        if most is not None and taken > most:
            return InvalidConfig(kind, f"{taken} bytes of shared memory, at most {most}")
        if launch.regs * prod(launch.block) > REGISTERS:
            used = f"{launch.regs} registers, {prod(launch.block)} threads"
            return InvalidConfig("registers of an SM", used)
    share = footprint(build, launches).get("occupancy")
    if least_occupancy is not None and share is not None and share < least_occupancy:
        detail = f"{share:.0%} of an SM's warps, asked for {least_occupancy:.0%}"
        return InvalidConfig("occupancy", detail)
    return None


def checked(check: Check, supported: Sequence[str] | None) -> InvalidConfig | None:
    """Why a judged configuration may not be.

    `supported`: cases that the defaults support; None for the defaults themselves.
    """
    if check.status in ("wrong", "failed"):
        return InvalidConfig(check.status, check.faults[0] if check.faults else check.status)
    lost = [c for c in supported or () if c not in check.correct_cases]
    if check.status != "right" or lost:
        what = f": {lost[0]}, which the defaults can" if lost else " on this GPU"
        return InvalidConfig("not supported", f"not supported{what}")
    return None


def kernels_used(build: Build, problem: Problem, case: str, nvcc: Path) -> tuple[str, ...] | None:
    """Demangled names of the kernels that a case launches, found without a GPU; None: not known."""
    machine = CARDS.get(build.arch.rstrip("af"))
    if machine is None or build.library is None:
        return None
    values = problem.module.arguments(problem.case(case))
    launches = dry.dry_launches(build, values, machine, nvcc)
    return None if launches is None else tuple(launch.kernel for launch in launches)


def machine_code_identity(build: Build) -> str | None:
    """What makes two builds one: the machine code of kernels and of the launcher that starts them.

    A macro that only the launcher reads (a grid, a cluster size) leaves the kernels as they are and
    is a configuration of its own all the same. None where neither can be read.
    """
    if build.library is None:
        return None
    return None if build.sass is None and build.host is None else f"{build.sass}:{build.host}"


def footprint(build: Build, launches: Sequence[GraphLaunch]) -> JsonObject:
    """Return what the largest launch takes of an SM, as a trial's result has it; empty without one.

    `occupancy` is the theoretical one; None where the architecture is not known.
    """
    if not launches:
        return {}
    largest = max(launches, key=lambda launch: prod(launch.grid))
    threads, limit = prod(largest.block), LIMITS.get(build.arch.rstrip("af"))
    warps = largest.blocks_per_sm * ceil(threads / 32)
    return {
        "blocks": prod(largest.grid),
        "threads": threads,
        "regs": largest.regs,
        "smem": largest.dynamic_smem + largest.static_smem,
        "blocks_per_sm": largest.blocks_per_sm,
        "occupancy": min(1.0, warps / limit.warps) if limit else None,
    }
