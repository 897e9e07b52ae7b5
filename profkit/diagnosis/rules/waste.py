"""Accesses that cost more than they bring: sectors, bank conflicts, atomics, local memory."""

from __future__ import annotations

from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING

from profkit.diagnosis.rule import Hit, LaunchRule, Measure, launch
from profkit.diagnosis.rules.memory import (
    describe_gain_of_leaving_out,
    make_fix_removing_redundant_work,
    make_fix_shrinking_work_of_full_unit,
    make_unit_rule,
)
from profkit.diagnosis.rules.waits import make_usual_wider_scenario, sum_stall_shares
from profkit.model.launch import (
    HALF_WIDE,
    HOT_SLICE,
    LANE_BYTES,
    UNUSED,
    NotCollected,
    StrictLaunch,
    Threshold,
    compute_bytes_per_lane_load,
    compute_instructions_left_if_widest,
    compute_unit_shares_if_coalesced,
    has_narrow_neighbouring_accesses,
    has_noticeable_sector_waste,
    is_mostly_atomics,
    is_narrow_stream,
    is_split_by_branches,
    measure_sector_waste,
)
from profkit.model.resources import (
    BY_LIMITER,
    LINKS,
    QUEUED_LOAD_CYCLES,
    compute_cycles_waited_per_load,
    list_resource_uses,
    measure_resource_use,
    measure_unit_shares_of_peak,
)
from profkit.model.scenario import (
    MEMORY,
    MIO,
    NOTHING,
    ONCHIP,
    PER_INSTRUCTION,
    RELIEVED,
    Fix,
    Scenario,
    compute_amdahl_speedup,
)
from profkit.reports.figures import format_percent, format_share

if TYPE_CHECKING:
    from profkit.units import Factor, Share, UnitName


WASTE = Threshold(0.2, "share of wavefronts below which fewer conflicts gain less than the noise")
CYCLES = Threshold(4, "that an atomic takes on one word, at most")
EVEN = Threshold(0.5, "of L2's peak on average: then the other slices work too")
WAITING = Threshold(0.3, "share of the warps' time that a cause must have to be worth naming")
ATOMIC = Threshold(0.3, "share of L2's sectors that are atomics, from which they can be the cause")
SHARED_ATOMIC = Threshold(
    0.01, "share of the instructions: each takes tens of cycles when it contends"
)
SEES = Threshold(
    0.9, "of its load that a full level keeps without the waste: then the cache before it sees it"
)
USED_ONCE = Threshold(
    0.25,
    "global loads to a matrix instruction: a tile of 64 x 64 shared by four warps needs a tenth of that",
)
WIDER = Threshold(1.1, "gain from which wider accesses are worth a line")
TRIP = 600  # cycles to memory and back: a load takes no fewer, however few sectors it asks for
LINE = Threshold(1.05, "gain from which wasted accesses are worth a line")
SECTORS = ("dram", "l2", "l1")  # resources that wasted sectors fill


def _compute_unused_sector_share(launch: StrictLaunch) -> Share:
    return measure_sector_waste(launch)[0]


def _check_uncoalesced(launch: StrictLaunch) -> Hit | None:
    waste, text = measure_sector_waste(launch)
    if not has_noticeable_sector_waste(launch) or is_split_by_branches(launch):
        return None  # what two paths access apart is thread-divergence's
    near = [u for u in list_resource_uses(launch) if u.near and u.resource.limiter in SECTORS]
    if near:
        after = compute_unit_shares_if_coalesced(launch, waste)
        binds = max(near, key=lambda u: u.elapsed)
        if after.get(binds.resource.limiter, 0.0) > SEES * binds.elapsed:
            return None  # the level that binds does not see this waste: the cache before it does
    operands = _count_loads_per_matrix_instruction(launch)
    if operands >= USED_ONCE:
        text += (
            f"; each matrix instruction takes {operands:.2g} loads from global memory and hardly any "
            "from shared memory: warps do not share what they load"
        )
        return Hit(text, advice=_SHARE_TILES)
    return Hit(text)


def _count_loads_per_matrix_instruction(launch: StrictLaunch) -> float:
    """Return global loads to a matrix instruction; 0 where its operands come from shared memory."""
    if not launch.has_collected("inst_matrix", "inst_global_load", "inst_shared_load"):
        return 0.0
    if launch["inst_matrix"] <= 0 or launch["inst_shared_load"] > launch["inst_global_load"]:
        return 0.0
    return launch["inst_global_load"] / launch["inst_matrix"]


_SHARE_TILES = (
    "Keep a tile of each operand in shared memory, several warps to a block, and load fragments from "
    "there: each value is then loaded once for many products, along rows."
)


def _is_unit_near_peak(launch: StrictLaunch, *limiters: UnitName) -> bool:
    """Return whether one of these is near its peak: any wait may then be for it, however booked."""
    return any(use.near and use.resource.limiter in limiters for use in list_resource_uses(launch))


def compute_useful_share_by_level(launch: StrictLaunch) -> dict[UnitName, Share]:
    """Return the share of each memory level's work that stays when no sector is wasted."""
    waste, _ = measure_sector_waste(launch)
    now = measure_unit_shares_of_peak(launch)
    after = compute_unit_shares_if_coalesced(launch, waste)
    stays = {}
    for u in after:
        if now.get(u, 0.0) > 0:
            stays[u] = min(1.0, after[u] / now[u])
    if "l2" in stays:
        stays[LINKS] = stays["l2"]
    return stays


def make_best_coalesced_scenario(launch: StrictLaunch) -> Scenario:
    """No sector is wasted, and where a level is near its peak nobody waits any more."""
    gone = dict.fromkeys((*MEMORY, "not_selected", "barrier"), 0.0)
    waits = NOTHING if _is_unit_near_peak(launch, "dram", "l2", "l1") else gone
    units = compute_useful_share_by_level(launch)
    # A level that looks up lines, or fetches by pairs, has less left than the useful sectors.
    keeps = min(1 - _compute_unused_sector_share(launch), *units.values(), 1.0)
    return Scenario(units, waits, keeps=keeps)


def _compute_memory_trip_share_of_wait(launch: StrictLaunch) -> Share:
    """Share of the wait for a load that a trip to memory takes; at least, as far as counters say.

    A warp that makes a few loads in its life can have no more than these in flight at once.
    """
    if not launch.has_collected("inst_global_load", "grid_size", "block_size"):
        return 0.0
    warps = launch["grid_size"] * launch["block_size"] / 32
    with suppress(NotCollected):
        in_flight = max(1.0, launch["inst_global_load"] / warps)
        return min(1.0, TRIP / (compute_cycles_waited_per_load(launch) * in_flight))
    return 0.0


def make_usual_coalesced_scenario(launch: StrictLaunch) -> Scenario:
    """No sector is wasted, and loads wait for what is left of them, or for a trip to memory."""
    keep = 1 - measure_sector_waste(launch)[0]
    waits = {"short_scoreboard": (1 + keep) / 2}
    left = max(keep, _compute_memory_trip_share_of_wait(launch))
    if not is_mostly_atomics(launch):  # else what waits for memory waits for them
        # The queue of the LSU backs up only because each access takes so long.
        waits |= {"long_scoreboard": left, "drain": left, "lg_throttle": 0.0}
    return Scenario(compute_useful_share_by_level(launch), waits)


def _compute_excess_wavefront_share(launch: StrictLaunch) -> Share:
    if "excess_shared_wavefronts" in launch:
        return launch["excess_shared_wavefronts"]
    return max(launch["shared_ld_conflicts"], launch["shared_st_conflicts"])


def compute_bank_conflict_share(launch: StrictLaunch) -> Share:
    """Share of the shared-memory wavefronts that conflict-free accesses would not need."""
    return min(_compute_excess_wavefront_share(launch), 31 / 32)


def _check_bank_conflicts(launch: StrictLaunch) -> Hit | None:
    waste = _compute_excess_wavefront_share(launch)
    if waste < WASTE:
        return None
    return Hit(
        f"{format_share(waste)} of the shared-memory wavefronts are bank conflicts "
        f"({1 / (1 - compute_bank_conflict_share(launch)):.2g} wavefronts where 1 would do)"
    )


def _compute_work_left_without_conflicts(launch: StrictLaunch) -> dict[UnitName, Share]:
    # The entry takes a request however many wavefronts it becomes: it keeps its work.
    return dict.fromkeys(("shared", "l1"), 1 - compute_bank_conflict_share(launch))


def _make_best_conflict_free(launch: StrictLaunch) -> Scenario:
    gone = dict.fromkeys((*MIO, "lg_throttle", "barrier"), 0.0)
    waits = NOTHING if _is_unit_near_peak(launch, "shared", "l1") else gone
    return Scenario(
        _compute_work_left_without_conflicts(launch),
        waits,
        keeps=1 - compute_bank_conflict_share(launch),
    )


def _make_typical_conflict_free(launch: StrictLaunch) -> Scenario:
    return Scenario(
        _compute_work_left_without_conflicts(launch),
        dict.fromkeys(MIO, 1 - compute_bank_conflict_share(launch)),
    )


def _is_queueing_at_hot_addresses(launch: StrictLaunch, sectors_of_atomics: float) -> bool:
    """Return whether atomics queue for a few words, and fill one slice of L2 beyond the others.

    What else L2 does says nothing of a hot word: nvcc makes one atomic of a warp's 32, and the rest
    of L2 streams the input meanwhile. What a slice fills from DRAM is done beside its atomics.
    """
    if launch["l2_busy"] >= EVEN:
        return False
    if launch.has_collected("l2_busy_max", "cycles"):
        beyond = launch["l2_busy_max"] - launch.get("l2_cache_busy", launch["l2_busy"])
        return beyond >= HOT_SLICE and CYCLES * sectors_of_atomics / launch["cycles"] >= beyond
    # No busiest slice before 2024.1: one slice takes an atomic every one to four cycles.
    if sectors_of_atomics < ATOMIC * max(launch["l2_sectors"], 1):
        return False
    return 0.2 <= sectors_of_atomics / launch["cycles"] <= 1.5 and _is_waiting_for_memory(launch)


def _is_waiting_for_memory(launch: StrictLaunch) -> bool:
    """Return whether the warps wait for memory longer than for any memory that is not contended."""
    return (
        launch.get("stall_lg_throttle", 0.0) >= WAITING
        or compute_cycles_waited_per_load(launch) >= QUEUED_LOAD_CYCLES
    )


# What warps wait for that wait for an atomic, or behind one.
_BEHIND = ("long_scoreboard", "lg_throttle", "drain", "membar", "mio_throttle", "short_scoreboard")


def _check_atomics(launch: StrictLaunch) -> Hit | None:
    found = measure_resource_use(BY_LIMITER["atomics"], launch)
    link = measure_resource_use(BY_LIMITER["l2"], launch)
    if found is not None and found.near and (link is None or found.elapsed >= link.elapsed):
        return Hit(f"L2 atomic units at {format_share(found.elapsed)} of their peak")
    sectors = launch["l2_atomic_sectors"]
    if launch.list_metrics_with_prefix("stall_") and sum_stall_shares(launch, *_BEHIND) < WAITING:
        return None  # without warp states a hot slice alone must do
    if _is_queueing_at_hot_addresses(launch, sectors):
        return Hit(
            f"{sectors:.3g} atomic sectors at {sectors / launch['cycles']:.2f} a cycle while L2 is at "
            f"{format_share(launch['l2_busy'])}: they queue for a few addresses"
        )
    shared = launch["shared_atomics"]
    if (
        shared >= SHARED_ATOMIC * launch["instructions"]
        and sum_stall_shares(launch, "short_scoreboard", "mio_throttle", "lg_throttle") >= WAITING
    ):
        return Hit(
            f"{shared:.3g} shared-memory atomics, {format_share(shared / launch['instructions'])} of "
            "all "
            "instructions, and the warps wait for them"
        )
    return None


def _compute_shared_atomics_share(launch: StrictLaunch) -> Share:
    return launch["shared_atomics"] / max(launch["instructions"], 1.0)


_FEWER_ATOMICS = Scenario(
    dict.fromkeys(("atomics", "l2", LINKS, *ONCHIP), RELIEVED), dict.fromkeys((*MEMORY, *MIO), 0.0)
)


def _reduce_atomics(launch: StrictLaunch) -> Scenario | None:
    """A full L2 needs fewer atomics; no counter says what a hot address costs, there or on chip."""
    if _is_unit_near_peak(launch, "atomics", "l2", "dram"):
        return _FEWER_ATOMICS
    return None


EXPLAINS = ("dram", "l2", "l1", "long_scoreboard", "lg_throttle", "drain")


LOCAL = Threshold(0.02, "share of instructions on local memory below which it is a prologue")


def _estimate_gain_without_local_memory(
    launch: StrictLaunch, instruction_share_removed: Share
) -> Factor:
    """Return the gain without local-memory instructions, their issue and their waits."""
    waits = memory = sum_stall_shares(launch, "long_scoreboard", "lg_throttle", "drain")
    if launch.has_collected("l1_busy"):
        memory = 0.0
        for limiter in SECTORS:
            use = measure_resource_use(BY_LIMITER[limiter], launch)
            if use:
                memory = max(memory, use.share / use.resource.peak.sure)
        memory = min(1.0, memory)
    accesses = launch.get("local_share", 1.0)
    return compute_amdahl_speedup(
        min(0.97, instruction_share_removed + accesses * max(waits, memory))
    )


def _compute_nonlocal_sector_share(launch: StrictLaunch) -> Share:
    """Share of the sectors that a launch without local memory moves as well.

    None of them where they were not counted apart: then the bound is only higher.
    """
    return 1 - launch.get("local_share", 1.0)


def _compute_spill_share(launch: StrictLaunch) -> Share:
    return launch["spill_instructions"] / max(launch["instructions"], 1)


def _check_spills(launch: StrictLaunch) -> Hit | None:
    part = _compute_spill_share(launch)
    if part < LOCAL:
        return None
    launch.require_collected("stall_selected")
    return Hit(f"{format_share(part)} of the instructions spill or reload registers")


def _compute_indexed_local_access_share(launch: StrictLaunch) -> Share:
    spilled = launch.get("spill_instructions", 0.0)
    return (launch["local_instructions"] - spilled) / max(launch["instructions"], 1)


def _check_local_memory(launch: StrictLaunch) -> Hit | None:
    part = _compute_indexed_local_access_share(launch)
    if part < LOCAL:
        return None
    launch.require_collected("stall_selected")
    return Hit(
        f"{format_share(part)} of the instructions access local memory: arrays indexed at run time, or "
        "spills"
    )


def _check_narrow_accesses(launch: StrictLaunch) -> Hit | None:
    if not has_narrow_neighbouring_accesses(launch):
        return None
    asking = _is_unit_near_peak(launch, "issue", "l1")
    queueing = sum_stall_shares(launch, "lg_throttle") >= WAITING and is_narrow_stream(launch)
    if not asking and not queueing:
        return (
            None  # a wait for the loads' values is long-scoreboard's, which says how wide they are
        )
    wide = compute_bytes_per_lane_load(launch)
    return Hit(
        f"each lane loads {wide:.2g} bytes at once, of {LANE_BYTES} possible: wider accesses need "
        f"only {format_share(wide / LANE_BYTES)} of the loads for the same bytes"
    )


def _make_best_widened(launch: StrictLaunch) -> Scenario:
    stays = dict.fromkeys(PER_INSTRUCTION, compute_instructions_left_if_widest(launch))
    keeps = compute_bytes_per_lane_load(launch) / LANE_BYTES
    return Scenario(stays | dict.fromkeys(ONCHIP, 0.0), NOTHING, keeps=keeps)


RULES = (
    LaunchRule(
        id="uncoalesced-access",
        title="Global accesses fetch sectors they do not use",
        meaning="L1TEX, L2 and DRAM move whole sectors of 32 bytes. A warp whose threads spread "
        "over more sectors than their data fills moves bytes that nobody needs, at every "
        "level.",
        advice="Let neighbouring threads access neighbouring addresses: transpose through shared "
        "memory, structure of arrays, 16-byte vector accesses per thread.",
        triton=(
            "Put the fastest dimension of the pointers last in the block and make it contiguous "
            "(tl.arange times a stride of 1); load a tile with a tensor descriptor and tl.trans "
            "it instead of loading down a column."
        ),
        check=_check_uncoalesced,
        looks=(
            "excess_sectors",
            "global_load_sectors_per_request",
            "global_store_sectors_per_request",
            "l2_sectors_per_request",
            "dram_busy",
            "l2_cache_busy",
            "l1_busy",
        ),
        lines=("excess-sectors",),
        measures=(
            Measure(of=_compute_unused_sector_share, what="of the sectors unused", border=UNUSED),
        ),
        least=LINE,
        less_work=True,
        fix=Fix(
            "waste",
            "Ceiling: every level moves useful sectors only, so the level that saves most sets it. "
            "Expected: the same, and waits for memory shrink in proportion; if a warp makes only a few "
            "loads, each still takes a trip to memory",
            make_best_coalesced_scenario,
            make_usual_coalesced_scenario,
        ),
        fires=(launch(excess_sectors=0.875, dram_busy=0.85, l1_busy=0.4, sm_active=0.95),),
        clear=(launch(excess_sectors=0.0, dram_busy=0.85, l1_busy=0.4, sm_active=0.95),),
        explains=EXPLAINS,
    ),
    LaunchRule(
        id="narrow-accesses",
        title="Loads of less than 16 bytes per lane",
        meaning="One instruction loads up to 16 bytes for each lane. Narrower ones need more "
        "instructions, addresses and places in queues for the same bytes, and keep fewer bytes in "
        "flight.",
        advice=(
            "Load float4, int4 or eight halves at once: aligned to 16 bytes, several neighbouring "
            "elements per thread, the rest of a row separately."
        ),
        triton=(
            "Use more elements per thread along the contiguous dimension (BLOCK of 4 to 8 times "
            "32 num_warps), and strides that Triton knows to be multiples of 16: pass them as "
            "integers, or use tl.multiple_of and tl.max_contiguous."
        ),
        check=_check_narrow_accesses,
        looks=(
            "global_load_sectors_per_request",
            "excess_sectors",
            "inst_global_load",
            "instructions",
        ),
        lines=("l1-requests", "sectors"),
        measures=(
            Measure(
                of=compute_bytes_per_lane_load,
                what="that each lane loads at once",
                unit="byte",
                border=HALF_WIDE,
                less_is_worse=True,
            ),
        ),
        least=WIDER,
        fix=Fix(
            "wait",
            "Ceiling: the issue slots of the arithmetic, the fullest unit behind L1TEX, or 16 bytes "
            "over what a lane loads today. Expected: waits for loads and instructions that do not "
            "compute shrink in proportion to the loads",
            _make_best_widened,
            make_usual_wider_scenario,
        ),
        fires=(
            launch(
                global_load_sectors_per_request=4,
                excess_sectors=0.0,
                instructions=1e7,
                inst_fp32=1e6,
                inst_global_load=2e6,
                stall_lg_throttle=0.8,
                stall_selected=0.1,
                dram_busy=0.3,
                issue_busy=0.2,
                l1_busy=0.2,
                l1_hit=0.1,
                inst_shared_load=0,
                inst_shared_store=0,
                inst_shuffle=0,
                inst_barrier=0,
            ),
            launch(
                global_load_sectors_per_request=4,
                excess_sectors=0.0,
                instructions=1e7,
                inst_fp32=1e6,
                inst_global_load=2e6,
                stall_not_selected=0.6,
                stall_selected=0.2,
                dram_busy=0.3,
                issue_busy=0.9,
                l1_busy=0.2,
            ),
        ),
        clear=(
            launch(
                global_load_sectors_per_request=4,
                excess_sectors=0.0,
                instructions=1e7,
                inst_fp32=1e6,
                inst_global_load=2e5,
                inst_shared_load=2e6,
                stall_not_selected=0.6,
                stall_selected=0.2,
                dram_busy=0.3,
                issue_busy=0.9,
                l1_busy=0.2,
            ),
            launch(
                global_load_sectors_per_request=16,
                excess_sectors=0.0,
                instructions=1e7,
                inst_fp32=1e6,
                stall_long_scoreboard=0.8,
                stall_selected=0.1,
                dram_busy=0.3,
                issue_busy=0.2,
                l1_busy=0.2,
            ),
            launch(
                global_load_sectors_per_request=4,
                excess_sectors=0.0,
                instructions=1e7,
                inst_fp32=1e6,
                stall_long_scoreboard=0.8,
                stall_selected=0.1,
                dram_busy=0.93,
                issue_busy=0.2,
                l1_busy=0.2,
            ),
            launch(
                global_load_sectors_per_request=32,
                excess_sectors=0.87,
                instructions=1e7,
                inst_fp32=1e6,
                stall_long_scoreboard=0.8,
                stall_selected=0.1,
                dram_busy=0.3,
                issue_busy=0.2,
                l1_busy=0.2,
            ),
        ),
    ),
    LaunchRule(
        id="shared-bank-conflicts",
        title="Shared-memory accesses conflict",
        meaning="Shared memory has 32 banks of 4 bytes. Accesses of one warp to different words "
        "of one bank take one wavefront each.",
        advice="Pad rows by one access width, swizzle 16-byte chunks with the row, or use "
        "ldmatrix on a conflict-free layout.",
        triton="The compiler chooses the layout: another BLOCK or num_warps, tl.dot operands in "
        "16 bits, no tl.trans or reduction between two tl.dot.",
        check=_check_bank_conflicts,
        looks=(
            "excess_shared_wavefronts",
            "shared_ld_conflicts",
            "shared_st_conflicts",
            "shared_busy",
        ),
        lines=("excess-wavefronts",),
        measures=(
            Measure(
                of=_compute_excess_wavefront_share,
                what="of the wavefronts are conflicts",
                border=WASTE,
            ),
        ),
        least=LINE,
        fix=Fix(
            "waste",
            "Ceiling: as if every conflict wavefront and its waits vanished, up to the ratio of the "
            "wavefronts before and after. Expected: waits for shared memory and at barriers shrink in "
            "proportion to the wavefronts removed",
            _make_best_conflict_free,
            _make_typical_conflict_free,
        ),
        fires=(launch(excess_shared_wavefronts=0.875, shared_busy=0.9, sm_active=0.95),),
        clear=(launch(excess_shared_wavefronts=0.02, shared_busy=0.9, sm_active=0.95),),
        explains=("shared", "l1", "short_scoreboard", "mio_throttle", "barrier"),
    ),
    LaunchRule(
        id="atomics-contention",
        title="Contended atomics",
        meaning=(
            "An L2 slice handles one atomic sector per cycle, and all atomics on one address go "
            "to one slice: the rest of the machine idles while every average reads a few per cent."
        ),
        advice=(
            "Reduce in registers and shared memory first, with one atomic per warp or block; "
            "spread the counters and add them up at the end."
        ),
        triton=(
            'Use tl.sum in the program before tl.atomic_add; set sem="relaxed" where no order '
            "is needed (the default is acquire and release, with fences); keep partial sums in a "
            "buffer with one row per program, and add them up at the end."
        ),
        check=_check_atomics,
        looks=("l2_atomics_busy", "l2_busy_max", "l2_atomic_sectors", "shared_atomics", "cycles"),
        lines=("instructions atomics",),
        measures=(
            Measure(
                of=_compute_shared_atomics_share,
                what="of the instructions are shared-memory atomics",
                border=SHARED_ATOMIC,
            ),
            Measure(of=itemgetter("l2_atomic_sectors"), what="atomic sectors", unit="count"),
        ),
        fix=Fix(
            "atomics",
            f"No ceiling is known. Expected: {format_percent(RELIEVED)} of a full unit's work is left; "
            "if one address is hot, no counter tells what fewer atomics on it would gain",
            typical=_reduce_atomics,
        ),
        fires=(
            launch(
                l2_atomic_sectors=1e6,
                l2_sectors=1.1e6,
                cycles=1e6,
                l2_busy=0.02,
                l2_atomics_busy=0.01,
                stall_selected=0.01,
                stall_lg_throttle=0.9,
                shared_atomics=0,
                instructions=1e7,
            ),
        ),
        clear=(
            launch(
                l2_atomic_sectors=1156,
                l2_sectors=9.5e6,
                cycles=2.7e5,
                l2_busy=0.14,
                l2_atomics_busy=0.0,
                stall_selected=0.2,
                stall_long_scoreboard=0.4,
                shared_atomics=0,
                instructions=7e7,
            ),
        ),
        explains=("atomics", "shared", *EXPLAINS, "short_scoreboard", "mio_throttle", "membar"),
    ),
    make_unit_rule(
        unit="Indexed constant cache",
        limiter="constant",
        metric="constant_busy",
        title="Threads of a warp read different constants",
        meaning=(
            "The constant cache serves one address per cycle: a warp that reads 32 different "
            "words of constant memory takes 32 turns."
        ),
        advice="Index constants uniformly over the warp; put tables that threads index "
        "differently into shared or global memory.",
        fix=make_fix_shrinking_work_of_full_unit("constant", 1 / 32),
        fires=(launch(constant_busy=0.9, sm_active=0.95),),
        clear=(launch(constant_busy=0.05, sm_active=0.95),),
    ),
    LaunchRule(
        id="register-spills",
        title="The compiler spills registers",
        meaning="A kernel that needs more registers than it may have keeps the rest in local "
        "memory, which is global memory cached in L1.",
        advice="Raise the register limit (launch bounds, -maxrregcount), shorten live ranges, "
        "split the kernel, or spill to shared memory.",
        triton=(
            "Use more num_warps, a smaller BLOCK, fewer num_stages, or fewer values that are live "
            "at once."
        ),
        check=_check_spills,
        looks=("spill_instructions", "instructions", "local_share", "registers"),
        lines=("instructions local", "local-sectors"),
        measures=(Measure(of=_compute_spill_share, what="of the instructions", border=LOCAL),),
        fix=make_fix_removing_redundant_work(
            lambda launch: _estimate_gain_without_local_memory(
                launch, _compute_spill_share(launch)
            ),
            *SECTORS,
            "issue",
            formula=describe_gain_of_leaving_out("the spilled and reloaded registers"),
            compute_needed_memory_share=_compute_nonlocal_sector_share,
        ),
        less_work=True,
        fires=(
            launch(
                spill_instructions=2e6,
                instructions=1e7,
                local_share=0.8,
                stall_selected=0.1,
                stall_long_scoreboard=0.6,
            ),
        ),
        clear=(
            launch(
                spill_instructions=0,
                instructions=1e7,
                local_share=0.0,
                stall_selected=0.1,
                stall_long_scoreboard=0.6,
            ),
        ),
        explains=EXPLAINS,
    ),
    LaunchRule(
        id="local-memory",
        title="Arrays in local memory",
        meaning="An array indexed at run time cannot live in registers. Each thread's copy goes "
        "to local memory: global memory cached in L1.",
        advice="Index with compile-time constants (unrolled loops), or keep the array in shared "
        "memory.",
        triton=(
            "Use a smaller BLOCK or more num_warps: what a program holds and its registers do not "
            "goes to local memory."
        ),
        check=_check_local_memory,
        looks=("local_instructions", "instructions", "local_share", "local_bytes"),
        lines=("instructions local", "local-sectors"),
        measures=(
            Measure(
                of=_compute_indexed_local_access_share, what="of the instructions", border=LOCAL
            ),
        ),
        # Finding an element's place is integer work that goes with the array.
        fix=make_fix_removing_redundant_work(
            lambda launch: _estimate_gain_without_local_memory(
                launch, _compute_indexed_local_access_share(launch)
            ),
            *SECTORS,
            "issue",
            "int",
            formula=describe_gain_of_leaving_out("the accesses to local memory"),
            compute_needed_memory_share=_compute_nonlocal_sector_share,
        ),
        less_work=True,
        fires=(
            launch(
                local_instructions=2e6,
                instructions=1e7,
                local_share=0.9,
                stall_selected=0.1,
                stall_long_scoreboard=0.6,
                spill_instructions=0,
            ),
        ),
        clear=(
            launch(
                local_instructions=0,
                instructions=1e7,
                local_share=0.0,
                stall_selected=0.1,
                stall_long_scoreboard=0.6,
                spill_instructions=0,
            ),
        ),
        explains=EXPLAINS,
    ),
)
