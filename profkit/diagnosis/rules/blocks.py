"""The block: does its size waste lanes, does it live long enough to fill its place?"""

from __future__ import annotations

from math import ceil

from profkit.diagnosis.rule import Hit, Rule, examples
from profkit.diagnosis.rules.memory import redundant
from profkit.diagnosis.rules.occupancy import HIDES
from profkit.diagnosis.rules.waits import stalled
from profkit.model.estimate import Fix, amdahl
from profkit.model.launch import Launch, Threshold
from profkit.model.resources import COMPUTE, uses
from profkit.model.scenario import Scenario
from profkit.reports.figures import seconds, share

WARP = 32
IDLE_LANES = Threshold(
    0.05, "share of the lanes without a thread below which it is noise (1,000 threads: 2.3 %)"
)
EMPTY = Threshold(
    0.7, "achieved over theoretical occupancy: ramp and drain of long blocks cost less"
)
SEVERAL = Threshold(2, "waves from which places are filled anew: below, the grid is what is small")
_STATES = "long_scoreboard short_scoreboard wait barrier branch_resolving".split()
SHORT_LIFE = Threshold(
    5e-6, "s: a block that lives no longer costs its own begin and end, 1 to 2 µs"
)


def full_warps(launch: Launch) -> float:
    """Threads per warp that the block's size allows, 32 for a multiple of 32."""
    size = launch["block_size"]
    return size / ceil(size / WARP)


def _partial(launch: Launch) -> Hit | None:
    size = launch["block_size"]
    lanes = WARP * ceil(size / WARP)
    idle = 1 - size / lanes
    if idle < IDLE_LANES:
        return None
    return Hit(
        f"{size:.0f} threads a block take {lanes / WARP:.0f} warps of {WARP}: {share(idle)} of the "
        "lanes never have a thread"
    )


def _life(launch: Launch) -> float | None:
    """Seconds that a block lives on average; None when not known."""
    needed = ("time", "sm_active", "sm_count", "grid_size", "block_size", "max_warps", "occupancy")
    if not launch.known(*needed):
        return None
    warps = ceil(launch["block_size"] / WARP)
    resident = launch["occupancy"] * launch["max_warps"] / warps * launch["sm_count"]
    return launch["time"] * min(1.0, launch["sm_active"]) * resident / launch["grid_size"]


def _short(launch: Launch) -> Hit | None:
    launch.need("occupancy", "occupancy_limit", "waves")
    achieved, limit = launch["occupancy"], launch["occupancy_limit"]
    if launch["waves"] < SEVERAL or not 0 < achieved < EMPTY * limit:
        return None
    if any(u.near for u in uses(launch)):
        return None
    life = _life(launch)
    text = f"occupancy is {share(achieved)}, where {share(limit)} would fit"
    if life is not None and life >= SHORT_LIFE:
        text += (
            f": blocks live {seconds(life)}, and a slot remains taken until their last warp ends"
        )
        return Hit(text, advice=_UNEVEN)
    lives = "" if life is None else f" of {seconds(life)}"
    text += f": lives{lives} are too short to fill places as fast as they empty"
    return Hit(text)


def _all_places(launch: Launch) -> Scenario:
    places = launch["occupancy_limit"] / launch["occupancy"]
    if "stall_selected" in launch:  # more warps hide no other wait
        places = min(places, amdahl(stalled(launch, *HIDES)))
    return Scenario(places=places)


_UNEVEN = (
    "Equal work for the warps of a block; smaller blocks, whose places are free sooner; a loop over "
    "tiles in a persistent grid."
)

RULES = (
    Rule(
        id="partial-warps",
        title="The block is no multiple of 32 threads",
        meaning="Threads are issued in warps of 32 of one block. What is missing to a multiple of "
        "32 idles in every instruction of its last warp, and holds its registers all the same.",
        advice="A block size that is a multiple of 32, 128 to 256 to begin with; several small "
        "problems in one block.",
        check=_partial,
        looks="block_size threads_per_warp grid_size",
        # Full warps do the same with fewer instructions, and ask for the same bytes.
        fix=redundant(lambda launch: WARP / full_warps(launch), *COMPUTE),
        fires=examples(
            "block_size=10 dram_busy=0.1",
            "block_size=33 dram_busy=0.1",
            "block_size=1 dram_busy=0.53",
        ),
        clear=examples(
            "block_size=128 dram_busy=0.1",
            "block_size=32 dram_busy=0.1",
            "block_size=1000 dram_busy=0.1",
        ),
        explains=(*COMPUTE, *_STATES),
    ),
    Rule(
        id="short-blocks",
        title="Slots for blocks remain empty",
        meaning="More warps would fit on an SM than are there on average, though blocks are "
        "waiting: they end sooner than new ones are placed, or a few slow warps hold the place of "
        "a whole block.",
        advice="More work per block (a grid-stride loop, more elements per thread), so that it "
        "lives longer than it takes to begin and end.",
        check=_short,
        looks="occupancy occupancy_limit waves block_size sm_active",
        fix=Fix("places", "bound and expected: the empty slots filled", _all_places, _all_places),
        fires=examples(
            "occupancy=0.45 occupancy_limit=1.0 waves=400.0 issue_busy=0.3",
            "occupancy=0.2 occupancy_limit=0.5 waves=2.0 issue_busy=0.3",
        ),
        clear=examples(
            "occupancy=0.75 occupancy_limit=1.0 waves=400.0 issue_busy=0.3",
            "occupancy=0.45 occupancy_limit=0.5 waves=400.0 issue_busy=0.3",
            "occupancy=0.45 occupancy_limit=1.0 waves=1.5 issue_busy=0.3",
            "occupancy=0.45 occupancy_limit=1.0 waves=400.0 issue_busy=0.9",
        ),
        explains=HIDES,
    ),
)
