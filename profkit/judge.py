"""What a rule, a finding and an estimate are, whatever is judged: a launch or a program's step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from profkit.errors import ProfkitError

Status = Literal["fires", "clear", "unknown"]


class Estimate(NamedTuple):
    """What a fix brings: what is expected, the two ends of the interval, and what it cannot exceed.

    Of a step milliseconds that it saves, of a launch a speed-up. NaN where nothing says what to expect.
    """

    low: float = nan
    expected: float = nan
    high: float = nan
    bound: float | None = None  # None where nothing bounds it but the whole

    @property
    def is_known(self) -> bool:
        """Return whether anything is to be expected, and not only a bound."""
        return not isnan(self.expected)

    def limit_to(self, most: float) -> Estimate:
        """Return the estimate with nothing in it above a bound."""
        if self.bound is None:
            bound = most
        else:
            bound = min(most, self.bound)
        return Estimate(min(self.low, most), min(self.expected, most), min(self.high, most), bound)


NO_SAVING = Estimate(low=0.0, expected=0.0, high=0.0)
NOT_PRICED = Estimate()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a rule says of a launch or a step."""

    rule: str  # id of the rule
    cause: str  # what is wrong, with figures, in one sentence
    advice: str = ""
    where: tuple[Any, ...] = ()  # places, the one with most of it first
    # The figures that it looked at; None for one that was not collected.
    evidence: Mapping[str, float | None] = field(default_factory=dict)
    saving: Estimate = NOT_PRICED
    status: Status = "fires"


Fix = TypeVar("Fix")  # what mending it does to a launch or a step
Example = TypeVar("Example")  # a launch or a step, written down by hand


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[Fix, Example]):
    """What a rule of a launch and one of a step have: `profkit explain ID` shows it.

    How each asks its question is its own: a launch's rule says yes or no, a step's names places.
    """

    id: str  # kebab-case, unique
    title: str  # one line for tables
    meaning: str  # what happens, and how it is seen
    advice: str  # what people do about it
    fix: Fix
    fires: tuple[Example, ...]  # on these it is found, the plainest one first
    clear: tuple[Example, ...]  # on these it is not, the one most like the first of `fires` first

    def __post_init__(self) -> None:
        for name in ("fires", "clear"):
            if not isinstance(getattr(self, name), tuple):
                kind = type(getattr(self, name)).__name__
                hint = f"{name} takes a tuple of examples: {name}=(...,)"
                raise ProfkitError(f"rule {self.id}: {name} is a single {kind}", hint)
