"""One launch  ->  what it is bound by, and the two numbers that decide.

The order is the machine's own. A launch that leaves SMs idle is limited by its shape, unless some
resource is near its peak all the same. Then a resource near its peak; two of different groups at
once are balanced. What is left waits: latency, by the leading warp state.

Every border is one figure against one number, so a verdict also says when that figure is within 3 %
of its border: two runs of one kernel may then get two bounds, and each names the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

from profkit.diagnosis.rule import Bound, Diagnosis, NearBorder
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.diagnosis.rules.waits import stall_shares, waits_for
from profkit.model.idleness import idleness
from profkit.model.launch import Launch, Missing, NotCollected
from profkit.model.resources import Use, next_limit, uses
from profkit.reports.figures import share
from profkit.reports.metrics.warps import FEWEST

MOSTLY = 0.8  # a pipe at this share of the issue slots' is what they are full of
AS_GOOD_AS = 0.9  # a second resource at this share of the first one binds together with it
WORTH = 1.25  # gain from which a launch's shape is what limits it
BUSY = 0.75  # share of peak of SM or memory as a whole, where no unit of it was collected
MARGIN = 0.03  # of a figure: two runs of one kernel differ by as much
HALVINGS = 6  # of that margin, until the border is known to a twentieth of a per cent


@dataclass(frozen=True)
class _Facts:
    """What decides: how full each resource is, and what the launch's shape costs."""

    usages: tuple[Use, ...]
    shape: Diagnosis | None
    worth: float


def decide_bound(launch: Launch) -> Diagnosis:
    """Return the verdict on a launch that ncu could measure, without findings."""
    facts = _Facts(tuple(uses(launch)), *_shape(launch))
    verdict = _choose(facts, launch)
    border = _border(verdict, facts, launch)
    if border is None:
        return verdict
    because = f"{verdict.because}; near {border.other}: {border.why}"
    return replace(verdict, because=because, near_border=border)


def _choose(facts: _Facts, launch: Launch) -> Diagnosis:
    near = [u for u in facts.usages if u.near]
    sure = any(u.share >= u.resource.peak.sure for u in near)
    if facts.shape and facts.worth >= WORTH and not sure:
        return facts.shape
    if near:
        return _full(near)
    with suppress(NotCollected):
        hot = BY_ID["atomics-contention"].check(launch)
        if hot and launch.get("l2_atomic_sectors", 0) > 0:
            # One hot slice: every average reads near zero while all warps are in its queue.
            return Diagnosis("memory", "atomics", hot.cause)
    if not _enough(launch):
        return _partial(launch, facts.usages)
    return _latency(launch, facts.usages)


def _enough(launch: Launch) -> bool:
    """Return whether both halves of the machine were measured: else a full unit may go unseen."""
    return launch.known("memory_busy") or (
        launch.known("dram_busy", "l2_cache_busy", "l1_busy") and launch.known("issue_busy")
    )


def _partial(launch: Launch, usages: Sequence[Use]) -> Diagnosis:
    """A bound from a few throughputs, or none; what else to collect for a sure one."""
    lack = (Missing("SpeedOfLight", "throughput of SM, L1, L2 and DRAM decide the bound"),)
    halves: tuple[tuple[Bound, str], ...] = (("memory", "memory_busy"), ("compute", "sm_busy"))
    for bound, whole in halves:
        if launch.get(whole, 0.0) >= BUSY:
            text = f"{bound} throughput at {share(launch[whole])} of peak; its units were not collected"
            return Diagnosis(bound, None, text, missing=lack)
    if not usages:
        text = "no throughput was collected, so nothing says how busy the machine was"
        return Diagnosis("unknown", None, text, missing=lack)
    latency = _latency(launch, usages)
    return replace(
        latency,
        because=f"of what was collected {latency.because}; other units may be full",
        missing=(*lack, *latency.missing),
    )


def _shape(launch: Launch) -> tuple[Diagnosis | None, float]:
    """The verdict that the shape is the cause, and what a launch of ideal shape would gain."""
    gains, causes = {}, {}
    for rule in ALL:
        with suppress(NotCollected):
            if rule.shape and (asked := rule.ask(launch)):
                hit, worth = asked
                causes[rule.shape] = hit.cause
                cost = rule.costs(launch) if rule.costs else worth.gain
                gains[rule.shape] = cost or 1 / max(idleness(launch).busiest, 0.001)
    if not gains:
        return None, 1.0
    after = next_limit(launch)
    full = 1 / after.room if after else 0.0
    whole = 1 / max(launch["sm_active"], full, 0.001) if "sm_active" in launch else 1.0
    first = max(gains, key=lambda limiter: gains[limiter])  # of the causes, the one that costs most
    return Diagnosis("launch", first, causes[first]), max(whole, *gains.values())


def _full(near: list[Use]) -> Diagnosis:
    first = near[0]
    # Issue slots are full of the instructions that fill the pipe: the pipe is the cause.
    if first.resource.limiter == "issue":
        pipes = (u for u in near[1:] if u.resource.group == "compute")
        first = next((u for u in pipes if u.share >= MOSTLY * first.share), first)
    # A DRAM stream passes through L2: of the two, the busier one.
    by = {u.resource.limiter: u for u in near}
    if first.resource.limiter == "l2" and "dram" in by and by["dram"].elapsed >= first.elapsed:
        first = by["dram"]
    others = [u for u in near if u.resource.group != first.resource.group]
    others = [u for u in others if u.share >= AS_GOOD_AS * first.share]
    text = f"{first.resource.limiter} at {share(first.elapsed)} of peak"
    if others:
        second = others[0]
        text += (
            f" and {second.resource.limiter} at {share(second.elapsed)}: both near what they reach"
        )
        return Diagnosis("balanced", f"{first.resource.limiter}+{second.resource.limiter}", text)
    rest = [u for u in near if u is not first and u.resource.group == first.resource.group]
    more = f"; {rest[0].resource.limiter} at {share(rest[0].elapsed)}" if rest else ""
    return Diagnosis(first.resource.group, first.resource.limiter, text + more)


def _latency(launch: Launch, usages: Sequence[Use]) -> Diagnosis:
    busiest = sorted(usages, key=lambda u: -u.elapsed)[:2]
    full = " and ".join(f"{u.resource.limiter} {share(u.elapsed)}" for u in busiest)
    text = f"nothing is near its peak (busiest: {full})"
    try:
        state, part = next(iter(stall_shares(launch).items()))
    except NotCollected:
        few = launch.get("warp_samples", FEWEST)
        why = "warp states say what the warps wait for"
        if few < FEWEST:
            why += f"; {few:.0f} samples of them say nothing"
        return Diagnosis("latency", None, text, missing=(Missing("WarpStateStats", why),))
    text += (
        f", and the warps spend {share(part)} of their time waiting for {waits_for(state, launch)}"
    )
    return Diagnosis("latency", state, text)


def _border(verdict: Diagnosis, facts: _Facts, launch: Launch) -> NearBorder | None:
    """Return the bound on the other side of a border that one figure is within 3 % of."""
    if verdict.bound == "unknown":
        return None

    def bound(figure: int, factor: float) -> Bound:
        return _choose(_moved(facts, figure, factor, launch), launch).bound

    def turning(figure: int, end: float) -> float:
        """Return the factor nearest to 1 that turns the bound, between 1 and one that does."""
        same, turned = 1.0, end
        for _ in range(HALVINGS):
            middle = (same + turned) / 2
            if bound(figure, middle) == verdict.bound:
                same = middle
            else:
                turned = middle
        return turned

    tried = product(range(-1, len(facts.usages)), (1 + MARGIN, 1 - MARGIN))
    turns = [(figure, end) for figure, end in tried if bound(figure, end) != verdict.bound]
    factors = [(turning(figure, end), figure) for figure, end in turns]
    if not factors:
        return None
    factor, figure = min(factors, key=lambda turn: abs(turn[0] - 1))
    why = f"SMs that never idle would bring {facts.worth:.3g}x, and {WORTH:.3g}x decides"
    if figure >= 0:
        use = facts.usages[figure]
        turned = share(use.elapsed * factor)
        why = f"{use.resource.limiter} at {share(use.elapsed)}, and {turned} decides"
    return NearBorder(bound(figure, factor), abs(factor - 1), why)


def _moved(facts: _Facts, figure: int, factor: float, launch: Launch) -> _Facts:
    """Return the facts with one figure that many times as large: a usage, or for -1 the shape's cost."""
    if figure < 0:
        return replace(facts, worth=facts.worth * factor)
    usages = list(facts.usages)
    usages[figure] = usages[figure].scaled(factor, launch)
    return replace(facts, usages=tuple(usages))
