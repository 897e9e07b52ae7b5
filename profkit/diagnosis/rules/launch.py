"""How it was built and launched: is the machine idle because of the launch's shape?

What fixing brings is the share of the elapsed time in which SMs had no work, given back.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from profkit.diagnosis.rule import Hit, LaunchRule, Measure, launch
from profkit.model.launch import (
    ENDS,
    ENDS_MOST,
    Idleness,
    NotCollected,
    StrictLaunch,
    Threshold,
    measure_idleness,
)
from profkit.model.resources import (
    ENTRY,
    EVERY,
    LINKS,
    find_busiest_resource_but,
    list_resource_uses,
)
from profkit.model.scenario import (
    EMPTY_LAUNCH,
    Fix,
    Scenario,
    make_scenario_of_more_blocks,
)
from profkit.reports.figures import format_count_with_noun, format_seconds, format_share

if TYPE_CHECKING:
    from profkit.units import Clause, Factor, MetricName, Share


MOVES = Threshold(
    0.25,
    "Register moves among the instructions: 30 to 61 % in 26 launches of five authors' builds with -G "
    "(7.5, 8.6), 22 % at most in 366 optimised ones (7.0 to 12.0), tiny stores of a constant.",
)
GENERIC = Threshold(
    0.01,
    "Loads and stores that have to find out their address space: unoptimised code has hardly any "
    "others.",
)


def _check_debug_build(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("inst_mov", "inst_generic", "instructions")
    instructions = max(launch["instructions"], 1.0)
    moves = launch["inst_mov"] / instructions
    generic = launch["inst_generic"] / instructions
    if moves < MOVES or generic < GENERIC:
        return None
    return Hit(
        f"{format_share(moves)} of the instructions move registers and {format_share(generic)} are "
        "generic "
        "loads and stores: the code was not optimised"
    )


SCHEDULERS = 4  # per SM, since Volta
FILLED = Threshold(
    0.75, "share of the SMs (or schedulers) with work below which every place is counted"
)
HIDES_LITTLE = Threshold(
    2,
    "warps per scheduler, of 8 to 16 that fit: while one waits there is at most one other to run",
)
IDLE_SCHEDULER = Threshold(
    0.25, "share of cycles without an eligible warp from which latency shows"
)
LINE = Threshold(1.1, "gain from which idle SMs are worth a line")
TAIL = Threshold(
    0.85, "share of the last wave's capacity: above it the tail costs less than the noise"
)
UNEQUAL = Threshold(
    0.95,
    "average SM over what waves of equal blocks leave it, below which blocks are unequal as well",
)
_LONGEST_FIRST = (
    "Launch the longest blocks first (causal attention: the last rows), or hand tiles out from an "
    "atomic counter to a persistent grid; then choose a tile size that fills the last wave."
)
HIDDEN = Threshold(1.05, "busiest SM over average SM among blocks that all began together")
ROUNDS = Threshold(
    0.5, "idlest over busiest SM: from here on they differ by a tile, not by a block's luck"
)
WAITED = Threshold(
    1 / 11, "share of the time without any SM at work: a gain of 1.1, from which it is worth a line"
)


def _check_small_grid(launch: StrictLaunch) -> Hit | None:
    blocks = launch["grid_size"]
    sms = launch["sm_count"]
    warps = ceil(launch["block_size"] / 32)
    fill = _compute_filled_sm_share(launch)
    enough = blocks >= sms and launch.get("waves", 0.0) >= 1
    if enough or fill >= 1 or _estimate_gain_of_filling_sms(launch, fill) < LINE:
        return None if enough else _check_few_warps(launch)
    idle = "SMs"
    if fill < blocks / sms:
        idle = "schedulers"
    part = f"{format_share(1 - fill)} of the {idle} have nothing to do"
    slots = launch.get("blocks_per_sm", 1.0)
    if slots <= 1:
        return Hit(
            f"{format_count_with_noun(blocks, 'block')} for {format_count_with_noun(sms, 'SM')}: {part}"
        )
    # SMs with work have room for more of it: this is what filling all places brings.
    room = slots * sms
    return Hit(
        f"{format_count_with_noun(blocks, 'block')} of {format_count_with_noun(warps, 'warp')}, but "
        f"{room:,.0f} would "
        "fit at once; "
        f"{part}, the rest have too few warps"
    )


def _check_few_warps(launch: StrictLaunch) -> Hit | None:
    if not _has_few_warps(launch):
        return None
    blocks = launch["grid_size"]
    room = launch["grid_size"] / launch["waves"]
    warps = launch["warps_per_scheduler"]
    idle = format_share(1 - launch["issue_busy_active"])
    noun = "warp" if f"{warps:.2g}" == "1" else "warps"
    return Hit(
        f"{format_count_with_noun(blocks, 'block')}, but {room:,.0f} would fit at once; each scheduler "
        "has "
        f"{warps:.2g} {noun} on average, and {idle} of the time none is ready"
    )


def _has_few_warps(launch: StrictLaunch) -> bool:
    """Return whether every scheduler has a warp or two, which wait, and there is room for more blocks.

    One warp hides no latency; what keeps others away is neither registers nor shared memory but that
    there are no more blocks.
    """
    if not launch.has_collected("waves", "issue_busy_active", "warps_per_scheduler"):
        return False
    if not 0 < launch["waves"] < FILLED or launch["warps_per_scheduler"] >= HIDES_LITTLE:
        return False
    idle = 1 - launch["issue_busy_active"]
    return idle >= IDLE_SCHEDULER and not any(use.near for use in list_resource_uses(launch))


def _compute_filled_sm_share(launch: StrictLaunch) -> float:
    """Share of the SMs with a block; where its warps are too few for them, of the schedulers."""
    fill = launch["grid_size"] / launch["sm_count"]
    warps = ceil(launch["block_size"] / 32)
    # Every SM may have a block; a scheduler without a warp is idle all the same.
    if fill * warps / SCHEDULERS < min(fill, 1):
        return fill * warps / SCHEDULERS
    return fill


def _estimate_gain_of_filling_sms(launch: StrictLaunch, filled_share: float) -> Factor:
    """Return what SMs and schedulers without work cost, next to what binds when all have some."""
    # Beginning and end of the launch stay, however many blocks there are.
    ends = 0.0
    if launch.get("time", 0) > 0:
        ends = min(
            1.0, max(measure_idleness(launch).share_without_any_work, EMPTY_LAUNCH / launch["time"])
        )
    after = find_busiest_resource_but(launch)
    full = 1 / after.room if after else 0.0
    # More blocks could fill every place, where they are few; else just those that idle.
    if filled_share < FILLED:
        filled = min(filled_share, launch.get("waves", filled_share))
    else:
        filled = filled_share
    return 1 / min(1.0, ends + max((1 - ends) * filled, full))


def _say_average_and_busiest_sm_work(idle: Idleness) -> Clause:
    """Return average against busiest SM in words; what is assumed is said to be."""
    if idle.assumed:
        return (
            f"the average SM is busy {format_share(idle.average)} of the time (the busiest was not "
            "counted)"
        )
    return (
        f"the average SM is busy {format_share(idle.average)} of the time, the busiest "
        f"{format_share(idle.busiest)}"
    )


def _check_tail(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("waves", "sm_active")
    waves = launch["waves"]
    idle = measure_idleness(launch)
    if waves <= 1 or waves / ceil(waves) >= TAIL or idle.average <= 0:
        return None
    last = waves - ceil(waves) + 1
    text = f"{waves:.4g} waves, the last of which fills {format_share(last)} of the GPU; "
    text += _say_average_and_busiest_sm_work(idle)
    equal = waves / ceil(waves) * idle.busiest
    if idle.average < UNEQUAL * equal:
        text += (
            f"; equal blocks would give {format_share(equal)}, so blocks also take different times"
        )
        return Hit(text, advice=_LONGEST_FIRST)
    return Hit(text)


def _find_uneven_idleness(launch: StrictLaunch, least_ratio: float) -> Idleness | None:
    """Return how idle the SMs are if they finish at times farther apart than launches begin and end."""
    launch.require_collected("sm_active")
    idle = measure_idleness(launch)
    if idle.average <= 0 or idle.busiest / idle.average < least_ratio:
        return None
    if idle.spread * launch.get("time", inf) >= ENDS:
        return idle
    return None


def _check_hidden_tail(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("waves", "grid_size", "sm_count", "sm_active_max")
    blocks = launch["grid_size"]
    sms = launch["sm_count"]
    idle = _find_uneven_idleness(launch, HIDDEN)
    if idle is None or launch["waves"] > 1 or blocks < sms:
        return None
    idlest = launch.get("sm_active_min", idle.average)
    if idlest < ROUNDS * idle.busiest:
        return None  # one SM works much longer than the rest: a block, not a round of tiles
    if (each := blocks / sms) != int(each):
        return Hit(
            f"{each:.3g} blocks per SM: some SMs have {ceil(each)}, others {int(each)}, and "
            f"{_say_average_and_busiest_sm_work(idle)}",
            advice=(
                "Launch a multiple of the SM count as blocks: use another tile size, or a "
                "persistent grid that hands out tiles."
            ),
        )
    text = f"all blocks are on the SMs from the start, yet {_say_average_and_busiest_sm_work(idle)}"
    if idle.busiest > idlest:
        late = (idle.average - idlest) / (idle.busiest - idlest)
        text += f": a last round seems to run on {format_share(late)} of the SMs"
    return Hit(text)


def _check_imbalance(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("grid_size", "sm_count")
    idle = _find_uneven_idleness(launch, LINE)
    if idle is None or launch["grid_size"] < launch["sm_count"]:
        return None  # idle SMs for want of blocks are another rule's
    if "waves" in launch:
        counted = "sm_active_max" in launch
        if _TAIL.evaluate_launch(launch) or (counted and _check_hidden_tail(launch)):
            return None
    queued = launch.get("waves", 2.0) > 1
    how = "blocks take different times" + (" or land unevenly" if queued else "")
    return Hit(
        f"{_say_average_and_busiest_sm_work(idle)}: {how}", advice="" if queued else _ALL_AT_ONCE
    )


# Where all blocks begin together no order helps.
_ALL_AT_ONCE = (
    "Give blocks equal work, split the long ones, or hand out tiles from an atomic counter."
)


def _compute_time_share_without_work(launch: StrictLaunch) -> Share:
    """Share of the time in which no SM has work, as far as a launch's own ends explain it."""
    time = launch["time"]
    # Longer idle times are no launch's own: another process, or a clock that two passes saw apart.
    if time > 0:
        return min(measure_idleness(launch).share_without_any_work, 2 * ENDS_MOST / time)
    return 0.0


def _check_time_without_work(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("time")
    time = launch["time"]
    idle = measure_idleness(launch)
    part = _compute_time_share_without_work(launch)
    if part < WAITED:
        return None
    text = format_seconds(time)
    if idle.assumed:
        ends = (
            f"about {format_seconds(part * time)} of {text} goes to starting and ending the launch"
        )
        return Hit(f"{ends} (estimated from the average SM: the busiest one was not recorded)")
    text = f"even the busiest SM works for only {format_share(idle.busiest)} of {text}"
    # The rest of a longer idle time is not a launch's own, so nothing is said of it here.
    if part < idle.share_without_any_work:
        return Hit(
            f"{text}; starting and ending the launch explains at most {format_seconds(part * time)} of "
            "the rest"
        )
    return Hit(
        f"{text}; starting and ending the launch takes the remaining {format_seconds(part * time)}"
    )


# What fixing it brings.


def _compute_filled_share_of_places(launch: StrictLaunch) -> Share:
    """Return the share of the places that blocks fill: of the SMs, and of the warps on each."""
    fill = launch["grid_size"] / launch["sm_count"]
    return min(1.0, fill, launch.get("waves", fill))


def _balance_sms(launch: StrictLaunch) -> Scenario:
    """Return a launch with all SMs at work as long as the busiest is now."""
    idle = measure_idleness(launch)
    return Scenario(gone=1 - idle.average / idle.busiest)


def _fill_last_wave(launch: StrictLaunch) -> Scenario:
    full = Scenario(gone=1 - launch["waves"] / ceil(launch["waves"]))
    return min(full, _balance_sms(launch), key=lambda scenario: scenario.gone)


def _remove_launch_ends(launch: StrictLaunch) -> Scenario:
    if measure_idleness(launch).assumed:
        raise NotCollected("sm_active_max")
    units = dict.fromkeys((*EVERY, ENTRY, LINKS), 0.0)
    gone = min(_compute_time_share_without_work(launch), 0.95)
    return Scenario(units, gone=gone, without_ends=True)


_GIVEN_BACK = "Ceiling and expected: as if every SM worked as long as the busiest one does"
_EVEN = Fix("shape", _GIVEN_BACK, _balance_sms, _balance_sms)


def _make_example_launch(average: Share, idlest: Share, waves: float) -> dict[MetricName, float]:
    """Return a launch of 100 µs whose busiest of 132 SMs works 99 % of the time."""
    return launch(
        sm_active=average,
        sm_active_min=idlest,
        sm_active_max=0.99,
        grid_size=1056,
        sm_count=132,
        waves=waves,
        time=1e-4,
    )


def _compute_move_instruction_share(launch: StrictLaunch) -> Share:
    return launch["inst_mov"] / max(launch["instructions"], 1.0)


def _compute_filled_slot_share(launch: StrictLaunch) -> Share:
    """Share of the machine's places that the grid fills at once."""
    fill = _compute_filled_sm_share(launch)
    return min(1.0, fill, launch.get("waves", fill))


def _compute_share_left_empty_by_last_wave(launch: StrictLaunch) -> Share:
    """Share of the places of all waves that the last one leaves empty; 0 of a single wave."""
    waves = launch["waves"]
    if waves <= 1:
        return 0.0
    return 1 - waves / ceil(waves)


def _compute_imbalance_share(launch: StrictLaunch) -> Share:
    """Share of the busiest SM's time in which the average one has no work."""
    launch.require_collected("sm_active")
    idle = measure_idleness(launch)
    return 1 - idle.average / max(idle.busiest, 1e-9)


_UNEVEN = Measure(
    of=_compute_imbalance_share,
    what="less time at work on the average SM than on the busiest",
    border=1 - 1 / HIDDEN,
)

_TAIL = LaunchRule(
    id="tail-effect",
    title="A last wave that is mostly empty",
    meaning="Blocks run in waves of as many as fit. When the grid is a little more than a "
    "multiple of that, the last wave keeps a few SMs busy while the others wait for the end.",
    advice=(
        "Change the tile size so that the grid is just under a multiple of what the GPU holds, "
        "make more blocks fit (see the occupancy limiters), or loop over tiles in a persistent "
        "grid."
    ),
    triton=(
        "Use another BLOCK size, or a persistent kernel: as many programs as SMs, each looping "
        "over tiles."
    ),
    check=_check_tail,
    looks=("waves", "grid_size", "blocks_per_sm", "sm_active", "sm_active_max"),
    least=1 / TAIL,  # short blocks, or blocks that run faster when alone: the tail was no loss
    shape="tail",
    measures=(
        Measure(
            of=_compute_share_left_empty_by_last_wave,
            what="of the block slots in its waves are empty",
            border=1 - TAIL,
        ),
    ),
    fix=Fix("shape", _GIVEN_BACK, _fill_last_wave, _fill_last_wave),
    fires=(
        launch(waves=1.06, sm_active=0.55, grid_size=140, sm_count=132),
        launch(waves=2.1, sm_active=0.7, sm_active_max=0.99, time=1e-4),
    ),
    clear=(
        launch(waves=8.4, sm_active=0.96, grid_size=8870, sm_count=132),
        launch(waves=1.06, sm_active=0.93, sm_active_max=0.99, time=1e-4),
        launch(waves=2.1, sm_active=0.55, sm_active_max=0.6, time=1e-5),
    ),
    explains=("tail",),
)

RULES = (
    LaunchRule(
        id="debug-build",
        title="Compiled without optimisation",
        meaning=(
            "nvcc -G (--device-debug) turns the compiler's optimisation off: every variable is "
            "moved about, addresses remain generic, nothing is unrolled or fused. Counters of "
            "such a build say nothing about the real kernel."
        ),
        advice="Compile without -G (CMake: Release; -lineinfo keeps the source lines) and measure "
        "again before anything else: 10 to 200 times faster has been seen.",
        check=_check_debug_build,
        looks=("inst_mov", "inst_generic", "instructions", "local_instructions"),
        measures=(
            Measure(
                of=_compute_move_instruction_share,
                what="of the instructions are moves",
                border=MOVES,
            ),
        ),
        fires=(
            launch(inst_mov=4.4e6, inst_generic=2.3e5, instructions=1e7),
            launch(inst_mov=2.6e6, inst_generic=1.1e5, instructions=1e7),
        ),
        clear=(
            launch(inst_mov=4e5, inst_generic=0, instructions=1e7),
            launch(inst_mov=4.4e6, inst_generic=0, instructions=1e7),
            launch(inst_mov=5e4, inst_generic=3.4e6, instructions=1e7),
        ),
        leads=True,
    ),
    LaunchRule(
        id="grid-too-small",
        title="Fewer blocks than the GPU has slots for",
        meaning="A block runs on one SM. With fewer blocks than SMs, or fewer warps than "
        "schedulers, part of the machine has no work however fast each block is. One block each leaves "
        "a scheduler with a warp or two, and nothing to run while they wait.",
        advice="Split the work over more blocks: smaller tiles, split along another dimension "
        "(split-K, keys across blocks), several problems in one launch.",
        triton=(
            "Use smaller BLOCK sizes, or split the reduction over more programs (split-K, part of "
            "the row each) and add up with tl.atomic_add or a second kernel."
        ),
        check=_check_small_grid,
        looks=("grid_size", "sm_count", "block_size", "waves", "sm_active", "sm_active_max"),
        shape="grid_too_small",
        measures=(
            Measure(
                of=_compute_filled_slot_share,
                what="of the block slots filled",
                border=FILLED,
                less_is_worse=True,
            ),
        ),
        costs=lambda launch: _estimate_gain_of_filling_sms(
            launch, _compute_filled_sm_share(launch)
        ),
        fix=Fix(
            "shape",
            "Ceiling: every slot of the GPU is filled, except while the launch starts and ends, until "
            "the fullest unit reaches its peak. Expected: the same, and each block takes its time to "
            "start and end. Both assume more warps in total: the same threads in smaller blocks gain "
            "less, since no more of them wait at the same time",
            lambda launch: Scenario(places=1 / _compute_filled_share_of_places(launch)),
            lambda launch: make_scenario_of_more_blocks(
                launch, 1 / _compute_filled_share_of_places(launch)
            ),
        ),
        fires=(
            launch(grid_size=32, sm_count=132, block_size=384, waves=0.24, sm_active=0.2),
            launch(grid_size=108, sm_count=132, block_size=256, waves=0.16, sm_active=0.8),
            # One warp a block leaves three schedulers of four without any.
            launch(grid_size=132, sm_count=132, block_size=32, waves=0.03, sm_active=0.95),
            # One warp a scheduler, which waits, and room for four.
            launch(
                grid_size=128,
                sm_count=132,
                block_size=128,
                waves=0.24,
                sm_active=0.91,
                warps_per_scheduler=1.0,
                issue_busy_active=0.27,
            ),
        ),
        clear=(
            launch(grid_size=4096, sm_count=132, block_size=128, waves=3.9, sm_active=0.95),
            launch(grid_size=132, sm_count=132, block_size=128, waves=0.06, sm_active=0.95),
            # Every SM but four has a block, though each has room for six.
            launch(grid_size=128, sm_count=132, block_size=256, waves=0.16, sm_active=0.9),
            # One warp a scheduler keeps it busy.
            launch(
                grid_size=128,
                sm_count=132,
                block_size=128,
                waves=0.24,
                sm_active=0.91,
                warps_per_scheduler=1.0,
                issue_busy_active=0.85,
            ),
        ),
        explains=("grid_too_small",),
    ),
    _TAIL,
    LaunchRule(
        id="workload-imbalance",
        title="Some SMs work much longer than others",
        meaning="All SMs got blocks, but some finished long before the last one: the launch lasts "
        "as long as the busiest SM.",
        advice="Give blocks equal work, launch the longest first, split the long ones, or hand "
        "out tiles from an atomic counter.",
        triton=(
            "Give programs equal work: rows of about the same length in one program, the longest "
            "first in the order of tl.program_id, long ones split along one more axis of the "
            "grid, or a persistent kernel that loops over tiles."
        ),
        check=_check_imbalance,
        looks=("sm_active", "sm_active_max", "sm_active_min", "waves"),
        shape="imbalance",
        measures=(_UNEVEN,),
        fix=_EVEN,
        fires=(
            _make_example_launch(0.4, 0.3, waves=8.0),
            _make_example_launch(0.8, 0.7, waves=8.0),
            _make_example_launch(0.2, 0.15, waves=1.0),
            {"sm_active": 0.4, "grid_size": 1056, "sm_count": 132, "waves": 8.0, "time": 1e-4},
        ),
        clear=(
            _make_example_launch(0.93, 0.9, waves=8.0),
            _make_example_launch(0.8, 0.75, waves=1.0),
            {**_make_example_launch(0.4, 0.3, waves=8.0), "time": 2e-6},
            {**_make_example_launch(0.4, 0.3, waves=0.5), "grid_size": 66},
        ),
        explains=("imbalance",),
    ),
    LaunchRule(
        id="hidden-tail",
        title="A last round that only some SMs work in",
        meaning="The blocks all fit at once, so no wave is half empty; but they loop over tiles, "
        "or some SMs have one block more than others. In the last wave the SMs without a tile "
        "wait for the others.",
        advice="Choose tiles so that they are a multiple of the blocks, split those of the last "
        "round (split-K, stream-K), or hand out smaller ones from an atomic counter.",
        triton=(
            "Choose BLOCK sizes so that the tiles are a multiple of the programs, split those of "
            "the last round (SPLIT_K), or take smaller ones there."
        ),
        check=_check_hidden_tail,
        looks=("sm_active", "sm_active_max", "sm_active_min", "waves", "grid_size", "sm_count"),
        measures=(_UNEVEN,),
        fix=_EVEN,
        fires=(
            _make_example_launch(0.85, 0.79, waves=1.0),
            {**_make_example_launch(0.88, 0.82, waves=0.9), "grid_size": 704},
        ),
        clear=(
            _make_example_launch(0.95, 0.9, waves=1.0),
            _make_example_launch(0.85, 0.79, waves=2.0),
            _make_example_launch(0.2, 0.15, waves=1.0),
            {**_make_example_launch(0.85, 0.79, waves=1.0), "time": 4e-6},
            {**_make_example_launch(0.85, 0.79, waves=0.5), "grid_size": 66},
        ),
        explains=("imbalance", "tail"),
    ),
    LaunchRule(
        id="short-kernel",
        title="The launch costs more than the work",
        meaning=(
            "A launch takes 1 to 4 µs before the first and after the last instruction. A kernel "
            "of that length measures launch overhead, not the code."
        ),
        advice="Fuse it with its neighbours, give it more work per launch, or put the launches "
        "into a CUDA graph.",
        triton="Fuse it with its neighbours, give a program more rows, or put the launches into a "
        "CUDA graph, which spares Triton's launcher.",
        check=_check_time_without_work,
        looks=("time", "sm_active", "sm_active_max"),
        shape="too_short",
        measures=(
            Measure(
                of=_compute_time_share_without_work,
                what="of the time no SM has work",
                border=WAITED,
                of_time=True,
            ),
        ),
        fix=Fix(best=_remove_launch_ends),
        fires=(
            launch(time=2.1e-6, sm_active_max=0.3),
            launch(time=8e-6, sm_active_max=0.7),
            launch(time=4e-6, sm_active=0.4),
        ),
        clear=(
            launch(time=150e-6, sm_active_max=0.98),
            launch(time=8e-6, sm_active_max=0.95),
            launch(time=150e-6, sm_active=0.4),
        ),
        explains=("too_short",),
    ),
)
