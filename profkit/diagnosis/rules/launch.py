"""The launch's shape: is the machine idle because of how it was launched?

Every gain here is Amdahl's: the share of the elapsed time in which SMs had no work, given back.
"""

from __future__ import annotations

from math import ceil

from profkit.diagnosis.machine.resources import next_limit
from profkit.diagnosis.rule import Hit, Launch, Rule, count, share
from profkit.diagnosis.rules.gains import busiest, capped
from profkit.reports.figures import seconds

SCHEDULERS = 4  # per SM, since Volta
FILLED = 0.75  # share of the SMs (or schedulers) with work below which the grid is too small
TAIL = 0.85  # share of the last wave's capacity: above it the tail costs less than the noise
BALANCED = 1.2  # busiest SM over average SM: below it, ramp and ordinary scatter
SHORT = 10e-6  # s: beyond this a launch's 1 to 2 us of overhead is no longer the story
OVERHEAD = 0.5  # share of the time in which even the busiest SM was idle: launch and drain
EMPTY_LAUNCH = 1e-6  # s: no launch is faster (1.03 us measured on an H200 in a replayed graph)
NULL_KERNEL = 3e-6  # s: a launch without work takes 1.5 to 2.5 us under ncu


def _grid(launch: Launch) -> Hit | None:
    blocks, sms = launch["grid_size"], launch["sm_count"]
    warps = ceil(launch["block_size"] / 32)
    fill, what = blocks / sms, f"{count(blocks, 'block')} for {count(sms, 'SM')}"
    if fill >= FILLED:
        # Every SM has a block; a scheduler without a warp is idle all the same.
        if "waves" in launch and launch["waves"] >= 1:
            return None
        fill = blocks / sms * warps / SCHEDULERS
        what = f"{what}, {count(warps, 'warp')} each for {SCHEDULERS} schedulers"
        if fill >= FILLED:
            return None
        fill = min(fill, launch.get("waves", fill))  # more blocks could fill every place
    # Beginning and end of the launch stay, however many blocks there are.
    ends = 1 - busiest(launch)
    if "time" in launch:
        ends = min(1.0, max(ends, EMPTY_LAUNCH / launch["time"]))
    after = next_limit(launch)
    full = 1 / after.room if after else 0.0
    return Hit(
        f"{what}: {share(1 - fill)} of them have nothing to do",
        1 / min(1.0, ends + max((1 - ends) * fill, full)),
        ("grid_size", "sm_count", "block_size", "waves", "sm_active", "sm_active_max"),
    )


def _tail(launch: Launch) -> Hit | None:
    waves, active = launch["waves"], launch["sm_active"]
    if waves <= 1 or waves / ceil(waves) >= TAIL:
        return None
    measured = busiest(launch) / active
    gain = capped(launch, min(ceil(waves) / waves, measured))
    if gain < 1 / TAIL:
        return None  # short blocks, or blocks that run faster when alone: the tail was no loss
    last = waves - ceil(waves) + 1
    return Hit(
        f"{waves:.2f} waves: the last one fills {share(last)} of the machine, and the average SM "
        f"works {share(active)} of the time",
        gain,
        ("waves", "grid_size", "blocks_per_sm", "sm_active", "sm_active_max"),
    )


def _imbalance(launch: Launch) -> Hit | None:
    if launch["grid_size"] < FILLED * launch["sm_count"]:
        return None  # idle SMs for want of blocks are another rule's
    active = launch["sm_active"]
    if "sm_active_max" in launch:
        most = busiest(launch)
    elif launch["time"] > 2 * SHORT:
        most = 1.0  # no busiest SM before 2024.1: one that ran to the end is assumed
    else:
        return None
    if active <= 0 or most / active < BALANCED:
        return None
    if "waves" in launch and _tail(launch) is not None:
        return None
    return Hit(
        f"the busiest SM works {share(most)} of the time, the average one {share(active)}: "
        "blocks take different times or land unevenly",
        capped(launch, most / active),
        ("sm_active", "sm_active_max", "sm_active_min", "waves"),
    )


def _short(launch: Launch) -> Hit | None:
    time = launch["time"]
    if time > SHORT:
        return None
    most = busiest(launch)
    if time > NULL_KERNEL and most >= 1 - OVERHEAD:
        return None
    text = seconds(time)
    if "sm_active_max" in launch:
        text += f", and even the busiest SM works only {share(most)} of that"
    gain = 1 / most if 0.05 < most < 1 else None
    return Hit(f"{text}: the launch itself is the cost", gain, ("time", "sm_active_max"))


RULES = (
    Rule(
        id="grid-too-small",
        title="Fewer blocks than the machine has places",
        meaning=(
            "A block runs on one SM. With fewer blocks than SMs, or fewer warps than schedulers, "
            "part of the machine has no work however fast each block is."
        ),
        advice=(
            "Split the work over more blocks: smaller tiles, split along another dimension "
            "(split-K, keys across blocks), several problems in one launch."
        ),
        check=_grid,
        fires=(
            {"grid_size": 32, "sm_count": 132, "block_size": 384, "waves": 0.24, "sm_active": 0.2},
        ),
        clear=(
            {
                "grid_size": 4096,
                "sm_count": 132,
                "block_size": 128,
                "waves": 3.9,
                "sm_active": 0.95,
            },
        ),
        explains=("grid_too_small",),
    ),
    Rule(
        id="tail-effect",
        title="A last wave that is mostly empty",
        meaning=(
            "Blocks run in waves of as many as fit. When the grid is a little more than a multiple "
            "of that, the last wave keeps a few SMs busy while the others wait for the end."
        ),
        advice=(
            "Change the tile size so that the grid is just under a multiple of the machine, make "
            "more blocks fit (see the occupancy limiters), or loop over tiles in a persistent "
            "grid."
        ),
        check=_tail,
        fires=({"waves": 1.06, "sm_active": 0.55, "grid_size": 140, "sm_count": 132},),
        clear=({"waves": 8.4, "sm_active": 0.96, "grid_size": 8870, "sm_count": 132},),
        explains=("tail",),
    ),
    Rule(
        id="workload-imbalance",
        title="Some SMs work much longer than others",
        meaning=(
            "All SMs got blocks, but some finished long before the last one: the launch lasts as "
            "long as the busiest SM."
        ),
        advice=(
            "Give blocks equal work, launch the longest first, split the long ones, or hand out "
            "tiles from an atomic counter."
        ),
        check=_imbalance,
        fires=(
            {
                "sm_active": 0.4,
                "sm_active_max": 0.99,
                "grid_size": 1056,
                "sm_count": 132,
                "waves": 1.0,
            },
        ),
        clear=(
            {
                "sm_active": 0.9,
                "sm_active_max": 0.99,
                "grid_size": 1056,
                "sm_count": 132,
                "waves": 1.0,
            },
        ),
        explains=("imbalance",),
    ),
    Rule(
        id="short-kernel",
        title="The launch costs more than the work",
        meaning=(
            "A launch takes 1 to 2 µs before the first and after the last instruction. A kernel of "
            "that length measures the launch, not the code."
        ),
        advice=(
            "Fuse it with its neighbours, give it more work per launch, or put the launches into a "
            "CUDA graph."
        ),
        check=_short,
        fires=({"time": 2.1e-6, "sm_active_max": 0.3},),
        clear=({"time": 150e-6, "sm_active_max": 0.98},),
        explains=("too_short",),
    ),
)
