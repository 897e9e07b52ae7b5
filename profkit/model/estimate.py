"""A launch and fixes  ->  the bound on the speed-up, and what to expect.

What is expected has an interval: how far the fixes on record came from the model, as the logarithm of
what came over what was expected, in units that grow with the latter. It is to hold four times of five
for code that nobody has looked at; how often it does is COVERAGE. `python tools/gains.py` works all of
these numbers out of what is committed, and a test holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, inf, log
from typing import Literal

from profkit.model.launch import Launch, NotCollected
from profkit.model.resources import loads
from profkit.model.scenario import Expectation, Scenario, fullest, joint, limit, modelled_gain

Kind = Literal["throughput", "waste", "wait", "places", "shape", "instructions", "atomics"]
Build = Callable[[Launch], Scenario]

# Of the unit: what little is expected scatters too. By likelihood any from 0.3 on fits the fixes on
# record alike.
OFFSET = 0.5
# Kind -> the 10th and the 90th percentile of (ln came - ln expected) / (OFFSET + ln expected), over
# steps of the ladder and other people's fixes that brought 5 % or more; of all kinds for a kind with
# under ten.
SPREAD: Mapping[Kind, tuple[float, float]] = {
    "throughput": (-0.50, 2.01),
    "waste": (-0.32, 0.08),
    "wait": (-0.36, 0.73),
    **dict.fromkeys(("places", "shape", "instructions", "atomics"), (-0.32, 0.44)),
}
# Of these fixes, each held against the interval that is made without its repository: inside, all.
COVERAGE = (68, 85)
AT_ROOF = 1.2  # headroom below which there is nothing to win but by less work
NEEDED = ("dram_busy", "l1_busy", "issue_busy")  # without these a full unit may go unseen
NEVER_ALL = 0.999  # of the time: a share measured by sampling or by ratios is never all of it


@dataclass(frozen=True)
class Fix:
    """What fixing a cause takes away: at best (for the bound), and as a rule (to expect)."""

    kind: Kind | None = (
        None  # which fixes are alike: residuals are pooled; None: nobody measured one
    )
    formula: str = ""  # bound and expectation in words
    best: Build | None = None  # the most that can go; None: no counter bounds it
    typical: Build | None = None  # what goes when people fix it


@dataclass(frozen=True)
class Estimate:
    """The bound on the speed-up (None: no counter bounds it) and what to expect of it."""

    gain: float | None
    expect: Expectation | None


def expectation(
    gain: float, spread: tuple[float, float], bound: float | None = None, offset: float = OFFSET
) -> Expectation:
    """The interval around an expected speed-up; no part of it is above the bound."""
    size, most = log(gain), inf if bound is None else bound
    ends = (exp(size + end * (offset + abs(size))) for end in spread)
    return Expectation(*(min(value, most) for value in (gain, *ends)))


def estimate(launch: Launch, *fixes: Fix) -> Estimate:
    """What these fixes are worth at once: their scenarios are joined, not their gains added."""
    try:
        best = [fix.best(launch) for fix in fixes if fix.best]
        typical = [fix.typical(launch) for fix in fixes if fix.typical]
    except NotCollected:
        return Estimate(None, None)
    most = limit(launch, joint(best)) if len(best) == len(fixes) else inf
    bound = None if most == inf else most
    kinds = [fix.kind for fix in fixes if fix.kind]
    # Where no unit was counted, nothing says what would bind after it.
    if len(typical) < len(fixes) or not kinds or not loads(launch):
        return Estimate(bound, None)
    value = modelled_gain(launch, joint(typical))
    return Estimate(bound, expectation(value, SPREAD[max(kinds, key=kinds.count)], bound))


def headroom(launch: Launch) -> float | None:
    """How many times faster the same work could be done; None when a full unit may go unseen."""
    if not launch.known(*NEEDED) or not loads(launch):
        return None
    full = fullest(launch, Scenario())
    return 1 / min(full, 1.0) if full > 0 else None


def amdahl(part: float) -> float:
    """Speed-up when this share of the time is gone: 1 / (1 - part), 1,000 at most."""
    return 1 / (1 - min(part, NEVER_ALL))
