"""What was timed without a profiler  ->  parts of the page: each case's ladder, a history; as SVG.

The pictures have no styles of their own: the page's policy allows none, so colours are classes or
attributes. Every text in them goes through html().
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from profkit.diagnosis.launches import Judged
from profkit.errors import ProfkitError
from profkit.evidence.history.steps import HistoryStep
from profkit.evidence.ladder import Ladder, Rung, of_runs
from profkit.evidence.runs import Run
from profkit.evidence.samples import Interval
from profkit.records.record import read_record
from profkit.reports import figures
from profkit.reports.frame import without_attrs
from profkit.show.numbers import HistoryPoint, history_points
from profkit.show.text.blocks import Block
from profkit.show.text.escape import html
from profkit.show.views import comparison as changes
from profkit.show.views.history import history_blocks

if TYPE_CHECKING:
    from profkit.reports.frame import Reports

WIDTH = 1200  # of every picture
HEIGHT, LABEL, SAID = 22, 220, 230  # of a ladder: a row, names, figures
HIGH, EDGE = 120, 90  # of a history
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")


def picture(height: int, about: str, parts: Iterable[str], role: str = "img") -> Markup:
    """An SVG element as wide as the page."""
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="{role}" aria-label="{html(about)}">'
    return Markup(f"{head}{''.join(parts)}</svg>")  # noqa: S704 - every text went through html()


def legend(colours: Iterable[tuple[str, str]], about: str) -> Markup:
    """What each colour is."""
    parts, x, y = [], 10, 12
    for colour, name in colours:
        wide = 30 + 7 * len(name)
        if x + wide > WIDTH and x > 10:
            x, y = 10, y + 24
        circle = f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>'
        parts.append(f'{circle}<text x="{x + 10}" y="{y + 4}">{html(name)}</text>')
        x += wide
    return picture(y + 12, about, parts)


def _logarithmic(times: Sequence[float], begin: float, end: float) -> Callable[[float], float]:
    """Where a time stands between the ends of an axis that holds all of them."""
    low = min(times)
    span = log(max(times) / low) or 1.0
    return lambda time: begin + (end - begin) * log(time / low) / span


# Ladders.


@dataclass(frozen=True)
class _Bar:
    """A row of the picture."""

    name: str
    time: Interval
    kind: str
    about: str
    said: str


def runs_of(reports: Reports, shown: Collection[str]) -> tuple[list[Run], list[str]]:
    """The runs whose record lies beside a report that was read whole.

    Returns:
        One run a variant and case, and what is wrong with records that cannot be used.
    """
    runs: dict[tuple[str, str], Run] = {}
    problems = []
    frame = without_attrs(reports.launches)
    for file in reports.files:
        path = Path(file.path)
        beside = path.with_suffix(".json")
        if file.path not in shown or file.status != "ok" or not beside.is_file():
            continue
        try:
            record = read_record(beside)
        except ProfkitError as error:
            problems.append(error.message)
            continue
        launches = frame[frame["report"] == file.path]
        run = Run(record.variant, record.case, record, launches, path)
        runs.setdefault((record.variant, record.case), run)
    return list(runs.values()), problems


def ladders(runs: Iterable[Run]) -> list[tuple[Ladder, list[Block]]]:
    """The ladder of every case that has a variant, with the blocks that say it in words."""
    cases: dict[str, list[Run]] = {}
    for run in runs:
        if run.case:
            cases.setdefault(run.case, []).append(run)
    built = [of_runs(of_case, case) for case, of_case in sorted(cases.items())]
    return [(ladder, list(changes.ladder_steps(ladder))) for ladder in built if ladder.steps]


def chart(ladder: Ladder) -> Markup:
    """Every variant that was timed, in the ladder's order, then the references: median and interval."""
    rows = [_bar(step) for step in ladder.steps if step.time]
    references: dict[str, Interval] = {}
    for step in ladder.steps:
        references |= {name: time.before for name, time in step.references.items()}
    rows += [
        _Bar(name, t, "reference", "a library call", _figure(t)) for name, t in references.items()
    ]
    if not rows:
        return Markup("")
    ends = [_ends(row.time) for row in rows]
    place = _logarithmic(list(chain.from_iterable(ends)), LABEL, WIDTH - SAID)
    parts = [_drawn_bar(n, row, place) for n, row in enumerate(rows)]
    about = f"Case {ladder.case}: time per call, warm L2, logarithmic"
    return picture(HEIGHT * len(rows), about, parts)


def _drawn_bar(number: int, row: _Bar, place: Callable[[float], float]) -> str:
    x, low, high = map(place, (row.time.median, *_ends(row.time)))
    y = HEIGHT * number + HEIGHT / 2
    about = html(", ".join(filter(None, (row.name, _figure(row.time), row.about))))
    return (
        f'<g class="{row.kind or "waiting"}"><title>{about}</title>'
        f'<text x="0" y="{y + 4}">{html(row.name)}</text>'
        f'<path d="M{low:.1f} {y}H{high:.1f}"/><circle cx="{x:.1f}" cy="{y}" r="5"/>'
        f'<text x="{max(x, high) + 10:.1f}" y="{y + 4}">{html(row.said)}</text></g>'
    )


def timed_ladder(ladders: Iterable[Ladder]) -> dict[tuple[str, str], str]:
    """Variant and case -> its time without a profiler: "54.6 µs ± 0.44 %"."""
    times: dict[tuple[str, str], str] = {}
    for ladder in ladders:
        for step in ladder.steps:
            times[step.variant, ladder.case] = _figure(step.time)
            for name, time in step.references.items():
                times[name, ladder.case] = _figure(time.before)
    return times


def _bar(step: Rung) -> _Bar:
    assert step.time  # noqa: S101 - chart asks for those alone
    time = step.change.time if step.change else None
    against = f"{changes.factor(time)} {time.answer} than {step.parent}" if time else step.note
    kind = time.answer if time and time.answer in ("faster", "slower") else ""
    said = " · ".join(filter(None, (_figure(step.time), changes.factor(time))))
    about = ", ".join(filter(None, (against, step.bound)))
    return _Bar(step.variant, step.time, kind, about, said)


def _ends(time: Interval) -> tuple[float, float]:
    """The 95 % interval; the median twice where there is none."""
    known = isfinite(time.low) and isfinite(time.high)
    return (time.low, time.high) if known else (time.median, time.median)


def _figure(time: Interval | None) -> str:
    """106 µs ± 0.25 %."""
    if time is None:
        return ""
    return f"{figures.seconds(time.median)} {changes.half_width(time)}".rstrip()


# Histories.


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
    machines = list(dict.fromkeys(p.machine for p in chain.from_iterable(points.values())))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(machines)}
    charts = [
        {"subject": subject, "svg": _runs_chart(subject, some, colours)}
        for subject, some in points.items()
        if len(some) > 1
    ]
    return {
        "name": of.name,
        "charts": charts,
        "machines": legend(((colour, name) for name, colour in colours.items()), "GPUs"),
        "once": sum(len(some) == 1 for some in points.values()),
        "blocks": list(history_blocks(steps)),
    }


def _runs_chart(subject: str, points: Sequence[HistoryPoint], colours: dict[str, str]) -> Markup:
    """Median and interval of each run on a logarithmic axis."""
    low, high = min(p.low for p in points), max(p.high for p in points)
    up = _logarithmic([low, high], HIGH - 24, 24)
    wide = (WIDTH - 2 * EDGE) / max(1, len(points) - 1)
    parts = [
        f'<text x="0" y="30">{figures.seconds(high)}</text>'
        f'<text x="0" y="{HIGH - 18}">{figures.seconds(low)}</text>'
    ]
    for before, point in zip([None, *points], points, strict=False):
        x, y, colour = EDGE + wide * point.order, up(point.median), colours[point.machine]
        if before is not None and before.machine == point.machine:
            x0, y0 = EDGE + wide * before.order, up(before.median)
            line = f'<path d="M{x0:.1f} {y0:.1f}H{x:.1f}V{y:.1f}" fill="none"'
            parts.append(f'{line} stroke="{colour}" stroke-opacity=".5"/>')
        ends = f'y1="{up(point.low):.1f}" y2="{up(point.high):.1f}"'
        look = f'stroke="{colour}" stroke-width="3" stroke-opacity=".5"'
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} {look}/>')
        look = f'fill="{colour if point.real else "none"}" stroke="{colour}" pointer-events="all"'
        about = f"{html(point.told)}, {figures.seconds(point.median)}"
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {look}>'
        parts.append(f"{circle}<title>{about}</title></circle>")
        if point.real:
            words = f"{html(point.commit)} {html(point.factor)}"
            place = f'x="{x:.1f}" y="{y - 10:.1f}" text-anchor="middle"'
            parts.append(f"<text {place}>{words}</text>")
    return picture(HIGH, f"{subject} over its runs", parts)
