"""The memory system: which level is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.rule import Hit, LaunchRule, Measure, launch
from profkit.model.launch import NotCollected, StrictLaunch, Threshold, explain_why_cache_resident
from profkit.model.resources import (
    BY_LIMITER,
    ENTRY,
    LINKS,
    find_busiest_resource_but,
    list_resource_uses,
    measure_resource_use,
)
from profkit.model.scenario import (
    NOTHING,
    PER_INSTRUCTION,
    RELIEVED,
    RELIEVED_ONCHIP,
    USUAL_STREAM,
    Fix,
    Scenario,
    bound_speedup_by_units,
    compute_least_share_of_time,
)
from profkit.reports.figures import format_percent, format_share

if TYPE_CHECKING:
    from profkit.units import MetricName, Share, UnitName


REFETCHED = Threshold(1.3, "DRAM bytes over compulsory ones: below, padding and write-back order")
HIDDEN = 0.5  # exponent of a redundancy's gain in a launch that waits: three steps, 0.50 to 0.52
FEWER = 0.8  # of the instructions, when people cut those of a kernel that is full of them
LINES = ("sectors", "stalls memory")  # who asks for most of it
# What can go with a unit's work at best: fewer accesses need fewer instructions and addresses, and
# those that L2 no longer sees need not go through L1TEX either.
_GOES_WITH = {
    "shared": ("l1", *PER_INSTRUCTION),
    "l1": PER_INSTRUCTION,
    "l2": ("l1", ENTRY, *PER_INSTRUCTION),
}


def _make_unit_check(
    limiter: UnitName, unit_text: str, metric: MetricName
) -> Callable[[StrictLaunch], Hit | None]:
    """Return a check that fires when a unit is near its peak; unknown when the metric is missing."""
    computes = BY_LIMITER[limiter].group == "compute"
    # Fewer bytes through shared memory or L1TEX are fewer instructions that ask for them.
    own = {"shared": ("l1", "issue"), "l1": ("issue",)}.get(limiter, ())

    def check_unit(launch: StrictLaunch) -> Hit | None:
        found = measure_resource_use(BY_LIMITER[limiter], launch)
        if found is None or computes:
            launch.require_collected(metric)
        if found is None or not found.near:
            return None
        text = f"{unit_text} at {format_share(found.elapsed)} of {'' if computes else 'its '}peak"
        if metric not in launch:
            text += " by the device attributes"
        after = find_busiest_resource_but(launch, limiter, *own)
        if after is None or after.room == inf:
            return Hit(text)
        return Hit(f"{text}; {after.say_as_clause(found.elapsed)}")

    return check_unit


def make_fix_shrinking_work_of_full_unit(
    limiter: UnitName, share_of_work_left: Share, *other_relieved_units: UnitName
) -> Fix:
    """Return what fixing a full unit brings: its work shrinks, and its queue goes."""
    units = {
        limiter: share_of_work_left,
        **{u: FEWER if u == "issue" else share_of_work_left for u in other_relieved_units},
    }
    best = Scenario(
        dict.fromkeys((limiter, *other_relieved_units, *_GOES_WITH.get(limiter, ())), 0.0), NOTHING
    )
    waits = dict.fromkeys(BY_LIMITER[limiter].queue, 0.0)
    if limiter == "l1":
        waits["long_scoreboard"] = (
            1 + share_of_work_left
        ) / 2  # half of it is its latency when it is empty
    typical = Scenario(units, waits)
    return Fix(
        "throughput",
        f"Ceiling: as if {{unit}} had nothing to do, until the next unit reaches its peak. Expected: "
        f"{format_percent(share_of_work_left)} of its work is left, and no warp waits for it any more",
        lambda _: best,
        lambda _: typical,
    )


def _stream_at_usual_dram_rate(launch: StrictLaunch) -> Scenario:
    """Return the same bytes at the rate that DRAM usually reaches, or that of a fuller unit."""
    return Scenario(gone=1 - compute_least_share_of_time(launch, USUAL_STREAM))


# What is certain for a stream; that bytes are not needed is not.
SAME_BYTES = Fix(
    "throughput",
    "Ceiling: as if no byte went to DRAM, until the next unit reaches its peak. Expected: the same "
    "bytes at the rate that published streams reach; moving fewer takes proportionally less time",
    lambda _: Scenario(dict.fromkeys(("dram", "l2"), 0.0), NOTHING),
    _stream_at_usual_dram_rate,
)


def make_unit_rule(
    *,
    unit: str,
    limiter: UnitName,
    metric: MetricName,
    more_metrics: tuple[MetricName, ...] = (),
    **fields: Any,
) -> LaunchRule:
    """Return the rule of a unit near its peak: `metric` says how busy it is, others add to that."""
    resource = BY_LIMITER[limiter]
    load = Measure(of=resource.busy, what="of its peak", border=resource.peak.sure)
    usual = {
        "measures": (load,),
        "lines": (f"instructions {limiter}",),
        "fix": make_fix_shrinking_work_of_full_unit(limiter, RELIEVED),
        "fires": ({metric: 0.95, "sm_active": 0.98},),
        "clear": ({metric: 0.2, "sm_active": 0.98},),
    }
    told = {**usual, **fields}
    fix: Fix = told["fix"]
    told["fix"] = replace(fix, formula=fix.formula.format(unit=f"{unit[0].lower()}{unit[1:]}"))
    return LaunchRule(
        id=resource.rule,
        check=_make_unit_check(limiter, unit, metric),
        looks=(metric, *more_metrics),
        explains=(limiter,),
        **told,
    )


def describe_gain_of_leaving_out(redundant_work: str) -> str:
    """Return in words what leaving out redundant work brings at most, and is expected to."""
    return (
        f"Ceiling: time falls in proportion to {redundant_work}, until the next unit reaches its peak. "
        "Expected: "
        "the same if they fill a unit; if not, the square root of it, because other waits remain"
    )


def make_fix_removing_redundant_work(
    count_repetitions: Callable[[StrictLaunch], float],
    *relieved_units: UnitName,
    compute_time_share: Callable[[StrictLaunch], Share] | None = None,
    compute_needed_memory_share: Callable[[StrictLaunch], Share] = lambda _: 0.0,
    formula: str,
) -> Fix:
    """Return what leaving out redundant work brings, so many times less of it.

    `compute_time_share`: the share of the time that this work and waits for it hold; None: all of it.
    `compute_needed_memory_share`: the share of the memory levels' work that is not redundant.
    """
    behind = {"l2": LINKS, "l1": ENTRY}
    units = (*relieved_units, *(behind[unit] for unit in relieved_units if unit in behind))

    def make_best(launch: StrictLaunch) -> Scenario:
        stays = dict.fromkeys(units, 0.0)
        for unit in units:
            if unit in (*behind, *behind.values(), "dram"):
                stays[unit] = compute_needed_memory_share(launch)
        return Scenario(stays, gone=1 - 1 / count_repetitions(launch))

    def make_typical(launch: StrictLaunch) -> Scenario:
        """A launch that waits goes on waiting for what the redundant work had hidden."""
        scenario = make_best(launch)
        if compute_time_share is not None:
            scenario = replace(scenario, gone=scenario.gone * compute_time_share(launch))
        most = bound_speedup_by_units(launch, scenario)
        is_full = any(
            use.near and use.resource.limiter in units for use in list_resource_uses(launch)
        )
        if not is_full:
            most = most**HIDDEN
        return Scenario(gone=1 - 1 / most)

    return Fix("waste", formula, make_best, make_typical)


def _compute_dram_bytes_per_declared_byte(launch: StrictLaunch) -> float:
    declared = launch["declared_bytes"]
    if declared <= 0:
        raise NotCollected("declared_bytes")
    return launch["dram_bytes"] / declared


def _check_low_l2_hit_rate(launch: StrictLaunch) -> Hit | None:
    hit = launch["l2_hit"]
    again = _compute_dram_bytes_per_declared_byte(launch)
    launch.require_collected("dram_busy")
    found = measure_resource_use(BY_LIMITER["dram"], launch)
    if found is None or not found.near or again < REFETCHED:
        return None
    return Hit(f"L2 hits {format_share(hit)}; DRAM moves {again:.3g} times the compulsory bytes")


def _check_cache_resident(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("dram_bytes")
    if "declared_bytes" not in launch:
        launch.require_collected("l2_hit")
    why = explain_why_cache_resident(launch)
    if not why:
        return None
    return Hit(f"{why}: the DRAM intensity is not this launch's position")


RULES = (
    make_unit_rule(
        unit="DRAM",
        limiter="dram",
        metric="dram_busy",
        more_metrics=("dram_rate", "dram_bytes", "dram_read"),
        title="DRAM near its peak",
        meaning=(
            "The pins to device memory are busy most of the time, or the loads queue for them: "
            "more warps or more instructions in flight do not help."
        ),
        advice=(
            "Move fewer bytes: fuse kernels, keep tiles in shared memory "
            "or L2, use narrower types, remove excess sectors."
        ),
        triton=(
            "Move fewer bytes: fuse what reads the same rows, load and "
            "store in 16 bits, keep a row in the program instead of reading it twice."
        ),
        lines=LINES,
        fix=SAME_BYTES,
        own_work=True,
        fires=(launch(dram_busy=0.85, sm_active=0.95, l2_cache_busy=0.5),),
        clear=(launch(dram_busy=0.2, sm_active=0.95, l2_cache_busy=0.5),),
    ),
    make_unit_rule(
        unit="L2",
        limiter="l2",
        metric="l2_cache_busy",
        more_metrics=("l2_hit", "l2_bytes"),
        title="L2 near its peak",
        meaning="The L2 slices or the crossbar to the SMs are busy most of the time.",
        advice="Reuse data in shared memory and registers (larger tiles), share it within a "
        "cluster (from 9.0), coalesce accesses.",
        triton=(
            "Read each tile fewer times: larger BLOCK_M and BLOCK_N, programs that share tiles "
            "next to each other (GROUP_M), a row kept in the program instead of a second tl.load."
        ),
        lines=LINES,
        fix=make_fix_shrinking_work_of_full_unit("l2", RELIEVED, LINKS),
        fires=(launch(l2_cache_busy=0.9, sm_active=0.95),),
        clear=(launch(l2_cache_busy=0.3, sm_active=0.95),),
    ),
    make_unit_rule(
        unit="L1TEX",
        limiter="l1",
        metric="l1_busy",
        more_metrics=("lsu_in_busy", "lsu_data_busy", "l1_hit"),
        title="L1TEX near its peak",
        meaning="The stages of L1TEX that local and global accesses go through are busy most of "
        "the time.",
        advice=(
            "Use fewer, wider accesses: 16 bytes per thread, coalesced; keep reused values in "
            "registers."
        ),
        triton=(
            "Load once and wide: a BLOCK of 4 to 8 times 32 num_warps along the contiguous "
            "dimension, tl.multiple_of on strides, a row loaded once and broadcast (x[None, :]) "
            "instead of a load for each element that it is used for."
        ),
        lines=("l1-requests", "wavefronts"),
        fix=make_fix_shrinking_work_of_full_unit("l1", RELIEVED_ONCHIP, "shared", ENTRY, "issue"),
        fires=(launch(l1_busy=0.97, sm_active=0.98),),
        clear=(launch(l1_busy=0.3, sm_active=0.98),),
    ),
    make_unit_rule(
        unit="Shared memory",
        limiter="shared",
        metric="shared_busy",
        more_metrics=("shared_wavefronts",),
        title="Shared memory near its peak",
        meaning="Shared memory delivers one wavefront of 128 bytes per SM and cycle, and it does "
        "so most of the time.",
        advice="Keep fragments in registers, read 16 bytes per thread or with ldmatrix, let "
        "tensor cores read shared memory themselves (wgmma, 9.0).",
        triton=(
            "Use fewer num_warps for the same BLOCK (each then reads its operands fewer times), "
            "tl.dot operands in 16 bits, and no tl.trans, reduction or change of layout between "
            "two tl.dot."
        ),
        lines=("wavefronts", "stalls shared"),
        fix=make_fix_shrinking_work_of_full_unit("shared", RELIEVED_ONCHIP, "l1", ENTRY, "issue"),
    ),
    make_unit_rule(
        unit="Texture stages",
        limiter="texture",
        metric="texture_busy",
        title="Texture unit near its peak",
        meaning="The texture stages deliver a fixed number of samples per cycle, and they do so "
        "most of the time.",
        advice="Use plain loads where no filtering is needed; fetch wider texels.",
        fix=make_fix_shrinking_work_of_full_unit("texture", 0.1, "l1", "issue"),
        clear=(launch(texture_busy=0.0, sm_active=0.98),),
    ),
    LaunchRule(
        id="low-l2-hit",
        title="L2 misses while DRAM is near its peak",
        meaning="Data was evicted from L2 before it was used again, so DRAM delivers it twice.",
        advice="Order the blocks so that neighbours in time share data (rasterise tiles), shrink "
        "the working set, mark streams evict-first, keep what is reused with an access-policy "
        "window.",
        triton="Group the programs so that neighbours share tiles (GROUP_M), "
        'eviction_policy="evict_first" on what is read once, "evict_last" on what is reused.',
        check=_check_low_l2_hit_rate,
        looks=("l2_hit", "dram_bytes", "declared_bytes", "l2_size"),
        lines=LINES,
        measures=(
            Measure(
                of=_compute_dram_bytes_per_declared_byte,
                what="times the compulsory bytes",
                unit="ratio",
                border=REFETCHED,
            ),
        ),
        fix=make_fix_removing_redundant_work(
            _compute_dram_bytes_per_declared_byte,
            "dram",
            "l2",
            formula=describe_gain_of_leaving_out("the bytes read again"),
        ),
        less_work=True,
        fires=(
            launch(l2_hit=0.3, dram_busy=0.85, dram_bytes=3e9, declared_bytes=1e9, sm_active=0.95),
        ),
        clear=(
            launch(l2_hit=0.5, dram_busy=0.85, dram_bytes=1e9, declared_bytes=1e9, sm_active=0.95),
        ),
    ),
    LaunchRule(
        id="cache-resident",
        title="The data was in L2",
        meaning=(
            "DRAM moved far less than the launch used: the data was already in L2 or is used many "
            "times. Bandwidth and roofline position are L2's, not DRAM's."
        ),
        advice="Nothing to fix: read the L2 point of the roofline; to measure from DRAM, flush "
        "the caches (ncu --cache-control all).",
        note=True,
        check=_check_cache_resident,
        looks=("dram_bytes", "declared_bytes", "l2_hit", "threads"),
        fires=(launch(dram_bytes=1e7, declared_bytes=2e9),),
        clear=(launch(dram_bytes=2.1e9, declared_bytes=2e9),),
    ),
)
