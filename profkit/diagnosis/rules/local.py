"""Local memory: what the compiler could not keep in registers."""

from __future__ import annotations

from profkit.diagnosis.rule import Hit, Rule, examples
from profkit.diagnosis.rules.memory import redundant
from profkit.diagnosis.rules.waits import stalled
from profkit.diagnosis.rules.waste import EXPLAINS, SECTORS
from profkit.model.estimate import amdahl
from profkit.model.launch import Launch, Threshold
from profkit.model.resources import BY_LIMITER, resource_use
from profkit.reports.figures import share

LOCAL = Threshold(0.02, "share of instructions on local memory below which it is a prologue")


def _without(launch: Launch, instructions: float) -> float:
    """Without local-memory instructions, neither their issue nor their waits."""
    waits = memory = stalled(launch, "long_scoreboard", "lg_throttle", "drain")
    if launch.known("l1_busy"):
        levels = [resource_use(BY_LIMITER[limiter], launch) for limiter in SECTORS]
        memory = min(1.0, max((u.share / u.resource.peak.sure for u in levels if u), default=0.0))
    accesses = launch.get("local_share", 1.0)
    return amdahl(min(0.97, instructions + accesses * max(waits, memory)))


def _spilled(launch: Launch) -> float:
    return launch["spill_instructions"] / max(launch["instructions"], 1)


def _spills(launch: Launch) -> Hit | None:
    part = _spilled(launch)
    if part < LOCAL:
        return None
    launch.need("stall_selected")
    return Hit(f"{share(part)} of the instructions spill or reload registers")


def _indexed(launch: Launch) -> float:
    spilled = launch.get("spill_instructions", 0.0)
    return (launch["local_instructions"] - spilled) / max(launch["instructions"], 1)


def _local(launch: Launch) -> Hit | None:
    part = _indexed(launch)
    if part < LOCAL:
        return None
    launch.need("stall_selected")
    return Hit(
        f"{share(part)} of the instructions access local memory: arrays indexed at run time, or "
        "spills"
    )


RULES = (
    Rule(
        id="register-spills",
        title="The compiler spills registers",
        meaning="A kernel that needs more registers than it may have keeps the rest in local "
        "memory, which is global memory cached in L1.",
        advice="Raise the register limit (launch bounds, -maxrregcount), shorten live ranges, "
        "split the kernel, or spill to shared memory.",
        check=_spills,
        looks="spill_instructions instructions local_share registers",
        lines=("instructions local", "local-sectors"),
        fix=redundant(lambda launch: _without(launch, _spilled(launch)), *SECTORS, "issue"),
        less_work=True,
        fires=examples(
            "spill_instructions=2e6 instructions=1e7 local_share=0.8 stall_selected=0.1 "
            "stall_long_scoreboard=0.6",
        ),
        clear=examples(
            "spill_instructions=0 instructions=1e7 local_share=0.0 stall_selected=0.1 "
            "stall_long_scoreboard=0.6",
        ),
        explains=EXPLAINS,
    ),
    Rule(
        id="local-memory",
        title="Arrays live in local memory",
        meaning="An array indexed at run time cannot live in registers. Each thread's copy goes "
        "to local memory: global memory cached in L1.",
        advice="Index with compile-time constants (unrolled loops), or keep the array in shared "
        "memory.",
        check=_local,
        looks="local_instructions instructions local_share local_bytes",
        lines=("instructions local", "local-sectors"),
        # Finding an element's place is integer work that goes with the array.
        fix=redundant(lambda launch: _without(launch, _indexed(launch)), *SECTORS, "issue", "int"),
        less_work=True,
        fires=examples(
            "local_instructions=2e6 instructions=1e7 local_share=0.9 stall_selected=0.1 "
            "stall_long_scoreboard=0.6 spill_instructions=0",
        ),
        clear=examples(
            "local_instructions=0 instructions=1e7 local_share=0.0 stall_selected=0.1 "
            "stall_long_scoreboard=0.6 spill_instructions=0",
        ),
        explains=EXPLAINS,
    ),
)
