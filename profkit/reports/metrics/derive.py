"""Raw ncu values  ->  one SI value: what a catalogue entry is made of, and how it is written.

A file of the catalogue is a text. A section of ncu is in brackets; below it a metric is a line
"name | unit | meaning", and below that, indented, are its sources, the best first:

    [SpeedOfLight]
    dram_busy | share | DRAM throughput, share of its peak, elapsed cycles
      gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed

A source is raw names of ncu in arithmetic (+ - * / max min), all of which must be there, and it is
shown to people as it is written. Where a denominator is not positive it has no value, or the one
behind "else". "max of those collected: a, b" and "sum of those collected: a, b" take what there is,
"sass__inst_executed_per_opcode of LDL, STL" counts instructions. A backslash goes on in the next line.

Raw values keep ncu's own units (%, ns); they become fractions and seconds here and nowhere else.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profkit.units import FloatOrNan, NcuMetricName, TextOrEmpty


RawMetricValues = Mapping[str, float]
ComputeMetric = Callable[[RawMetricValues], float]
Unit = str  # "s", "Hz", "share" (0-1), "byte", "byte/s", "op", "op/s", "count", "cycle", ...

UNITS: dict[str, Unit] = {}  # of each metric of the catalogue, by its short name
OPCODES = "sass__inst_executed_per_opcode"
_INSTANCE = f"{OPCODES}["
SECTOR = 32  # bytes: the unit of every L1, L2 and DRAM transfer since Maxwell
# Stages of L1TEX that ncu gives as shares of twice what they can do, and the compute capabilities
# where it does: there l1tex__throughput, which takes them in, is double where they bind (T4: 99.9 and
# 50.0 %; V100, RTX 3070, 4090, 5060: the links, 1.99 to 2.01 times), and they never pass 50.0 %.
_HALVED = {
    "l1tex__data_pipe_lsu_wavefronts": {(7, 5)},
    "l1tex__m_l1tex2xbar_req_cycles_active": {(7, 0), (7, 5), (8, 6), (8, 9), (12, 0)},
}
_CC = tuple(f"device__attribute_compute_capability_{part}" for part in ("major", "minor"))


@dataclass(frozen=True)
class MetricFormula:
    """A formula of ncu's counters, and the counters that it needs."""

    names: tuple[str, ...]  # raw names it reads; all must be there, or the next source is tried
    value: ComputeMetric  # from the raw values to SI
    text: str  # how `profkit explain` shows it
    optional: tuple[str, ...] = ()  # raw names it reads when they are there

    @cached_property
    def needs(self) -> frozenset[str]:
        """Return `names` as a set: this is read a hundred times per launch."""
        return frozenset(self.names)


@dataclass(frozen=True)
class Metric:
    """A metric of the catalogue: the first collected source gives its value, in SI units."""

    name: str  # the frame's column
    unit: Unit  # in SI, or "share" for a fraction (1.0 is 100 %)
    meaning: str  # in Nsight Compute's words
    section: str  # the smallest ncu section that collects it; "" when every report has it
    # The first whose raw names are all there decides; all mean the same with the same denominator.
    sources: tuple[MetricFormula, ...]
    since: str = ""  # first ncu that counts it ("2024.1"); "" where every one since 2020 does

    def compute_from(self, raw: RawMetricValues) -> FloatOrNan:
        """Return the metric's value for one launch; NaN when it was not collected."""
        for source in self.sources:
            if source.needs <= raw.keys():
                try:
                    value = source.value(raw)
                except (ArithmeticError, ValueError):  # of counters that no launch has: 0 threads
                    return nan
                if isfinite(value):
                    # ncu subtracts counters of different passes: tiny negatives are 0.
                    if self.unit in {"count", "byte", "share"}:
                        return max(value, 0.0)
                    return value
        return nan


def parse_metrics(text: str, *computed: MetricFormula) -> tuple[Metric, ...]:
    """Return the metrics of a text of the catalogue; `computed` are sources that it names by theirs."""
    known = {source.text: source for source in computed}
    section = since = ""
    found = []
    for entry in re.split(r"\n(?=\S)", text):
        head, *lines = (" ".join(line.split()) for line in entry.strip().splitlines() or [""])
        if head.startswith("["):
            section, _, since = head.strip("[]").partition(" since ")
        elif head and not head.startswith("#"):
            name, unit, meaning = head.split(" | ")
            sources = tuple(known.get(line) or parse_catalogue_formula(line) for line in lines)
            found.append(Metric(name, unit, meaning, section, sources, since))
            UNITS[name] = unit
    return tuple(found)


def parse_catalogue_formula(text: str) -> MetricFormula:
    """Return the source that a line of the catalogue describes."""
    if several := re.fullmatch("(max|sum) of those collected: (.+)", text):
        return make_formula_of_collected_metrics(
            max if several[1] == "max" else sum, several[2].split(", "), text
        )
    if executed := re.fullmatch(f"{OPCODES} of (.+)", text):
        opcodes = [_name_opcode(word) for word in executed[1].split(", ")]
        return MetricFormula((OPCODES,), lambda raw: sum(raw.get(x, 0.0) for x in opcodes), text)
    if " " not in text:  # a raw name, as most are: it needs no parser
        return _make_formula((text,), _make_si_reader(text), text)
    formula, _, otherwise = text.partition(" else ")
    names_read: dict[str, None] = {}
    value = _compile_formula(ast.parse(formula, mode="eval").body, names_read)
    without = float(otherwise or nan)

    def read_value_or_else(raw: RawMetricValues) -> float:
        try:
            return value(raw)
        except ZeroDivisionError:
            return without

    return _make_formula(tuple(names_read), read_value_or_else if "/" in formula else value, text)


def make_formula_of_collected_metrics(
    choose: Callable[[Iterable[float]], float], names: Iterable[NcuMetricName], text: str
) -> MetricFormula:
    """Return the source that is the sum or the largest of the raw metrics that are there."""
    reader_by_name = {name: _make_si_reader(name) for name in names}

    def combine_values(raw: RawMetricValues) -> float:
        collected = []
        for name, read_in_si in reader_by_name.items():
            if name in raw:
                collected.append(read_in_si(raw))
        if collected:
            return choose(collected)
        return nan

    return _make_formula((), combine_values, text, tuple(reader_by_name))


def _make_formula(
    names: tuple[str, ...], value: ComputeMetric, text: str, optional: tuple[str, ...] = ()
) -> MetricFormula:
    """Return a source, with what is to say of raw names that are doubled in it."""
    read = set(map(_find_halved_unit, (*names, *optional)))
    for unit, versions in _HALVED.items():
        if unit in read:
            halved_on = ", ".join(f"{major}.{minor}" for major, minor in sorted(versions))
            text += f"; {unit} twice on {halved_on}"
    if not read.isdisjoint(_HALVED):
        optional += _CC
    return MetricFormula(names, value, text, optional)


def count_instructions_by_opcode(raw: RawMetricValues) -> dict[str, float]:
    """Return the warp instructions of each SASS opcode up to its first dot, by the names of _opcode."""
    totals: dict[str, float] = defaultdict(float)
    for name, value in raw.items():
        if name.startswith(_INSTANCE) and name[-1] == "]":
            totals[_name_opcode(name[len(_INSTANCE) : -1].partition(".")[0])] += value
    return totals


def _name_opcode(word: str) -> str:
    return f"{OPCODES} of {word}"


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def _compile_formula(node: ast.expr, names: dict[str, None]) -> ComputeMetric:
    """Return the value of a formula; `names` gets the raw names in it."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return lambda _: number
        case ast.Name() | ast.Attribute():
            name = _join_dotted_name(node)
            names[name] = None
            return _make_si_reader(name)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            top = _compile_formula(left, names)
            bottom = _compile_formula(right, names)
            # What is not positive divides like zero.
            return lambda raw: top(raw) / max(bottom(raw), 0.0)
        case ast.BinOp(left=left, op=op, right=right):
            a = _compile_formula(left, names)
            b = _compile_formula(right, names)
            does = _OPERATORS[type(op)]
            return lambda raw: does(a(raw), b(raw))
        case ast.Call(func=ast.Name(id="max" | "min" as word), args=args):
            parts = [_compile_formula(arg, names) for arg in args]
            if word == "max":
                choose = max
            else:
                choose = min
            return lambda raw: choose(part(raw) for part in parts)
    raise ValueError(f"no formula: {ast.unparse(node)}")


def _join_dotted_name(node: ast.expr) -> str:
    match node:
        case ast.Attribute(value=value, attr=last):
            return f"{_join_dotted_name(value)}.{last}"
        case ast.Name(id=name):
            return name
    raise ValueError(f"no name: {ast.unparse(node)}")


def _make_si_reader(name: NcuMetricName) -> ComputeMetric:
    """Return how a raw metric is read in SI; doubled where ncu halves it."""
    factor = get_factor_to_si(name)
    halved_on = _HALVED.get(_find_halved_unit(name), ())
    if not halved_on:
        return lambda raw: raw[name] * factor
    return lambda raw: (
        raw[name] * factor * (2 if tuple(raw.get(part) for part in _CC) in halved_on else 1)
    )


def _find_halved_unit(name: NcuMetricName) -> TextOrEmpty:
    is_share = "pct_of_peak" in name
    for unit in _HALVED:
        if is_share and name.startswith(unit):
            return unit
    return ""


def get_factor_to_si(name: NcuMetricName) -> float:
    """Return the factor from the unit that ncu stores for a raw name (it never changes) to SI."""
    if "pct_of_peak" in name or name.endswith(("_pct", ".pct")):
        return 0.01
    if name.startswith("gpu__time_duration"):
        return 1e-9
    if name.startswith("device__attribute_") and name.endswith(("_clock_rate", "_khz")):
        return 1e3
    return 1.0
