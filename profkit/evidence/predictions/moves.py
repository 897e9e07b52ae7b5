"""What a header says will move (`moves: stall_barrier<0.5x`)  ->  whether it did, by the counters.

Written before the variant is profiled: metric, < or > or ~, and the factor of the parent's value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isnan
from typing import Any, Literal, cast

from profkit.errors import ProfkitError
from profkit.reports.metrics import CATALOGUE

ABOUT = 0.1  # ~1x is this near to it, relatively
_MOVE = re.compile(r"([a-z][a-z0-9_]*)([<>~])(\d+(?:\.\d+)?)x")


@dataclass(frozen=True)
class Move:
    """One prediction."""

    metric: str  # short name in the catalogue
    # < at most, > at least, ~ within a tenth of `factor` times the parent's value
    way: Literal["<", ">", "~"]
    factor: float  # value after over value before

    def __str__(self) -> str:
        return f"{self.metric}{self.way}{self.factor:g}x"

    def holds(self, before: float, after: float) -> bool:
        """Whether it moved so; from 0 to anything is an infinite factor, from 0 to 0 none."""
        came = after / before if before else inf if after else 1.0
        if self.way == "~":
            return abs(came - self.factor) <= ABOUT * self.factor
        return came <= self.factor if self.way == "<" else came >= self.factor


def parse_moves(value: str, name: str) -> tuple[Move, ...]:
    """`stall_barrier<0.5x inst_matrix>2x`  ->  predictions."""
    return tuple(_parse(word, name) for word in re.split(r"[,\s]+", value) if word)


def _parse(word: str, name: str) -> Move:
    match = _MOVE.fullmatch(word)
    if not match:
        raise ProfkitError(
            f"{name}: cannot read '{word}' in 'moves:'",
            "write e.g. stall_long_scoreboard<0.5x inst_matrix>2x instructions~1x",
        )
    if match[1] not in CATALOGUE:
        raise ProfkitError(
            f"{name}: no metric is called '{match[1]}' in 'moves:'", "profkit explain lists them"
        )
    return Move(match[1], cast(Literal["<", ">", "~"], match[2]), float(match[3]))


def values(
    move: Move, before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[float, float] | None:
    """The metric's value on both rows of the frame; None where one was not collected."""
    pair = (float(row.get(move.metric, float("nan"))) for row in (before, after))
    one, other = pair
    return None if isnan(one) or isnan(other) else (one, other)
