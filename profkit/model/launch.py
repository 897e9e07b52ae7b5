"""One launch as rules and the model see it: short metric names -> SI values, absent is never zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan


class NotCollected(KeyError):
    """A rule asked for a metric that the report does not have."""

    def __init__(self, metric: str) -> None:
        super().__init__(metric)
        self.metric = metric


class Launch(Mapping[str, float]):
    """One row of the frame as rules see it: indexing a metric that is NaN raises NotCollected."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = values
        self._present: dict[str, list[str]] = {}  # a verdict asks for the warp states 30 times

    def __getitem__(self, metric: str) -> float:
        value = self._values.get(metric)
        if value is None or isnan(value):
            raise NotCollected(metric)
        return float(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, metric: object) -> bool:
        value = self._values.get(str(metric))
        return value is not None and not isnan(value)

    def need(self, *metrics: str) -> None:
        """Raise NotCollected unless every one of these metrics was collected."""
        for metric in metrics:
            self[metric]

    def known(self, *metrics: str) -> bool:
        """Whether every one of these metrics was collected."""
        return all(m in self for m in metrics)

    def present(self, prefix: str) -> list[str]:
        """The collected metrics whose short name begins so."""
        if prefix not in self._present:
            self._present[prefix] = [m for m in self if m.startswith(prefix) and m in self]
        return self._present[prefix]


@dataclass(frozen=True)
class Missing:
    """Something not collected: the smallest Nsight Compute section that has it, and why."""

    section: str
    why: str


class Threshold(float):
    """A number that decides, and the reason why it is this one."""

    reason: str

    def __new__(cls, value: float, reason: str) -> Threshold:
        number = super().__new__(cls, value)
        number.reason = reason
        return number
