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
    from profkit.evidence.ladder import LadderStep
    from profkit.evidence.noise import HistoryStep
    from profkit.evidence.samples import Interval
    from profkit.units import (
        Clause,
        FrameRow,
        MetricName,
        MetricValues,
        PipeName,
        RunLabel,
        Seconds,
        SentenceOrEmpty,
        ShareOrNan,
        TextOrEmpty,
    )

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
        return f"{make_display_name(self.name)} {format_range(self.low, self.high, per)}"


def format_range(low: float, high: float, per: str) -> str:
    """Return a range with one unit, or one value when the ends differ by less than 2 %."""
    text = figures.format_value_with_unit(high, per)
    if not high > 1.02 * low:
        return text
    shown = float(text.partition(" ")[0].replace(",", ""))
    return f"{figures.format_three_figures(low * shown / high)}–{text}"


def make_display_name(name: str) -> str:
    """Return what a ceiling or a pipe is called in a picture."""
    return " ".join(_NAMES.get(part, part.upper()) for part in name.split("_"))


def find_rate_unit(family: str) -> str:
    if family.endswith("int8"):
        return "op/s"
    return "FLOP/s"


def say_share_of_roof(point: model.RooflinePoint) -> str:
    return f"{figures.format_share(point.share)} of {make_display_name(point.roof)}"


def describe_roofline_position(launch_row: FrameRow) -> Clause:
    """Return what a launch reached: operations and bytes per second, and its share of which roof."""
    nearest = model.find_nearest_roof(launch_row)
    if nearest is None:
        why = "; ".join(missing.why for missing in model.list_missing_metrics(launch_row))
        return f"no position: {why or 'what that takes was not collected'}"
    reached: list[str] = []
    for point in model.list_roofline_points(launch_row):
        if point.level == "workload":
            continue
        if point.rate and not reached:
            unit = find_rate_unit(point.family)
            reached.append(
                f"{figures.format_value_with_unit(point.rate, unit)} {make_display_name(point.family)}"
            )
        if point.level == "dram":
            reached.append(
                f"{figures.format_value_with_unit(point.moved, 'byte/s')} of DRAM traffic"
            )
    roof, part = nearest
    return (
        f"{', '.join([*reached, ''])}{figures.format_share(part)} of the {make_display_name(roof)} "
        "roof"
    )


def count_reasons_for_no_point(rows: Sequence[FrameRow]) -> Counter[str]:
    """Return why launches have no point, and which section of ncu's has what they need."""
    reasons: Counter[str] = Counter()
    for row in rows:
        for lack in model.list_missing_metrics(row):
            if lack.section:
                reasons[f"{lack.why} (ncu --section {lack.section})"] += 1
            else:
                reasons[lack.why] += 1
    return reasons


def explain_empty_roofline(rows: Sequence[FrameRow]) -> SentenceOrEmpty:
    """Say why no launch has a point on a roofline; "" where one has, or where there is no launch."""
    if not rows or any(model.list_roofline_points(row) for row in rows):
        return ""
    reasons = count_reasons_for_no_point(rows).most_common(1)
    why = "its counters were not collected"
    if reasons:
        why = reasons[0][0]
    return f"no launch has a point on a roofline: {why}"


_LONG = 0.1  # of the longest launch's time


def select_long_launches(rows: Sequence[FrameRow]) -> list[FrameRow]:
    """Return the launches that last at least a tenth of the longest one's time; all if no time is known.

    ncu divides counted cycles by the duration of a launch. Its start and end, a few microseconds,
    count no cycles: of a short launch the clocks, and the peaks worked out from them, are too low.
    """
    times = [select_collected_metrics(row).get("time", nan) for row in rows]
    longest = max((time for time in times if time > 0), default=nan)
    kept = [row for row, time in zip(rows, times, strict=True) if time >= _LONG * longest]
    return kept or list(rows)


def choose_ceiling_ranges_to_draw(
    rows: Sequence[FrameRow], points: Sequence[model.RooflinePoint]
) -> list[Roof]:
    """Return the ceilings to draw: every level, FP32, and the precisions in which arithmetic ran.

    Each is a range over the launches that last longest; over all where only a shorter one has it.
    """
    used = {"fp32", *model.LEVELS}
    for point in points:
        used.add(point.family)
    every = list(chain.from_iterable(map(model.list_ceilings, rows)))
    longest = list(chain.from_iterable(map(model.list_ceilings, select_long_launches(rows))))
    roofs = []
    for name in (*model.LEVELS, *model.FAMILIES):
        if name not in used:
            continue
        named = _choose_ceilings_by_name(longest, name) or _choose_ceilings_by_name(every, name)
        if named:
            values = [ceiling.value for ceiling in named]
            clock = max(ceiling.clock for ceiling in named)
            device = named[0].source != "report"
            roofs.append(Roof(name, min(values), max(values), clock, device))
    return roofs


def _choose_ceilings_by_name(ceilings: Sequence[model.Ceiling], name: str) -> list[model.Ceiling]:
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
    slopes, flats = _split_roofs(roofs)
    steepest = max((roof.high for roof in slopes), default=inf)
    for roof in sorted(flats, key=lambda roof: -roof.high):
        yield roof, max(roof.high / steepest, left), right
    highest = max((roof.high for roof in flats), default=inf)
    for roof in slopes:
        if highest / roof.high > left:
            yield roof, left, min(highest / roof.high, right)


def _split_roofs(roofs: Sequence[Roof]) -> tuple[list[Roof], list[Roof]]:
    """Return the bandwidths, which are diagonals, and the peaks of arithmetic, which are flat."""
    slopes = []
    flats = []
    for roof in roofs:
        if roof.is_slope:
            slopes.append(roof)
        else:
            flats.append(roof)
    return slopes, flats


def compute_axis_limits(
    roofs: Sequence[Roof], launches: Sequence[Sequence[model.RooflinePoint]]
) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of the frame that holds roofs and positions."""
    slopes, flats = _split_roofs(roofs)
    bandwidths = [roof.high for roof in slopes] or [1e12]
    peaks = [roof.high for roof in flats] or [10 * min(bandwidths)]
    xs = _list_intensities(launches)
    for peak in peaks:
        xs += [peak / min(bandwidths), peak / max(bandwidths)]
    wide = max(5.0, (1e3 * min(xs) / max(xs)) ** 0.5)  # at least three decades
    left = max(min(xs) / wide, _LEFT)
    right = max(min(max(xs) * wide, _RIGHT), 10 * left)
    ys = [left * min(bandwidths), *peaks]
    for points in launches:
        for _, y, _ in place_points_in_frame(points, left, right):
            if y > 0:
                ys.append(y)
    return left, right, min(ys) / 3, max(ys) * 4


def _list_intensities(launches: Sequence[Sequence[model.RooflinePoint]]) -> list[float]:
    """Return the intensities above zero of launches' positions; of other points without one."""
    intensities = []
    for points in launches:
        positions = [point for point in points if not point.note]
        for point in positions or points:
            if point.intensity > 0:
                intensities.append(point.intensity)
    return intensities


def place_points_in_frame(
    points: Sequence[model.RooflinePoint], left: float, right: float
) -> list[tuple[float, float, model.RooflinePoint]]:
    """Return the points in the frame with their places, from the left.

    Also at an edge one that is all there is beyond it, just inside: left of the frame it slides
    along its diagonal, so the gap to the roof stays.
    """
    shown = [point for point in points if left <= point.intensity <= right]
    before = [point for point in points if point.intensity < left and not point.note]
    if before:
        shown.append(max(before, key=lambda point: point.share))
    if not shown:
        shown = sorted(points, key=lambda point: point.intensity)[:1]
    placed = []
    for point in shown:
        x = min(max(point.intensity, left * 1.12), right / 1.12)
        y = point.rate
        if point.intensity < left:
            y = point.moved * left * 1.12
        placed.append((x, y, point))
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
    number, _, prefix = figures.format_value_with_unit(value, "").partition(" ")
    return f"{float(number.replace(',', '')):g} {prefix}".rstrip()


# Pipes and occupancy.

PIPES = tuple(
    m.name.removesuffix("_busy")
    for m in compute.PIPES
    if m.name.endswith("_busy") and f"{m.name}_active" in CATALOGUE
)


def get_pipe_shares(row: MetricValues, pipe: PipeName) -> tuple[ShareOrNan, ShareOrNan]:
    """Return elapsed and active share, NaN where not collected."""
    return row.get(f"{pipe}_busy", nan), row.get(f"{pipe}_busy_active", nan)


LIMITS = tuple(m.name for m in OCCUPANCY if m.name.startswith("limit_"))


def find_cuts_for_one_more_block(row: MetricValues) -> dict[MetricName, TextOrEmpty]:
    """Return what a limiter by itself has to give for one more block; "" where that is not known."""
    registers, shared = (row.get(f"{name}_step", nan) for name in ("registers", "shared"))
    return {
        "limit_registers": f"−{registers:.0f} registers" if registers > 0 else "",
        "limit_shared": f"−{shared / 1024:.3g} KiB shared" if shared > 0 else "",
    }


def find_deciding_block_limits(
    row: MetricValues,
) -> tuple[dict[MetricName, float], list[MetricName], str]:
    """Return the blocks per SM by limiter, who decides, and what they give for one more block.

    A dash when one of them cannot. Shared memory without a step needs none: the driver only
    configured as much of it as the other limiters let it use.
    """
    blocks = {name: row[name] for name in LIMITS if name in row}
    fewest = min(blocks.values(), default=0.0)
    deciding = [name for name in blocks if blocks[name] == fewest]
    cuts = find_cuts_for_one_more_block(row)
    needed = []
    if cuts.keys() >= set(deciding):
        needed = [cuts[name] for name in deciding if cuts[name]]
    return blocks, deciding, ", ".join(needed) or "–"


# Ladders and histories.

_ALIKE = 1.02  # references nearer than this share a line


def get_latest_reference_times(steps: Sequence[LadderStep]) -> dict[str, Interval]:
    """Return reference -> its time, the one that was measured beside the last of the steps."""
    times: dict[str, Interval] = {}
    for step in steps:
        times |= {name: time.before for name, time in step.references.items()}
    return times


def get_reference_medians_by_name(steps: Sequence[LadderStep]) -> dict[str, Seconds]:
    """Return names -> median; those that are as good as one share a name."""
    medians = {name: time.median for name, time in get_latest_reference_times(steps).items()}
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


def group_history_points(steps: Sequence[HistoryStep]) -> dict[RunLabel, list[HistoryPoint]]:
    """Return subject -> its timed runs, oldest first."""
    machines: dict[str, str] = {}
    points: dict[str, list[HistoryPoint]] = {}
    for step in steps:
        name = step.run.gpu or "unknown GPU"
        key = step.run.gpu_uuid or step.run.gpu or ""
        alike = sum(other.rpartition(" ")[0] == name for other in machines.values())
        machine = machines.setdefault(key, f"{name} {alike + 1}")
        if step.run.median is not None:
            timed = points.setdefault(step.run.subject, [])
            timed.append(_make_history_point(step, step.run.median, machine, len(timed)))
    return points


def _make_history_point(
    step: HistoryStep, median: Seconds, machine: str, order: int
) -> HistoryPoint:
    """Return a timed run as a point; its interval is the median twice where it has none."""
    run = step.run
    made = (run.made or "")[:10]
    commit = (run.commit or "")[:8]
    is_real = step.answer in ("faster", "slower")
    factor = ""
    if step.time and is_real:
        factor = f"{step.time.speedup.median:.3g}x"
    return HistoryPoint(
        order=order,
        median=median,
        low=median if run.low is None else run.low,
        high=median if run.high is None else run.high,
        machine=machine,
        real=is_real,
        made=made,
        change=f"{commit} {factor}",
        told=", ".join(filter(None, (made, commit, machine, step.answer, factor))),
    )
