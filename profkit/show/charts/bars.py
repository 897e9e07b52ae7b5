"""Launches  ->  what the warps waited for and how busy each pipe was, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import isnan, nan

from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.pipes import METRICS as PIPE_METRICS
from profkit.reports.metrics.warps import STATES

MOST_STATES = 12  # named in a legend, three lines of it; the rest is one segment
PIPES = tuple(
    m.name.removesuffix("_busy")
    for m in PIPE_METRICS
    if m.name.endswith("_busy") and f"{m.name}_active" in CATALOGUE
)
_PIPE_WORDS = {"tensor": "tensor", "uniform": "uniform", "issue": "issue slots"}


def largest_states(rows: Sequence[dict[str, float]]) -> list[str]:
    """The waiting states with a share worth naming, largest over all launches first."""
    top = {s: max((r.get(f"stall_{s}", 0.0) for r in rows), default=0.0) for s in STATES}
    top.pop("selected")
    ranked = sorted((s for s in top if top[s] >= 0.04), key=lambda s: -top[s])
    return ranked[:MOST_STATES]


def pipe_word(pipe: str) -> str:
    """A pipe's name in a picture."""
    return _PIPE_WORDS.get(pipe, pipe.upper())


def busiest_pipes(rows: Sequence[dict[str, float]], most: int) -> list[str]:
    """Pipes that did something, in the catalogue's order."""
    top = {p: max((0.0, *chain.from_iterable(shares(row, p) for row in rows))) for p in PIPES}
    kept = sorted((p for p in PIPES if top[p] >= 0.005), key=lambda p: -top[p])[:most]
    return [p for p in PIPES if p in kept]


def shares(row: dict[str, float], pipe: str) -> tuple[float, float]:
    """Elapsed and active share, NaN where not collected."""
    return row.get(f"{pipe}_busy", nan), row.get(f"{pipe}_busy_active", nan)


def collected(row: dict[str, float], pipe: str) -> bool:
    """Whether one of its shares was collected."""
    return not all(isnan(v) for v in shares(row, pipe))
