"""A cause  ->  what of the launch stays when it is mended: work of units, waits of warps, idle places.

A mend is a hypothesis about the launch after the change, in shares of the launch before: 1 stays as
it is, 0 goes entirely. What is not named stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True)
class Mend:
    """What stays of a launch.

    Attributes:
        units: Unit -> share of its work that stays.
        waits: Warp state -> share of the warps' time in it that stays.
        places: How many times more warps work at once (more blocks, higher occupancy).
        ends: Share of the time that stays whatever is mended: the launch's beginning and end.
    """

    units: Mapping[str, float] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    places: float = 1.0
    ends: float = 0.0


def joint(mends: Iterable[Mend]) -> Mend:
    """All of them at once: a wait or a unit's work goes as far as the mend that takes most of it.

    More blocks and more warps per SM multiply: each block brings its warps.
    """
    parts = tuple(mends)
    return Mend(
        _least([m.units for m in parts]),
        _least([m.waits for m in parts]),
        prod(m.places for m in parts),
        max((m.ends for m in parts), default=0.0),
    )


def _least(shares: list[Mapping[str, float]]) -> dict[str, float]:
    names = {name for part in shares for name in part}
    return {name: min(part.get(name, 1.0) for part in shares) for name in sorted(names)}
