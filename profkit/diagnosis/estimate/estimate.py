"""A launch and a rule that fires  ->  the bound on its gain, and what to expect of a fix.

What is expected has an interval: how far the fixes on record came from the model, as the logarithm of
what came over what was expected, in units that grow with the latter. It is to hold four times of five
for code that nobody has looked at; how often it does is COVERAGE. `python tools/gains.py` works all of
these numbers out of what is committed, and a test holds them to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, log, prod

from profkit.diagnosis.estimate.causes import CAUSES, Kind
from profkit.model.launch import Launch, NotCollected
from profkit.model.scenario import Expectation, Mend, fullest, joint, limit, loads, modelled_gain

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


def expectation(gain: float, spread: tuple[float, float], bound: float | None) -> Expectation:
    """The interval around an expected speed-up; no part of it is above the bound."""
    size = log(max(gain, 1.0))
    most = inf if bound is None else bound
    below, above = (min(exp(size + end * (OFFSET + size)), most) for end in spread)
    return Expectation(min(gain, most), below, above)


# Units that do the problem's own work: bytes that must cross, operations that must be done. The
# others (caches, issue slots, special functions) are asked for more or less by how it is written.
OWN_WORK = ("dram-bandwidth", "tensor-pipe", "fp32-pipe")
AT_ROOF = 1.2  # headroom below which there is nothing to win but by less work
NEEDED = ("dram_busy", "l1_busy", "issue_busy")  # without these a full unit may go unseen


@dataclass(frozen=True)
class Estimate:
    """The bound on the speed-up (None: no counter bounds it) and what to expect of it."""

    gain: float | None
    expect: Expectation | None


def estimate(launch: Launch, rule: str, gain: float | None) -> Estimate:
    """What mending one cause is worth.

    Args:
        launch: The metrics of the launch.
        rule: The id of a rule that fires on it; of one that is not profkit's, its own gain stays.
        gain: What the rule's own arithmetic gives.
    """
    return together(launch, {rule: gain})


def together(launch: Launch, gains: Mapping[str, float | None]) -> Estimate:
    """What mending several causes at once is worth: their mends are joined, not their gains added.

    Args:
        launch: The metrics of the launch.
        gains: Rule -> the gain of its own arithmetic, of rules that fire.
    """
    try:
        bound = _bound(launch, gains)
        value = _expected(launch, gains)
    except NotCollected:
        bounds = [gain for gain in gains.values() if gain is not None]
        return Estimate(prod(bounds) if len(bounds) == len(gains) else None, None)
    if value is None:
        return Estimate(bound, None)
    kinds = [CAUSES[rule].kind for rule in gains]
    return Estimate(bound, expectation(value, SPREAD[max(kinds, key=kinds.count)], bound))


def _bound(launch: Launch, gains: Mapping[str, float | None]) -> float | None:
    mends, own = [], []
    for rule, gain in gains.items():
        cause = CAUSES.get(rule)
        if cause and cause.best:
            mends.append(cause.best(launch))
        elif gain is None:
            return None
        else:
            own.append(gain)
    most = limit(launch, joint(mends)) if mends else 1.0
    return None if most == inf else most * prod(own)


def _expected(launch: Launch, gains: Mapping[str, float | None]) -> float | None:
    if not loads(launch):
        return None  # no unit was counted: nothing says what would bind after it
    mends, own = [], []
    for rule, gain in gains.items():
        cause = CAUSES.get(rule)
        if cause and cause.typical:
            mends.append(cause.typical(launch))
        elif cause and cause.own and (value := cause.own(launch, gain)) is not None:
            own.append(value)
        else:
            return None
    return (modelled_gain(launch, joint(mends)) if mends else 1.0) * prod(own)


def headroom(launch: Launch) -> float | None:
    """How many times faster the same work could be done; None when a full unit may go unseen."""
    if not launch.known(*NEEDED) or not loads(launch):
        return None
    full = fullest(launch, Mend())
    return 1 / full if full > 0 else None
