"""A share of the time that would go  ->  the speed-up, no larger than what binds next allows."""

from __future__ import annotations

from profkit.model.launch import Launch
from profkit.model.resources import BY_LIMITER, next_limit, resource_use

NEVER_ALL = 0.999  # of the time: a share measured by sampling or by ratios is never all of it


def amdahl(part: float) -> float:
    """Speed-up when this share of the time is gone: 1 / (1 - part), 1,000 at most."""
    return 1 / (1 - min(part, NEVER_ALL))


def capped(launch: Launch, gain: float, *without: str) -> float:
    """A gain, no larger than the next busiest resource at its peak allows.

    Args:
        launch: The launch.
        gain: What would be won if nothing else came to bind.
        without: Limiters that the cause fills itself and that therefore do not bind next.
    """
    limit = next_limit(launch, *without)
    return min(gain, max(1.0, limit.room)) if limit else gain


def stalled(launch: Launch, *states: str) -> float:
    """Share of the warps' time in these states; 0 for one that this architecture does not have.

    Raises:
        NotCollected: No warp state was collected.
    """
    launch.need("stall_selected")
    return sum(launch[f"stall_{s}"] for s in states if f"stall_{s}" in launch)


def weight(launch: Launch, limiters: tuple[str, ...], states: tuple[str, ...]) -> float:
    """Share of the launch's time that these resources or stalls can account for, at most."""
    usages = [resource_use(BY_LIMITER[limiter], launch) for limiter in limiters]
    shares = [u.share / u.resource.peak.sure for u in usages if u is not None]
    if "stall_selected" in launch:
        shares.append(stalled(launch, *states))
    return min(1.0, max(shares, default=1.0))
