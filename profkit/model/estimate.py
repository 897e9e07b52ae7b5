"""A launch and fixes  ->  the bound on the speed-up, and what to expect.

What is expected has an interval: how far the fixes on record came from the model, as the logarithm of
what came over what was expected, in units that grow with the latter. It is to hold four times of five
for code that nobody has looked at; how often it does is COVERAGE. `python tools/gains.py` works all of
these numbers out of what is committed, and a test holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, prod
from typing import Literal

from profkit.model.launch import Launch, NotCollected
from profkit.model.resources import loads, next_limit, uses
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
HIDDEN = 0.5  # exponent of a redundancy's gain in a launch that waits: three steps, 0.50 to 0.52


@dataclass(frozen=True)
class Fix:
    """What fixing a cause takes away: at best (for the bound), and as a rule (to expect)."""

    kind: Kind | None = (
        None  # which fixes are alike: residuals are pooled; None: nobody measured one
    )
    formula: str = ""  # bound and expectation in words
    best: Build | None = None  # the most that can go
    typical: Build | None = None  # what goes when people fix it
    # Instead of `best`: how many times the work or time that is needed; None where nobody knows.
    times: Callable[[Launch], float | None] | None = None
    without: tuple[str, ...] = ()  # units that the cause fills itself: they do not bind after it
    # Instead of `typical`: the expected speed-up, from the launch and the bound.
    own: Callable[[Launch, float | None], float | None] | None = None

    def bound(self, launch: Launch) -> float | None:
        """What `times` can bring before another unit binds; None without it."""
        times = self.times(launch) if self.times else None
        return None if times is None else capped(launch, times, *self.without)


@dataclass(frozen=True)
class Estimate:
    """The bound on the speed-up (None: no counter bounds it) and what to expect of it."""

    gain: float | None
    expect: Expectation | None


def expectation(gain: float, spread: tuple[float, float], bound: float | None) -> Expectation:
    """The interval around an expected speed-up; no part of it is above the bound."""
    size = log(max(gain, 1.0))
    most = inf if bound is None else bound
    below, above = (min(exp(size + end * (OFFSET + size)), most) for end in spread)
    return Expectation(min(gain, most), below, above)


def estimate(launch: Launch, *fixes: Fix) -> Estimate:
    """What these fixes are worth at once: their scenarios are joined, not their gains added."""
    try:
        bound, value = _bound(launch, fixes), _expected(launch, fixes)
    except NotCollected:
        return Estimate(None, None)
    kinds = [fix.kind for fix in fixes if fix.kind]
    if value is None or not kinds:
        return Estimate(bound, None)
    return Estimate(bound, expectation(value, SPREAD[max(kinds, key=kinds.count)], bound))


def _bound(launch: Launch, fixes: Sequence[Fix]) -> float | None:
    most = limit(launch, joint([fix.best(launch) for fix in fixes if fix.best]))
    bounds = [fix.bound(launch) for fix in fixes if not fix.best]
    known = [bound for bound in bounds if bound is not None]
    return None if most == inf or len(known) < len(bounds) else most * prod(known)


def _expected(launch: Launch, fixes: Sequence[Fix]) -> float | None:
    if not loads(launch):
        return None  # no unit was counted: nothing says what would bind after it
    scenarios, own = [], []
    for fix in fixes:
        if fix.typical:
            scenarios.append(fix.typical(launch))
        elif fix.own and (value := fix.own(launch, fix.bound(launch))) is not None:
            own.append(value)
        else:
            return None
    return (modelled_gain(launch, joint(scenarios)) if scenarios else 1.0) * prod(own)


def headroom(launch: Launch) -> float | None:
    """How many times faster the same work could be done; None when a full unit may go unseen."""
    if not launch.known(*NEEDED) or not loads(launch):
        return None
    full = fullest(launch, Scenario())
    return 1 / min(full, 1.0) if full > 0 else None


def amdahl(part: float) -> float:
    """Speed-up when this share of the time is gone: 1 / (1 - part), 1,000 at most."""
    return 1 / (1 - min(part, NEVER_ALL))


def capped(launch: Launch, gain: float, *without: str) -> float:
    """A gain, no larger than the next busiest unit at its peak allows, leaving these units out."""
    after = next_limit(launch, *without)
    return min(gain, max(1.0, after.room)) if after else gain


def all_of_it(_: Launch, bound: float | None) -> float | None:
    """What can be had is what people get."""
    return bound


def where_full(launch: Launch, bound: float | None) -> float | None:
    """All of it where a unit is full of the redundant work, else half of it on a log scale.

    A launch that waits goes on waiting for what the redundant work had hidden.
    """
    if bound is None or any(u.near for u in uses(launch)):
        return bound
    return float(bound**HIDDEN)
