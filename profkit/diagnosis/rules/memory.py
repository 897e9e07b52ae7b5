"""The memory system: which level is full.

A bandwidth rule's gain says what binds next: if this level were no limit, the launch could speed
up until the next busiest resource reaches its peak.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from profkit.diagnosis.rule import Hit, Rule
from profkit.diagnosis.rules.gains import capped
from profkit.model.launch import Launch
from profkit.model.resources import BY_LIMITER, next_limit, resource_use
from profkit.model.units import cache_resident
from profkit.reports.figures import share

REFETCHED = 1.3  # DRAM bytes over compulsory ones: below, padding and write-back order


def full(limiter: str, what: str, *looked: str) -> Callable[[Launch], Hit | None]:
    """A check that fires when a resource is near its peak; unknown when `looked[0]` is missing."""

    def check(launch: Launch) -> Hit | None:
        resource = BY_LIMITER[limiter]
        found = resource_use(resource, launch)
        if found is None:
            launch.need(looked[0])
        if found is None or not found.near:
            return None
        # Fewer bytes through shared memory or L1TEX are fewer instructions that ask for them.
        own = ("l1", "issue") if limiter == "shared" else ("issue",) if limiter == "l1" else ()
        after = next_limit(launch, limiter, *own)
        text = f"{what} at {share(found.elapsed)} of its peak"
        if looked[0] not in launch:
            text += " by the device attributes"
        if after is None or after.room == inf:
            return Hit(text, None, looked)
        return Hit(f"{text}; {after.told(found.elapsed)}", max(1.0, after.room), looked)

    return check


def _low_hit(launch: Launch) -> Hit | None:
    hit, again = launch["l2_hit"], launch["dram_bytes"] / launch["declared_bytes"]
    launch.need("dram_busy")
    found = resource_use(BY_LIMITER["dram"], launch)
    if found is None or not found.near or again < REFETCHED:
        return None
    return Hit(
        f"L2 hits {share(hit)}; DRAM moves {again:.3g} times the compulsory bytes",
        capped(launch, again, "dram", "l2"),
        ("l2_hit", "dram_bytes", "declared_bytes", "l2_size"),
    )


def _resident(launch: Launch) -> Hit | None:
    launch.need("dram_bytes")
    if "declared_bytes" not in launch:
        launch.need("l2_hit")
    why = cache_resident(launch)
    if not why:
        return None
    return Hit(
        f"{why}: the DRAM intensity is not this launch's position",
        None,
        ("dram_bytes", "declared_bytes", "l2_hit", "threads"),
    )


RULES = (
    Rule(
        id="dram-bandwidth",
        title="DRAM near its peak",
        meaning=(
            "The pins to device memory are busy most of the time, or the loads queue for them: "
            "more warps or more instructions in flight bring nothing."
        ),
        advice=(
            "Move fewer bytes: fuse kernels, keep tiles in shared memory or L2, use narrower "
            "types, remove excess sectors."
        ),
        check=full("dram", "DRAM", "dram_busy", "dram_rate", "dram_bytes", "dram_read"),
        fires=({"dram_busy": 0.85, "sm_active": 0.95, "l2_cache_busy": 0.5},),
        clear=({"dram_busy": 0.2, "sm_active": 0.95, "l2_cache_busy": 0.5},),
        explains=("dram",),
    ),
    Rule(
        id="l2-bandwidth",
        title="L2 near its peak",
        meaning="The L2 slices or the crossbar to the SMs are busy most of the time.",
        advice=(
            "Reuse data in shared memory and registers (larger tiles), share it within a cluster, "
            "coalesce accesses."
        ),
        check=full("l2", "L2", "l2_cache_busy", "l2_hit", "l2_bytes"),
        fires=({"l2_cache_busy": 0.9, "sm_active": 0.95},),
        clear=({"l2_cache_busy": 0.3, "sm_active": 0.95},),
        explains=("l2",),
    ),
    Rule(
        id="l1-bandwidth",
        title="L1TEX near its peak",
        meaning=(
            "The stages of L1TEX that local and global accesses go through are busy most of the "
            "time."
        ),
        advice=(
            "Fewer, wider accesses: 16 bytes per thread, coalesced; keep reused values in "
            "registers."
        ),
        check=full("l1", "L1TEX", "l1_busy", "lsu_in_busy", "lsu_data_busy", "l1_hit"),
        fires=({"l1_busy": 0.97, "sm_active": 0.98},),
        clear=({"l1_busy": 0.3, "sm_active": 0.98},),
        explains=("l1",),
    ),
    Rule(
        id="shared-bandwidth",
        title="Shared memory near its peak",
        meaning=(
            "Shared memory delivers one wavefront of 128 bytes per SM and cycle, and it does so "
            "most of the time."
        ),
        advice=(
            "Keep fragments in registers, read 16 bytes per thread or with ldmatrix, let tensor "
            "cores read shared memory themselves (wgmma)."
        ),
        check=full("shared", "Shared memory", "shared_busy", "shared_wavefronts"),
        fires=({"shared_busy": 0.95, "sm_active": 0.98},),
        clear=({"shared_busy": 0.2, "sm_active": 0.98},),
        explains=("shared",),
    ),
    Rule(
        id="texture-bandwidth",
        title="Texture unit near its peak",
        meaning=(
            "The texture stages deliver a fixed number of samples per cycle, and they do so most "
            "of the time."
        ),
        advice="Use plain loads where no filtering is needed; fetch wider texels.",
        check=full("texture", "Texture stages", "texture_busy"),
        fires=({"texture_busy": 0.95, "sm_active": 0.98},),
        clear=({"texture_busy": 0.0, "sm_active": 0.98},),
        explains=("texture",),
    ),
    Rule(
        id="low-l2-hit",
        title="L2 misses while DRAM is near its peak",
        meaning="Data that was in L2 went out before it was used again, so DRAM serves it twice.",
        advice=(
            "Order the blocks so that neighbours in time share data (rasterise tiles), shrink the "
            "working set, mark streams evict-first, keep what is reused with an access-policy "
            "window."
        ),
        check=_low_hit,
        fires=(
            {
                "l2_hit": 0.3,
                "dram_busy": 0.85,
                "dram_bytes": 3e9,
                "declared_bytes": 1e9,
                "sm_active": 0.95,
            },
        ),
        clear=(
            {
                "l2_hit": 0.5,
                "dram_busy": 0.85,
                "dram_bytes": 1e9,
                "declared_bytes": 1e9,
                "sm_active": 0.95,
            },
        ),
    ),
    Rule(
        id="cache-resident",
        title="The data was in L2",
        meaning=(
            "DRAM moved far less than the launch used: the data was in L2 from before or is used "
            "many times. Bandwidth and roofline position are L2's, not DRAM's."
        ),
        advice=(
            "Nothing to mend: read the L2 point of the roofline; to measure from DRAM, flush the "
            "caches (ncu --cache-control all)."
        ),
        note=True,
        check=_resident,
        fires=({"dram_bytes": 1e7, "declared_bytes": 2e9},),
        clear=({"dram_bytes": 2.1e9, "declared_bytes": 2e9},),
    ),
)
