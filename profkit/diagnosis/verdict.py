"""One launch  ->  what it is bound by, and the two numbers that decide.

The order is the machine's own. A launch that leaves SMs idle is limited by its shape, unless some
resource is near its peak all the same. Then a resource near its peak; two of different groups at
once are balanced. What is left waits: latency, by the leading warp state.
"""

from __future__ import annotations

from dataclasses import dataclass

from profkit.diagnosis.machine.resources import Use, uses
from profkit.diagnosis.rule import Bound, Hit, Launch, Missing, NotCollected, share
from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.rules.latency import meaning, stalls

MOSTLY = 0.8  # a pipe at this share of the issue slots' is what they are full of
AS_GOOD_AS = 0.9  # a second resource at this share of the first one binds together with it
WORTH = 1.3  # gain from which a launch's shape is what limits it
SHAPES = (
    ("too_short", "short-kernel"),
    ("grid_too_small", "grid-too-small"),
    ("tail", "tail-effect"),
    ("imbalance", "workload-imbalance"),
)


@dataclass(frozen=True)
class Verdict:
    """bound, limiter, why, and what to collect for a better answer."""

    bound: Bound
    limiter: str | None
    because: str
    missing: tuple[Missing, ...] = ()


def decide(launch: Launch) -> Verdict:
    """The verdict on a launch that ncu could measure."""
    found = uses(launch)
    near = [u for u in found if u.near]
    shape = _shape(launch)
    if shape and not any(u.share >= u.resource.peak.sure for u in near):
        return shape
    if near:
        return _full(near)
    hot = _hit("atomics-contention", launch)
    if hot and launch.get("l2_atomic_sectors", 0) > 0:
        # One hot slice: every average reads near zero while all warps stand in its queue.
        return Verdict("memory", "atomics", hot.cause)
    if not found or not _enough(launch):
        return Verdict(
            "unknown",
            None,
            "no throughput was collected, so nothing says how busy the machine was",
            (Missing("SpeedOfLight", "throughput of SM, L1, L2 and DRAM decide the bound"),),
        )
    return _latency(launch, found)


def _enough(launch: Launch) -> bool:
    """Whether both halves of the machine were measured: else a full unit may go unseen."""
    return launch.known("memory_busy") or (
        launch.known("dram_busy", "l2_cache_busy", "l1_busy") and launch.known("issue_busy")
    )


def _hit(rule: str, launch: Launch) -> Hit | None:
    try:
        return BY_ID[rule].check(launch)
    except NotCollected:
        return None


def _shape(launch: Launch) -> Verdict | None:
    for limiter, rule in SHAPES:
        hit = _hit(rule, launch)
        if hit and (hit.gain is None or hit.gain >= WORTH):
            return Verdict("launch", limiter, hit.cause)
    return None


def _full(near: list[Use]) -> Verdict:
    first = near[0]
    # Issue slots are full of the instructions that fill the pipe: the pipe is the cause.
    if first.resource.limiter == "issue":
        pipes = [u for u in near if u.resource.group == "compute" and u is not first
                 and u.share >= MOSTLY * first.share]  # fmt: skip
        first = pipes[0] if pipes else first
    # A DRAM stream passes through L2: of the two, the busier one.
    by = {u.resource.limiter: u for u in near}
    if first.resource.limiter == "l2" and "dram" in by and by["dram"].elapsed >= first.elapsed:
        first = by["dram"]
    others = [u for u in near if u.resource.group != first.resource.group
              and u.share >= AS_GOOD_AS * first.share]  # fmt: skip
    said = f"{first.resource.limiter} at {share(first.elapsed)} of peak"
    if others:
        other = others[0]
        return Verdict(
            "balanced",
            f"{first.resource.limiter}+{other.resource.limiter}",
            f"{said} and {other.resource.limiter} at {share(other.elapsed)}: both near what they reach",
        )
    rest = [u for u in near if u is not first and u.resource.group == first.resource.group]
    second = f"; {rest[0].resource.limiter} at {share(rest[0].elapsed)}" if rest else ""
    return Verdict(first.resource.group, first.resource.limiter, said + second)


def _latency(launch: Launch, found: list[Use]) -> Verdict:
    busiest = sorted(found, key=lambda u: -u.elapsed)[:2]
    full = " and ".join(f"{u.resource.limiter} {share(u.elapsed)}" for u in busiest)
    try:
        waiting = stalls(launch)
    except NotCollected:
        return Verdict(
            "latency",
            None,
            f"nothing is near its peak (busiest: {full})",
            (Missing("WarpStateStats", "warp states say what the warps wait for"),),
        )
    state, part = next(iter(waiting.items()))
    return Verdict(
        "latency",
        state,
        f"nothing is near its peak (busiest: {full}), and the warps spend {share(part)} of their "
        f"time {meaning(state, launch)}",
    )
