"""A value in SI and its unit  ->  three figures and a unit that people read.

Everything that shows a number uses these; nothing that is shown is ever computed from the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, isfinite, log10

from profkit.diagnosis.rule import share
from profkit.reports.metrics import CATALOGUE

NOT_COLLECTED = "not collected"
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_NOUNS = {"byte": "B", "byte/s": "B/s", "op": "op", "op/s": "op/s", "Hz": "Hz", "cycle": "cycles"}


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit: 3.85e-05 s is "38.5 µs", 0.453 share is "45.3 %".

    Args:
        value: In SI; None or NaN means not collected.
        unit: One of the catalogue's units.
    """
    if value is None or not isfinite(value):
        return NOT_COLLECTED
    if unit == "share":
        return share(value)
    if unit == "s":
        return seconds(value)
    noun = _NOUNS.get(unit, "")
    if unit == "count" and value == int(value) and abs(value) < 1e5:
        return f"{value:,.0f}"
    size, prefix = next((p for p in _PREFIXES if abs(value) >= 0.9995 * p[0]), (1.0, ""))
    return f"{figures(value / size)} {prefix}{noun}".rstrip()


def seconds(value: float | None) -> str:
    """A duration: 38.5 µs."""
    if value is None or not isfinite(value):
        return NOT_COLLECTED
    size, noun = next((s for s in _SMALL if abs(value) >= 0.9995 * s[0]), _SMALL[-1])
    return f"{figures(value / size)} {noun}"


def figures(value: float) -> str:
    """Three figures, no exponent: 1.85, 38.5, 385, 1,840, 8.00."""
    if value == 0:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.2e}"
    # Half a unit of the third figure first: 9.996 has its point where 10.0 has it.
    digits = max(0, 2 - floor(log10(abs(value) * (1 + 5e-4))))
    return f"{value:.{digits}f}"


def gain(factor: float | None) -> str:
    """A finding's gain, which is a bound and no promise: "at most 1.85x"."""
    return "gain unknown" if factor is None or not isfinite(factor) else f"at most {times(factor)}"


def times(factor: float | None) -> str:
    """A speed-up factor: 1.85x."""
    return "" if factor is None or not isfinite(factor) else f"{figures(factor)}x"


def counted(number: int, one: str, many: str = "") -> str:
    """A count with its noun: 1 launch, 105 launches."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


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
