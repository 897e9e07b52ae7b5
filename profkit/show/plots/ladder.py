"""A ladder  ->  its picture: time with its interval, the step from the parent, each reference."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from profkit.errors import ProfkitError
from profkit.evidence.ladder import Ladder, Rung
from profkit.reports import figures
from profkit.show.numbers import references_of
from profkit.show.plots.bars import rows_axes
from profkit.show.plots.base import FAINT, INK, clip, finished
from profkit.show.views.comparison import factor

_LOOKS = {"faster": "#009E73", "slower": "#D55E00"}
_OTHER = "#9a9a9a"
_TIME = "#0072B2"
_LEVELS = 3  # heights at which their names stand
_COLUMNS = (("against\nits parent", 1.015), ("against best\nreference", 1.14))


def ladder_plot(ladder: Ladder, ax: Axes | None = None) -> Axes:
    """Draw one case of the ladder, a row per variant.

    The dot is the median with its 95 % interval, the line comes from the parent's median: green
    where the step is faster, red where it is slower, grey where neither is proven. Upright lines
    are the references.

    Raises:
        ProfkitError: No variant of it was timed.
    """
    timed = [s for s in ladder.steps if s.time]
    if not timed:
        raise ProfkitError(f"no variant was timed at case {ladder.case}", "profkit profile --all")
    names = [clip("   " * s.depth + s.variant) for s in ladder.steps]
    ax = rows_axes(ax, names, 0.3, 1.9)
    ax.set_yticks(range(len(names)), names, ha="left")
    ax.tick_params(axis="y", pad=5.5 * max(map(len, names)))
    ax.set_xscale("log")
    at = {s.variant: s.time.median for s in timed if s.time}
    for y, step in enumerate(ladder.steps):
        _row(ax, y, step, at)
    references = references_of(timed)
    every = [*at.values(), *references.values()]
    ax.set_xlim(min(every) / 1.25, max(every) * 1.25)
    _draw_references(ax, references)
    _axis(ax)
    below = (
        "Medians of replayed CUDA graphs, warm L2; whiskers are 95 % intervals. Above 1x is faster; ~ "
        "where the samples cannot tell."
    )
    title = f"Ladder at case {ladder.case}: time per call"
    return finished(ax, title, below, above=16 + 13 * _LEVELS)


def _row(ax: Axes, y: int, step: Rung, at: dict[str, float]) -> None:
    compared = step.change.time if step.change else None
    if step.time is None:
        ax.annotate("not timed", (0.5, y), xycoords=("axes fraction", "data"), fontsize=9.5,
                    color=FAINT, va="center", ha="center")  # fmt: skip
        return
    if compared and step.parent in at:
        colour = _LOOKS.get(compared.answer, _OTHER)
        ax.plot(
            [at[step.parent], step.time.median], [y, y], color=colour, linewidth=2.2, alpha=0.55
        )
    ends = [[step.time.median - step.time.low], [step.time.high - step.time.median]]
    ax.errorbar(step.time.median, y, xerr=ends, fmt="o", color=_TIME, markersize=5, capsize=3)
    texts = (factor(compared), factor(step.best))
    for text, (_, x), looks in zip(texts, _COLUMNS, (compared, step.best), strict=True):
        ax.annotate(text, (x, y), xycoords=("axes fraction", "data"), fontsize=10, va="center",
                    color=_LOOKS.get(looks.answer, INK) if looks else INK)  # fmt: skip


def _draw_references(ax: Axes, references: dict[str, float]) -> None:
    for i, (name, time) in enumerate(references.items()):
        ax.axvline(time, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=0.5)
        ax.annotate(f"{clip(name, 60)} {figures.seconds(time)}", (time, 1),
                    (3, 4 + 13 * (_LEVELS - 1 - i % _LEVELS)), xycoords=("data", "axes fraction"),
                    textcoords="offset points", fontsize=9.5, color=INK)  # fmt: skip


def _axis(ax: Axes) -> None:
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: figures.seconds(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    for head, x in _COLUMNS:
        ax.annotate(head,
                    (x, 1), (0, 4), xycoords="axes fraction", textcoords="offset points",
                    fontsize=9.5, color=FAINT, va="bottom")  # fmt: skip
