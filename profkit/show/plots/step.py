"""A step of a program  ->  a picture: what the GPU does in it, and which kernels take the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from profkit.reports.figures import format_three_figures
from profkit.show.plots import base
from profkit.show.plots.bars import make_rows_axes
from profkit.show.plots.base import FAINT, INK
from profkit.show.text.escape import shorten_name
from profkit.show.views.triage import (
    CAUSES,
    COMPUTING,
    format_ms,
    iterate_step_segments,
    write_step_title,
)

if TYPE_CHECKING:
    from profkit.units import StepJson, TriageJson


KERNELS = 12  # that take longest
NAME = 40  # characters of a kernel's name
# As the bar in a terminal: computing, and why the GPU has nothing to do.
COLOURS = {
    COMPUTING: "#0072B2",
    "host-launch": "#D55E00",
    "host-sync": "#E69F00",
    "copy": "#009E73",
    "collective": "#CC79A7",
    "other": "#c4c4c4",
}


def draw_step(triage_document: TriageJson, ax: Axes | None = None) -> Axes:
    """Draw a step of a "profkit.triage/1" document: its parts, then the kernels that take longest."""
    kernels = triage_document["kernels"][:KERNELS]
    names = ["step", *(f"{row['id']} {shorten_name(row['name'], NAME)}" for row in kernels)]
    ax = make_rows_axes(ax, names, 0.4, 1.9)
    ax.set_yticks(range(len(names)), names)
    draw_step_parts(ax, triage_document["step"])
    for y, row in enumerate(kernels, 1):
        ax.barh(y, row["ms"], 0.66, color=COLOURS[COMPUTING])
        text = f"{format_ms(row['ms'])}, {row['category']}"
        base.write_note(ax, text, (row["ms"], y), (5, 0), va="center")
    longest = 0.0
    if kernels:
        longest = max(row["ms"] for row in kernels)
    ax.set_xlim(0, max(triage_document["step"]["ms"], 1.25 * longest))
    base.write_axis_labels(ax, "ms per step")
    left_out = len(triage_document["kernels"]) - len(kernels)
    small_print = ""
    if left_out:
        small_print = f"{left_out} kernels that take less are not shown."
    return base.add_title_and_small_print(
        ax, write_step_title(triage_document), small_print, title_offset_points=48
    )


def draw_step_parts(ax: Axes, step: StepJson) -> None:
    """Draw computing and the causes of idle time behind one another, with a legend."""
    whole = step["ms"]
    handles = []
    for cause, begin, end, _ in iterate_step_segments(step):
        label = f"{CAUSES[cause][1]} {format_three_figures(100 * (end - begin))} %"
        bar = ax.barh(0, (end - begin) * whole, 0.66, begin * whole, color=COLOURS[cause])
        bar.set_label(label)
        handles.append(bar)
    ax.axhline(0.5, color=FAINT, lw=0.6)
    at = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "borderaxespad": 0.3}
    base.add_legend(ax, handles, ncols=3, handlelength=1.0, columnspacing=1.2, labelcolor=INK, **at)
