"""What a header predicts of counters  ->  which metric goes which way, and whether it went.

`moves: stall_barrier<0.5x`: metric, < or > or ~, and the factor of the parent's value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import Literal, cast

from profkit.errors import ProfkitError
from profkit.reports.metrics import CATALOGUE

ABOUT = 0.1  # ~1x is this near to it, relatively
_MOVE = re.compile(r"([a-z][a-z0-9_]*)([<>~])(\d+(?:\.\d+)?)x")


@dataclass(frozen=True)
class ExpectedChange:
    """How a metric is to change: below, above or about a factor of its value before."""

    metric: str  # short name in the catalogue
    # < at most, > at least, ~ within a tenth of `factor` times the parent's value
    way: Literal["<", ">", "~"]
    factor: float  # value after over value before

    def __str__(self) -> str:
        return f"{self.metric}{self.way}{self.factor:g}x"

    def is_fulfilled_by_values(self, before: float, after: float) -> bool:
        """Return whether two values changed as the move says."""
        came = compute_factor_of_change(before, after)
        if self.way == "~":
            return abs(came - self.factor) <= ABOUT * self.factor
        if self.way == "<":
            return came <= self.factor
        return came >= self.factor


def compute_factor_of_change(before: float, after: float) -> float:
    """Return after / before; infinite from 0 to anything else, 1 from 0 to 0."""
    if before:
        return after / before
    if after:
        return inf
    return 1.0


def parse_expected_changes(header_value: str, file_name: str) -> tuple[ExpectedChange, ...]:
    """Parse predictions of a header: `stall_barrier<0.5x inst_matrix>2x`."""
    moves = []
    for word in filter(None, re.split(r"[,\s]+", header_value)):
        match = _MOVE.fullmatch(word)
        if not match:
            hint = "write e.g. stall_long_scoreboard<0.5x inst_matrix>2x instructions~1x"
            raise ProfkitError(f"{file_name}: cannot read '{word}' in 'moves:'", hint)
        if match[1] not in CATALOGUE:
            hint = "profkit explain lists them"
            raise ProfkitError(f"{file_name}: unknown metric '{match[1]}' in 'moves:'", hint)
        moves.append(
            ExpectedChange(match[1], cast(Literal["<", ">", "~"], match[2]), float(match[3]))
        )
    return tuple(moves)
