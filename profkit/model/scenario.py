"""A launch and a scenario  ->  how many times faster: what to expect, and what cannot be passed.

A scenario is a hypothesis about the launch after the change, in shares of the launch before: 1 stays as
it is, 0 goes entirely. What is not named stays.

Time has two parts. Units need their work done: the fullest one after the scenario is a floor. Warps need
their latencies: what is left of the time between two of a warp's issues, over the warps at work at
once. How much of today's time is which is read from how full the fullest unit is: at its limit the
launch is all throughput, far from it all latency. In between the two add as powers, the way two
servers in turn do: smooth, and never below either.

Latency is a floor as well, however full a unit was. As many warps as today each wait for what a fix
leaves them, and by Little's law (throughput is the warps at work over the time that each takes) the
launch takes that share of today's time at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import exp, inf, log
from typing import TYPE_CHECKING, Literal

from profkit.judge import NOT_PRICED, Estimate
from profkit.model.launch import ENDS_MOST, NotCollected, StrictLaunch, measure_idleness
from profkit.model.resources import (
    ENTRY,
    REACH,
    compute_share_of_block_launch_rate,
    find_attainable_share,
    is_dram_access_scattered,
    measure_unit_shares_of_peak,
)
from profkit.reports.metrics.warps import STATES, list_states_of_families

if TYPE_CHECKING:
    from profkit.units import Factor, FactorOrInfinity, LogRatio, LowAndHigh, Share


@dataclass(frozen=True)
class Expectation:
    """What those who fixed a cause got, for this launch, as speed-up factors."""

    gain: float
    low: float  # four times of five it is to be at least this (one of ten is below),
    high: float  # and at most this; how often it was on code left out: COVERAGE below

    @property
    def is_wide(self) -> bool:
        """Return whether it says so little that a number in its middle would be no answer."""
        return self.high > WIDE * self.low


WIDE = 3.0  # the high end of an interval over its low end from which counters cannot tell
# Units whose work goes as the instructions around accesses and steps: addresses, operands of constants.
PER_INSTRUCTION = ("issue", "int", "constant")
ONCHIP = ("l1", "shared", ENTRY)  # what a load or store goes through inside the SM

# States that come and go together: the instructions of a family wait in one queue.
MEMORY = list_states_of_families("loads", "stores")
MIO = list_states_of_families("mio")
FETCH = list_states_of_families("fetch")
MATH = list_states_of_families("math")
ISSUING = list_states_of_families("working", "chain")  # what every instruction costs by itself
NOTHING = dict.fromkeys(STATES, 0.0)  # no state is certain to stay


# Work of a unit that is left when people relieve it: register tiles, wider accesses, one special
# function where several were. Median of the steps on record that did so.
RELIEVED = 0.4
# The same of L1TEX and shared memory, where tiles and wider accesses of other people left more.
RELIEVED_ONCHIP = 0.6
# Of the best stream's rate, what other people's launches get from a DRAM that is over 75 % of its pins'
# rate: the median of 32, which got 0.87 to 1.01. An expectation counts with it, a bound with the best.
USUAL_STREAM = 0.954


@dataclass(frozen=True)
class Scenario:
    """What stays of a launch: 1 is as it is, 0 is gone; what is not named stays."""

    units: Mapping[str, float] = field(default_factory=dict)  # unit -> share of its work
    waits: Mapping[str, float] = field(default_factory=dict)  # state -> share of the time in it
    places: float = 1.0  # how many times more warps work at once (more blocks, higher occupancy)
    ends: float = 0.0  # share of the time that stays in any case: the launch's beginning and end
    # share of the time that goes, whatever happens in it: SMs without work, work that is done again
    gone: float = 0.0
    # Share of the time at work that stays however little is waited for: where a fix leaves one access of
    # ten, no wait for accesses is shorter than a tenth; nor launching blocks where one of ten is left.
    keeps: float = 0.0
    same_places: bool = False  # less is accessed as before, so DRAM gets no nearer to its full rate
    without_ends: bool = False  # the fix is of the launch's own beginning and end


def make_scenario_of_more_blocks(launch: StrictLaunch, places: float) -> Scenario:
    """Return a launch whose blocks fill so many times more places, and pay their ends.

    What ends are of a launch whose time was not collected is not known: it pays none, so that more is
    expected of it than of one whose time is known.
    """
    ends = 0.0
    if "time" in launch:
        ends = min(1.0, ENDS_OF_MORE_BLOCKS / launch["time"])
    return Scenario(places=places, ends=ends)


def join_scenarios(scenarios: Iterable[Scenario]) -> Scenario:
    """Return all of them at once: a wait or work goes as far as where most of it goes.

    More blocks and more warps per SM multiply: each block brings its warps. So does what fixes keep:
    each one's share is of what the other leaves.
    """
    units = []
    waits = []
    places = 1.0
    ends = 0.0
    stays = 1.0
    keeps = 1.0
    without_ends = False
    for scenario in scenarios:
        units.append(scenario.units)
        waits.append(scenario.waits)
        places *= scenario.places
        ends = max(ends, scenario.ends)
        stays *= 1 - scenario.gone
        keeps *= scenario.keeps
        without_ends = without_ends or scenario.without_ends
    least_units = _combine_by_least_share(units)
    least_waits = _combine_by_least_share(waits)
    return Scenario(
        least_units, least_waits, places, ends, 1 - stays, keeps, without_ends=without_ends
    )


def _combine_by_least_share(shares: list[Mapping[str, Share]]) -> dict[str, Share]:
    """Return the least share of each name; where a scenario does not name it, all of it stays."""
    least = {}
    for own in shares:
        for name in own:
            least[name] = min(other.get(name, 1.0) for other in shares)
    return least


# s: no launch is faster (1.03 us measured on an H200 in a replayed graph).
EMPTY_LAUNCH = 1e-6
# s: under ncu, before a launch's blocks are at work and after; more blocks pay it again.
ENDS_OF_MORE_BLOCKS = 4e-6
# s: from an SM's first warp on until a first value from memory is there: 500 to 900 cycles.
FIRST_TRIP = 5e-7
MOST_ENDS = 0.95  # of the time
# Of the time: the busiest SM's work and the launch's cycles are of passes of their own.
PASSES_DIFFER = 0.01
SHARPNESS = 4.0  # how sharply throughput and latency take over from each other
LEAST = 1e-3  # share of a warp's time that always stays: no estimate passes 1,000
BARRIER = "barrier"


def predict_gain(launch: StrictLaunch, scenario: Scenario) -> Factor:
    """Return the speed-up that the model gives for a fix, at least 1.

    A unit past what launches on record reached counts as full, before and after: the fixes on record
    came nearer to that than to its own share (factor error of the gain 1.45 against 1.46).
    """
    gain = predict_speedup(launch, scenario, most_utilization=1.0, dram_stream_share=USUAL_STREAM)
    return max(1.0, min(gain, bound_speedup_by_waits(launch, scenario)))


def predict_speedup(
    launch: StrictLaunch,
    scenario: Scenario,
    most_utilization: float = inf,
    dram_stream_share: Share = 1.0,
) -> Factor:
    """Return the speed-up for a scenario, below 1 where more is done than before.

    Time is what a launch takes to begin and end, and its work. Work is throughput and latency, added as
    powers: work**p = throughput**p + latency**p  (p = SHARPNESS). `most_utilization` is the largest
    share of its reach that a unit counts with, `dram_stream_share` the share of the best rate that DRAM
    gets to.
    """
    fixed_time = max(scenario.ends, compute_fixed_time_share(launch))
    working_time = max(1 - scenario.gone - fixed_time, LEAST)
    full_now = compute_fullest_unit_share(launch, Scenario(), dram_stream_share)
    full_then = compute_fullest_unit_share(launch, scenario, dram_stream_share)
    throughput_now = min(full_now / working_time, most_utilization)
    throughput_then = min(full_then / working_time, most_utilization)
    faster = compute_issue_wait_ratio(launch, scenario)
    if faster == inf:  # no warp states: the waits go as the work of the fullest unit goes
        faster = max(throughput_now, LEAST) / max(throughput_then, LEAST)
    latency_left = 1 / (faster * scenario.places)
    power = SHARPNESS
    # A unit past what it is taken to reach leaves no time to wait.
    latency_now = max(0.0, 1 - throughput_now**power)
    work_now = latency_now + throughput_now**power
    work_then = latency_now * latency_left**power + throughput_then**power
    work_left = max(work_then / work_now, LEAST**power) ** (1 / power)
    return float(1 / (fixed_time + working_time * work_left))


def bound_speedup_by_waits(launch: StrictLaunch, scenario: Scenario) -> FactorOrInfinity:
    """Return the speed-up at which warps do nothing but wait for what a fix leaves them; or inf.

    A warp that is ready and not selected queues for issue slots: these count as a unit already.
    """
    waits = {**scenario.waits, "not_selected": 0.0}
    faster = compute_issue_wait_ratio(launch, replace(scenario, waits=waits))
    if faster == inf:
        return inf
    fixed_time = max(scenario.ends, compute_fixed_time_share(launch))
    working_time = max(1 - scenario.gone - fixed_time, LEAST)
    waiting = max(1 / (faster * scenario.places), scenario.keeps)
    return 1 / (fixed_time + working_time * waiting)


def compute_fixed_time_share(launch: StrictLaunch) -> Share:
    """Return the share of the time that stays whatever is fixed: begin, first trip to memory, end."""
    time = launch.get("time", 0.0)
    if time <= 0:
        return 0.0
    return min(_compute_share_of_ends(launch) + FIRST_TRIP / time, MOST_ENDS)


def _compute_share_of_ends(launch: StrictLaunch) -> Share:
    """Return the share of the time in which the launch begins and ends: no SM has work."""
    # Longer idle times are no launch's own: another process, or a clock that two passes saw apart.
    return min(measure_idleness(launch).share_without_any_work, ENDS_MOST / launch["time"])


def compute_least_share_of_ends(launch: StrictLaunch, scenario: Scenario) -> float:
    """Return the share of the time that no fix of what blocks do can take: no block is at work in it.

    Where the busiest SM was not counted, or the fix is of the ends, that is an empty launch's time.
    """
    time = launch.get("time", 0.0)
    if time <= 0:
        return 0.0
    ends = EMPTY_LAUNCH / time
    if not scenario.without_ends and not measure_idleness(launch).assumed:
        ends = max(ends, _compute_share_of_ends(launch) - PASSES_DIFFER)
    return min(ends, MOST_ENDS)


def bound_speedup_by_units(launch: StrictLaunch, scenario: Scenario) -> FactorOrInfinity:
    """Return the speed-up that cannot be passed when no more than the scenario's share goes; or inf.

    Units count with their whole peak here, not with what they reach: a bound has to hold. No unit
    works while a launch begins and ends.
    """
    stays = []
    for unit, share in measure_unit_shares_of_peak(launch).items():
        stays.append(scenario.units.get(unit, 1.0) * share)
    if (
        is_dram_access_scattered(launch)
        and scenario.units.get("dram", 1.0) == 1.0
        and "dram_busy" in launch
    ):
        stays.append(launch["dram_busy"] / find_attainable_share("dram", launch))
    throughput = max(stays, default=0.0)
    ends = max(scenario.ends, compute_least_share_of_ends(launch, scenario))
    working_time = max(1 - scenario.gone - ends, 0.0)
    latency_left = working_time / (compute_issue_wait_ratio(launch, scenario) * scenario.places)
    latency_left = max(latency_left, working_time * scenario.keeps)
    least = ends + max(throughput, latency_left)
    if least > 0:
        return max(1.0, 1 / least)
    return inf


def compute_fullest_unit_share(
    launch: StrictLaunch, scenario: Scenario, stream: Share = 1.0
) -> float:
    """Share of what it can reach that the fullest unit is at, in today's time, after a scenario.

    `stream`: the share of the best rate on record that DRAM gets to.
    """
    shares = measure_unit_shares_of_peak(launch)
    full = 0.0
    for unit, share in shares.items():
        stays = scenario.units.get(unit, 1.0)
        # Mended access patterns let DRAM run at its full rate.
        same = stays == 1.0 or scenario.same_places
        reach = find_attainable_share(unit, launch) if same else REACH[unit]
        if unit == "dram":
            reach *= stream
        full = max(full, share * stays / reach)
    return full


def compute_issue_wait_ratio(launch: StrictLaunch, scenario: Scenario) -> FactorOrInfinity:
    """Return how many times less often a warp waits between two issues; inf without warp states."""
    if "stall_selected" not in launch:
        if all(left == 1.0 for left in scenario.waits.values()):
            return 1.0
        return inf
    rest = 0.0
    stays = 0.0
    barrier = 0.0
    for name in launch.list_metrics_with_prefix("stall_"):
        state = name.removeprefix("stall_")
        if state == BARRIER:
            barrier = launch[name]
        else:
            rest += launch[name]
            stays += scenario.waits.get(state, 1.0) * launch[name]
    total = rest + barrier
    if BARRIER in scenario.waits:
        barrier *= scenario.waits[BARRIER]
    elif rest > 0:  # it shrinks with what the other warps wait for
        barrier *= stays / rest
    left = 1.0
    if total > 0:
        left = (stays + barrier) / total
    return 1 / max(left, LEAST)


Kind = Literal["throughput", "waste", "wait", "places", "shape", "instructions", "atomics"]
MakeScenario = Callable[[StrictLaunch], Scenario]
MakeScenarioOrNone = Callable[[StrictLaunch], Scenario | None]  # None: no counter says

# What is expected has an interval: how far the gains of unseen fixes were from what was expected of them
# (split conformal prediction). It is to hold four times of five for code that nobody has looked at. So
# it is made of the answers that were given before anybody had seen the code: answers of today know what
# those missed, and kernels that rules were written with come nearer still. Both are held against it.
# `python tools/score.py gains` works these numbers out of what is committed; a test holds them to it.

# Of the unit: what little is expected scatters too. Any from 0.2 to 2 holds as often on code left out.
OFFSET = 0.5
# The 10th and the 90th percentile of (ln came - ln expected) / (OFFSET + ln expected) over the unseen
# fixes of other people that brought 5 % or more, of all kinds: split by kind they hold no more often.
SPREAD = (-0.34, 0.48)
# A wait that leads has no cause that counters show. The 10th, 50th and 90th percentile of the same over
# all changes against such a wait, also those that brought nothing: whether a change ends the wait is
# as open as how much that would bring.
UNEXPLAINED = (-0.53, -0.05, 0.25)
# Of the unseen fixes, each held against an interval made without its repository: inside, all.
COVERAGE = (71, 95)
AT_ROOF = 1.1  # headroom below which there is nothing to win but by less work
NEEDED = ("dram_busy", "l1_busy", "issue_busy")  # without these a full unit may go unseen
NEVER_ALL = 0.999  # of the time: a share measured by sampling or by ratios is never all of it


@dataclass(frozen=True)
class Fix:
    """What fixing a cause takes away: at best (for the bound), and as a rule (to expect)."""

    kind: Kind | None = None  # which fixes are alike; None: nobody measured one
    formula: str = ""  # bound and expectation in words
    best: MakeScenario | None = None  # the most that can go; None: no counter bounds it
    typical: MakeScenarioOrNone | None = None  # what goes when people fix it


def make_bounded_expectation(
    expected_speedup: Factor,
    log_deviations_low_and_high: LowAndHigh,
    most_speedup: Factor | None = None,
    offset: LogRatio = OFFSET,
) -> Expectation:
    """Return the interval around an expected speed-up; no part of it is above the bound."""
    size = log(expected_speedup)
    low = exp(size + log_deviations_low_and_high[0] * (offset + abs(size)))
    high = exp(size + log_deviations_low_and_high[1] * (offset + abs(size)))
    most = inf
    if most_speedup is not None:
        most = most_speedup
    return Expectation(min(expected_speedup, most), min(low, most), min(high, most))


def reprice_unexplained_wait(
    speedup: Estimate, log_deviation_quantiles: tuple[float, float, float] = UNEXPLAINED
) -> Estimate:
    """Return an estimate of a wait whose cause counters do not show, by how such changes turned out.

    Where that may be nothing, their median is expected in place of what fixes that worked bring.
    """
    if not speedup.is_known:
        return speedup
    low, middle, high = log_deviation_quantiles
    ends = make_bounded_expectation(speedup.expected, (low, high), speedup.bound)
    expected = speedup.expected
    if ends.low < 1:
        size = log(speedup.expected)
        expected = exp(max(0.0, size + middle * (OFFSET + size)))
    return Estimate(min(ends.low, expected), expected, max(ends.high, expected), speedup.bound)


def estimate_gain_of_fixes(launch: StrictLaunch, *fixes: Fix) -> Estimate:
    """Return the speed-up of these fixes at once: their scenarios are joined, their gains not added."""
    best = []
    typical = []
    measured = False  # whether somebody has measured what one of these fixes brings
    try:
        for fix in fixes:
            if fix.best:
                best.append(fix.best(launch))
            if fix.typical:
                counted = fix.typical(launch)
                if counted is not None:
                    typical.append(counted)
            measured = measured or fix.kind is not None
    except NotCollected:
        return NOT_PRICED
    bound = None
    begun = _bound_fixes_by_block_launch(launch, fixes)
    if len(best) == len(fixes):
        most = min(bound_speedup_by_units(launch, join_scenarios(best)), begun)
        if most < inf:
            bound = most
    # Where no unit was counted, nothing says what would bind after it.
    if len(typical) < len(fixes) or not measured or not measure_unit_shares_of_peak(launch):
        return Estimate(bound=bound)
    gain = min(predict_gain(launch, join_scenarios(typical)), begun)
    expected = make_bounded_expectation(gain, SPREAD, bound)
    return Estimate(expected.low, expected.gain, expected.high, bound)


def _bound_fixes_by_block_launch(launch: StrictLaunch, fixes: tuple[Fix, ...]) -> float:
    """Return the speed-up at which as many blocks as before begin as fast as they can.

    Inf when others may.
    Accesses that waste nothing are made by the same blocks. Other fixes often give a thread more work,
    and so need fewer of them.
    """
    for fix in fixes:
        if fix.kind != "waste":
            return inf
    return bound_speedup_by_block_launch(launch)


def bound_speedup_by_block_launch(launch: StrictLaunch, blocks_factor: float = 1.0) -> float:
    """Return the speed-up at which so many times the blocks begin as fast as the GPU begins any.

    Inf where that rate is not known.
    """
    share = compute_share_of_block_launch_rate(launch)
    if not share:
        return inf
    return max(1.0, 1 / (share * blocks_factor))


def get_expectation(saving: Estimate) -> Expectation | None:
    """Return what an estimate of a launch expects; None where it is a bound only."""
    if not saving.is_known:
        return None
    return Expectation(saving.expected, saving.low, saving.high)


def compute_headroom(launch: StrictLaunch) -> Factor | None:
    """Return how many times faster the same work could be done; None when a full unit may go unseen."""
    if not launch.has_collected(*NEEDED) or not measure_unit_shares_of_peak(launch):
        return None
    if compute_fullest_unit_share(launch, Scenario()) > 0:
        return 1 / compute_least_share_of_time(launch)
    return None


def compute_least_share_of_time(launch: StrictLaunch, stream: Share = 1.0) -> Share:
    """Return the share of the time that the same work takes at the rate that its unit reaches.

    `stream`: the share of the best rate on record that DRAM gets to.
    """
    full = compute_fullest_unit_share(launch, Scenario(), stream)
    return min(1.0, compute_fixed_time_share(launch) + full)


def compute_amdahl_speedup(removed_share: Share) -> Factor:
    """Return speed-up when this share of the time is gone: 1 / (1 - part), 1,000 at most."""
    return 1 / (1 - min(removed_share, NEVER_ALL))
