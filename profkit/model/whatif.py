"""A launch and changed counts ("inst_exp/32, blocks*4")  ->  how much faster, with an interval.

Changed counts are a scenario: the work of each unit goes as what it is counted by, the time in each
warp state as the events that warps wait for in it. A price in cycles for each event, fitted on 220
launches, predicted programs that were left out of its fit no better (mean factor 1.37 against 1.34).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from math import inf, prod
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.model.launch import NotCollected, StrictLaunch, is_mostly_atomics
from profkit.model.resources import (
    ENTRY,
    LINKS,
    RESOURCES,
    list_resource_uses,
    measure_unit_shares_of_peak,
)
from profkit.model.scenario import (
    BARRIER,
    MEMORY,
    NOTHING,
    Expectation,
    Scenario,
    bound_speedup_by_block_launch,
    bound_speedup_by_units,
    make_bounded_expectation,
    make_scenario_of_more_blocks,
    predict_speedup,
)
from profkit.records.store import Document
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import WARP_STATES, WarpState

if TYPE_CHECKING:
    from profkit.units import Factor, FactorOrInfinity, MetricName


# 10th and 90th percentile of (ln came - ln predicted) / (OFFSET + |ln predicted|) over 164 steps of the
# ladder and other people's fixes, each predicted from the counts of both sides.
SPREAD = (-0.95, 0.86)
OFFSET = 0.1
# What each unit's work is counted by.
_WORK: Mapping[str, tuple[str, ...]] = {
    **{resource.limiter: resource.work for resource in RESOURCES},
    LINKS: ("l2_read_bytes", "l2_write_bytes"),
    ENTRY: ("inst_global_load", "inst_global_store", "inst_shared_load", "inst_shared_store"),
}


def _list_counters_of_state(state: WarpState) -> tuple[tuple[MetricName, ...], ...]:
    """Return the counts that the time in a state goes with.

    Where data moves, these are the state's own instructions and last the data; elsewhere all
    instructions.
    """
    if not state.data:
        return (("instructions",),)
    if not state.instructions:
        return (state.data,)
    return state.instructions, state.data


_EVENTS = {state.name: _list_counters_of_state(state) for state in WARP_STATES}
# Kinds of instructions whose number is a part of `instructions`, those in it of other kinds, and
# accesses with what goes by the same factor.
_KINDS = (
    "inst_xu",
    "inst_fp32",
    "inst_fp64",
    "inst_half",
    "inst_imad",
    "inst_matrix",
    "inst_shuffle",
    "inst_global_load",
    "inst_global_store",
    "inst_shared_load",
    "inst_shared_store",
    "inst_async_copy",
    "inst_barrier",
    "inst_atomic",
)
_PARTS = {"inst_exp": "inst_xu", "inst_ffma": "inst_fp32", **dict.fromkeys(_KINDS, "instructions")}
_ACCESSES = {
    "inst_shared_load": "shared_wavefronts",
    "inst_global_load": "global_load_sectors",
    "inst_global_store": "global_store_sectors",
}
ALIASES = {"inst_mufu": "inst_exp", "blocks": "grid_size", "warps": "warps_per_sm"}
COUNTS = frozenset(
    {"grid_size", "warps_per_sm", *_PARTS, *_ACCESSES, *chain.from_iterable(_WORK.values())}
    | {*chain.from_iterable(chain(*_EVENTS.values()))}
)
_MOST_CHANGE = 1e12  # the factor by which a count may change, and the most that it may become
_NEVER_NONE = ("grid_size", "warps_per_sm")  # none of these: nothing is launched
_CHANGE = re.compile(r"([a-z][a-z0-9_]*)\s*([*/=])\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class CounterChange:
    """A count that becomes another: times a factor, or (op "=") this value."""

    metric: str
    op: str
    value: float

    def apply_to(self, before: float) -> float:
        """Return the count after the change."""
        if self.op == "=":
            return self.value
        if self.op == "*":
            return before * self.value
        return before / self.value


@dataclass(frozen=True)
class ExpectedLaunch:
    """What one launch is expected to become."""

    case: str | None  # of the variant; of a report, its kernel
    time_s: float  # under ncu, before
    expect: Expectation
    kernel: str = ""  # of a report
    at_most: float | None = None  # the speed-up that this change cannot pass


class WhatifDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.whatif/1"
):
    """What `profkit whatif SUBJECT CHANGES --json` prints."""

    variant: str = ""
    changes: tuple[CounterChange, ...] = ()
    answers: tuple[ExpectedLaunch, ...] = ()


def parse_counter_changes(text: str) -> tuple[CounterChange, ...]:
    """Return the changes that a text says: `inst_exp/32, shared_wavefronts*0.25, blocks*4`.

    A ProfkitError of a part that is no change, names no count of the model, or divides by zero.
    """
    changes = []
    for part in re.split(r"[,;]+", text):
        if part.strip():
            changes.append(_parse_whatif_change(part.strip()))
    if not changes:
        raise ProfkitError("no change was given", _HOW)
    return tuple(changes)


_HOW = 'write e.g. "inst_exp/32, shared_wavefronts*0.25, blocks*4"'


def _parse_whatif_change(part: str) -> CounterChange:
    read = _CHANGE.fullmatch(part)
    if not read:
        raise ProfkitError(f"cannot read the change '{part}'", _HOW)
    name = read[1]
    op = read[2]
    value = float(read[3])
    metric = ALIASES.get(name, name)
    if metric not in COUNTS:
        near = get_close_matches(name, sorted(COUNTS | set(ALIASES)), 3, 0.5)
        known = " or ".join(near) or ", ".join(sorted(ALIASES))
        message = f"'{name}' is not a count in the cost model"
        raise ProfkitError(message, f"did you mean {known}?")
    if op == "/" and value == 0:
        raise ProfkitError(f"'{part}' divides by zero", _HOW)
    if value > _MOST_CHANGE or (op == "/" and value < 1 / _MOST_CHANGE):
        raise ProfkitError(f"'{part}': the change is too large", _HOW)
    if metric in _NEVER_NONE and value < 1 / _MOST_CHANGE:
        raise ProfkitError(f"'{part}' leaves nothing of the launch", _HOW)
    return CounterChange(metric, op, value)


def predict_speedup_of_changes(
    launch: StrictLaunch, changes: Iterable[CounterChange]
) -> Expectation:
    """Return the speed-up when these counts change and every other stays; below 1 it is slower.

    A kind of instruction takes the total with it, and accesses their sectors and wavefronts, unless
    those change too. A ProfkitError where a count or what the model needs was not collected.
    """
    try:
        launch.require_collected("instructions")
        if not measure_unit_shares_of_peak(launch):
            launch.require_collected("issue_busy")
        after = apply_counter_changes(launch, changes)
        scenario = _make_scenario_of_changed_counts(launch, after)
        gain = predict_speedup(launch, _add_ends_of_more_blocks(launch, scenario))
        begun = _bound_speedup_by_begun_blocks(launch, after, scenario)
        gain = min(gain, begun)
        # A unit above its peak is counted beyond what is possible: no bound says less than the model.
        bound = max(gain, min(bound_speedup_of_scenario(launch, scenario), begun))
        return make_bounded_expectation(gain, SPREAD, bound, OFFSET)
    except NotCollected as absent:
        section = CATALOGUE[absent.metric].section or "every report"
        message = f"{absent.metric} was not collected, and the cost model needs it"
        raise ProfkitError(message, f"--section {section}") from absent


def _add_ends_of_more_blocks(launch: StrictLaunch, scenario: Scenario) -> Scenario:
    """Return a scenario with the ends that a launch has where its blocks fill more places."""
    if scenario.places <= 1:
        return scenario
    return replace(scenario, ends=make_scenario_of_more_blocks(launch, scenario.places).ends)


def bound_speedup_of_changes(
    launch: StrictLaunch, changes: Iterable[CounterChange]
) -> Factor | None:
    """Return the speed-up that these changes cannot pass; None where nothing bounds it."""
    after = apply_counter_changes(launch, changes)
    scenario = _make_scenario_of_changed_counts(launch, after)
    begun = _bound_speedup_by_begun_blocks(launch, after, scenario)
    bound = min(bound_speedup_of_scenario(launch, scenario), begun)
    return bound if bound < inf else None


def _bound_speedup_by_begun_blocks(
    launch: StrictLaunch, after: StrictLaunch, scenario: Scenario
) -> float:
    """Return the speed-up at which the blocks that are launched then begin as fast as they can.

    Inf where more warps are at work at once: larger blocks are fewer.
    """
    if scenario.places != 1 or "grid_size" not in after:
        return inf
    return bound_speedup_by_block_launch(launch, after["grid_size"] / launch["grid_size"])


def bound_speedup_of_scenario(launch: StrictLaunch, scenario: Scenario) -> FactorOrInfinity:
    """Return the speed-up that changed counts cannot pass, as a finding's bound is worked out.

    A unit keeps the work that the changes leave it. Of a wait that shrinks nothing needs to be left, nor
    of the wait at barriers; any other wait stays. But where a unit is near its peak and is relieved, any
    wait may be for it.
    """
    relieved = []
    for use in list_resource_uses(launch):
        left = scenario.units.get(use.resource.limiter, 1.0)
        if use.near and left < 1:
            relieved.append(left)
    if relieved:
        most = replace(scenario, waits=NOTHING, keeps=max(relieved))
        return bound_speedup_by_units(launch, most)
    waits = {}
    shrinking = []
    for state, left in scenario.waits.items():
        waits[state] = left if left >= 1 else 0.0
        if left < 1:
            shrinking.append(left)
    if not shrinking:
        return bound_speedup_by_units(launch, scenario)
    waits[BARRIER] = 0.0  # warps may wait there for those that wait less now
    return bound_speedup_by_units(launch, replace(scenario, waits=waits, keeps=min(shrinking)))


def _make_scenario_of_changed_counts(
    launch: StrictLaunch, changed_launch: StrictLaunch
) -> Scenario:
    """Return what becomes of the units' work, of the warps' waits, and of the warps at work at once.

    A barrier is not named: it shrinks with what the other warps wait for.
    """
    waits = {}
    for state, groups in _EVENTS.items():
        if state != BARRIER:
            waits[state] = _compute_share_of_events_left(groups, launch, changed_launch)
    if is_mostly_atomics(launch):
        waits |= dict.fromkeys(
            MEMORY, _compute_count_ratio(("l2_atomic_sectors",), launch, changed_launch)
        )
    units = {}
    for unit in measure_unit_shares_of_peak(launch):
        units[unit] = _compute_count_ratio(_WORK[unit], launch, changed_launch)
    for use in list_resource_uses(launch):
        if not use.near:
            continue
        # Warps that wait for room in the queue of a full unit wait for its work.
        work_left = units[use.resource.limiter]
        for state in use.resource.queue:
            waits[state] = min(waits.get(state, 1.0), work_left)
    return Scenario(
        units, waits, _compute_working_warps_factor(launch, changed_launch), same_places=True
    )


def _compute_share_of_events_left(
    metrics_by_alternative: tuple[tuple[MetricName, ...], ...],
    launch: StrictLaunch,
    changed_launch: StrictLaunch,
) -> float:
    """Return the share of the events of a state that is left.

    An access that moves less ends as much sooner. Fewer accesses for the same data are in between: each
    wait takes its latency, and the queue for the data is as long as before.
    """
    shares = [
        _compute_count_ratio(names, launch, changed_launch) for names in metrics_by_alternative
    ]
    mean = prod(shares) ** (1 / len(shares))
    data = shares[-1]
    return min(mean, data)


def apply_counter_changes(launch: StrictLaunch, changes: Iterable[CounterChange]) -> StrictLaunch:
    """Return the launch with its counts changed, and those that change with them."""
    values = {}
    for name in launch:
        if name in launch:  # what was not collected has a name as well
            values[name] = launch[name]
    given = set()
    for change in changes:
        values[change.metric] = change.apply_to(launch[change.metric])
        given.add(change.metric)
    for kind, whole in _PARTS.items():
        if whole not in given and kind in launch and whole in launch:
            values[whole] = max(values[whole] + values[kind] - launch[kind], 0.0)
    for access, moved in _ACCESSES.items():
        if moved not in given and moved in launch and launch.get(access, 0.0) > 0:
            values[moved] *= values[access] / launch[access]
    return StrictLaunch(values)


def _compute_working_warps_factor(launch: StrictLaunch, changed_launch: StrictLaunch) -> float:
    """Return how many times more warps are at work, by more blocks and by more warps a block."""
    waves = launch.get("waves", 1.0)
    blocks = changed_launch["grid_size"] / launch["grid_size"]
    filled = min(1.0, waves * blocks) / min(1.0, waves)
    most = launch.get("max_warps", 64.0) / max(launch["warps_per_sm"], 1e-9)
    return min(filled * changed_launch["warps_per_sm"] / launch["warps_per_sm"], max(most, filled))


def _compute_count_ratio(
    names: tuple[MetricName, ...], before: StrictLaunch, after: StrictLaunch
) -> float:
    was = before.sum_collected_metrics(names)
    if was > 0:
        return after.sum_collected_metrics(names) / was
    return 1.0
