"""Raw ncu values  ->  one SI value: what a catalogue entry is made of.

A source is a raw name or a small function of raw names. Raw values keep ncu's own units (%, ns);
`scale` is where they become fractions and seconds, and nowhere else does a unit change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite, nan

Raw = Mapping[str, float]
Unit = str  # "s", "Hz", "share" (0-1), "byte", "byte/s", "op", "op/s", "count", "cycle", ...

OPCODES = "sass__inst_executed_per_opcode"
SECTOR = 32  # bytes: the unit of every L1, L2 and DRAM transfer since Maxwell


@dataclass(frozen=True)
class Source:
    """One way to get a metric.

    Attributes:
        names: Raw names it reads; all must be there, or the next source is tried.
        value: SI value from the raw ones.
        text: How `profkit explain` shows it.
        optional: Raw names it reads when they are there.
    """

    names: tuple[str, ...]
    value: Callable[[Raw], float]
    text: str
    optional: tuple[str, ...] = ()

    @cached_property
    def needs(self) -> frozenset[str]:
        """`names` as a set: this is asked a hundred times per launch."""
        return frozenset(self.names)


@dataclass(frozen=True)
class Metric:
    """One entry of the catalogue.

    Attributes:
        name: Short name: the frame's column.
        unit: SI unit, or "share" for a fraction (1.0 is 100 %).
        meaning: What it is, in Nsight Compute's words.
        section: The smallest ncu section that collects it ("" when every report has it).
        sources: Tried in order; the first whose raw names are all there decides. All of them mean
            the same with the same denominator.
        since: First ncu that counts it ("2024.1"); "" where every one since 2020 does.
    """

    name: str
    unit: Unit
    meaning: str
    section: str
    sources: tuple[Source, ...]
    since: str = ""

    def of(self, raw: Raw) -> float:
        """The metric's value for one launch; NaN when it was not collected."""
        for source in self.sources:
            if source.needs <= raw.keys():
                value = source.value(raw)
                if isfinite(value):
                    # ncu subtracts counters of different passes: tiny negatives are 0.
                    return max(value, 0.0) if self.unit in {"count", "byte", "share"} else value
        return nan


def scale(name: str) -> float:
    """Factor from the unit that ncu stores for this name to SI (ncu's units never change here)."""
    if "pct_of_peak" in name or name.endswith(("_pct", ".pct")):
        return 0.01
    if name.startswith("gpu__time_duration"):
        return 1e-9
    if name.startswith("device__attribute_") and name.endswith(("_clock_rate", "_khz")):
        return 1e3
    if name == "device__attribute_clock_rate":
        return 1e3
    return 1.0


def raw_metric(name: str) -> Source:
    """The raw metric itself, in SI."""
    k = scale(name)
    return Source((name,), lambda r: r[name] * k, name)


def direct_metric(
    name: str, unit: Unit, meaning: str, section: str, *names: str, since: str = ""
) -> Metric:
    """A metric that ncu has itself, under the first of these raw names that a report has."""
    return Metric(name, unit, meaning, section, tuple(map(raw_metric, names)), since)


def total(*names: str, factor: float = 1.0) -> Source:
    """Sum of raw metrics that all have to be there."""
    ks = [(n, scale(n) * factor) for n in names]
    body = " + ".join(names)
    return Source(
        names,
        lambda r: sum(r[n] * k for n, k in ks),
        body if factor == 1 else f"{factor:g} * ({body})",
    )


def largest(*names: str) -> Source:
    """Largest of the raw metrics that are there; at least the first has to be."""
    ks = [(n, scale(n)) for n in names]
    return Source(
        names[:1],
        lambda r: max(r[n] * k for n, k in ks if n in r),
        "max(" + ", ".join(names) + ")",
        names[1:],
    )


def any_largest(*names: str) -> Source:
    """Largest of the raw metrics that are there, NaN when none is."""
    return Source(
        (),
        lambda r: max((r[n] * scale(n) for n in names if n in r), default=nan),
        "max of those collected: " + ", ".join(names),
        names,
    )


def any_total(*names: str) -> Source:
    """Sum of the raw metrics that are there, NaN when none is."""
    return Source(
        (),
        lambda r: sum(present) if (present := [r[n] for n in names if n in r]) else nan,
        "sum of those collected: " + ", ".join(names),
        names,
    )


def product(*names: str, factor: float = 1.0) -> Source:
    """Product of raw metrics."""

    def value(r: Raw) -> float:
        out = factor
        for name in names:
            out *= r[name] * scale(name)
        return out

    text = " * ".join(names)
    return Source(names, value, text if factor == 1 else f"{factor:g} * {text}")


def ratio_of(top: str | tuple[str, ...], bottom: str | tuple[str, ...]) -> Source:
    """Sum over sum; NaN when the denominator is not positive."""
    tops, bottoms = _names(top), _names(bottom)

    def value(r: Raw) -> float:
        below = sum(r[n] * scale(n) for n in bottoms)
        return sum(r[n] * scale(n) for n in tops) / below if below > 0 else nan

    return Source(tops + bottoms, value, f"({' + '.join(tops)}) / ({' + '.join(bottoms)})")


def excess(actual: str, ideal: str) -> Source:
    """Share of the actual count that the ideal one would not have needed; 0 for no accesses."""

    def value(r: Raw) -> float:
        return 1 - r[ideal] / r[actual] if r[actual] > 0 else 0.0

    return Source((actual, ideal), value, f"1 - {ideal} / {actual}")


def opcodes(*prefixes: str) -> Source:
    """Warp instructions executed whose SASS opcode (up to its first dot) is one of these."""
    known = set(prefixes)
    start = len(OPCODES) + 1

    def value(r: Raw) -> float:
        return sum(
            v
            for k, v in r.items()
            if k[-1] == "]" and k[start:-1].split(".", 1)[0] in known and k.startswith(OPCODES)
        )

    return Source((OPCODES,), value, f"{OPCODES} of {', '.join(prefixes)}")


def div(a: float, b: float) -> float:
    """A / b, NaN when b is not positive."""
    return a / b if b > 0 and b != inf else nan


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
