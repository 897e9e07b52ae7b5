"""Launches  ->  occupancy: achieved, theoretical, what limits it, and the step to the next block."""

from __future__ import annotations

from math import isnan, nan
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from profkit.model.units import collected_metrics
from profkit.show.numbers import LIMITS, next_block
from profkit.show.plots.bars import chosen, lacking, rows_axes
from profkit.show.plots.base import FAINT, INK, AlikeLaunches, finished

if TYPE_CHECKING:
    import pandas as pd

_BAR, _FIRST, _WIDE = 1.0, 1.36, 0.23  # the bar's scale, then one column per limiter
_HOT = "#D55E00"


def occupancy(runs: pd.DataFrame | pd.Series[Any], ax: Axes | None = None) -> Axes:
    """Draw achieved (solid) and theoretical (light) occupancy, and beside them the limiters.

    A limiter's figure is the blocks per SM that it allows; the smallest decides and stands out.
    The last column says what to give up for one more block per SM, where registers or shared
    memory decide.
    """
    kept, small_print = chosen(runs)
    ax = rows_axes(ax, [group.name for group in kept], 0.42, 1.6)
    end = _FIRST + _WIDE * len(LIMITS)
    for y, group in enumerate(kept):
        _row(ax, y, group, end)
    ax.set_xlim(0, end + 0.7)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    ax.spines["bottom"].set_bounds(0, _BAR)
    ax.set_xlabel("Warps per SM, of those it can hold", fontsize=12, color=INK, loc="left")
    heads = [name.removeprefix("limit_") for name in LIMITS]
    for i, head in enumerate([*heads, "one more block needs"]):
        x = _FIRST + _WIDE * (i + (0.0 if i < len(heads) else -0.35))
        align = "center" if i < len(heads) else "left"
        ax.annotate(head, (x, 1), (0, 6), xycoords=("data", "axes fraction"), fontsize=10.5,
                    textcoords="offset points", color=INK, ha=align, va="bottom")  # fmt: skip
    ax.annotate("blocks per SM by", (_FIRST - 0.5 * _WIDE, 1), (0, 22), fontsize=10.5, color=FAINT,
                xycoords=("data", "axes fraction"), textcoords="offset points")  # fmt: skip
    below = f"Registers are a thread's, shared memory is a block's. {small_print}"
    return finished(ax, "Occupancy: achieved (solid), theoretical (light)", below, above=40)


def _row(ax: Axes, y: int, group: AlikeLaunches, end: float) -> None:
    row = collected_metrics(group.rows[0])
    if "occupancy_limit" not in row and "occupancy" not in row:
        lacking(ax, y, group, "occupancy_limit")
        return
    most, achieved = row.get("occupancy_limit", nan), row.get("occupancy", nan)
    ax.barh(y, 0 if isnan(most) else most, 0.62, color="#b9d5e8", edgecolor="none")
    ax.barh(y, 0 if isnan(achieved) else achieved, 0.36, color="#0072B2", edgecolor="none")
    figures = " | ".join("?" if isnan(v) else f"{100 * v:.0f}" for v in (achieved, most))
    widest = max(v for v in (most, achieved) if not isnan(v))
    ax.text(min(widest, _BAR) + 0.012, y, figures, fontsize=9.5, color=INK, va="center")
    blocks = {name: row[name] for name in LIMITS if name in row}
    least = min(blocks.values(), default=nan)
    for i, name in enumerate(LIMITS):
        decides = blocks.get(name) == least
        ax.text(_FIRST + _WIDE * i, y, f"{blocks[name]:.0f}" if name in blocks else "–", ha="center",
                va="center", fontsize=11, color=_HOT if decides else FAINT,
                fontweight="bold" if decides else "normal")  # fmt: skip
    ax.text(
        end - 0.35 * _WIDE, y, next_block(row, blocks, least), fontsize=10, color=INK, va="center"
    )
