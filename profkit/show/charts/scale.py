"""Values of an axis  ->  three figures and a unit, however small or large they are."""

from __future__ import annotations

from math import floor, isnan, log10

_SMALL, _LARGE = ("", "m", "µ", "n"), ("", "k", "M", "G", "T", "P")


def si(value: float, unit: str, top: str = "P") -> str:
    """Three figures and a unit: 4.81e12, "B/s" -> "4.81 TB/s"; "?" when not known."""
    if isnan(value):
        return f"? {unit}"
    if value == 0:
        return f"0 {unit}"
    power = floor(log10(abs(value) * (1 + 5e-4)) / 3)
    power = min(max(power, 1 - len(_SMALL)), _LARGE.index(top))
    prefix = _LARGE[power] if power >= 0 else _SMALL[-power]
    return f"{three(value / 1000.0**power)} {prefix}{unit}"


def three(value: float) -> str:
    """Three significant figures, no exponent below a million: 0.0283, 4.81, 1070."""
    if value == 0 or isnan(value):
        return "0" if value == 0 else "?"
    digits = max(0, 2 - floor(log10(abs(value) * (1 + 5e-4))))
    return f"{value:.{digits}f}"


def span(low: float, high: float, unit: str, top: str = "P") -> str:
    """A range with one unit, or one value when the ends differ by less than 2 %."""
    if not high > 1.02 * low:
        return si(high, unit, top)
    text = si(high, unit, top)
    number, _, rest = text.partition(" ")
    return f"{three(low * float(number) / high)}–{text}" if rest else text
