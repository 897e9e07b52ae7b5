"""Ladders, histories  ->  pictures of measured times: each with its interval, changes named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

from profkit.errors import ProfkitError
from profkit.evidence.ladder import Ladder, LadderStep
from profkit.evidence.noise import HistoryStep
from profkit.reports import figures
from profkit.show.numbers import HistoryPoint, get_reference_medians_by_name, group_history_points
from profkit.show.plots import base
from profkit.show.plots.bars import make_rows_axes
from profkit.show.plots.base import COLOURS, FAINT, INK, cut_middle_of_plain_text
from profkit.show.text.words import format_measured_speedup

if TYPE_CHECKING:
    import pandas as pd

    from profkit.units import Seconds

_LOOKS = {"faster": "#009E73", "slower": "#D55E00"}
_OTHER = "#9a9a9a"
_LEVELS = 3  # heights at which the names of references are written
_COLUMNS = (("against\nits parent", 1.015), ("against best\nreference", 1.14))
_MOST = 8  # subjects of one history
_ROW = ("axes fraction", "data")
_TOP = ("data", "axes fraction")


def draw_ladder_plot(ladder: Ladder, ax: Axes | None = None) -> Axes:
    """Draw one case of the ladder, a row per variant; an error where no variant was timed.

    The dot is the median with its 95 % interval, the line comes from the parent's median, coloured
    where the step is proven faster or slower. Upright lines are the references.
    """
    timed = [step for step in ladder.steps if step.time]
    if not timed:
        raise ProfkitError(f"no variant was timed at case {ladder.case}", "profkit profile --all")
    ax = _draw_ladder_frame(ladder, ax)
    medians = {step.variant: step.time.median for step in timed if step.time}
    for y, step in enumerate(ladder.steps):
        draw_variant_row(ax, y, step, medians)
    references = get_reference_medians_by_name(timed)
    every = [*medians.values(), *references.values()]
    ax.set_xlim(min(every) / 1.25, max(every) * 1.25)
    _draw_references(ax, references)
    base.set_log_ticks(ax.xaxis, figures.format_seconds)
    below = (
        "Medians of replayed CUDA graphs, warm L2; whiskers are 95 % intervals. Above 1x is "
        "faster; ~ marks differences within the noise."
    )
    title = f"Ladder at case {ladder.case}: time per call"
    return base.add_title_and_small_print(ax, title, below, title_offset_points=16 + 13 * _LEVELS)


def _draw_ladder_frame(ladder: Ladder, ax: Axes | None) -> Axes:
    """Return an Axes with a row per variant, indented below its parent, and the heads of figures."""
    names = ["   " * step.depth + cut_middle_of_plain_text(step.variant) for step in ladder.steps]
    ax = make_rows_axes(ax, names, 0.3, 1.9)
    ax.set_yticks(range(len(names)), names, ha="left")
    ax.tick_params(axis="y", pad=5.5 * max(map(len, names)))
    ax.set_xscale("log")
    looks: base.Looks = {"fontsize": 9.5, "color": FAINT, "va": "bottom"}
    for head, x in _COLUMNS:
        base.write_note(ax, head, (x, 1), (0, 4), "axes fraction", **looks)
    return ax


def _draw_references(ax: Axes, references: Mapping[str, Seconds]) -> None:
    """Draw an upright line at each median in s, its name above the Axes at one of a few heights."""
    for i, (name, time) in enumerate(references.items()):
        ax.axvline(time, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=0.5)
        up = 4 + 13 * (_LEVELS - 1 - i % _LEVELS)
        text = f"{cut_middle_of_plain_text(name, 60)} {figures.format_seconds(time)}"
        base.write_note(ax, text, (time, 1), (3, up), _TOP, fontsize=9.5)


def draw_variant_row(ax: Axes, y: int, step: LadderStep, medians: dict[str, Seconds]) -> None:
    """Draw a variant's row: its time, the way from its parent's, and both comparisons in figures.

    `medians`: variant -> seconds.
    """
    compared = None
    if step.change:
        compared = step.change.time
    if step.time is None:
        faint: base.Looks = {"fontsize": 9.5, "color": FAINT, "va": "center", "ha": "center"}
        base.write_note(ax, "not timed", (0.5, y), coordinate_system=_ROW, **faint)
        return
    median = step.time.median
    if compared and step.parent in medians:
        ends = [medians[step.parent], median]
        colour = _LOOKS.get(compared.answer, _OTHER)
        ax.plot(ends, [y, y], color=colour, linewidth=2.2, alpha=0.55)
    arms = [[median - step.time.low], [step.time.high - median]]
    ax.errorbar(median, y, xerr=arms, fmt="o", color=COLOURS[0], markersize=5, capsize=3)
    for time, (_, x) in zip((compared, step.compare_with_fastest_reference), _COLUMNS, strict=True):
        colour = INK
        if time:
            colour = _LOOKS.get(time.answer, INK)
        text = format_measured_speedup(time)
        base.write_note(ax, text, (x, y), coordinate_system=_ROW, va="center", color=colour)


def history_steps(steps: Sequence[HistoryStep], ax: Axes | None = None) -> Axes:
    """Draw the runs of each subject in the order of measurement: time, interval, machine.

    A filled point is a change that is real. A line ends where the machine changes. An error where
    nothing was timed, or where there are too many subjects for one picture.
    """
    subjects = group_history_points(steps)
    if not subjects:
        raise ProfkitError("no run in this history has a time", "profkit history --add, or --log")
    if len(subjects) > _MOST:
        named = "choose one: profkit history champion --case B -o history.png"
        raise ProfkitError(f"a picture of {len(subjects)} subjects: at most {_MOST}", named)
    ax = base.make_axes(ax, 6.5)
    colours: dict[str, str] = {}  # by machine
    for point in chain.from_iterable(subjects.values()):
        colours.setdefault(point.machine, COLOURS[len(colours) % len(COLOURS)])
    for points in subjects.values():
        draw_subject_history(ax, points, colours)
    for subject, points in subjects.items():
        end = points[-1].order, points[-1].median
        base.write_note(ax, cut_middle_of_plain_text(subject), end, (9, 0), va="center")
    _draw_history_frame(ax, subjects)
    handles = []
    for machine, colour in colours.items():
        handles.append(base.make_legend_handle(cut_middle_of_plain_text(machine), "o", colour))
    base.add_legend(ax, handles, fontsize=10, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    below = (
        "Bars: 95 % intervals. Filled: a change that is real at one false alarm in a thousand, with "
        "its commit and speed-up. Lines end where the machine changes."
    )
    return base.add_title_and_small_print(
        ax, "Time of every run, oldest first", below, small_print_offset_points=78
    )


def draw_subject_history(ax: Axes, points: Sequence[HistoryPoint], colours: dict[str, str]) -> None:
    """Draw the runs of a subject, oldest first; `colours` has the colour of each machine."""
    for before, point in zip([None, *points], points, strict=False):
        colour = colours[point.machine]
        x = point.order
        if before is not None and before.machine == point.machine:
            ends = [before.order, x], [before.median, point.median]
            ax.step(*ends, where="post", color=colour, linewidth=1.0, alpha=0.6)
        ax.plot([x] * 2, [point.low, point.high], color=colour, linewidth=2.5, alpha=0.5)
        face = "white"
        if point.real:
            face = colour
        ax.plot(x, point.median, "o", markersize=7, color=colour, markerfacecolor=face)
        if point.real:
            base.write_note(ax, point.change, (x, point.median), (7, 6), fontsize=9)


def _draw_history_frame(ax: Axes, subjects: dict[str, list[HistoryPoint]]) -> None:
    ax.set_yscale("log")
    every = [p.median for p in chain.from_iterable(subjects.values())]
    ax.set_ylim(min(every) / 1.25, max(every) * 1.25)
    base.set_log_ticks(ax.yaxis, figures.format_seconds)
    longest = max(subjects.values(), key=len)
    ax.set_xlim(-0.6, len(longest) - 0.2 + 0.12 * len(longest))
    if len(subjects) == 1:
        ax.set_xticks([p.order for p in longest], [p.made[5:] for p in longest], rotation=45)
    base.write_axis_labels(ax, "Measurements, oldest first", "Time per call, warm L2", color=FAINT)
    base.style_axes(ax, "y")


_FEW = "draw it after a few more trials: profkit tune --resume"
_SOURCES = {  # source -> marker and colour
    "default": ("*", "#000000"),
    "random": ("o", COLOURS[5]),
    "tpe": ("s", COLOURS[0]),
    "steer": ("D", COLOURS[1]),
}


def make_frame_of_timed_trials(history: pd.DataFrame) -> pd.DataFrame:
    """Return the trials that have a time, in µs, with the kind of their source; or an error."""
    timed = history[history["value"].notna()].copy()
    if timed.empty:
        raise ProfkitError("no trial of this search has a time", _FEW)
    timed["us"] = timed["value"] * 1e6
    timed["kind_of_source"] = timed["source"].str.split(":").str[0]
    return timed


def search_history(history: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the time of every trial and the best so far."""
    timed = make_frame_of_timed_trials(history)
    ax = base.make_axes(ax, 5.5)
    for kind, (marker, colour) in _SOURCES.items():
        rows = timed[timed["kind_of_source"] == kind]
        measured = rows[rows["outcome"] == "measured"]
        pruned = rows[rows["outcome"] == "pruned"]
        label = None
        if len(rows):
            label = f"{kind} ({len(rows)})"
        solid: base.Looks = {"s": 46, "color": colour, "zorder": 3, "label": label}
        hollow: base.Looks = {"s": 34, "facecolors": "none", "edgecolors": colour, "alpha": 0.7}
        ax.scatter(measured["number"], measured["us"], marker=marker, **solid)
        ax.scatter(pruned["number"], pruned["us"], marker=marker, zorder=2, **hollow)
    draw_best_so_far(ax, timed)
    lost = len(history) - len(timed)
    _set_log_scale(ax)
    base.write_axis_labels(ax, "Trial", "Time per call, µs")
    ax.legend(frameon=False, fontsize=10.5)
    base.style_axes(ax, "both")
    below = f"Hollow: pruned after a first look. {lost} more trials were rejected or failed."
    return base.add_title_and_small_print(ax, "Time of every trial", below)


def draw_best_so_far(ax: Axes, timed: pd.DataFrame) -> None:
    """Draw the time of the fastest trial measured by then, in µs."""
    measured = timed[timed["outcome"] == "measured"].sort_values("number")
    if not measured.empty:
        look: base.Looks = {"color": INK, "linewidth": 1.6, "label": "best so far"}
        ax.step(measured["number"], measured["us"].cummin(), where="post", **look)


def search_resources(history: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw time against the shared memory of a block, coloured by registers, sized by occupancy."""
    timed = make_frame_of_timed_trials(history)
    timed = timed[timed["smem"].notna() & timed["regs"].notna()]
    if timed.empty:
        raise ProfkitError("no trial of this search has a time and its resources", _FEW)
    ax = base.make_axes(ax, 5.5)
    sizes = 30 + 400 * timed["occupancy"].fillna(0.1)
    look: base.Looks = {"cmap": "viridis", "edgecolors": "white", "linewidths": 0.6, "zorder": 3}
    dots = ax.scatter(timed["smem"] / 1024, timed["us"], s=sizes, c=timed["regs"], **look)
    bar = ax.figure.colorbar(dots, ax=ax)
    bar.set_label("Registers per thread", fontsize=11, color=INK)
    _set_log_scale(ax)
    base.write_axis_labels(ax, "Shared memory per block, KiB", "Time per call, µs")
    base.style_axes(ax, "both")
    below = "Larger dots: more warps fit on an SM."
    return base.add_title_and_small_print(ax, "Time against resources per block", below)


def _set_log_scale(ax: Axes) -> None:
    """Use a logarithmic axis in whole steps: a search seldom spans a decade."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(MaxNLocator(7))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
