"""What a finding is worth, and metrics by their names  ->  text, with the numbers of reports/figures."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from profkit.reports.figures import NOT_COLLECTED, count, figures, quantity, seconds, share, times
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from profkit.diagnosis.rule import Diagnosis, Finding

__all__ = [
    "NOT_COLLECTED", "WORTH", "bound", "count", "dims", "evidence", "figures", "gain", "metric",
    "quantity", "seconds", "share", "times", "top", "worth",
]  # fmt: skip
WORTH = "at most"  # what a table's column of `top` says


def gain(factor: float | None) -> str:
    """A finding's gain, which is a bound and no promise: "at most 1.85x"."""
    return "gain unknown" if factor is None or not isfinite(factor) else f"at most {times(factor)}"


def worth(finding: Finding) -> str:
    """What mending a finding is worth, beside its cause: "at most 1.85x"."""
    return gain(finding.gain)


def top(finding: Finding | None) -> str:
    """The same in a table's cell: "1.85x"; "" for no finding."""
    return times(finding.gain) if finding else ""


def bound(diagnosis: Diagnosis, status: str = "ok") -> str:
    """The verdict in two words: "memory: shared", "unknown"; a launch that failed says so."""
    return diagnosis.label if status == "ok" else status


def dims(of: tuple[int, int, int] | None) -> str:
    """A grid or block: 16 x 4 x 16, without trailing ones."""
    if of is None:
        return "unknown"
    sizes = list(of)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return " x ".join(f"{n:,}" for n in sizes)


def metric(name: str, value: float | None) -> str:
    """A metric's value with the unit that the catalogue gives it."""
    return quantity(value, CATALOGUE[name].unit if name in CATALOGUE else "count")


def evidence(values: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """Metric names with their values as text."""
    return [(name, metric(name, value)) for name, value in values.items()]
