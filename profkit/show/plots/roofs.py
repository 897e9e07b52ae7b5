"""Launches  ->  the frame that holds them and the ceilings of their device: diagonals and flats."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, degrees, isnan, nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from profkit.model import roofline as model
from profkit.show.numbers import Roof, axis_limits, si
from profkit.show.plots.base import FAINT, INK, bare


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


_DASHES = {"dram": "-", "l2": (0, (6, 2)), "l1": (0, (2, 2))}
_GREY = "#666666"


def draw_roofs(ax: Axes, roofs: Sequence[Roof]) -> list[Text]:
    """Draw diagonals and flats up to where they meet; returns the words written on them.

    The layout of the figure has to be settled: angles and places are in pixels.
    """
    left, right = ax.get_xlim()
    slopes = [r for r in roofs if r.name in model.LEVELS]
    peaks = [r for r in roofs if r.name not in model.LEVELS]
    top = max((r.high for r in peaks), default=nan)
    steep = max((r.high for r in slopes), default=nan)
    texts: list[Text] = []
    for roof in sorted(peaks, key=lambda r: r.high):
        start = left if isnan(steep) else max(roof.high / steep, left)
        _line(ax, roof, np.array([start, right]), np.array([1.0, 1.0]))
        texts.append(_on_flat(ax, roof, right, texts))
    for roof in slopes:
        end = right if isnan(top) else min(top / roof.high, right)
        if end <= left:
            continue  # it meets the flats left of the frame: words without a line say nothing
        xs = np.array([left, end])
        _line(ax, roof, xs, xs)
        texts.append(_on_diagonal(ax, roof, [r.high for r in peaks]))
    return texts


def _line(ax: Axes, roof: Roof, xs: Any, shape: Any) -> None:
    dash = _DASHES.get(roof.name, "-")
    ax.plot(xs, shape * roof.high, color=_GREY, lw=1.6, ls=dash, zorder=2)
    ax.fill_between(xs, shape * roof.low, shape * roof.high, color=_GREY, alpha=0.16, lw=0)


def _on_diagonal(ax: Axes, roof: Roof, flats: Sequence[float]) -> Text:
    """The words along a diagonal, at the first place from the left where no flat runs through."""
    left, right = ax.get_xlim()
    begin = max(left, ax.get_ylim()[0] / roof.high) * 1.2
    ends = ax.transData.transform([(x, x * roof.high) for x in (begin, 10 * begin)])
    angle = degrees(atan2(*(ends[1] - ends[0])[::-1]))
    text = ax.annotate(
        roof.text, (begin, begin * roof.high), (-4, 5), textcoords="offset points", fontsize=10,
        color=FAINT, ha="left", va="bottom", rotation=angle, rotation_mode="anchor", zorder=5,
    )  # fmt: skip
    lines = ax.transData.transform([(left, flat) for flat in flats] or [(left, -1.0)])[:, 1]
    for start in begin * np.geomspace(1, min(1e3, right / begin), 40):
        text.xy = (start, start * roof.high)
        box = text.get_window_extent()
        if not any(box.y0 - 3 < y < box.y1 + 3 for y in lines):
            break
    else:
        text.xy = (begin, begin * roof.high)
    return text


def _on_flat(ax: Axes, roof: Roof, right: float, before: Sequence[Text]) -> Text:
    text = ax.text(
        right,
        roof.high * 1.06,
        roof.text,
        fontsize=10,
        color=FAINT,
        ha="right",
        va="bottom",
        zorder=5,
    )
    if any(text.get_window_extent().overlaps(t.get_window_extent()) for t in before):
        text.set(y=roof.high / 1.06, va="top")  # two precisions near each other: one goes below
    return text
