"""A ledger  ->  its picture: predicted gain against what came, misses named, rules told apart."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from profkit.errors import ProfkitError
from profkit.evidence.calibration import ALL, Score, calibration
from profkit.reports import figures
from profkit.show.plots.base import (
    COLOURS,
    FAINT,
    INK,
    bare,
    canvas,
    clip,
    finished,
)

_MARKS = "osD^v<>Ph*"
_NAMED = 12  # misses with a name, the farthest first


def ledger(scores: Sequence[Score], ax: Axes | None = None) -> Axes:
    """Draw every prediction whose cause a child variant removed: gain promised, speed-up measured.

    A gain is an upper bound: below the diagonal it held, in the band it was within a factor of two,
    above the diagonal it was wrong and the point is named. Only what the child's header meant
    counts, and several causes that it meant at once are one point. The legend has the calibration:
    of how many the bound held, and the median of measured over predicted.

    Raises:
        ProfkitError: No child has removed a predicted cause yet.
    """
    tried = [s for s in scores if s.tried and not s.slower and s.prediction.gain is not None]
    if not tried:
        raise ProfkitError(
            "no child variant has removed a predicted cause yet", "profkit claims --ledger --update"
        )
    ax = canvas(ax, 7.5)
    table = [c for c in calibration(tried) if c.rule != ALL]
    looks = {
        c.rule: (COLOURS[i % len(COLOURS)], _MARKS[i % len(_MARKS)]) for i, c in enumerate(table)
    }
    for score in tried:
        _point(ax, score, looks[score.prediction.rule])
    _frame(ax, max(_gain(s) for s in tried), [s.outcome.speedup for s in tried])
    _misses(ax, tried)
    handles = [
        Line2D([], [], color=looks[c.rule][0], marker=looks[c.rule][1], linestyle="", label=(
            f"{c.rule}: {c.bounded} of {c.tried} held, {figures.figures(c.ratio or nan)} of the gain"
        ))
        for c in table
    ]  # fmt: skip
    ax.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=10, frameon=False
    )
    bounded = sum(c.bounded for c in table)
    below = (
        f"{bounded} of {len(tried)} bounds held. A point is what a child's header meant to remove; "
        "several causes removed at once are one point with their joint bound."
    )
    return finished(ax, "Gains predicted and measured", below)


def _point(ax: Axes, score: Score, look: tuple[str, str]) -> None:
    colour, mark = look
    outcome, gain = score.outcome, _gain(score)
    if outcome.low is not None and outcome.high is not None:
        ax.plot([gain, gain], [outcome.low, outcome.high], color=colour, linewidth=1.2)
    ax.plot(gain, outcome.speedup, mark, color=colour, markersize=7)


def _gain(score: Score) -> float:
    """The bound; those without one are not drawn."""
    return score.prediction.gain or nan


def _frame(ax: Axes, largest: float, speedups: Sequence[float]) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    x, y = (0.9, 1.25 * largest), (min(*speedups, 1.0) / 1.25, 1.25 * max(*speedups, 1.0))
    ax.set_xlim(*x)
    ax.set_ylim(*y)
    ax.plot(x, x, color=INK, linewidth=1.2, zorder=0.6)
    ax.fill_between(x, [v / 2 for v in x], x, color="#009E73", alpha=0.1, linewidth=0)
    ax.axhline(1, color=FAINT, linewidth=0.8, linestyle=":")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
        axis.set_minor_formatter(NullFormatter())
    bare(ax, "both")
    ax.set_xlabel("Predicted: at most", fontsize=12, color=INK)
    ax.set_ylabel("Measured when the cause was gone", fontsize=12, color=INK)


def _misses(ax: Axes, tried: Sequence[Score]) -> None:
    """Name the points above the diagonal."""
    missed = [s for s in tried if not s.held]
    missed.sort(key=lambda s: s.outcome.speedup / _gain(s))
    steps = {
        (s.prediction.variant, s.outcome.child): s for s in missed
    }  # the farthest of each step
    missed = sorted(steps.values(), key=lambda s: _gain(s) / s.outcome.speedup)
    for score in missed[:_NAMED]:
        name = f"{score.prediction.variant} → {score.outcome.child}"
        ax.annotate(clip(name, 40), (_gain(score), score.outcome.speedup), (7, 2),
                    textcoords="offset points", fontsize=8.5, color=INK)  # fmt: skip
