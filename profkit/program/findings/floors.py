"""A change that brings a part of a step to its floor  ->  what people get of it, in milliseconds.

A floor is the least time that the bytes and operations of a part need. The replay says what the step
would save there; what was saved of that, where programs were timed before and after, is all that is
estimated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from profkit.judge import Estimate
from profkit.program.findings.case import StepCase
from profkit.program.replay.play import ReplayModel
from profkit.program.replay.scenario import (
    EXPECT,
    LOW,
    SPREAD,
    Range,
    StepChange,
    make_exact_range,
)

if TYPE_CHECKING:
    from profkit.units import Milliseconds, RangeLevel


# Of what a floor would save, the tenth, half and nine tenths of what programs saved that were timed
# before and after (tests/program/data/truth.json; tools/score.py programs --left-out).
SHARES: Mapping[str, Range] = {
    "kernel": Range(0.99, 1.04, 1.13),  # one kernel does what it does in less time
    "run": Range(0.90, 1.02, 1.21),  # kernels become one, and tensors between them go
    "transfer": Range(0.87, 0.90, 1.02),  # copies at another time, or at the rate of pinned memory
}

BEYOND = 0.5  # of a floor: what caches keep of it at best


def compute_ms_saved_at_floor(
    case: StepCase, change: StepChange, level: RangeLevel = EXPECT, host: ReplayModel | None = None
) -> Milliseconds:
    """Return the milliseconds of the step that a change to a floor saves alone, with some host."""
    before = host or case.hosts.usual
    after = change.apply_to_model(before, level)
    saved = max(0.0, before.period - after.period) / 1e6
    return min(saved, case.hosts.step_ms_without_recorder.expect)


def estimate_saving_of_floor(
    case: StepCase,
    kind_of_floor: str,
    change: StepChange,
    shares: Mapping[str, Range] = SHARES,
) -> Estimate:
    """Return what people get of a floor of some kind.

    The low end is of what is left if a part has to stay that may have to (LOW), also with
    the fastest host that may be: what a change saves the host is not sure where a profiler slowed it.
    No saving is larger than with kernels at half of their floors: none takes no time at all.
    """
    low, expected, high = shares[kind_of_floor]
    floor = compute_ms_saved_at_floor(case, change)
    fastest = min((case.hosts.usual, *case.hosts.others), key=lambda host: host.period)
    least = min(
        compute_ms_saved_at_floor(case, change, LOW, host) for host in (case.hosts.usual, fastest)
    )
    most = case.hosts.step_ms_without_recorder.expect
    if change.scale:
        lower = {i: make_exact_range(BEYOND * left.expect) for i, left in change.scale.items()}
        most = max(floor, compute_ms_saved_at_floor(case, replace(change, scale=lower)))
    spread = SPREAD * case.hosts.step_ms_without_recorder.expect
    return Estimate(
        low=max(0.0, min(low * least, most) - spread),
        expected=min(expected * floor, most),
        high=min(high * floor + spread, most),
    )
