"""A finding: what is wrong with a launch or a step, how that is known, and what mending it saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Status = Literal["fires", "clear", "unknown"]


class Estimate(NamedTuple):
    """What a fix saves: what is expected, the two ends of the interval, and what it cannot exceed."""

    low: float
    expected: float
    high: float
    bound: float | None = None  # None where nothing bounds it but the whole

    def limit(self, most: float) -> Estimate:
        """Return the estimate with nothing in it above a bound."""
        if self.bound is None:
            bound = most
        else:
            bound = min(most, self.bound)
        return Estimate(min(self.low, most), min(self.expected, most), min(self.high, most), bound)


NO_SAVING = Estimate(low=0.0, expected=0.0, high=0.0)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a rule says of what it was asked about."""

    rule: str  # id of the rule
    cause: str  # what is wrong, with figures, in one sentence
    advice: str = ""
    where: tuple[str, ...] = ()  # places, the one with most of it first
    evidence: Mapping[str, float] = field(default_factory=dict)  # the figures of its sentence
    saving: Estimate = NO_SAVING  # of a step in milliseconds
    status: Status = "fires"
