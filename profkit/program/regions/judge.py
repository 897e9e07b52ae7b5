"""Regions  ->  what people get of their floors, the first of them, or that the step is healthy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profkit.judge import Estimate
from profkit.program.findings.case import Case
from profkit.program.regions.find import Region, find_regions
from profkit.program.replay.scenario import EXPECT, Range
from profkit.program.verdict import WORTH, judge_step

# Of what the floor of a region would save, the tenth, half and nine tenths of what programs saved that
# were timed before and after (tests/program/data/truth.json; python tools/score.py programs --left-out
# writes them). Nothing else is fitted.
SHARES: Mapping[str, Range] = {
    "kernel": Range(0.87, 1.05, 1.53),
    "run": Range(0.84, 1.00, 1.32),
    "host": Range(0.93, 1.13, 1.42),
    "transfer": Range(0.87, 0.90, 1.02),
}
GENERAL = (
    "host-launch"  # a graph fixes whatever the cause: a special fix that saves half comes first
)
HALF = 0.5


@dataclass(frozen=True)
class PricedRegion:
    """A region with what its floor saves, and what is expected of that."""

    region: Region
    floor: float  # milliseconds of the step that would be saved at the floor
    saving: Estimate  # milliseconds


def save_at_floor(case: Case, region: Region) -> float:
    """Return the milliseconds of the step that a region's floor saves alone."""
    before = case.hosts.usual
    after = region.change.apply(before, EXPECT)
    saved = max(0.0, before.period - after.period) / 1e6
    return min(saved, case.hosts.plain.expect)


def price_regions(case: Case, shares: Mapping[str, Range] = SHARES) -> list[PricedRegion]:
    """Return a step's regions with what each saves, the first one to be named first."""
    priced = []
    for region in find_regions(case):
        floor = save_at_floor(case, region)
        low, expected, high = shares[region.kind]
        saving = Estimate(low=low * floor, expected=expected * floor, high=high * floor)
        priced.append(PricedRegion(region, floor, saving.limit(case.hosts.plain.expect)))
    priced.sort(key=lambda row: -row.saving.expected)
    return put_special_first(priced)


def put_special_first(priced: Sequence[PricedRegion]) -> list[PricedRegion]:
    """Return the regions with a special fix before the general one that saves at most twice as much."""
    if not priced or priced[0].region.rule != GENERAL:
        return list(priced)
    for row in priced[1:]:
        if row.saving.expected >= HALF * priced[0].saving.expected:
            return [row, *(other for other in priced if other is not row)]
    return list(priced)


def name_first(case: Case, priced: Sequence[PricedRegion]) -> str:
    """Return the category that is said first: of a region, healthy or unknown."""
    if priced and priced[0].saving.expected >= WORTH * case.hosts.plain.expect:
        return priced[0].region.rule
    return judge_step(case, [], []).category
