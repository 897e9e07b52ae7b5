"""Points  ->  the frame that holds them, and the place of each in it, also of those off its edges."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from profkit.diagnosis.machine import roofline as model
from profkit.show.charts.roofline import Roof, axis_limits
from profkit.show.charts.scale import si
from profkit.show.plots.base import INK, bare


def set_frame(ax: Axes, roofs: Sequence[Roof], launches: Sequence[Sequence[model.Point]]) -> None:
    """Axes, limits and ticks."""
    left, right, bottom, top = axis_limits(roofs, launches)
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
