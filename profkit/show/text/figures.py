"""What a finding is worth, and metrics by their names  ->  text, with the numbers of reports/figures."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from profkit.reports.figures import (
    NOT_COLLECTED,
    OUT_OF_RANGE,
    counted,
    figures,
    quantity,
    seconds,
    share,
    speedup,
    unbroken,
)
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from profkit.diagnosis.rule import Diagnosis, Finding
    from profkit.model.scenario import Expectation

__all__ = [
    "NOT_COLLECTED", "WORTH", "bound", "counted", "dims", "evidence_texts", "expect", "figures", "gain",
    "metric_text", "quantity", "seconds", "share", "speedup", "top", "unbroken", "worth",
]  # fmt: skip
WORTH = "expected"  # what a table's column of `top` says


def gain(factor: float | None) -> str:
    """A finding's gain, which is a bound and no promise: "at most 1.85x"."""
    return (
        "gain unknown" if factor is None or not isfinite(factor) else f"at most {speedup(factor)}"
    )


def expect(expectation: Expectation) -> str:
    """What to expect of a fix, with the interval, to hold four times of five: 1.85x (1.4 to 2.2)."""
    low, high = figures(expectation.low), figures(expectation.high)
    return f"{speedup(expectation.gain)} ({low} to {high})"


def worth(finding: Finding) -> str:
    """What mending a finding is worth: "expect 1.85x (1.4 to 2.2), at most 3.1x", "at its roof"."""
    if finding.at_roof:
        return "at its roof"
    if finding.expect is None:
        return gain(finding.gain)
    bound = f", {gain(finding.gain)}" if finding.gain is not None else ", no bound known"
    return f"expect {expect(finding.expect)}{bound}"


def top(finding: Finding | None) -> str:
    """The same in a table: "1.85x (1.4 to 2.2)"; "" for no finding."""
    if finding is None:
        return ""
    return expect(finding.expect) if finding.expect else worth(finding)


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


def metric_text(name: str, value: float | None) -> str:
    """A metric's value with the unit that the catalogue gives it.

    A share a little above 1, of one thing over another counted in two passes, is all of it.
    """
    unit = CATALOGUE[name].unit if name in CATALOGUE else "count"
    whole = unit == "share" and value is not None and 1 < value <= OUT_OF_RANGE
    return quantity(1.0 if whole else value, unit)


def evidence_texts(values: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """Metric names with their values as text."""
    return [(name, metric_text(name, value)) for name, value in values.items()]
