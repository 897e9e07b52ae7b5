"""What a configuration takes and gives  ->  why it may not be the champion, or nothing.

Arithmetic refuses before building (tunables.py), ptxas after it, the check and the launches on the
GPU at last. Occupancy is reported; it refuses only where that was asked for: a gate of 50 % would
refuse FlashAttention-2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod
from pathlib import Path
from typing import Any

from profkit.measure.build import dry
from profkit.measure.build.build import Build
from profkit.measure.cuda import cubin
from profkit.measure.cuda.names import base_name
from profkit.measure.variants.occupancy import LIMITS, REGISTERS
from profkit.measure.variants.problem import Problem
from profkit.measure.variants.tunables import MOST_REGISTERS, Refusal, limits


def built(made: Build, used: Sequence[str] | None) -> Refusal | None:
    """Why a build may not run.

    Args:
        made: A build, also one that failed.
        used: Demangled names of the kernels that the case launches; None where that is not known,
            and then every kernel of the file is held to the gates.
    """
    if made.error is not None:
        said = made.error.splitlines()
        first = next((s for s in said if "error" in s), said[-1] if said else "")
        return Refusal("does not compile", first.strip()[:200])
    for kernel in made.kernels:
        if used is not None and kernel.name not in used:
            continue
        name = base_name(kernel.name)
        allowed = made.variant.budget.spills or 0
        if kernel.spills > allowed:
            return Refusal("spills", f"{name}: {kernel.spills} bytes of spills")
        most = made.variant.budget.regs or MOST_REGISTERS
        if kernel.regs > most:
            return Refusal("registers of a thread", f"{name}: {kernel.regs} registers, most {most}")
        if (made.variant.budget.stack or kernel.stack) < kernel.stack:
            return Refusal("stack frame", f"{name}: {kernel.stack} bytes of stack")
    return None


def launched(
    made: Build, launches: Sequence[Mapping[str, Any]], least_occupancy: float | None
) -> Refusal | None:
    """Why what the launcher really starts may not be.

    Args:
        made: The build.
        launches: graph.Launch as JSON.
        least_occupancy: The share of an SM's warps that must be resident; None asks for none.
    """
    most, kind = limits(made.arch, made.variant.budget).get("smem", (None, ""))
    for one in launches:
        taken = one["dynamic_smem"] + one["static_smem"]
        if most is not None and taken > most:
            return Refusal(kind, f"{taken} bytes of shared memory, at most {most}")
        if one["regs"] * _threads(one) > REGISTERS:
            used = f"{one['regs']} registers, {_threads(one)} threads"
            return Refusal("registers of an SM", used)
    if least_occupancy is not None:
        share = resident(made.arch, launches)
        if share is not None and share < least_occupancy:
            asked = f"{share:.0%} of an SM's warps, asked for {least_occupancy:.0%}"
            return Refusal("occupancy", asked)
    return None


def resident(arch: str, launches: Sequence[Mapping[str, Any]]) -> float | None:
    """Theoretical occupancy of the largest launch; None where the architecture is not known."""
    limit = LIMITS.get(arch.rstrip("af"))
    if limit is None or not launches:
        return None
    one = max(launches, key=_blocks)
    warps = ceil(_threads(one) / 32)
    return min(1.0, float(one["blocks_per_sm"]) * warps / limit.warps)


def checked(found: Mapping[str, Any], supported: Sequence[str] | None) -> Refusal | None:
    """Why a judged configuration may not be.

    Args:
        found: check.Check as JSON.
        supported: Cases that the defaults support; None for the defaults themselves.
    """
    if found["status"] in ("wrong", "failed"):
        faults = [f"{c['case']} seed {c['seed']}: {f}" for c in found["cases"] for f in c["faults"]]
        return Refusal(found["status"], faults[0] if faults else found["status"])
    right = {c["case"] for c in found["cases"] if c["status"] == "right"}
    lost = [c for c in supported or () if c not in right]
    if found["status"] != "right" or lost:
        what = f": {lost[0]}, which the defaults can" if lost else " on this GPU"
        return Refusal("not supported", f"not supported{what}")
    return None


def kernels_used(made: Build, problem: Problem, case: str, nvcc: Path) -> list[str] | None:
    """Demangled names of the kernels that a case launches, found without a GPU; None: not known."""
    machine = dry.MACHINES.get(made.arch.rstrip("af"))
    if machine is None or made.library is None:
        return None
    values = problem.module.arguments(problem.case(case))
    found = dry.launches(made, values, machine, nvcc)
    return None if found is None else [x.kernel for x in found]


def identity(made: Build) -> str | None:
    """What makes two builds one: the machine code of kernels and of the launcher that starts them.

    A macro that only the launcher reads (a grid, a cluster size) leaves the kernels as they are and
    is a configuration of its own all the same. None where neither can be read.
    """
    if made.library is None:
        return None
    host = cubin.host_hash(made.library.with_name("variant.o"))
    return None if made.sass is None and host is None else f"{made.sass}:{host}"


def shape(made: Build, launches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the largest launch of a configuration takes of an SM, for the history."""
    if not launches:
        return {}
    one = max(launches, key=_blocks)
    return {
        "blocks": _blocks(one),
        "threads": _threads(one),
        "regs": one["regs"],
        "smem": one["dynamic_smem"] + one["static_smem"],
        "blocks_per_sm": one["blocks_per_sm"],
        "occupancy": resident(made.arch, launches),
    }


def _blocks(launch: Mapping[str, Any]) -> int:
    return prod(launch["grid"])


def _threads(launch: Mapping[str, Any]) -> int:
    return prod(launch["block"])
