"""Steps of a history  ->  a part of the page: one small picture a subject, as SVG without styles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from markupsafe import Markup

from profkit.diagnosis.launches import Judged
from profkit.evidence.history.steps import HistoryStep
from profkit.show.numbers import HistoryPoint, history_points
from profkit.show.text import figures
from profkit.show.text.escape import html
from profkit.show.views.history import history_blocks

WIDTH, HEIGHT, EDGE = 1200, 120, 90
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")


@dataclass(frozen=True)
class PageHistory:
    """A history and where it was found."""

    name: str
    steps: tuple[HistoryStep, ...]


def history_section(of: PageHistory, shown: Iterable[Judged]) -> dict[str, Any]:
    """A history as a part of a page of launches."""
    subjects = {f"{run.variant}.{run.case}" for run in shown}
    steps = [s for s in of.steps if s.run.subject in subjects] or list(of.steps)
    points = history_points(steps)
    machines = list(dict.fromkeys(p.machine for some in points.values() for p in some))
    charts = [
        {"subject": subject, "svg": Markup(_chart(subject, some, machines))}  # noqa: S704 - see _chart
        for subject, some in points.items()
        if len(some) > 1
    ]
    colours = [(COLOURS[i % len(COLOURS)], name) for i, name in enumerate(machines)]
    return {
        "name": of.name,
        "charts": charts,
        "machines": legend(colours, "GPUs"),
        "once": sum(len(some) == 1 for some in points.values()),
        "blocks": list(history_blocks(steps)),
    }


def legend(colours: Iterable[tuple[str, str]], about: str) -> Markup:
    """What each colour is, as SVG; every name goes through html()."""
    parts, x, y = [], 10, 12
    for colour, name in colours:
        wide = 30 + 7 * len(name)
        if x + wide > WIDTH and x > 10:
            x, y = 10, y + 24
        circle = f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>'
        parts.append(f'{circle}<text x="{x + 10}" y="{y + 4}">{html(name)}</text>')
        x += wide
    head = f'<svg viewBox="0 0 {WIDTH} {y + 12}" role="img" aria-label="{html(about)}">'
    return Markup(f"{head}{''.join(parts)}</svg>")  # noqa: S704 - see above


def _chart(subject: str, points: Sequence[HistoryPoint], machines: Sequence[str]) -> str:
    """Median and interval of each run on a logarithmic axis; every text in it goes through html()."""
    low, high = min(p.low for p in points), max(p.high for p in points)
    span = log(high / low) or 1.0

    def place(point: HistoryPoint, value: float) -> tuple[float, float]:
        x = EDGE + (WIDTH - 2 * EDGE) * point.order / max(1, len(points) - 1)
        return x, 24 + (HEIGHT - 48) * (1 - log(value / low) / span)

    parts = [f'<text x="0" y="30">{figures.seconds(high)}</text>'
             f'<text x="0" y="{HEIGHT - 18}">{figures.seconds(low)}</text>']  # fmt: skip
    for before, point in zip([None, *points], points, strict=False):
        colour = COLOURS[machines.index(point.machine) % len(COLOURS)]
        x, y = place(point, point.median)
        if before is not None and before.machine == point.machine:
            x0, y0 = place(before, before.median)
            parts.append(f'<path d="M{x0:.1f} {y0:.1f}H{x:.1f}V{y:.1f}" fill="none" '
                         f'stroke="{colour}" stroke-opacity=".5"/>')  # fmt: skip
        low_y, high_y = (place(point, value)[1] for value in (point.low, point.high))
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low_y:.1f}" y2="{high_y:.1f}" '
                     f'stroke="{colour}" stroke-width="3" stroke-opacity=".5"/>')  # fmt: skip
        fill = colour if point.real else "none"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{colour}" '
                     f'pointer-events="all"><title>{html(point.told)}, '
                     f"{figures.seconds(point.median)}</title></circle>")  # fmt: skip
        if point.real:
            parts.append(f'<text x="{x:.1f}" y="{y - 10:.1f}" text-anchor="middle">'
                         f"{html(point.commit)} {html(point.factor)}</text>")  # fmt: skip
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html(subject)} over its '
            f'runs">{"".join(parts)}</svg>')  # fmt: skip
