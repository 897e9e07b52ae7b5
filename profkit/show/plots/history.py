"""Steps of a history  ->  its picture: each run with its interval, real changes named."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from profkit.errors import ProfkitError
from profkit.evidence.history.steps import HistoryStep
from profkit.reports import figures
from profkit.show.numbers import HistoryPoint, history_points
from profkit.show.plots.base import (
    COLOURS,
    FAINT,
    INK,
    bare,
    canvas,
    clip,
    finished,
)

_MOST = 8  # subjects of one picture


def history_steps(steps: Sequence[HistoryStep], ax: Axes | None = None) -> Axes:
    """Draw the runs of each subject in the order of measurement: time, interval, machine.

    A filled point is a change that is real; a hollow one is not told apart from the run before it,
    or could not be compared with it. A line ends where the machine changes.

    Raises:
        ProfkitError: Nothing was timed, or there are too many subjects for one picture.
    """
    subjects = history_points(steps)
    if not subjects:
        raise ProfkitError("no run in this history has a time", "profkit history --add, or --log")
    if len(subjects) > _MOST:
        raise ProfkitError(f"a picture of {len(subjects)} subjects: at most {_MOST}",
                           "name one: profkit history champion --case B -o history.png")  # fmt: skip
    ax = canvas(ax, 6.5)
    machines = list(dict.fromkeys(p.machine for points_of in subjects.values() for p in points_of))
    for points in subjects.values():
        _subject(ax, points, machines)
    for subject, points in subjects.items():
        last = points[-1]
        ax.annotate(clip(subject), (last.order, last.median), (9, 0), fontsize=10, color=INK,
                    textcoords="offset points", va="center")  # fmt: skip
    _frame(ax, subjects)
    handles = [
        Line2D([], [], color=_colour(m, machines), marker="o", linestyle="", label=clip(m))
        for m in machines
    ]
    ax.legend(handles=handles, frameon=False, fontsize=10, loc="upper left",
              bbox_to_anchor=(1.0, 1.0))  # fmt: skip
    below = (
        "Bars: 95 % intervals. Filled: a change that is real at one false alarm in a thousand, with "
        "its commit and speed-up. Lines end where the machine changes."
    )
    return finished(ax, "Time of every run, oldest first", below, under=78)


def _colour(machine: str, machines: Sequence[str]) -> str:
    return COLOURS[machines.index(machine) % len(COLOURS)]


def _subject(ax: Axes, points: Sequence[HistoryPoint], machines: Sequence[str]) -> None:
    for before, point in zip([None, *points], points, strict=False):
        colour = _colour(point.machine, machines)
        if before is not None and before.machine == point.machine:
            ax.step([before.order, point.order], [before.median, point.median], where="post",
                    color=colour, linewidth=1.0, alpha=0.6)  # fmt: skip
        ax.plot([point.order] * 2, [point.low, point.high], color=colour, linewidth=2.5, alpha=0.5)
        ax.plot(point.order, point.median, "o", markersize=7, color=colour,
                markerfacecolor=colour if point.real else "white")  # fmt: skip
        if point.real:
            ax.annotate(f"{point.commit} {point.factor}", (point.order, point.median), (7, 6),
                        textcoords="offset points", ha="left", fontsize=9, color=INK)  # fmt: skip


def _frame(ax: Axes, subjects: dict[str, list[HistoryPoint]]) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: figures.seconds(value)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    every = [p.median for points in subjects.values() for p in points]
    ax.set_ylim(min(every) / 1.25, max(every) * 1.25)
    low, high = ax.get_ylim()
    every_tick = [digit * 10.0**power for power in range(-9, 3) for digit in (1, 2, 5)]
    ticks = [tick for tick in every_tick if low <= tick <= high]
    ax.set_yticks(ticks or [min(every)])
    longest = max(subjects.values(), key=len)
    ax.set_xlim(-0.6, len(longest) - 0.2 + 0.12 * len(longest))
    if len(subjects) == 1:
        ax.set_xticks([p.order for p in longest], [p.made[5:] for p in longest], rotation=45)
    ax.set_xlabel("Measurements, oldest first", fontsize=12, color=FAINT)
    ax.set_ylabel("Time per call, warm L2", fontsize=12, color=INK)
    bare(ax, "y")
