"""A search's history  ->  pictures: what was tried, what mattered, and time against resources.

Each takes the frame of profkit.tune.history (history.parquet), one row per trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

from profkit.errors import ProfkitError
from profkit.show.plots import base
from profkit.show.plots.base import COLOURS, INK

if TYPE_CHECKING:
    import pandas as pd

_FEW = "draw it after a few more trials: profkit tune --resume"
_LOOKS = {  # source -> marker and colour
    "default": ("*", "#000000"),
    "random": ("o", COLOURS[5]),
    "tpe": ("s", COLOURS[0]),
    "steer": ("D", COLOURS[1]),
}


def _timed(history: pd.DataFrame) -> pd.DataFrame:
    """Return the trials that have a time, in µs, with the kind of their source; or an error."""
    timed = history[history["value"].notna()].copy()
    if timed.empty:
        raise ProfkitError("no trial of this search has a time", _FEW)
    timed["us"] = timed["value"] * 1e6
    timed["kind_of_source"] = timed["source"].str.split(":").str[0]
    return timed


def search_history(
    history: pd.DataFrame, plain_search: pd.DataFrame | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the time of every trial and the best so far; of a search without steering, that too."""
    timed = _timed(history)
    ax = base.canvas(ax, 5.5)
    for kind, (marker, colour) in _LOOKS.items():
        rows = timed[timed["kind_of_source"] == kind]
        full, cut = (rows[rows["outcome"] == o] for o in ("measured", "pruned"))
        label = f"{kind} ({len(rows)})" if len(rows) else None
        solid: base.Looks = {"s": 46, "color": colour, "zorder": 3, "label": label}
        hollow: base.Looks = {"s": 34, "facecolors": "none", "edgecolors": colour, "alpha": 0.7}
        ax.scatter(full["number"], full["us"], marker=marker, **solid)
        ax.scatter(cut["number"], cut["us"], marker=marker, zorder=2, **hollow)
    _best(ax, timed, INK, "best so far")
    if plain_search is not None:
        _best(ax, _timed(plain_search), COLOURS[3], "best so far, without steering")
    lost = len(history) - len(timed)
    _log_scale(ax)
    base.scales(ax, "Trial", "Time per call, µs")
    ax.legend(frameon=False, fontsize=10.5)
    base.bare(ax, "both")
    below = f"Hollow: pruned after its first look. {lost} more trials were refused or failed."
    return base.finished(ax, "Time of every trial", below)


def _best(ax: Axes, timed: pd.DataFrame, colour: str, label: str) -> None:
    measured = timed[timed["outcome"] == "measured"].sort_values("number")
    if not measured.empty:
        look: base.Looks = {"color": colour, "linewidth": 1.6, "label": label}
        ax.step(measured["number"], measured["us"].cummin(), where="post", **look)


def importance(importances: Mapping[str, float], ax: Axes | None = None) -> Axes:
    """Draw how much each tunable decides whether a configuration is among the fastest quarter."""
    if not importances:
        raise ProfkitError("too few trials to say which tunable matters", _FEW)
    ranked = sorted(importances.items(), key=lambda item: item[1])
    ax = base.canvas(ax, 1.6 + 0.5 * len(ranked))
    ax.barh([m for m, _ in ranked], [v for _, v in ranked], 0.6, color=COLOURS[0])
    for y, (_, value) in enumerate(ranked):
        ax.text(value + 0.01, y, f"{value:.0%}", va="center", fontsize=10.5, color=INK)
    ax.set_xlim(0, 1.08)
    base.scales(ax, "Share of what decides")
    base.bare(ax, "x")
    below = "PED-ANOVA: for being among the fastest quarter of trials."
    return base.finished(ax, "Which tunable matters", below)


def parallel(history: pd.DataFrame, macros: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draw every timed trial as a line through its tunables (columns `macros`) to its time."""
    timed = _timed(history).sort_values("us", ascending=False)
    ax = base.canvas(ax, 5.5)
    places = {m: sorted(timed[m].unique()) for m in macros}
    low, high = timed["us"].min(), timed["us"].max()
    fast = timed["us"] <= timed["us"].quantile(0.1)
    for (_, row), best in zip(timed.iterrows(), fast, strict=True):
        ys = [places[m].index(row[m]) / max(1, len(places[m]) - 1) for m in macros]
        ys.append((row["us"] - low) / (high - low) if high > low else 0.0)
        colour, width = (COLOURS[1], 1.6) if best else ("#b9c6d2", 0.8)
        ax.plot(range(len(ys)), ys, color=colour, linewidth=width, zorder=3 if best else 1)
    beside: base.Looks = {"va": "center", "fontsize": 10.5, "color": INK}
    for x, macro in enumerate(macros):
        for i, value in enumerate(places[macro]):
            y = i / max(1, len(places[macro]) - 1)
            ax.text(x - 0.03, y, f"{value}", ha="right", **beside)
    for y, value in ((0, low), (1, high)):
        ax.text(len(macros) + 0.03, y, f"{value:.3g} µs", **beside)
    ax.set_xticks(range(len(macros) + 1), [*macros, "time"])
    ax.set_xlim(-0.4, len(macros) + 0.6)
    base.bare(ax, "x")
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    below = "Orange: the fastest tenth of the timed trials."
    return base.finished(ax, "What the fastest have in common", below)


def resources(history: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw time against the shared memory of a block, coloured by registers, sized by occupancy."""
    timed = _timed(history)
    timed = timed[timed["smem"].notna() & timed["regs"].notna()]
    if timed.empty:
        raise ProfkitError("no trial of this search has a time and its resources", _FEW)
    ax = base.canvas(ax, 5.5)
    sizes = 30 + 400 * timed["occupancy"].fillna(0.1)
    look: base.Looks = {"cmap": "viridis", "edgecolors": "white", "linewidths": 0.6, "zorder": 3}
    dots = ax.scatter(timed["smem"] / 1024, timed["us"], s=sizes, c=timed["regs"], **look)
    bar = ax.figure.colorbar(dots, ax=ax)
    bar.set_label("Registers a thread", fontsize=11, color=INK)
    _log_scale(ax)
    base.scales(ax, "Shared memory of a block, KiB", "Time per call, µs")
    base.bare(ax, "both")
    below = "Larger dots: more warps fit on an SM."
    return base.finished(ax, "Time against what a block takes", below)


def _log_scale(ax: Axes) -> None:
    """Use a logarithmic axis in whole steps: a search seldom spans a decade."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(MaxNLocator(7))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
