"""Launches  ->  the ceilings to draw over them, the frame, and each point's place in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite, nan

from profkit.errors import ProfkitError
from profkit.model import roofline as model
from profkit.model.launch import Missing
from profkit.records.grid import TimeGrid
from profkit.show.charts.groups import Row
from profkit.show.charts.heatmap import shared_part
from profkit.show.charts.scale import span

WORDS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "workload": "workload's own"}
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
    def text(self) -> str:
        """What is written on it."""
        per = "B/s" if self.name in model.LEVELS else unit(self.name)
        return f"{word(self.name)} {span(self.low, self.high, per, 'T')}"


def word(name: str) -> str:
    """A ceiling's name in a picture."""
    if name in WORDS:
        return WORDS[name]
    return " ".join("tensor" if w == "tensor" else w.upper() for w in name.split("_"))


def unit(family: str) -> str:
    """What a precision's rate is counted in."""
    return "op/s" if family.endswith("int8") else "FLOP/s"


def lack_text(lack: Missing) -> str:
    """Why a launch has no point, and which section of ncu's has what it needs."""
    return f"{lack.why} (ncu --section {lack.section})" if lack.section else lack.why


def ceilings_of(rows: Sequence[Row], points: Sequence[model.Point]) -> list[Roof]:
    """The ceilings to draw: every level, FP32, and the precisions in which arithmetic ran."""
    used = {"fp32", *model.LEVELS, *(p.family for p in points)}
    every = [c for c in chain.from_iterable(map(model.ceilings, rows)) if c.name in used]
    roofs = []
    for name in (*model.LEVELS, *model.FAMILIES):
        named = [c for c in every if c.name == name]
        named = [c for c in named if c.source == "report"] or named
        if named:
            values = [c.value for c in named]
            device = named[0].source != "report"
            roofs.append(Roof(name, min(values), max(values), max(c.clock for c in named), device))
    return roofs


def with_ceilings(rows: Sequence[Row], ceilings: Mapping[str, float]) -> list[Row]:
    """The launches with these roofs instead of their report's.

    Args:
        rows: Rows of the frame.
        ceilings: Name of a ceiling -> byte/s of a level, op/s of a precision.

    Raises:
        ProfkitError: There is no ceiling of that name, or the number is none.
    """
    known = (*model.LEVELS, *model.FAMILIES)
    for name, value in ceilings.items():
        if name not in known:
            raise ProfkitError(f"no ceiling is called {name}", f"there are: {', '.join(known)}")
        if not (isfinite(value) and value > 0):
            raise ProfkitError(f"ceiling {name}: {value} is no rate", "byte/s or op/s, above 0")
    peaks = {f"peak_{name}": float(value) for name, value in ceilings.items()}
    return [{**row, **peaks} for row in rows]


def axis_limits(
    roofs: Sequence[Roof], launches: Sequence[Sequence[model.Point]]
) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of the frame that holds roofs and positions."""
    slope = min((r.high for r in roofs if r.name in model.LEVELS), default=1e12)
    peaks = [r.high for r in roofs if r.name not in model.LEVELS] or [10 * slope]
    real = [p for p in chain.from_iterable(map(_placing, launches)) if p.intensity > 0]
    steepest = max((r.high for r in roofs if r.name in model.LEVELS), default=slope)
    ridges = [peak / rise for peak in peaks for rise in (slope, steepest)]
    xs = [p.intensity for p in real] + ridges
    wide = max(5.0, (1e3 * min(xs) / max(xs)) ** 0.5)  # at least three decades
    left, right = max(min(xs) / wide, _LEFT), min(max(xs) * wide, _RIGHT)
    right = max(right, 10 * left)
    drawn = [y_of(p, left) for points in launches for p in visible_points(points, left, right)]
    ys = [y for y in drawn if y > 0] + [left * slope] + peaks
    return left, right, min(ys) / 3, max(ys) * 4


def _placing(points: Sequence[model.Point]) -> Sequence[model.Point]:
    """The points that the frame has to hold: the positions; the others of a launch without any."""
    return [p for p in points if not p.note] or points


def visible_points(points: Sequence[model.Point], left: float, right: float) -> list[model.Point]:
    """The points to draw: those in the frame, and at an edge one that is all there is beyond it."""
    inside = [p for p in points if left <= p.intensity <= right]
    before = [p for p in points if p.intensity < left and not p.note]
    best = max(before, key=lambda p: p.share, default=None)
    shown = inside + ([best] if best else [])
    return shown or sorted(points, key=lambda p: p.intensity)[:1]


def x_of(point: model.Point, left: float, right: float) -> float:
    """Intensity, or just inside of the edge that it lies beyond."""
    return min(max(point.intensity, left * 1.12), right / 1.12)


def y_of(point: model.Point, left: float) -> float:
    """Height; left of the frame it slides along its diagonal, so the gap to the roof stays."""
    return point.rate if point.intensity >= left else point.moved * left * 1.12


def grid_points(grid: TimeGrid, device: str) -> dict[str, list[model.Point]]:
    """The shapes of a grid as points, by what tells its pictures apart: the fastest that was timed.

    Where shapes lie side by side, operations and bytes are those that they need, as of a workload.

    Raises:
        ProfkitError: No shape says its operations and bytes, or they ran on another device.
    """
    if grid.gpu not in (None, device):
        raise ProfkitError(f"the launches ran on {device}, the grid on {grid.gpu}",
                           "draw them one at a time: their ceilings differ")  # fmt: skip
    by_picture: dict[str, list[model.Point]] = {}
    for cell in grid.cells:
        seconds = cell.fastest(grid.against, without=True)[1]
        if cell.operations > 0 and cell.moved > 0 and isfinite(seconds):
            rate, moved = cell.operations / seconds, cell.moved / seconds
            point = model.Point("workload", "", rate / moved, rate, moved, nan, "", nan)
            by_picture.setdefault(shared_part(cell), []).append(point)
    if not by_picture:
        raise ProfkitError(
            "no shape of this grid says its operations and bytes",
            'each line needs "operations" and "bytes" to stand in a roofline',
        )
    return by_picture
