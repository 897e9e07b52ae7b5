"""Accesses that cost more than they bring: sectors, bank conflicts, atomics, local memory.

A waste rule's gain is Amdahl's on the wasted share of the accesses, weighted by how much of the
time the launch can spend on them, and never more than the next busiest resource allows.
"""

from __future__ import annotations

from profkit.diagnosis.rule import Hit, Rule
from profkit.diagnosis.rules.gains import amdahl, capped, stalled, weight
from profkit.diagnosis.rules.memory import full
from profkit.model.coalescing import coalesced, sector_waste
from profkit.model.launch import Launch
from profkit.model.resources import (
    BY_LIMITER,
    QUEUED_LOAD_CYCLES,
    load_wait,
    next_limit,
    resource_use,
    uses,
)
from profkit.reports.figures import share

WASTE = 0.2  # share of sectors or wavefronts below which coalescing gains less than the noise
_SECTORS = ("dram", "l2", "l1")  # resources that wasted sectors fill
# One word takes an atomic every 3 to 4 cycles: a slice with a single hot word reads at least this.
HOT_SLICE = 0.25
ONE_OF_MANY = 8  # busiest slice over average: one hot word of an L2 of 32 slices or more
UNEVEN = 2  # the same: addresses spread evenly stay below 1.2, a few dozen hot words do not
EVEN = 0.5  # of L2's peak on average: then the other slices work too
WAITING = 0.3  # share of the warps' time that a cause must have to be worth naming
ATOMIC = 0.3  # share of L2's sectors that are atomics, from which they can be the cause
SHARED_ATOMIC = 0.01  # share of the instructions: each takes tens of cycles when it contends
LOCAL = 0.02  # share of instructions on local memory below which it is a prologue


def _uncoalesced(launch: Launch) -> Hit | None:
    waste, text = sector_waste(launch)
    if waste < WASTE:
        return None
    near = [u for u in uses(launch) if u.near and u.resource.limiter in _SECTORS]
    if near:
        after = coalesced(launch, waste)
        binds = max(near, key=lambda u: u.elapsed)
        if after.get(binds.resource.limiter, 0.0) > 0.9 * binds.elapsed:
            return None  # the level that binds does not see this waste: the cache before it does
        other = next_limit(launch, *_SECTORS)
        gain = 1 / max([*after.values(), 1 / other.room if other else 0.0, 0.01])
    else:
        part = weight(launch, _SECTORS, ("long_scoreboard", "lg_throttle", "drain"))
        gain = capped(launch, amdahl(waste * part), *_SECTORS)
    if gain < 1.05:
        return None
    looked = ("excess_sectors", "global_load_sectors_per_request", "global_store_sectors_per_request",
              "l2_sectors_per_request", "dram_busy", "l2_cache_busy", "l1_busy")  # fmt: skip
    return Hit(text, gain, looked)


def _conflicts(launch: Launch) -> Hit | None:
    if "excess_shared_wavefronts" in launch:
        waste = launch["excess_shared_wavefronts"]
    else:
        waste = max(launch["shared_ld_conflicts"], launch["shared_st_conflicts"])
    if waste < WASTE:
        return None
    part = weight(launch, ("shared",), ("short_scoreboard", "mio_throttle"))
    gain = capped(launch, amdahl(min(waste, 31 / 32) * part), "shared", "l1")
    if gain < 1.05:
        return None
    return Hit(
        f"{share(waste)} of the shared-memory wavefronts are bank conflicts "
        f"({1 / (1 - min(waste, 31 / 32)):.2g} wavefronts where 1 would do)",
        gain,
        ("excess_shared_wavefronts", "shared_ld_conflicts", "shared_st_conflicts", "shared_busy"),
    )


def _one_slice(launch: Launch, sectors: float) -> bool:
    """Whether a few L2 slices do the atomics while the others idle."""
    if launch["l2_busy"] >= EVEN:
        return False
    if "l2_busy_max" in launch:
        most, average = launch["l2_busy_max"], launch["l2_busy"]
        if most < HOT_SLICE:
            return False
        return most >= ONE_OF_MANY * average or (most >= UNEVEN * average and _loads_wait(launch))
    # No busiest slice before 2024.1: one slice takes an atomic every one to four cycles.
    if not 0.2 <= sectors / launch["cycles"] <= 1.5:
        return False
    return _loads_wait(launch)


def _loads_wait(launch: Launch) -> bool:
    """Whether the warps wait for memory longer than for any memory that is not contended."""
    return (
        launch.get("stall_lg_throttle", 0.0) >= WAITING or load_wait(launch) >= QUEUED_LOAD_CYCLES
    )


# What warps wait for that wait for an atomic, or behind one.
_BEHIND = ("long_scoreboard", "lg_throttle", "drain", "membar", "mio_throttle", "short_scoreboard")


def _atomics(launch: Launch) -> Hit | None:
    looked = ("l2_atomics_busy", "l2_busy_max", "l2_atomic_sectors", "shared_atomics", "cycles")
    found = resource_use(BY_LIMITER["atomics"], launch)
    link = resource_use(BY_LIMITER["l2"], launch)
    if found is not None and found.near and (link is None or found.elapsed >= link.elapsed):
        return Hit(f"L2 atomic units at {share(found.elapsed)} of their peak", None, looked)
    sectors = launch["l2_atomic_sectors"]
    if launch.present("stall_") and stalled(launch, *_BEHIND) < WAITING:
        return None  # without warp states a hot slice alone must do
    if sectors >= ATOMIC * max(launch["l2_sectors"], 1) and _one_slice(launch, sectors):
        return Hit(
            f"{sectors:.3g} atomic sectors at {sectors / launch['cycles']:.2f} a cycle while L2 is at "
            f"{share(launch['l2_busy'])}: they queue for a few addresses",
            None,
            looked,
        )
    shared = launch["shared_atomics"]
    if (
        shared >= SHARED_ATOMIC * launch["instructions"]
        and stalled(launch, "short_scoreboard", "mio_throttle", "lg_throttle") >= WAITING
    ):
        return Hit(
            f"{shared:.3g} shared-memory atomics, {share(shared / launch['instructions'])} of all "
            "instructions, and the warps wait for them",
            None,
            looked,
        )
    return None


def _local_weight(launch: Launch, instructions: float) -> float:
    """Share of the time that local-memory instructions account for: their issue and their waits."""
    waits = stalled(launch, "long_scoreboard", "lg_throttle", "drain")
    memory = weight(launch, _SECTORS, ()) if launch.known("l1_busy") else waits
    accesses = launch.get("local_share", 1.0)
    return min(0.97, instructions + accesses * max(waits, memory))


def _spills(launch: Launch) -> Hit | None:
    part = launch["spill_instructions"] / max(launch["instructions"], 1)
    if part < LOCAL:
        return None
    gain = capped(launch, amdahl(_local_weight(launch, part)), *_SECTORS, "issue")
    return Hit(f"{share(part)} of the instructions spill or reload registers", gain,
               ("spill_instructions", "instructions", "local_share", "registers"))  # fmt: skip


def _local(launch: Launch) -> Hit | None:
    spilled = launch.get("spill_instructions", 0.0)
    part = (launch["local_instructions"] - spilled) / max(launch["instructions"], 1)
    if part < LOCAL:
        return None
    # Finding an element's place is integer work that goes with the array.
    gain = capped(launch, amdahl(_local_weight(launch, part)), *_SECTORS, "issue", "int")
    return Hit(
        f"{share(part)} of the instructions access local memory: arrays indexed at run time, or "
        "spills",
        gain,
        ("local_instructions", "instructions", "local_share", "local_bytes"),
    )


_MEMORY = ("dram", "l2", "l1", "long_scoreboard", "lg_throttle", "drain")

RULES = (
    Rule(
        id="uncoalesced-access",
        title="Global accesses fetch sectors they do not use",
        meaning=(
            "L1TEX, L2 and DRAM move whole sectors of 32 bytes. A warp whose threads spread over "
            "more sectors than their data fills moves bytes that nobody asked for, at every level."
        ),
        advice=(
            "Let neighbouring threads access neighbouring addresses: transpose through shared "
            "memory, structure of arrays, 16-byte vector accesses per thread."
        ),
        check=_uncoalesced,
        fires=({"excess_sectors": 0.875, "dram_busy": 0.85, "l1_busy": 0.4, "sm_active": 0.95},),
        clear=({"excess_sectors": 0.0, "dram_busy": 0.85, "l1_busy": 0.4, "sm_active": 0.95},),
        explains=_MEMORY,
    ),
    Rule(
        id="shared-bank-conflicts",
        title="Shared-memory accesses conflict",
        meaning=(
            "Shared memory has 32 banks of 4 bytes. Accesses of one warp to different words of one "
            "bank take one wavefront each."
        ),
        advice=(
            "Pad rows by one access width, swizzle 16-byte chunks with the row, or use ldmatrix on "
            "a conflict-free layout."
        ),
        check=_conflicts,
        fires=({"excess_shared_wavefronts": 0.875, "shared_busy": 0.9, "sm_active": 0.95},),
        clear=({"excess_shared_wavefronts": 0.02, "shared_busy": 0.9, "sm_active": 0.95},),
        explains=("shared", "l1", "short_scoreboard", "mio_throttle", "barrier"),
    ),
    Rule(
        id="atomics-contention",
        title="Atomics queue",
        meaning=(
            "An L2 slice handles one atomic sector a cycle, and all atomics on one address go to "
            "one slice: the rest of the machine idles while every average reads a few per cent."
        ),
        advice=(
            "Reduce in registers and shared memory first, one atomic per warp or block; spread the "
            "counters and add them up at the end."
        ),
        check=_atomics,
        fires=(
            {
                "l2_atomic_sectors": 1e6,
                "l2_sectors": 1.1e6,
                "cycles": 1e6,
                "l2_busy": 0.02,
                "l2_atomics_busy": 0.01,
                "stall_selected": 0.01,
                "stall_lg_throttle": 0.9,
                "shared_atomics": 0,
                "instructions": 1e7,
            },
        ),
        clear=(
            {
                "l2_atomic_sectors": 1156,
                "l2_sectors": 9.5e6,
                "cycles": 2.7e5,
                "l2_busy": 0.14,
                "l2_atomics_busy": 0.0,
                "stall_selected": 0.2,
                "stall_long_scoreboard": 0.4,
                "shared_atomics": 0,
                "instructions": 7e7,
            },
        ),
        explains=("atomics", "shared", *_MEMORY, "short_scoreboard", "mio_throttle", "membar"),
    ),
    Rule(
        id="constant-divergence",
        title="Threads of a warp read different constants",
        meaning=(
            "The constant cache serves one address a cycle: a warp that reads 32 different words "
            "of constant memory takes 32 turns."
        ),
        advice=(
            "Index constants uniformly over the warp; put tables that threads index differently "
            "into shared or global memory."
        ),
        check=full("constant", "Indexed constant cache", "constant_busy"),
        fires=({"constant_busy": 0.9, "sm_active": 0.95},),
        clear=({"constant_busy": 0.05, "sm_active": 0.95},),
        explains=("constant",),
    ),
    Rule(
        id="register-spills",
        title="The compiler spills registers",
        meaning=(
            "A kernel that needs more registers than it may have keeps the rest in local memory, "
            "which is global memory cached in L1."
        ),
        advice=(
            "Raise the register limit (launch bounds, -maxrregcount), shorten live ranges, split "
            "the kernel, or spill to shared memory."
        ),
        check=_spills,
        fires=(
            {
                "spill_instructions": 2e6,
                "instructions": 1e7,
                "local_share": 0.8,
                "stall_selected": 0.1,
                "stall_long_scoreboard": 0.6,
            },
        ),
        clear=(
            {
                "spill_instructions": 0,
                "instructions": 1e7,
                "local_share": 0.0,
                "stall_selected": 0.1,
                "stall_long_scoreboard": 0.6,
            },
        ),
        explains=_MEMORY,
    ),
    Rule(
        id="local-memory",
        title="Arrays live in local memory",
        meaning=(
            "An array indexed at run time cannot live in registers. Each thread's copy goes to "
            "local memory: global memory cached in L1."
        ),
        advice=(
            "Index with compile-time constants (unrolled loops), or keep the array in shared "
            "memory."
        ),
        check=_local,
        fires=(
            {
                "local_instructions": 2e6,
                "instructions": 1e7,
                "local_share": 0.9,
                "stall_selected": 0.1,
                "stall_long_scoreboard": 0.6,
                "spill_instructions": 0,
            },
        ),
        clear=(
            {
                "local_instructions": 0,
                "instructions": 1e7,
                "local_share": 0.0,
                "stall_selected": 0.1,
                "stall_long_scoreboard": 0.6,
                "spill_instructions": 0,
            },
        ),
        explains=_MEMORY,
    ),
)
