"""Launches  ->  the hierarchical roofline: log-log, marker by level, colour by launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, cycle, pairwise
from math import atan2, degrees, isfinite, isnan, nan
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text

from profkit.errors import ProfkitError
from profkit.model import roofline as model
from profkit.model.launch import compute_counted_share_of_duration, select_collected_metrics
from profkit.records.grid import TimeGrid
from profkit.reports.figures import format_share, format_value_with_unit
from profkit.show import numbers
from profkit.show.numbers import Roof, make_display_name
from profkit.show.plots import base
from profkit.show.plots.bars import name_panel
from profkit.show.plots.base import COLOURS, FAINT, INK, cut_middle_of_plain_text
from profkit.show.plots.labels import Boxes, Label, place_labels

if TYPE_CHECKING:
    from profkit.show.plots.base import Launches
    from profkit.units import FrameRow, GpuName, TextOrEmpty, TypographicPoints

_MARKERS = {"dram": "o", "l2": "s", "l1": "^", "workload": "*"}
_SHAPES = ("D", "P", "X", "v")  # of a grid, by what tells its pictures apart
_PER_LINE = 5  # of a legend
_MOST_LABELS = 20  # more do not fit at README size; the longest-running launches keep theirs
_CROWD = 8  # with more groups than this everything is drawn smaller
_DASHES = {"dram": "-", "l2": (0, (6, 2)), "l1": (0, (2, 2))}
_GREY = "#666666"
Points = Sequence[model.RooflinePoint]


def roofline(
    runs: Launches,
    ax: Axes | None = None,
    labels: int = _MOST_LABELS,
    ceilings: Mapping[str, float] | None = None,
    grid: TimeGrid | None = None,
) -> Axes:
    """Draw launches under the ceilings of the device that they ran on.

    A launch has a point per memory level (DRAM, L2, L1) at one height: its operations per second.
    Hollow points have no meaningful position (data came from caches, or bypassed L1). Launches without
    floating-point arithmetic have no intensity: they are at the left edge, as far below the
    diagonal as their bandwidth is below the peak. A star is the declared workload's own point.

    Args:
        runs: Rows of the frame, or paths of reports, of one device.
        labels: At most so many launches are named, the longest-running first.
        ceilings: Roofs instead of the report's: dram, l2, l1 in byte/s; fp32, tensor_bf16, ... in op/s.
        grid: Shapes to draw beside them, small, each by its fastest and by the work that it needs.

    Raises:
        ProfkitError: No launches, launches of several devices or of another than the grid's, or a
            ceiling that is none.
    """
    rows = _replace_ceilings(base.list_launch_rows(runs), ceilings or {})
    device = base.require_single_device(rows)
    shapes = {}
    if grid:
        shapes = _list_grid_points(grid, device)
    groups = base.group_alike_launches(rows)
    launches = [list(map(model.list_roofline_points, group.rows)) for group in groups]
    every = list(chain.from_iterable(launches))
    points = list(chain.from_iterable(every))
    roofs = numbers.choose_ceiling_ranges_to_draw(rows, points)
    ax = base.make_axes(ax, 7.5)
    _set_roofline_axes(ax, roofs, [*every, *shapes.values()])
    small_print = _write_small_print(rows, points, roofs)
    base.add_title_and_small_print(ax, make_roofline_title(device, rows), small_print)
    _draw_grid_shapes(ax, shapes.values())
    _draw_groups_of_alike_launches(ax, launches)
    base.get_figure(ax).draw_without_rendering()  # settles the layout: words are placed in pixels
    texts = _draw_roofs(ax, roofs)
    _draw_legend_and_reason_for_no_point(ax, rows, points, shapes)
    _write_launch_names_that_fit(ax, groups, launches, texts, labels)
    base.take_text_literally(ax)
    return ax


def _draw_legend_and_reason_for_no_point(
    ax: Axes, rows: Sequence[FrameRow], points: Points, shapes: Iterable[str]
) -> None:
    """Draw the legend, and say why there is no point where there is none."""
    draw_legend(ax, points, shapes)
    if not points:
        _write_why_no_point(ax, rows)


def _draw_groups_of_alike_launches(ax: Axes, launches: Sequence[Sequence[Points]]) -> None:
    """Draw the points of launches, those that are alike in one colour."""
    size = 10.0
    if len(launches) > _CROWD:
        size = 7.0
    for colour, group in zip(cycle(COLOURS), launches, strict=False):
        for launch in group:
            draw_launch_on_roofline(ax, launch, colour, size)


def _write_launch_names_that_fit(
    ax: Axes,
    groups: Sequence[base.AlikeLaunches],
    launches: Sequence[Sequence[Points]],
    texts: Sequence[Text],
    most_names: int,
) -> None:
    """Write the names of launches beside their points, and how many found no room."""
    letters = 10.5
    if len(groups) > _CROWD:
        letters = 9.5
    every = list(chain.from_iterable(launches))
    named = make_point_labels(ax, groups, launches)
    written = write_labels(ax, named[:most_names], texts, every, letters)
    if written < len(named):
        ax.set_title(f"{written} of {len(named)} named", loc="right", fontsize=9.5, color=FAINT)


def _replace_ceilings(rows: Sequence[FrameRow], ceilings: Mapping[str, float]) -> list[FrameRow]:
    known = (*model.LEVELS, *model.FAMILIES)
    for name, value in ceilings.items():
        if name not in known:
            raise ProfkitError(f"unknown ceiling {name}", f"there are: {', '.join(known)}")
        if not (isfinite(value) and value > 0):
            raise ProfkitError(f"ceiling {name}: {value} is not a rate", "byte/s or op/s, above 0")
    if not ceilings:
        return list(rows)
    peaks = {f"peak_{name}": float(value) for name, value in ceilings.items()}
    return [{**row, **peaks} for row in rows]


def _list_grid_points(grid: TimeGrid, device: GpuName) -> dict[str, list[model.RooflinePoint]]:
    """Return a grid's shapes as points, by what tells its pictures apart: the fastest that was timed.

    Operations and bytes are those that the work needs, as of a declared workload.
    """
    if grid.gpu not in (None, device):
        where = f"the launches ran on {device}, but the grid on {grid.gpu}"
        raise ProfkitError(where, "draw them separately: their ceilings differ")
    by_picture: dict[str, list[model.RooflinePoint]] = {}
    for cell in grid.cells:
        seconds = cell.find_fastest(grid.against, is_of_the_others=True)[1]
        if cell.operations > 0 and cell.moved > 0 and isfinite(seconds):
            rate = cell.operations / seconds
            moved = cell.moved / seconds
            point = model.RooflinePoint("workload", "", rate / moved, rate, moved, nan, "", nan)
            by_picture.setdefault(name_panel(cell), []).append(point)
    if not by_picture:
        raise ProfkitError(
            "no shape of this grid gives its operations and bytes",
            'each line needs "operations" and "bytes" for a roofline',
        )
    return by_picture


def make_roofline_title(device: GpuName, rows: Sequence[FrameRow]) -> str:
    """Return the device, its clocks in the longest launches, and the case if there is only one."""
    parts = [f"Roofline of {cut_middle_of_plain_text(device)}"]
    for metric, what in (("sm_clock", "SM"), ("dram_clock", "DRAM")):
        clocks = []
        for row in numbers.select_long_launches(rows):
            clock = select_collected_metrics(row).get(
                metric, nan
            ) / compute_counted_share_of_duration(row)
            if clock > 0:
                clocks.append(clock)
        if clocks:
            parts.append(f"{what} {numbers.format_range(min(clocks), max(clocks), 'Hz')}")
    cases = {row.get("case") for row in rows}
    if len(cases) == 1 and isinstance(case := cases.pop(), str):
        parts.append(f"case {cut_middle_of_plain_text(case)}")
    return "  ·  ".join(parts)


def _write_small_print(rows: Sequence[FrameRow], points: Points, roofs: Sequence[Roof]) -> str:
    sentences = []
    if device := [r for r in roofs if r.device]:
        listed = ", ".join(
            f"{make_display_name(r.name)} at {format_value_with_unit(r.clock, 'Hz')}"
            for r in device
        )
        sentences.append(f"Ceilings by the device attributes: {listed}.")
    if len(device) < len(roofs):
        measured = "at the measured clocks"
        if len(numbers.select_long_launches(rows)) < len(rows):
            measured = "at the clocks of the longest launches (short ones measure them badly)"
        sentences.append(
            f"Ceilings from the report {measured}; shares refer to each launch's own ceilings."
        )
    without = [row for row in rows if not model.list_roofline_points(row)]
    if points and without:
        lack = numbers.count_reasons_for_no_point(without)
        why = ""
        if lack:
            why = f", {lack.most_common(1)[0][0]}"
        sentences.append(f"Without a point: {len(without)} of {len(rows)} launches{why}.")
    if any(p.is_above_roof for p in points):
        sentences.append("A point above its roof is a measurement error.")
    return " ".join(sentences)


def place_points(ax: Axes, points: Points) -> list[tuple[float, float, model.RooflinePoint]]:
    """Return the points that are drawn, with their places in the frame of the Axes."""
    return numbers.place_points_in_frame(points, *ax.get_xlim())


def draw_launch_on_roofline(ax: Axes, points: Points, colour: str, size: TypographicPoints) -> None:
    """Draw one launch: its levels on a line, the workload's own point tied to the DRAM one."""
    shown = place_points(ax, points)
    levels = []
    dram = []
    for x, y, point in shown:
        if point.level != "workload":
            levels.append((x, y))
        if point.level == "dram":
            dram.append((x, y))
    if len(levels) > 1:
        ax.plot(*zip(*levels, strict=True), color=colour, lw=1.4, alpha=0.65, zorder=3)
    for x, y, point in shown:
        if point.level == "workload":
            for ends in dram:
                ax.plot(*zip((x, y), ends, strict=True), color=colour, lw=1.2, ls=":", zorder=3)
            _draw_mark(ax, x, y, point, colour, 1.6 * size)
        else:
            _draw_mark(ax, x, y, point, colour, size)


def _draw_mark(
    ax: Axes, x: float, y: float, point: model.RooflinePoint, colour: str, size: TypographicPoints
) -> None:
    """Draw a point, hollow where its position says nothing; with an arrow where it is out of frame."""
    left, right = ax.get_xlim()
    arrow: base.Looks = {"color": colour, "markersize": 5, "clip_on": False, "zorder": 4}
    if point.intensity < left:
        ax.plot(left, y, marker="<", **arrow)
    elif point.intensity > right:
        ax.plot(right, y, marker=">", **arrow)
    face = colour
    edge = "white"
    width = 0.8
    if point.note:
        face = "white"
        edge = colour
        width = 1.4
    look: base.Looks = {"marker": _MARKERS[point.level], "markersize": size, "clip_on": False}
    look |= {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": width}
    ax.plot(x, y, ls="none", zorder=4, **look)


def _draw_grid_shapes(ax: Axes, shapes: Iterable[Points]) -> None:
    for points, marker, colour in zip(shapes, cycle(_SHAPES), cycle(COLOURS), strict=False):
        xs = [p.intensity for p in points]
        ys = [p.rate for p in points]
        look: base.Looks = {"marker": marker, "color": colour, "markersize": 5, "alpha": 0.6}
        ax.plot(xs, ys, ls="none", zorder=2.5, markeredgewidth=0, **look)


def draw_legend(ax: Axes, points: Points, shapes: Iterable[str]) -> None:
    """Say what the marks are that the picture has: levels, hollow points, shapes of a grid."""
    levels = set()
    is_hollow = False
    for *_, point in place_points(ax, points):
        levels.add(point.level)
        is_hollow = is_hollow or bool(point.note)
    marks = []
    for level, marker in _MARKERS.items():
        if level in levels:
            size = 11 if level == "workload" else 8
            word = numbers.WORDS[level]
            marks.append(base.make_legend_handle(word, marker, INK, markersize=size))
    if is_hollow:
        text = "hollow: data came from caches, or bypassed L1"
        hollow = {"markerfacecolor": "white", "markersize": 8}
        marks.append(base.make_legend_handle(text, "o", INK, **hollow))
    for name, *look in zip(shapes, cycle(_SHAPES), cycle(COLOURS), strict=False):
        label = cut_middle_of_plain_text(f"shapes, {name}" if name else "shapes")
        marks.append(base.make_legend_handle(label, *look, markersize=5))
    if marks:
        gaps = {"handletextpad": 0.2, "columnspacing": 1.2, "borderaxespad": 0.2}
        base.add_legend(ax, marks, loc="upper left", ncols=min(len(marks), _PER_LINE), **gaps)


def _write_why_no_point(ax: Axes, rows: Sequence[FrameRow]) -> None:
    text = "\n".join(["No point:", *numbers.count_reasons_for_no_point(rows)][:5])
    looks: base.Looks = {"ha": "right", "va": "bottom", "linespacing": 1.6, "zorder": 6}
    base.write_note(ax, text, (0.98, 0.06), (0, 0), "axes fraction", fontsize=12, **looks)


def make_point_labels(
    ax: Axes, groups: Sequence[base.AlikeLaunches], launches: Sequence[Sequence[Points]]
) -> list[Label]:
    """Return a label for each group that is drawn, the longest-running first; its best spots first."""
    labels = []
    order = sorted(range(len(groups)), key=lambda i: -base.get_launch_time(groups[i].rows[0]))
    for i in order:
        points = launches[i][0]
        levels = [point for point in points if point.level != "workload"]
        shown = place_points(ax, levels) or place_points(ax, points)
        shown.sort(key=lambda at: (bool(at[2].note), -at[2].share))
        if shown:
            best = shown[0][2]
            text = groups[i].name + format_point_figures(
                best, is_rate_left_out=len(groups) > _CROWD
            )
            spots = tuple((x, y) for x, y, point in shown if point.note == best.note)
            labels.append(Label(spots, text, COLOURS[i % len(COLOURS)]))
    return labels


def format_point_figures(point: model.RooflinePoint, is_rate_left_out: bool) -> TextOrEmpty:
    """Return what is behind a name: the share of the roof, and in small crowds the rate too."""
    if isnan(point.share):
        return ""
    if is_rate_left_out:
        return f"  {format_share(point.share)}"
    of = numbers.say_share_of_roof(point)
    if point.intensity <= 0:
        return f"\n{format_value_with_unit(point.moved, 'byte/s')}, {of}; no arithmetic"
    return f"\n{format_value_with_unit(point.rate, numbers.find_rate_unit(point.family))}, {of}"


def write_labels(
    ax: Axes,
    labels: list[Label],
    texts: Sequence[Text],
    launches: Sequence[Points],
    size: TypographicPoints,
) -> int:
    """Write the labels where they cover nothing, and return how many had room."""
    taken = list_occupied_boxes(ax, launches)
    legend = ax.get_legend()
    extents = [text.get_window_extent() for text in texts]
    if legend:
        extents += [legend.get_window_extent()]
    fixed = np.array([[b.x0, b.y0, b.x1, b.y1] for b in extents]).reshape(-1, 4)
    return len(place_labels(ax, labels, fixed, taken, size))


def list_occupied_boxes(ax: Axes, launches: Sequence[Points]) -> Boxes:
    """Return pixel boxes of the points and of the lines, with what each is worth keeping off."""
    boxes: list[list[float]] = []
    for line in ax.get_lines():
        xy = ax.transData.transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
        steps = np.linspace(0, 1, 40)[:, None]
        for a, b in pairwise(xy):
            for x, y in a + steps * (b - a):
                boxes.append([x - 2, y - 2, x + 2, y + 2, 12.0])
    for launch in launches:
        for intensity, rate, _ in place_points(ax, launch):
            x, y = ax.transData.transform((intensity, rate))
            boxes.append([x - 7, y - 7, x + 7, y + 7, 150.0])
    return np.array(boxes).reshape(-1, 5)


def _set_roofline_axes(ax: Axes, roofs: Sequence[Roof], launches: Sequence[Points]) -> None:
    left, right, bottom, top = numbers.compute_axis_limits(roofs, launches)
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    base.write_axis_labels(ax, *numbers.AXES)
    base.set_log_ticks(ax.xaxis, "{:,g}".format)
    base.set_log_ticks(ax.yaxis, numbers.format_rate_tick)
    base.style_axes(ax, "both")


def _draw_roofs(ax: Axes, roofs: Sequence[Roof]) -> list[Text]:
    """Draw the ceilings and return the words written on them.

    The layout of the figure has to be settled: angles and places are in pixels.
    """
    texts: list[Text] = []
    flats = [r.high for r in roofs if not r.is_slope]
    for roof, *ends in numbers.iterate_roof_lines(roofs, *ax.get_xlim()):
        xs = np.array(ends)
        if roof.is_slope:
            shape = xs
        else:
            shape = np.ones(2)
        dashes = _DASHES.get(roof.name, "-")
        ax.plot(xs, shape * roof.high, color=_GREY, lw=1.6, ls=dashes, zorder=2)
        ax.fill_between(xs, shape * roof.low, shape * roof.high, color=_GREY, alpha=0.16, lw=0)
        if roof.is_slope:
            texts.append(_write_on_diagonal(ax, roof, flats))
            continue
        corner: base.Looks = {"ha": "right", "va": "bottom", "color": FAINT, "zorder": 5}
        text = ax.text(ends[1], roof.high * 1.06, roof.text, fontsize=10, **corner)
        if any(text.get_window_extent().overlaps(t.get_window_extent()) for t in texts):
            text.set(y=roof.high / 1.06, va="top")  # two precisions near each other: one goes below
        texts.append(text)
    return texts


def _write_on_diagonal(ax: Axes, roof: Roof, flats: Sequence[float]) -> Text:
    """Write the words along a diagonal, at the first place from the left that no flat runs through."""
    left, right = ax.get_xlim()
    begin = max(left, ax.get_ylim()[0] / roof.high) * 1.2
    at = (begin, begin * roof.high)
    along = {"rotation": _measure_angle(ax, begin, roof.high), "rotation_mode": "anchor"}
    look: base.Looks = {"ha": "left", "va": "bottom", "color": FAINT, "zorder": 5, **along}
    text = base.write_note(ax, roof.text, at, (-4, 5), **look)
    lines = ax.transData.transform([(left, flat) for flat in flats] or [(left, -1.0)])[:, 1]
    for start in begin * np.geomspace(1, min(1e3, right / begin), 40):
        text.xy = (start, start * roof.high)
        box = text.get_window_extent()
        if not np.any((box.y0 - 3 < lines) & (lines < box.y1 + 3)):
            return text
    text.xy = at
    return text


def _measure_angle(ax: Axes, begin: float, bandwidth: float) -> float:
    """Return the angle of a diagonal on the screen, in degrees."""
    ends = [(x, x * bandwidth) for x in (begin, 10 * begin)]
    (x0, y0), (x1, y1) = ax.transData.transform(ends)
    return degrees(atan2(y1 - y0, x1 - x0))
