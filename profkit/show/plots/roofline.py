"""Launches  ->  the hierarchical roofline: log-log, marker by level, colour by launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text

from profkit.errors import ProfkitError
from profkit.model import roofline as model
from profkit.model.units import collected_metrics
from profkit.records.grid import TimeGrid
from profkit.reports.figures import share
from profkit.show.numbers import (
    WORDS,
    Roof,
    Row,
    ceilings_of,
    lack_text,
    si,
    span,
    unit,
    visible_points,
    word,
    x_of,
    y_of,
)
from profkit.show.plots.base import (
    COLOURS,
    FAINT,
    INK,
    canvas,
    clip,
    drawn_groups,
    figure_of,
    one_device,
    plain_text,
    records,
    titled_figure,
)
from profkit.show.plots.heatmap import shared_part
from profkit.show.plots.labels import Boxes, Label, place_labels
from profkit.show.plots.roofs import draw_roofs, set_frame

if TYPE_CHECKING:
    import pandas as pd

_MARKERS = {"dram": "o", "l2": "s", "l1": "^", "workload": "*"}
_SHAPES = ("D", "P", "X", "v")  # of a grid, by what tells its pictures apart
_PER_LINE = 5  # of a legend
_MOST_LABELS = 20  # more do not fit at README size; the longest-running launches keep theirs
_CROWD = 8  # with more groups than this everything is drawn smaller


@dataclass(frozen=True)
class Placed:
    """A group of like launches and their points."""

    name: str
    colour: str
    launches: Sequence[Sequence[model.Point]]
    time: float


def roofline(
    runs: pd.DataFrame | pd.Series[Any],
    ax: Axes | None = None,
    labels: int = _MOST_LABELS,
    ceilings: Mapping[str, float] | None = None,
    grid: TimeGrid | None = None,
) -> Axes:
    """Draw launches under the ceilings of the device that they ran on.

    A launch has a point per memory level (DRAM, L2, L1) at one height: its operations per second.
    Hollow points are no positions (data came from the caches, L1 was passed by). Launches without
    floating-point arithmetic have no intensity: they stand at the left edge, as far below the
    diagonal as their bandwidth is below the peak. A star is the declared workload's own point.

    Args:
        runs: Rows of the frame, of one device.
        ax: Where to draw; a new 12 x 7.5 inch figure when None.
        labels: At most so many launches are named, the longest-running first.
        ceilings: Roofs instead of the report's: dram, l2, l1 in byte/s; fp32, tensor_bf16, ... in op/s.
        grid: Shapes to draw beside them, small, each by its fastest and by the work that it needs.

    Raises:
        ProfkitError: No launches, launches of several devices or of another than the grid's, or a
            ceiling that is none.
    """
    rows = _with_ceilings(records(runs), ceilings or {})
    device = one_device(rows)
    shapes = _grid_points(grid, device) if grid else {}
    placed = _placed(rows)
    points = [p for group in placed for launch in group.launches for p in launch]
    roofs = ceilings_of(rows, points)
    ax = canvas(ax, 7.5)
    set_frame(ax, roofs, [*(x for group in placed for x in group.launches), *shapes.values()])
    titled_figure(ax, _title(device, rows), _small_print(rows, points, roofs))
    _draw_shapes(ax, shapes)
    for group in placed:
        for launch in group.launches:
            _draw(ax, launch, group.colour, small=len(placed) > _CROWD)
    figure_of(ax).draw_without_rendering()  # settles the layout: words are placed in pixels
    texts = draw_roofs(ax, roofs)
    _legend(ax, points, list(shapes))
    if not points:
        _say_why(ax, rows)
    _name(ax, placed, texts, labels)
    plain_text(ax)
    return ax


def _with_ceilings(rows: Sequence[Row], ceilings: Mapping[str, float]) -> list[Row]:
    """The launches with these roofs instead of their report's.

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


def _grid_points(grid: TimeGrid, device: str) -> dict[str, list[model.Point]]:
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


def _placed(rows: Sequence[Row]) -> list[Placed]:
    return [
        Placed(
            group.name,
            COLOURS[i % len(COLOURS)],
            [model.points(row) for row in group.rows],
            collected_metrics(group.rows[0]).get("time", 0.0),
        )
        for i, group in enumerate(drawn_groups(rows))
    ]


def _title(device: str, rows: Sequence[Row]) -> str:
    parts = [f"Roofline of {clip(device)}"]
    for metric, what in (("sm_clock", "SM"), ("dram_clock", "DRAM")):
        clocks = [c for row in rows if (c := collected_metrics(row).get(metric, nan)) > 0]
        if clocks:
            parts.append(f"{what} {span(min(clocks), max(clocks), 'Hz')}")
    cases = {row.get("case") for row in rows}
    if len(cases) == 1 and isinstance(case := cases.pop(), str):
        parts.append(f"case {clip(case)}")
    return "  ·  ".join(parts)


def _small_print(rows: Sequence[Row], points: Sequence[model.Point], roofs: Sequence[Roof]) -> str:
    sentences = []
    if device := [r for r in roofs if r.device]:
        listed = ", ".join(f"{word(r.name)} at {si(r.clock, 'Hz')}" for r in device)
        sentences.append(f"Ceilings by the device attributes: {listed}.")
    if len(device) < len(roofs):
        sentences.append(
            "Ceilings from the report at the measured clocks; shares are of each launch's own."
        )
    without = [row for row in rows if not model.points(row)]
    if points and without:
        lack = Counter(lack_text(m) for row in without for m in model.missing(row))
        why = f", {lack.most_common(1)[0][0]}" if lack else ""
        sentences.append(f"Without a point: {len(without)} of {len(rows)} launches{why}.")
    if any(p.above for p in points):
        sentences.append("A point above its roof is an error of the measurement.")
    return " ".join(sentences)


def _draw(ax: Axes, points: Sequence[model.Point], colour: str, small: bool) -> None:
    """One launch: its levels on a line, the workload's own point tied to the DRAM one."""
    left, right = ax.get_xlim()
    size = 7.0 if small else 10.0
    shown = [(x_of(p, left, right), y_of(p, left), p) for p in visible_points(points, left, right)]
    levels = sorted((s for s in shown if s[2].level != "workload"), key=lambda s: s[0])
    if len(levels) > 1:
        xs, ys = [s[0] for s in levels], [s[1] for s in levels]
        ax.plot(xs, ys, color=colour, lw=1.4, alpha=0.65, zorder=3)
    own = [s for s in shown if s[2].level == "workload"]
    for x, y, _ in own:
        tied = next((s for s in shown if s[2].level == "dram"), None)
        if tied:
            ax.plot([x, tied[0]], [y, tied[1]], color=colour, lw=1.2, ls=":", zorder=3)
    for x, y, point in shown:
        if not left <= point.intensity <= right:
            edge, mark = (left, "<") if point.intensity < left else (right, ">")
            ax.plot(edge, y, marker=mark, color=colour, markersize=5, clip_on=False, zorder=4)
        star = 1.6 if point.level == "workload" else 1.0
        ax.plot(
            x, y, marker=_MARKERS[point.level], markersize=size * star, ls="none", zorder=4,
            markerfacecolor="white" if point.note else colour,
            markeredgecolor=colour if point.note else "white",
            markeredgewidth=1.4 if point.note else 0.8, clip_on=False,
        )  # fmt: skip


def _draw_shapes(ax: Axes, shapes: Mapping[str, Sequence[model.Point]]) -> None:
    for i, points in enumerate(shapes.values()):
        ax.plot([p.intensity for p in points], [p.rate for p in points], ls="none", zorder=2.5,
                marker=_SHAPES[i % len(_SHAPES)], markersize=5, alpha=0.6, markeredgewidth=0,
                color=COLOURS[i % len(COLOURS)])  # fmt: skip


def _legend(ax: Axes, points: Sequence[model.Point], shapes: Sequence[str]) -> None:
    every = visible_points(points, *ax.get_xlim())
    marks = [
        Line2D([], [], marker=mark, color=INK, ls="none", markersize=11 if level == "workload" else 8,
               label=WORDS[level])
        for level, mark in _MARKERS.items() if any(p.level == level for p in every)
    ]  # fmt: skip
    if any(p.note for p in every):
        marks.append(Line2D([], [], marker="o", color=INK, markerfacecolor="white", ls="none",
                            markersize=8, label="no position: caches or a bypass"))  # fmt: skip
    marks += [
        Line2D([], [], marker=_SHAPES[i % len(_SHAPES)], color=COLOURS[i % len(COLOURS)], ls="none",
               markersize=5, label=clip(f"shapes, {name}" if name else "shapes"))
        for i, name in enumerate(shapes)
    ]  # fmt: skip
    if marks:
        ax.legend(handles=marks, loc="upper left", fontsize=10.5, frameon=False,
                  ncols=min(len(marks), _PER_LINE),
                  handletextpad=0.2, columnspacing=1.2, borderaxespad=0.2)  # fmt: skip


def _say_why(ax: Axes, rows: Sequence[Row]) -> None:
    reasons = dict.fromkeys(m for row in rows for m in model.missing(row))
    lines = ["No point:", *map(lack_text, reasons)]
    ax.text(0.98, 0.06, "\n".join(lines[:5]), transform=ax.transAxes, fontsize=12, color=INK,
            ha="right", va="bottom", linespacing=1.6, zorder=6)  # fmt: skip


def _name(ax: Axes, placed: Sequence[Placed], texts: Sequence[Text], most: int) -> None:
    """Write the groups' names where they cover nothing."""
    left, right = ax.get_xlim()
    labels = []
    for group in sorted(placed, key=lambda g: -g.time):
        points = [p for launch in group.launches[:1] for p in launch]
        shown = visible_points([p for p in points if p.level != "workload"], left, right)
        shown = shown or visible_points(points, left, right)
        if shown:
            shown.sort(key=lambda p: (bool(p.note), -p.share))
            text = group.name + _figures(shown[0], short=len(placed) > _CROWD)
            spots = tuple(
                (x_of(p, left, right), y_of(p, left)) for p in shown if p.note == shown[0].note
            )
            labels.append(Label(spots, text, group.colour))
    hard = [t.get_window_extent() for t in texts]
    if legend := ax.get_legend():
        hard.append(legend.get_window_extent())
    boxes = np.array([[b.x0, b.y0, b.x1, b.y1] for b in hard]).reshape(-1, 4)
    size = 9.5 if len(placed) > _CROWD else 10.5
    written = place_labels(ax, labels[:most], boxes, _taken(ax, placed), size)
    if len(written) < len(labels):
        ax.set_title(
            f"{len(written)} of {len(labels)} named", loc="right", fontsize=9.5, color=FAINT
        )


def _figures(point: model.Point, short: bool) -> str:
    """What stands behind a name: the share of the roof, and in small crowds the rate too."""
    if isnan(point.share):
        return ""
    of = f"{share(point.share)} of {word(point.roof)}"
    if short:
        return f"  {share(point.share)}"
    if point.intensity <= 0:
        return f"\n{si(point.moved, 'B/s')}, {of}; no arithmetic"
    return f"\n{si(point.rate, unit(point.family), 'T')}, {of}"


def _taken(ax: Axes, placed: Sequence[Placed]) -> Boxes:
    """Pixel boxes of the points and of the lines, with what each is worth keeping off."""
    left, right = ax.get_xlim()
    boxes: list[list[float]] = []
    for line in ax.get_lines():
        xy = ax.transData.transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
        steps = np.linspace(0, 1, 40)[:, None]
        for a, b in pairwise(xy):
            boxes.extend([x - 2, y - 2, x + 2, y + 2, 12.0] for x, y in a + steps * (b - a))
    for launch in (launch for group in placed for launch in group.launches):
        for p in visible_points(launch, left, right):
            x, y = ax.transData.transform((x_of(p, left, right), y_of(p, left)))
            boxes.append([x - 7, y - 7, x + 7, y + 7, 150.0])
    return np.array(boxes).reshape(-1, 5)
