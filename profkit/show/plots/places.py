"""Points  ->  the frame that holds them, and the place of each in it, also of those off its edges."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from profkit.diagnosis.machine import roofline as model
from profkit.show.plots.base import INK, bare, si
from profkit.show.plots.roofs import Roof

_LEFT, _RIGHT = 1e-2, 1e5  # intensities beyond are no place where kernels are


def limits(
    roofs: Sequence[Roof], launches: Sequence[Sequence[model.Point]]
) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of the frame that holds roofs and positions."""
    slope = min((r.high for r in roofs if r.name in model.LEVELS), default=1e12)
    peaks = [r.high for r in roofs if r.name not in model.LEVELS] or [10 * slope]
    real = [p for points in launches for p in _placing(points) if p.intensity > 0]
    xs = [p.intensity for p in real] + [peak / slope for peak in peaks]
    wide = max(5.0, (1e3 * min(xs) / max(xs)) ** 0.5)  # at least three decades
    left, right = max(min(xs) / wide, _LEFT), min(max(xs) * wide, _RIGHT)
    right = max(right, 10 * left)
    drawn = [y_of(p, left) for points in launches for p in visible(points, left, right)]
    ys = [y for y in drawn if y > 0] + [left * slope] + peaks
    return left, right, min(ys) / 3, max(ys) * 4


def set_frame(ax: Axes, roofs: Sequence[Roof], launches: Sequence[Sequence[model.Point]]) -> None:
    """Axes, limits and ticks."""
    left, right, bottom, top = limits(roofs, launches)
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    ax.set_xlabel("Arithmetic intensity (operations per byte of the level)", fontsize=12, color=INK)
    ax.set_ylabel("Operations per second", fontsize=12, color=INK)
    ax.xaxis.set_major_formatter(FuncFormatter(_plain_tick))
    ax.yaxis.set_major_formatter(FuncFormatter(_prefixed_tick))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(10, numticks=20))
        axis.set_minor_locator(NullLocator())
    bare(ax, "both")


def _plain_tick(value: float, _: int | None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _prefixed_tick(value: float, _: int | None) -> str:
    """100 G, 1 T: powers of ten need no decimals."""
    number, _space, prefix = si(value, "").partition(" ")
    return f"{float(number):g} {prefix}".strip()


def _placing(points: Sequence[model.Point]) -> Sequence[model.Point]:
    """The points that the frame has to hold: the positions; the others of a launch without any."""
    return [p for p in points if not p.note] or points


def visible(points: Sequence[model.Point], left: float, right: float) -> list[model.Point]:
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
