"""Warps that wait: for what?

A wait that a full unit causes (see the queues in resources.py) is that unit's finding, not one of
these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from profkit.diagnosis.rule import Hit, LaunchRule, Measure
from profkit.model.launch import (
    LANE_BYTES,
    NotCollected,
    StrictLaunch,
    Threshold,
    compute_bytes_per_lane_load,
    compute_instructions_left_if_widest,
    compute_tree_step_share,
    compute_working_lanes,
    estimate_instructions_left_if_wider,
    is_narrow_stream,
    is_reduction_tree,
)
from profkit.model.resources import (
    ENTRY,
    LINKS,
    ResourceUse,
    find_attainable_share,
    list_resource_uses,
)
from profkit.model.scenario import (
    FETCH,
    ISSUING,
    MATH,
    MEMORY,
    MIO,
    NOTHING,
    ONCHIP,
    PER_INSTRUCTION,
    RELIEVED,
    Fix,
    MakeScenario,
    Scenario,
)
from profkit.reports.figures import format_percent, format_share
from profkit.reports.metrics.warps import WAITS, WARP_STATE, Family

if TYPE_CHECKING:
    from profkit.units import MetricName, Share, ShareOrZero, StallState, UnitName


STALLED = Threshold(
    0.15, "share of the warps' time from which a stall is worth a line, or the leading one"
)
PER_PRODUCT = Threshold(
    2, "WARPGROUP instructions of one wgmma: an arrival before it, a wait behind it"
)
ROOM = Threshold(
    1.1,
    "speed-up left to a stream of the same bytes from which latency decides as well: below, the "
    "wait for DRAM is its queue",
)
LOADS_WAIT = 0.5  # of the wait for loads, when people keep more of them in flight: see decision 311
FEWER_TRIPS = 0.6  # of the accesses, when people no longer wait for each
_WGMMA = "the results of wgmma"
_BOOKED = f"{_WGMMA}, which ncu books as barrier"


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A kind of wait that warps are in, with its rule's words."""

    state: str  # Nsight Compute's word for it, the limiter
    rule: str
    family: Family
    meaning: str
    advice: str
    # The same where threads, barriers and shared memory are Triton's compiler's.
    triton: str = ""
    of_wgmma: bool = False  # for its results, which are booked as barrier


WAITS_OF_WARPS = (
    Wait(
        state="long_scoreboard",
        rule="long-scoreboard",
        family="loads",
        meaning="The next instruction needs a value that L1TEX has not delivered, and neither DRAM "
        "nor a cache is near its peak: it is latency, not bandwidth.",
        advice=(
            "Keep more loads in flight: unroll, prefetch into registers, or copy into shared memory "
            "several tiles ahead (cp.async from compute capability 8.0, TMA from 9.0); run more "
            "warps; shorten chains of dependent loads."
        ),
        triton=(
            "Keep more bytes in flight: use num_stages for the loads of a loop, several rows per "
            "program or a larger BLOCK, and more num_warps; load before work that does not need "
            "the data."
        ),
    ),
    Wait(
        state="short_scoreboard",
        rule="short-scoreboard",
        family="mio",
        meaning="The next instruction needs the result of a shared-memory access, a shuffle or a "
        "special function: 20 to 40 cycles each, in a chain.",
        advice=(
            "Put independent work between an access and its use, keep results in registers, and "
            "make fewer round trips through shared memory."
        ),
        triton=(
            "Reduce within a warp where possible (num_warps=1 for short rows, several rows per "
            "program), use one tl.reduce of a tuple instead of several, tl.dot operands that stay "
            "in registers."
        ),
    ),
    Wait(
        state="barrier",
        rule="barrier-wait",
        family="barrier",
        meaning="Warps that arrive early wait for the last one: unequal work, or too many barriers.",
        advice=(
            "Use fewer barriers (double buffering), named barriers or warp-level syncs where only "
            "some warps need them; give warps equal work; run more blocks per SM to fill the gap."
        ),
        triton=(
            "Use fewer num_warps for a short row, or several rows per program: a tl.sum over "
            "warps has barriers; num_stages so that tiles are loaded ahead."
        ),
    ),
    Wait(
        state="wait",
        rule="fixed-latency",
        family="chain",
        meaning="A dependent instruction waits the 4 to 6 cycles (matrix instructions: about 30) of "
        "the one before: the chain is serial and there are too few warps to fill it.",
        advice="Use independent accumulators (unroll and interleave chains), or more warps.",
        triton="Use more num_warps or more programs per SM, or independent rows in one program.",
    ),
    Wait(
        state="membar",
        rule="membar",
        family="stores",
        meaning="A fence waits until all earlier writes of the thread are visible.",
        advice=(
            "Use fewer or narrower fences (block scope), release/acquire operations instead of "
            "full fences, or one thread per block."
        ),
        triton='sem="relaxed" in tl.atomic_add and its like: the default acquires and releases, with'
        ' fences around; scope="cta" where only the program sees it.',
    ),
    Wait(
        state="sleeping",
        rule="sleeping",
        family="alone",
        meaning="The warps executed nanosleep and wait for it to end.",
        advice="Sleep less or not at all: wait on an mbarrier instead of polling.",
        triton=(
            "Poll less: let a later launch, or another order of the grid, take the place of "
            "waiting for other programs."
        ),
    ),
    Wait(
        state="no_instruction",
        rule="instruction-cache",
        family="fetch",
        meaning="The next instruction is not in the instruction cache: code too large for it, far "
        "jumps, or a cold start.",
        advice="Unroll less, split rarely used paths out, keep the hot loop under the instruction "
        "cache (about 128 KB at the SM's second level).",
        triton=(
            "Unroll less: tl.range in place of tl.static_range, a smaller BLOCK, fewer num_stages."
        ),
    ),
    Wait(
        state="imc_miss",
        rule="constant-miss",
        family="fetch",
        meaning="An instruction's constant operand (kernel parameters, literals) missed the constant "
        "cache; typical of the first instructions of short launches.",
        advice=(
            "Use fewer distinct constants, and keep parameters in registers; ignore it in a short "
            "launch."
        ),
    ),
    Wait(
        state="mio_throttle",
        rule="mio-throttle",
        family="mio",
        meaning="Shared-memory, shuffle and special-function instructions are issued faster than "
        "their queue empties, though no unit behind it is near its peak.",
        advice="Use fewer, wider shared-memory accesses, with arithmetic between them.",
        triton=(
            "Make fewer trips through shared memory: tl.dot operands in 16 bits, larger BLOCK_K, "
            "no tl.trans or change of layout in the loop."
        ),
    ),
    Wait(
        state="lg_throttle",
        rule="lg-throttle",
        family="loads",
        meaning="Loads and stores are issued in bursts longer than the LSU's queue.",
        advice="Use fewer, wider accesses; spread them; avoid local memory.",
        triton=(
            "Use wider loads: the contiguous dimension last, BLOCK of 4 to 8 times 32 num_warps, "
            "tl.multiple_of on strides; tensor descriptors."
        ),
    ),
    Wait(
        state="tex_throttle",
        rule="tex-throttle",
        family="stores",
        meaning="Texture (and, on small GPUs, FP64) instructions are issued faster than they are "
        "taken.",
        advice="Use fewer texture instructions, and plain loads where no filtering is needed.",
    ),
    Wait(
        state="math_pipe_throttle",
        rule="math-throttle",
        family="math",
        meaning="Warps are ready at the same time for the same pipe, though on average it is not "
        "full.",
        advice="Interleave work for other pipes; stagger the warps.",
        triton=(
            "Run more programs per SM (a smaller BLOCK, fewer registers), or put independent rows "
            "in one program."
        ),
    ),
    Wait(
        state="branch_resolving",
        rule="branch-resolving",
        family="fetch",
        meaning="Jumps whose target is being computed: short loop bodies, many branches.",
        advice="Unroll, use predication or selects.",
        triton=("Use tl.where in place of if, and tl.static_range for loops of a few turns."),
    ),
    Wait(
        state="dispatch_stall",
        rule="dispatch-stall",
        family="math",
        meaning="An instruction was chosen but its operands or the pipe conflicted (register banks, "
        "wgmma operands).",
        advice="Let the compiler reschedule (fewer operands per instruction, different unrolling).",
        triton=("Try other num_warps and BLOCK sizes: the compiler then chooses other registers."),
    ),
    Wait(
        state="drain",
        rule="store-drain",
        family="stores",
        meaning="Exiting warps wait until their stores have left the SM.",
        advice="Store earlier, coalesce the stores, or let blocks run longer.",
        triton=(
            "Store along the contiguous dimension, and take several rows per program, so that "
            "stores end while it goes on."
        ),
    ),
    Wait(
        state="gmma",
        rule="gmma-wait",
        family="alone",
        meaning="wgmma needs the registers of a whole warpgroup: warps wait for the others to arrive.",
        advice=(
            "Give the four warps equal work before the wgmma; use deeper asynchronous wgmma "
            "pipelines."
        ),
        triton=(
            "Try the other num_warps (4 or 8), so that each warpgroup has a whole part of the "
            "tile, and less work on an operand between tl.load and tl.dot."
        ),
    ),
    Wait(
        state="barrier",
        rule="wgmma-wait",
        family="alone",
        meaning="wgmma runs in parallel with the warps that start it, and WARPGROUP.DEPBAR waits "
        "until its results are there. Nsight Compute books that wait as barrier: no block "
        "barrier need be near.",
        advice=(
            "Keep more products in flight before the wait (wait for all but the last), use larger "
            "tiles per product, or add a second warpgroup that computes while the first waits."
        ),
        triton=(
            "Use more num_stages, larger BLOCK_M and BLOCK_N with num_warps=8, and work between "
            "two tl.dot that does not need the first."
        ),
        of_wgmma=True,
    ),
)
WAITING = tuple(wait.state for wait in WAITS_OF_WARPS if not wait.of_wgmma)


def list_stall_shares(launch: StrictLaunch) -> dict[StallState, Share]:
    """Share of the warps' time in each state of waiting, largest first; raises NotCollected."""
    launch.require_collected("stall_selected")
    found = {}
    for s in WAITING:
        if f"stall_{s}" in launch:
            found[s] = launch[f"stall_{s}"]
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def sum_stall_shares(launch: StrictLaunch, *states: StallState) -> ShareOrZero:
    """Share of the warps' time in these states; 0 for one that this architecture does not have."""
    launch.require_collected("stall_selected")
    return launch.sum_collected_metrics(f"stall_{state}" for state in states)


def is_waiting_for_wgmma(launch: StrictLaunch) -> bool:
    """Return whether the warps in state barrier wait for wgmma's results rather than for each other.

    9.0 books the wait for results (WARPGROUP.DEPBAR) as barrier. With an arrival and a wait to a
    product, twice as many WARPGROUP instructions as block barriers are as many waits as barriers.
    """
    waits = launch.get("inst_warpgroup", 0.0)
    return waits > 0 and waits >= PER_PRODUCT * launch.get("inst_barrier", 0.0)


def say_waiting(state: StallState, launch: StrictLaunch) -> str:
    """Say what a warp in this state waits for, in this launch."""
    if state == "barrier" and is_waiting_for_wgmma(launch):
        return _BOOKED
    return WAITS[state]


def _is_queue_of_full_unit(state: StallState, launch: StrictLaunch) -> bool:
    """Return whether this wait is the queue of a unit near its peak."""
    full = [u for u in list_resource_uses(launch) if u.near and state in u.resource.queue]
    return any(not _can_dram_stream_faster(u, launch) for u in full)


def _can_dram_stream_faster(use: ResourceUse, launch: StrictLaunch) -> bool:
    """Return whether DRAM could stream the same bytes faster: then latency decides as well.

    On chip a queue says that its unit is full; the way to DRAM is so long that few bytes in flight
    look like a queue while DRAM idles a fifth of the time.
    """
    limiter = use.resource.limiter
    return limiter == "dram" and find_attainable_share(limiter, launch) >= ROOM * use.elapsed


def _make_wait_check(state: StallState, *, wgmma: bool) -> Callable[[StrictLaunch], Hit | None]:
    """Return the question of one state; what decides in another's is in none of its functions."""
    what = _BOOKED if wgmma else WAITS[state]

    def check_wait(launch: StrictLaunch) -> Hit | None:
        found = list_stall_shares(launch)
        part = found.get(state, 0.0)
        leads = part > 0 and next(iter(found)) == state
        if (part < STALLED and not leads) or _is_queue_of_full_unit(state, launch):
            return None
        return Hit(f"warps spend {format_share(part)} of their time waiting for {what}")

    def check_barrier(launch: StrictLaunch) -> Hit | None:
        hit = check_wait(launch)
        if hit and is_waiting_for_wgmma(launch) == wgmma:
            return hit
        return None

    return check_barrier if state == "barrier" else check_wait


# What fixing a wait takes away.

# Family -> the states that at best go with one of it, and the units whose work goes too.
_FAMILIES: Mapping[Family, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "loads": ((*MEMORY, *ISSUING), ("l1", ENTRY)),
    "stores": ((*MEMORY, *ISSUING), ()),
    "mio": ((*MIO, *ISSUING), ONCHIP),
    "fetch": ((*FETCH, *ISSUING), ()),
    "math": ((*MATH, *ISSUING), ()),
    "chain": (ISSUING, ()),
    # A barrier exposes the latencies before it: without it no wait is certain to stay.
    "barrier": (tuple(NOTHING), ONCHIP),
    "alone": (tuple(NOTHING), ()),  # only the busy units are certain to stay
}
_QUEUES: Mapping[Family, tuple[str, ...]] = {
    "loads": ("lg_throttle",),
    "stores": ("lg_throttle",),
    "mio": MIO,
}


def compute_instruction_share(launch: StrictLaunch, *count_metrics: MetricName) -> Share:
    """Share of the executed instructions that are of these kinds."""
    instructions = max(launch.get("instructions", 0.0), 1.0)
    return min(1.0, launch.sum_collected_metrics(count_metrics) / instructions)


def _make_typical_builder(state: StallState, family: Family) -> MakeScenario:
    units = dict.fromkeys(ONCHIP, FEWER_TRIPS) if family == "mio" else {}
    instructions = WARP_STATE[state].instructions

    def make_typical(launch: StrictLaunch) -> Scenario:
        """Return what stays without the wait, its queue and its instructions' issue.

        What is behind it too.
        """
        rest = 1 - compute_instruction_share(launch, *instructions)
        waits = dict.fromkeys(ISSUING, rest) | dict.fromkeys(_QUEUES.get(family, ()), 0.0)
        waits[state] = 0.0
        if state in MATH:
            # Where it holds the scheduler or the pipe longer than the cycle of an issue, the warps that
            # are ready wait behind it.
            part = launch[f"stall_{state}"]
            waits["not_selected"] = launch["stall_selected"] / (part + launch["stall_selected"])
        if state == "branch_resolving":
            waits["no_instruction"] = 0.0  # the fetch of what it jumps to
        return Scenario(units, waits)

    return make_typical


def _compute_work_left_without_atomics(launch: StrictLaunch) -> dict[UnitName, Share]:
    """Return what stays of each unit's work when atomics go: of L2 and its links the other sectors."""
    if not launch.has_collected("l2_atomic_sectors", "l2_sectors"):
        return {}
    others = 1 - min(1.0, launch["l2_atomic_sectors"] / max(launch["l2_sectors"], 1.0))
    return {"atomics": 0.0, "l2": others, LINKS: others}


def _add_loads_in_flight(launch: StrictLaunch) -> Scenario:
    """Return more bytes in flight: of a narrow stream by wider loads, else with half of the wait."""
    with suppress(NotCollected):
        if is_narrow_stream(launch):
            return make_usual_wider_scenario(launch)
    plain = _make_typical_builder("long_scoreboard", "loads")(launch)
    return replace(plain, waits={**plain.waits, "long_scoreboard": LOADS_WAIT})


def make_usual_wider_scenario(launch: StrictLaunch) -> Scenario:
    """Fewer loads queue, with fewer instructions; of a stream fewer wait, each as long as before."""
    fewer = compute_bytes_per_lane_load(launch) / LANE_BYTES
    stays = estimate_instructions_left_if_wider(launch)
    waits = {**dict.fromkeys(ISSUING, stays), "lg_throttle": fewer}
    if is_narrow_stream(launch):
        waits["long_scoreboard"] = fewer
    return Scenario({ENTRY: fewer, **dict.fromkeys(PER_INSTRUCTION, stays)}, waits)


def _make_wait_fix(state: StallState, family: Family) -> Fix:
    states, units = _FAMILIES[family]
    waits = dict.fromkeys((state, *states), 0.0)

    def make_best(launch: StrictLaunch) -> Scenario:
        stays = dict.fromkeys(units, 0.0)
        if state == "membar":  # what a fence waits for are writes; atomics can be kept on chip
            stays |= _compute_work_left_without_atomics(launch)
        if family == "loads":  # wider ones need fewer instructions, and fewer around them
            with suppress(NotCollected):
                stays |= dict.fromkeys(PER_INSTRUCTION, compute_instructions_left_if_widest(launch))
        return Scenario(stays, waits)

    left = "Ceiling: no warp waits for anything, and the fullest unit works at its peak"
    if states != tuple(NOTHING):
        left = (
            "Ceiling: this wait disappears, and so do queueing, fixed-latency and issue waits of the "
            "same instructions; all other waits remain, and no unit exceeds its peak"
        )
    if state == "long_scoreboard":
        expected = (
            f"{format_percent(LOADS_WAIT)} of the wait remains. For lanes that stream with loads "
            "narrower than 16 bytes: the wait that 16-byte loads would have. The loads' queue and issue "
            "slots are freed too"
        )
        return Fix("wait", f"{left}. Expected: {expected}", make_best, _add_loads_in_flight)
    expected = "this wait ends"
    if states or units:
        expected += ", and the queue and issue slots of the instructions behind it are freed"
    expected += "; waits at barriers shrink in proportion"
    return Fix(
        "wait", f"{left}. Expected: {expected}", make_best, _make_typical_builder(state, family)
    )


def _make_wait_rule(wait: Wait) -> LaunchRule:
    """Return the rule of a wait, with a launch that is in the state and one that is not."""
    state = wait.state
    mine = f"stall_{state}"
    other = "stall_barrier" if state == "wait" else "stall_wait"
    fires = {mine: 0.6, other: 0.1, "stall_selected": 0.1, "issue_busy": 0.1}
    clear = {mine: 0.02, other: 0.5, "stall_selected": 0.3, "issue_busy": 0.3}
    looks: tuple[str, ...] = (mine, "warp_latency", "warps_per_scheduler", "issue_busy")
    if wait.of_wgmma:
        looks = (*looks, "inst_warpgroup", "inst_barrier")
        clear = {**fires, "inst_warpgroup": 2e3, "inst_barrier": 3e3}
        fires |= {"inst_warpgroup": 2e6, "inst_barrier": 500}
    return LaunchRule(
        id=wait.rule,
        title=f"Waiting for {_WGMMA if wait.of_wgmma else WAITS[state]}",
        meaning=wait.meaning,
        advice=wait.advice,
        triton=wait.triton,
        check=_make_wait_check(state, wgmma=wait.of_wgmma),
        looks=looks,
        fires=(fires,),
        clear=(clear,),
        explains=(state,),
        lines=(f"stall {state}",),
        measures=(
            Measure(of=itemgetter(mine), what="of the warps' time", border=STALLED, of_time=True),
        ),
        fix=_make_wait_fix(state, wait.family),
    )


# Loads: what waits for them, and how wide they are.

_WIDER = (
    "Use wider loads: float4, int4 or eight halves per lane, aligned to 16 bytes, several "
    "neighbouring elements per thread. "
)
_MORE_LOADS = next(wait.advice for wait in WAITS_OF_WARPS if wait.state == "long_scoreboard")
_for_loads = _make_wait_check("long_scoreboard", wgmma=False)


def _check_load_waits(launch: StrictLaunch) -> Hit | None:
    hit = _for_loads(launch)
    with suppress(NotCollected):
        if hit and is_narrow_stream(launch):
            bytes_each = (
                f"{compute_bytes_per_lane_load(launch):.2g} of the {LANE_BYTES} bytes it could load"
            )
            return replace(
                hit,
                cause=f"{hit.cause}; each lane loads {bytes_each} at once",
                advice=_WIDER + _MORE_LOADS,
            )
    return hit


# Trees: what waits at a barrier after every few instructions, and why.

TREE_ADVICE = (
    "Combine within a warp by shuffles (__shfl_down_sync, __reduce_add_sync) and between warps at "
    "one barrier; process several elements per thread before the first step; keep neighbouring "
    "threads active, so that whole warps finish early."
)
# A tree's steps are all that a warp does between barriers: what it waits for there is the tree's.
_TREE_EXPLAINS = ("barrier", "shared", "wait", *MIO, "long_scoreboard")
_at_barrier = _make_wait_check("barrier", wgmma=False)


def _check_barrier_waits(launch: StrictLaunch) -> Hit | None:
    waiting = _at_barrier(launch)
    if not is_reduction_tree(launch):
        return waiting
    each = launch["instructions"] / launch["inst_barrier"]
    waits = sum_stall_shares(launch, "barrier", *MIO)
    return Hit(
        f"a barrier after every {each:.2g} instructions of a warp, and "
        f"{compute_working_lanes(launch):.3g} of 32 lanes active: the steps of a tree in shared memory "
        f"take {format_share(compute_tree_step_share(launch))} of the instructions, and warps spend "
        f"{format_share(waits)} of their time waiting at its barriers and for shared memory",
        advice=TREE_ADVICE,
        explains=_TREE_EXPLAINS,
    )


def _compute_reduction_tree_share(launch: StrictLaunch) -> Share:
    if is_reduction_tree(launch):
        return compute_tree_step_share(launch)
    return 0.0


def _remove_reduction_tree(launch: StrictLaunch) -> Scenario:
    """No step is left of a tree, nor any wait: barriers expose the latencies before them."""
    units = dict.fromkeys(ONCHIP, 0.0)
    if is_reduction_tree(launch):
        units |= dict.fromkeys(PER_INSTRUCTION, 1 - compute_tree_step_share(launch))
    return Scenario(units, NOTHING)


def _replace_reduction_tree_by_shuffles(launch: StrictLaunch) -> Scenario:
    """Two steps of five are left of a tree; bank conflicts are another rule's."""
    if not is_reduction_tree(launch):
        return _make_typical_builder("barrier", "barrier")(launch)
    conflicts = launch.get("excess_shared_wavefronts", 0.0)
    accesses = conflicts + (1 - conflicts) * RELIEVED
    instructions = 1 - compute_tree_step_share(launch) * (1 - RELIEVED)
    units = dict.fromkeys(ONCHIP, accesses) | dict.fromkeys(PER_INSTRUCTION, instructions)
    waits = dict.fromkeys(ISSUING, instructions) | dict.fromkeys(MIO, accesses)
    return Scenario(units, waits | {"barrier": 0.0})


# A barrier every twelve instructions, and a third of the lanes predicated off.
_TREE = {
    "inst_barrier": 1e6,
    "inst_shared_load": 2e6,
    "inst_shared_store": 1e6,
    "instructions": 1.2e7,
    "threads_per_warp": 32.0,
    "threads_per_warp_predicated": 20.0,
    "stall_barrier": 0.12,
    "stall_short_scoreboard": 0.3,
    "stall_selected": 0.1,
}
_SEEN_OF_TREE = ("inst_barrier", "inst_shared_load", "instructions", "threads_per_warp_predicated")


def _make_barrier_fix() -> Fix:
    formula = (
        "Ceiling: only the busy units are left, without the instructions of a tree. Expected: the "
        f"wait goes; {format_percent(RELIEVED)} of a tree's steps are left, with their instructions "
        "and waits"
    )
    return Fix("wait", formula, _remove_reduction_tree, _replace_reduction_tree_by_shuffles)


def _make_barrier_rule(plain: LaunchRule) -> LaunchRule:
    """Return the rule of a barrier's wait, which tells the steps of a tree as one story."""
    all_lanes = {**_TREE, "threads_per_warp_predicated": 31.0}
    steps = Measure(
        of=_compute_reduction_tree_share, what="of the instructions are steps of a tree"
    )
    return replace(
        plain,
        check=_check_barrier_waits,
        looks=(*plain.looks, *_SEEN_OF_TREE),
        fires=(*plain.fires, _TREE),
        clear=(*plain.clear, all_lanes),
        measures=(*plain.measures, steps),
        fix=_make_barrier_fix(),
    )


def _iterate_wait_rules() -> Iterator[LaunchRule]:
    for wait in WAITS_OF_WARPS:
        rule = _make_wait_rule(wait)
        if rule.id == "barrier-wait":
            yield _make_barrier_rule(rule)
        elif rule.id == "long-scoreboard":
            looks = (*rule.looks, "global_load_sectors_per_request", "l1_hit")
            yield replace(rule, check=_check_load_waits, looks=looks)
        else:
            yield rule


RULES = tuple(_iterate_wait_rules())
