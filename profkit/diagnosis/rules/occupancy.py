"""Few warps: what keeps an SM from having more of them? And the block: does its size waste lanes?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, sqrt
from operator import itemgetter
from typing import TYPE_CHECKING

from profkit.diagnosis.rule import Hit, LaunchRule, Measure, launch
from profkit.diagnosis.rules.memory import (
    describe_gain_of_leaving_out,
    make_fix_removing_redundant_work,
)
from profkit.diagnosis.rules.waits import sum_stall_shares
from profkit.model.launch import StrictLaunch, Threshold, compute_arithmetic_share
from profkit.model.resources import COMPUTE, compute_share_of_block_launch_rate, list_resource_uses
from profkit.model.scenario import (
    NOTHING,
    ONCHIP,
    PER_INSTRUCTION,
    Fix,
    Scenario,
    compute_amdahl_speedup,
)
from profkit.reports.figures import format_count_with_noun, format_seconds, format_share

if TYPE_CHECKING:
    from profkit.units import MetricName, Seconds, Share


CROWDED = Threshold(0.75, "theoretical occupancy above which more blocks hide little more")
HIDDEN = Threshold(0.25, "share of the warps' time in waits that other warps would hide")
IDLE_SCHEDULER = Threshold(
    0.25, "share of cycles without an eligible warp from which latency shows"
)
# Waits that other warps hide; throttles are queues, which more warps make longer.
HIDES = (
    "long_scoreboard",
    "short_scoreboard",
    "wait",
    "barrier",
    "imc_miss",
    "drain",
    "no_instruction",
    "branch_resolving",
)
_LIMITS = ("limit_registers", "limit_shared", "limit_warps", "limit_blocks")
# A block without shared memory is limited by the driver's 1 KB exactly where blocks are.
_EMPTY_BLOCKS = ("limit_shared", "limit_blocks")


def _compute_issuing_share(launch: StrictLaunch) -> Share:
    """Share of the SMs' active cycles in which a scheduler issued; basic sets have it of all cycles."""
    if "issue_busy_active" in launch:
        return launch["issue_busy_active"]
    launch.require_collected("issue_busy_active" if "issue_busy" not in launch else "sm_active")
    return min(1.0, launch["issue_busy"] / max(launch["sm_active"], 1e-9))


def _does_carveout_follow_other_limits(launch: StrictLaunch) -> bool:
    """Return whether an SM has shared memory for one more block in a larger carve-out.

    It chooses as much as the blocks need that the other limits allow: then the tie is its doing.
    """
    return "shared_block" in launch and "shared_step" not in launch


def _is_limit_following_another(
    other_limit: MetricName, metric: MetricName, launch: StrictLaunch
) -> bool:
    """Return whether another limit only follows this one."""
    return (other_limit, metric) == _EMPTY_BLOCKS or (
        other_limit == "limit_shared" and _does_carveout_follow_other_limits(launch)
    )


@dataclass(frozen=True)
class _OccupancyLimit:
    """A resource of an SM of which its blocks leave none for another one."""

    metric: str
    what: str
    step: str = ""  # the metric that says how much less of it makes room for one more block
    unit: str = ""  # of that step


def _make_occupancy_check(limit: _OccupancyLimit) -> Callable[[StrictLaunch], Hit | None]:
    def check_limit(launch: StrictLaunch) -> Hit | None:
        if _is_lowest_limit(limit, launch) and _would_more_warps_help(launch):
            return Hit(_say_few_warps(limit, launch))
        return None

    return check_limit


def _is_lowest_limit(limit: _OccupancyLimit, launch: StrictLaunch) -> bool:
    most = launch[limit.metric]
    others = []
    for metric in _LIMITS:
        if metric != limit.metric and not _is_limit_following_another(metric, limit.metric, launch):
            others.append(launch[metric])
    return most <= launch["blocks_per_sm"] and most < min(others)


def _say_few_warps(limit: _OccupancyLimit, launch: StrictLaunch) -> str:
    blocks = format_count_with_noun(launch["blocks_per_sm"], "block")
    occupancy = format_share(launch["occupancy_limit"])
    text = f"{blocks} per SM because of {limit.what}, {occupancy} occupancy"
    if limit.step in launch:
        text += f"; {launch[limit.step]:.0f} fewer {limit.unit} would allow one more"
    waiting = format_share(1 - _compute_issuing_share(launch))
    return f"{text}; schedulers have no ready warp {waiting} of the time"


def _would_more_warps_help(launch: StrictLaunch) -> bool:
    """Return whether warps are few, more blocks are there, and schedulers lack ready warps."""
    if launch["occupancy_limit"] >= CROWDED or launch["waves"] < 1:
        return False
    waiting = 1 - _compute_issuing_share(launch)
    if waiting < IDLE_SCHEDULER or any(u.near for u in list_resource_uses(launch)):
        return False
    # Others would wait in the same queue.
    return "stall_selected" not in launch or sum_stall_shares(launch, *HIDES) >= HIDDEN


def _add_warps(launch: StrictLaunch) -> Scenario:
    return Scenario(places=1 / launch["occupancy_limit"])


def _make_tiles_smaller(launch: StrictLaunch) -> Scenario:
    """Return as many warps as an SM holds, each with less of what a tile is kept in.

    A tile of n elements serves each value that it loads about sqrt(n) times: smaller ones load more.
    """
    places = 1 / launch["occupancy_limit"]
    return Scenario(dict.fromkeys(ONCHIP, sqrt(places)), places=places)


def _make_blocks_larger_at_best(launch: StrictLaunch) -> Scenario:
    """Return larger blocks; where launching them is the limit, fewer need less of that too."""
    if _begins_blocks_at_highest_rate(launch):
        return _make_blocks_longer(launch)
    return _make_blocks_larger(launch)


def _make_blocks_larger(launch: StrictLaunch) -> Scenario:
    """Return more warps per SM, and full ones: the same threads in fewer instructions."""
    filled = count_threads_per_warp(launch) / WARP if "block_size" in launch else 1.0
    places = 1 / launch["occupancy_limit"] / filled
    return Scenario(dict.fromkeys(COMPUTE, filled), places=places)


_TRITON = {
    "occupancy-registers": (
        "Use more num_warps for the same block, a smaller BLOCK, fewer num_stages, or maxnreg."
    ),
    "occupancy-shared": (
        "Use fewer num_stages or a smaller BLOCK: a stage holds a tile of each operand."
    ),
    "occupancy-blocks": (
        "Use more num_warps, with several rows per program: even a program of one warp takes one "
        "of an SM's slots, of which there are 32 or fewer."
    ),
}
_SMALLER_TILES = Fix(
    "places",
    "Ceiling: as many warps as an SM holds, until the fullest unit reaches its peak. Expected: the "
    "same, with the additional loads from L1 and shared memory that smaller tiles need",
    _add_warps,
    _make_tiles_smaller,
)
_LARGER_BLOCKS = Fix(
    "places",
    "Ceiling and expected: as many warps as an SM holds, all of them full, until the fullest unit "
    "reaches its peak; where blocks begin as fast as the GPU begins any, the ceiling is without waits",
    _make_blocks_larger_at_best,
    _make_blocks_larger,
)


_SEEN = ("occupancy_limit", "occupancy", "issue_busy_active", "issue_busy")
_FEW = launch(
    blocks_per_sm=2,
    limit_registers=9,
    limit_shared=9,
    limit_warps=9,
    limit_blocks=9,
    occupancy_limit=0.125,
    waves=8,
    issue_busy_active=0.2,
    issue_busy=0.2,
)


def _make_occupancy_rule(
    name: str,
    limit: _OccupancyLimit,
    *,
    verb_of_cause: str = "leave",
    advice: str,
    fix: Fix = _SMALLER_TILES,
) -> LaunchRule:
    warps = Measure(
        of=itemgetter("occupancy_limit"),
        what="of an SM's warps fit",
        border=CROWDED,
        less_is_worse=True,
    )
    few = {**_FEW, limit.metric: 2}
    return LaunchRule(
        id=name,
        title=f"Few warps per SM because of {limit.what}",
        meaning="A scheduler hides the latency of one warp behind others. Here the block's "
        f"{limit.what} {verb_of_cause} so few warps per SM that often none is ready.",
        advice=advice,
        triton=_TRITON[name],
        check=_make_occupancy_check(limit),
        looks=(limit.metric, *_SEEN, limit.step or limit.metric),
        fires=(few,),
        clear=({**few, "occupancy_limit": 0.94},),
        explains=HIDES,
        measures=(warps,),
        lines=("stalls",),  # waiting that more warps, or more independent work, would hide
        fix=fix,
    )


WARP = 32
IDLE_LANES = Threshold(
    0.05, "share of the lanes without a thread below which it is noise (1,000 threads: 2.3 %)"
)
EMPTY = Threshold(
    0.7, "achieved over theoretical occupancy: ramp and drain of long blocks cost less"
)
SEVERAL = Threshold(2, "waves from which slots are refilled: below, the grid is too small")
_WAITS_IN_EACH_WARP = (
    "long_scoreboard",
    "short_scoreboard",
    "wait",
    "barrier",
    "branch_resolving",
)
BEGINNING = Threshold(
    0.9, "rate at which blocks begin over the GPU's highest, from which launching them is the limit"
)
# Of the blocks, when people give each more work: 1/128 to 1/4 in six changes of four repositories.
FEWER_BLOCKS = 0.25
SHORT_LIFE = Threshold(
    5e-6, "s: a block that lives no longer costs its own begin and end, 1 to 2 µs"
)


def count_threads_per_warp(launch: StrictLaunch) -> float:
    """Return threads per warp that the block's size allows, 32 for a multiple of 32."""
    size = launch["block_size"]
    return size / ceil(size / WARP)


def _compute_share_of_lanes_without_thread(launch: StrictLaunch) -> Share:
    return 1 - count_threads_per_warp(launch) / WARP


def _check_partial_warps(launch: StrictLaunch) -> Hit | None:
    size = launch["block_size"]
    lanes = WARP * ceil(size / WARP)
    idle = _compute_share_of_lanes_without_thread(launch)
    if idle < IDLE_LANES:
        return None
    warps = format_count_with_noun(lanes / WARP, "warp")
    return Hit(
        f"{size:.0f} threads per block take {warps} of {WARP} lanes: {format_share(idle)} of the lanes "
        "have "
        "no thread"
    )


def _estimate_block_seconds(launch: StrictLaunch) -> Seconds | None:
    """Return seconds that a block lives on average; None when not known."""
    needed = ("time", "sm_active", "sm_count", "grid_size", "block_size", "max_warps", "occupancy")
    if not launch.has_collected(*needed):
        return None
    warps = ceil(launch["block_size"] / WARP)
    resident = launch["occupancy"] * launch["max_warps"] / warps * launch["sm_count"]
    return launch["time"] * min(1.0, launch["sm_active"]) * resident / launch["grid_size"]


def _compute_achieved_share_of_occupancy(launch: StrictLaunch) -> Share:
    return launch["occupancy"] / max(launch["occupancy_limit"], 1e-9)


def _check_unused_block_slots(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("occupancy", "occupancy_limit", "waves")
    achieved = launch["occupancy"]
    limit = launch["occupancy_limit"]
    if launch["waves"] < SEVERAL or not 0 < achieved < EMPTY * limit:
        return None
    if any(u.near for u in list_resource_uses(launch)):
        return None
    life = _estimate_block_seconds(launch)
    text = f"occupancy is {format_share(achieved)}, where {format_share(limit)} would fit"
    if life is not None and life >= SHORT_LIFE:
        text += (
            f": blocks run for {format_seconds(life)}, and a slot stays taken until the last warp of "
            "its block ends"
        )
        return Hit(text, advice=_UNEVEN)
    lives = "" if life is None else f" of {format_seconds(life)}"
    text += f": lives{lives} are too short to fill places as fast as they empty"
    begun = compute_share_of_block_launch_rate(launch)
    if begun is not None and begun >= BEGINNING:
        text += (
            f"; blocks begin at {format_share(min(begun, 1.0))} of the rate at which this GPU begins "
            "any"
        )
    return Hit(text)


def _raise_occupancy_to_limit(launch: StrictLaunch) -> Scenario:
    places = launch["occupancy_limit"] / launch["occupancy"]
    if "stall_selected" in launch:  # more warps hide no other wait
        places = min(places, compute_amdahl_speedup(sum_stall_shares(launch, *HIDES)))
    return Scenario(places=places)


def _make_blocks_longer(launch: StrictLaunch) -> Scenario:
    """Beginning and end of the blocks, and what they compute for themselves, go with the blocks."""
    stays = compute_arithmetic_share(launch) if "instructions" in launch else 0.0
    units = dict.fromkeys((*PER_INSTRUCTION, *ONCHIP), stays)
    return replace(_raise_occupancy_to_limit(launch), units=units, waits=NOTHING)


def _begins_blocks_at_highest_rate(launch: StrictLaunch) -> bool:
    """Return whether blocks begin as fast as this GPU begins any: then launching them is the limit."""
    begun = compute_share_of_block_launch_rate(launch)
    return begun is not None and begun >= BEGINNING


def _expect_longer_blocks(launch: StrictLaunch) -> Scenario:
    """Return filled slots; where launching blocks is the limit, fewer of them are launched.

    Then neither the slots nor the waits of today say how fast the launch can be: its units do.
    """
    if _begins_blocks_at_highest_rate(launch):
        return replace(_make_blocks_longer(launch), keeps=FEWER_BLOCKS)
    return _raise_occupancy_to_limit(launch)


_UNEVEN = (
    "Give the warps of a block equal work; use smaller blocks, whose slots are free sooner; or "
    "loop over tiles in a persistent grid."
)

RULES = (
    _make_occupancy_rule(
        "occupancy-registers",
        _OccupancyLimit("limit_registers", "registers", "registers_step", "registers per thread"),
        advice=(
            "Use launch bounds or -maxrregcount to reach that step, or smaller tiles per thread; "
            "or give each warp more independent work."
        ),
    ),
    _make_occupancy_rule(
        "occupancy-shared",
        _OccupancyLimit(
            "limit_shared", "shared memory", "shared_step", "bytes of shared memory per block"
        ),
        verb_of_cause="leaves",
        advice=(
            "Use smaller tiles or fewer stages to reach that step, and reuse scratch space; or "
            "put more warps in the block."
        ),
    ),
    _make_occupancy_rule(
        "occupancy-blocks",
        _OccupancyLimit("limit_blocks", "small blocks"),
        advice="Use larger blocks: an SM holds 16 to 32 blocks however small they are.",
        fix=_LARGER_BLOCKS,
    ),
    LaunchRule(
        id="partial-warps",
        title="The block size is not a multiple of 32",
        meaning="Threads are issued in warps of 32 of one block. What is missing to a multiple of "
        "32 idles in every instruction of its last warp, and holds its registers all the same.",
        advice=(
            "Use a block size that is a multiple of 32, starting with 128 to 256; put several "
            "small problems in one block."
        ),
        check=_check_partial_warps,
        looks=("block_size", "threads_per_warp", "grid_size"),
        measures=(
            Measure(
                of=_compute_share_of_lanes_without_thread,
                what="of the lanes have no thread",
                border=IDLE_LANES,
            ),
        ),
        # Full warps do the same with fewer instructions, and ask for the same bytes.
        fix=make_fix_removing_redundant_work(
            lambda launch: WARP / count_threads_per_warp(launch),
            *COMPUTE,
            formula=describe_gain_of_leaving_out("the warps with empty lanes"),
        ),
        fires=(
            launch(block_size=10, dram_busy=0.1),
            launch(block_size=33, dram_busy=0.1),
            launch(block_size=1, dram_busy=0.53),
        ),
        clear=(
            launch(block_size=128, dram_busy=0.1),
            launch(block_size=32, dram_busy=0.1),
            launch(block_size=1000, dram_busy=0.1),
        ),
        explains=(*COMPUTE, *_WAITS_IN_EACH_WARP),
    ),
    LaunchRule(
        id="short-blocks",
        title="Unused block slots",
        meaning=(
            "More warps would fit on an SM than are there on average, though blocks are waiting: "
            "they end sooner than new ones are placed, or a few slow warps hold the slot of a "
            "whole block."
        ),
        advice=(
            "Give each block more work (a grid-stride loop, more elements per thread), so that it "
            "runs longer than it takes to start and end."
        ),
        triton=(
            "Process several rows per program: a two-dimensional block (BLOCK_ROWS x BLOCK), or a "
            "loop over rows with as many programs as fit at once."
        ),
        check=_check_unused_block_slots,
        looks=("occupancy", "occupancy_limit", "waves", "block_size", "sm_active"),
        measures=(
            Measure(
                of=_compute_achieved_share_of_occupancy,
                what="of the warps that would fit are there",
                border=EMPTY,
                less_is_worse=True,
            ),
        ),
        fix=Fix(
            "places",
            "Ceiling: the empty slots are filled, and only the floating-point instructions are left. "
            "Expected: the empty slots are filled; where blocks begin as fast as the GPU begins any, "
            f"{format_share(FEWER_BLOCKS)} of them are left, or what the units reach",
            _make_blocks_longer,
            _expect_longer_blocks,
        ),
        fires=(
            launch(occupancy=0.45, occupancy_limit=1.0, waves=400.0, issue_busy=0.3),
            launch(occupancy=0.2, occupancy_limit=0.5, waves=2.0, issue_busy=0.3),
        ),
        clear=(
            launch(occupancy=0.75, occupancy_limit=1.0, waves=400.0, issue_busy=0.3),
            launch(occupancy=0.45, occupancy_limit=0.5, waves=400.0, issue_busy=0.3),
            launch(occupancy=0.45, occupancy_limit=1.0, waves=1.5, issue_busy=0.3),
            launch(occupancy=0.45, occupancy_limit=1.0, waves=400.0, issue_busy=0.9),
        ),
        explains=HIDES,
    ),
)
