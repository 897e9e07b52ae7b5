"""Launches, ladders, histories  ->  the numbers of their pictures, for plots and for pages.

No drawing library: a page is written with the base install.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import ceil, floor, inf, log10, nan
from typing import TYPE_CHECKING, Any

from profkit.model import roofline as model
from profkit.model.launch import select_collected_metrics
from profkit.reports import figures
from profkit.reports.metrics import CATALOGUE, compute
from profkit.reports.metrics.launch import OCCUPANCY

if TYPE_CHECKING:
    from profkit.evidence.ladder import Rung
    from profkit.evidence.noise import HistoryStep
    from profkit.evidence.samples import Interval

Row = Mapping[str, Any]

# The roofline.

WORDS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "workload": "workload's own"}
_NAMES = WORDS | {"tensor": "tensor", "uniform": "uniform", "issue": "issue slots"}
AXES = ("Arithmetic intensity (operations per byte of the level)", "Operations per second")
_LEFT, _RIGHT = 1e-2, 1e5  # intensities beyond are no place where kernels are


@dataclass(frozen=True)
class Roof:
    """A ceiling over all launches: the clocks moved it between low and high."""

    name: str
    low: float
    high: float
    clock: float
    device: bool

    @property
    def is_slope(self) -> bool:
        """Return whether it is a bandwidth, which grows with the intensity."""
        return self.name in model.LEVELS

    @property
    def text(self) -> str:
        if self.is_slope:
            per = "byte/s"
        else:
            per = find_rate_unit(self.name)
        return f"{spell_unit(self.name)} {format_range(self.low, self.high, per)}"


def format_range(low: float, high: float, per: str) -> str:
    """Return a range with one unit, or one value when the ends differ by less than 2 %."""
    text = figures.quantity(high, per)
    if not high > 1.02 * low:
        return text
    shown = float(text.partition(" ")[0].replace(",", ""))
    return f"{figures.figures(low * shown / high)}–{text}"


def spell_unit(name: str) -> str:
    """Return what a ceiling or a pipe is called in a picture."""
    return " ".join(_NAMES.get(part, part.upper()) for part in name.split("_"))


def find_rate_unit(family: str) -> str:
    if family.endswith("int8"):
        return "op/s"
    return "FLOP/s"


def say_share_of_roof(point: model.Point) -> str:
    return f"{figures.share(point.share)} of {spell_unit(point.roof)}"


def count_reasons_for_no_point(rows: Sequence[Row]) -> Counter[str]:
    """Return why launches have no point, and which section of ncu's has what they need."""
    lacks = chain.from_iterable(map(model.list_missing, rows))
    return Counter(f"{x.why} (ncu --section {x.section})" if x.section else x.why for x in lacks)


def explain_empty_roofline(rows: Sequence[Row]) -> str:
    """Say why no launch has a point on a roofline; "" where one has, or where there is no launch."""
    if not rows or any(model.list_points(row) for row in rows):
        return ""
    reasons = count_reasons_for_no_point(rows).most_common(1)
    why = "its counters were not collected"
    if reasons:
        why = reasons[0][0]
    return f"no launch has a point on a roofline: {why}"


_LONG = 0.1  # of the longest launch's time


def list_longest(rows: Sequence[Row]) -> list[Row]:
    """Return the launches that last at least a tenth of the longest one's time; all if no time is known.

    ncu divides counted cycles by the duration of a launch. Its start and end, a few microseconds,
    count no cycles: of a short launch the clocks, and the peaks worked out from them, are too low.
    """
    times = [select_collected_metrics(row).get("time", nan) for row in rows]
    longest = max((time for time in times if time > 0), default=nan)
    kept = [row for row, time in zip(rows, times, strict=True) if time >= _LONG * longest]
    return kept or list(rows)


def choose_ceilings(rows: Sequence[Row], points: Sequence[model.Point]) -> list[Roof]:
    """Return the ceilings to draw: every level, FP32, and the precisions in which arithmetic ran.

    Each is a range over the launches that last longest; over all where only a shorter one has it.
    """
    used = {"fp32", *model.LEVELS, *(p.family for p in points)}
    every = list(chain.from_iterable(map(model.list_ceilings, rows)))
    longest = list(chain.from_iterable(map(model.list_ceilings, list_longest(rows))))
    roofs = []
    for name in (*model.LEVELS, *model.FAMILIES):
        if name not in used:
            continue
        named = _choose_ceilings(longest, name) or _choose_ceilings(every, name)
        if named:
            values = [c.value for c in named]
            device = named[0].source != "report"
            roofs.append(Roof(name, min(values), max(values), max(c.clock for c in named), device))
    return roofs


def _choose_ceilings(ceilings: Sequence[model.Ceiling], name: str) -> list[model.Ceiling]:
    """Return those of a name: what reports say where any does, else what device attributes say."""
    named = [ceiling for ceiling in ceilings if ceiling.name == name]
    return [ceiling for ceiling in named if ceiling.source == "report"] or named


def iterate_roof_lines(
    roofs: Sequence[Roof], left: float, right: float
) -> Iterator[tuple[Roof, float, float]]:
    """Yield ceilings, the highest flat first, and the intensities between which each is drawn.

    Diagonals and flats end where they meet the highest others; a diagonal that meets the flats left
    of the frame is left out.
    """
    steepest = max((r.high for r in roofs if r.is_slope), default=inf)
    highest = max((r.high for r in roofs if not r.is_slope), default=inf)
    for roof in sorted((r for r in roofs if not r.is_slope), key=lambda r: -r.high):
        yield roof, max(roof.high / steepest, left), right
    for roof in (r for r in roofs if r.is_slope and highest / r.high > left):
        yield roof, left, min(highest / roof.high, right)


def compute_axis_limits(
    roofs: Sequence[Roof], launches: Sequence[Sequence[model.Point]]
) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of the frame that holds roofs and positions."""
    slopes = [r.high for r in roofs if r.is_slope] or [1e12]
    peaks = [r.high for r in roofs if not r.is_slope] or [10 * min(slopes)]
    # A launch's positions are in the frame; its other points where it has none.
    positions = ([p for p in points if not p.note] or points for points in launches)
    xs = [p.intensity for p in chain.from_iterable(positions) if p.intensity > 0]
    xs += [peak / slope for peak, slope in product(peaks, (min(slopes), max(slopes)))]
    wide = max(5.0, (1e3 * min(xs) / max(xs)) ** 0.5)  # at least three decades
    left = max(min(xs) / wide, _LEFT)
    right = max(min(max(xs) * wide, _RIGHT), 10 * left)
    drawn = chain.from_iterable(place_points_in_frame(points, left, right) for points in launches)
    ys = [y for _, y, _ in drawn if y > 0] + [left * min(slopes)] + peaks
    return left, right, min(ys) / 3, max(ys) * 4


def place_points_in_frame(
    points: Sequence[model.Point], left: float, right: float
) -> list[tuple[float, float, model.Point]]:
    """Return the points in the frame with their places, from the left.

    Also at an edge one that is all there is beyond it, just inside: left of the frame it slides
    along its diagonal, so the gap to the roof stays.
    """
    inside = [p for p in points if left <= p.intensity <= right]
    before = [p for p in points if p.intensity < left and not p.note]
    best = max(before, key=lambda p: p.share, default=None)
    shown = inside + ([best] if best else [])
    shown = shown or sorted(points, key=lambda p: p.intensity)[:1]
    heights = ((p, p.rate if p.intensity >= left else p.moved * left * 1.12) for p in shown)
    placed = [(min(max(p.intensity, left * 1.12), right / 1.12), y, p) for p, y in heights]
    return sorted(placed, key=lambda at: at[0])


def list_log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, and on a short axis 2 and 5 times those; an end where there is none."""
    digits = [1]
    if high < 1e3 * low:
        digits = [1, 2, 5]
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    every = [digit * 10.0**power for power, digit in product(powers, digits)]
    return [tick for tick in every if low <= tick <= high] or [low]


def format_rate_tick(value: float) -> str:
    """Return a rate beside an axis: 100 G, 1 T: powers of ten need no decimals."""
    number, _, prefix = figures.quantity(value, "").partition(" ")
    return f"{float(number.replace(',', '')):g} {prefix}".rstrip()


# Pipes and occupancy.

PIPES = tuple(
    m.name.removesuffix("_busy")
    for m in compute.PIPES
    if m.name.endswith("_busy") and f"{m.name}_active" in CATALOGUE
)


def get_pipe_shares(row: Mapping[str, float], pipe: str) -> tuple[float, float]:
    """Return elapsed and active share, NaN where not collected."""
    return row.get(f"{pipe}_busy", nan), row.get(f"{pipe}_busy_active", nan)


LIMITS = tuple(m.name for m in OCCUPANCY if m.name.startswith("limit_"))


def find_cuts_for_one_more_block(row: Mapping[str, float]) -> dict[str, str]:
    """Return what a limiter by itself has to give for one more block; "" where that is not known."""
    registers, shared = (row.get(f"{name}_step", nan) for name in ("registers", "shared"))
    return {
        "limit_registers": f"−{registers:.0f} registers" if registers > 0 else "",
        "limit_shared": f"−{shared / 1024:.3g} KiB shared" if shared > 0 else "",
    }


def find_block_limits(row: Mapping[str, float]) -> tuple[dict[str, float], list[str], str]:
    """Return the blocks per SM by limiter, who decides, and what they give for one more block.

    A dash when one of them cannot. Shared memory without a step needs none: the driver only
    configured as much of it as the other limiters let it use.
    """
    blocks = {name: row[name] for name in LIMITS if name in row}
    deciding = [name for name in blocks if blocks[name] == min(blocks.values())]
    needs = find_cuts_for_one_more_block(row)
    able = needs.keys() >= set(deciding)
    return blocks, deciding, ", ".join(needs[n] for n in deciding if able and needs[n]) or "–"


# Ladders and histories.

_ALIKE = 1.02  # references nearer than this share a line


def find_reference_times(steps: Sequence[Rung]) -> dict[str, Interval]:
    times: dict[str, Interval] = {}
    for step in steps:
        times |= {name: time.before for name, time in step.references.items()}
    return times


def find_reference_medians(steps: Sequence[Rung]) -> dict[str, float]:
    """Return names -> median; those that are as good as one share a name."""
    medians = {name: time.median for name, time in find_reference_times(steps).items()}
    references: dict[str, float] = {}
    for name, time in sorted(medians.items(), key=lambda pair: pair[1]):
        last = next(reversed(references), None)
        if last and time < _ALIKE * references[last]:
            references[f"{last}, {name}"] = references.pop(last)
        else:
            references[name] = time
    return references


@dataclass(frozen=True)
class HistoryPoint:
    """One timed run of a subject. Seconds."""

    order: int  # its place among the subject's runs, from 0
    # with a warm L2; low and high are its 95 % interval, equal to it where there is none
    median: float
    low: float
    high: float
    machine: str  # the GPU that it was measured on, told apart by uuid: "NVIDIA H200 2"
    real: bool  # whether its time changed, beyond noise, method and machine
    made: str  # the day on which it was measured
    change: str  # the first letters of its commit, and the speed-up of a real change
    told: str  # all that is known of it, in words


def group_history_points(steps: Sequence[HistoryStep]) -> dict[str, list[HistoryPoint]]:
    """Return subject -> its timed runs, oldest first."""
    machines: dict[str, str] = {}
    points: dict[str, list[HistoryPoint]] = {}
    for run, step in ((step.run, step) for step in steps):
        name, key = run.gpu or "unknown GPU", run.gpu_uuid or run.gpu or ""
        alike = sum(other.rpartition(" ")[0] == name for other in machines.values())
        machine = machines.setdefault(key, f"{name} {alike + 1}")
        if run.median is None:
            continue
        timed = points.setdefault(run.subject, [])
        low, high = (run.median if end is None else end for end in (run.low, run.high))
        real = step.answer in ("faster", "slower")
        factor = ""
        if step.time and real:
            factor = f"{step.time.speedup.median:.3g}x"
        made, commit = (run.made or "")[:10], (run.commit or "")[:8]
        told = ", ".join(filter(None, (made, commit, machine, step.answer, factor)))
        place = len(timed), run.median, low, high, machine
        timed.append(HistoryPoint(*place, real, made, f"{commit} {factor}", told))
    return points
