"""What was timed without a profiler  ->  parts of a page: each case's ladder, a history."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from profkit.diagnosis.launches import Judged
from profkit.errors import ProfkitError
from profkit.evidence.history.noise import HistoryStep
from profkit.evidence.ladder import Ladder, Rung, of_runs
from profkit.evidence.runs import Run
from profkit.evidence.samples import Interval
from profkit.records.record import read_record
from profkit.reports import figures
from profkit.reports.frame import without_attrs
from profkit.show.numbers import HistoryPoint, history_points, reference_times
from profkit.show.page.draw import about, across, logarithmic, part, picture, words
from profkit.show.text.blocks import Block
from profkit.show.text.escape import html
from profkit.show.text.words import timed
from profkit.show.views import comparison as changes
from profkit.show.views.history import history_blocks

if TYPE_CHECKING:
    from profkit.reports.frame import Reports

ROW, HIGH, EDGE = 22, 120, 24  # pixels: a row of a ladder, a history, what its ends stay free
MACHINES = 6  # colours
Place = Callable[[float], float]  # a time -> where it is across, 0 to 1


def runs_of(reports: Reports, shown: Collection[str]) -> tuple[list[Run], list[str]]:
    """Return the runs whose record lies beside a report that was read whole.

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
    """Return the ladder of every case that has a variant, with the blocks that say it in words."""
    cases: dict[str, list[Run]] = {}
    for run in runs:
        if run.case:
            cases.setdefault(run.case, []).append(run)
    built = [of_runs(of_case, case) for case, of_case in sorted(cases.items())]
    return [(ladder, list(changes.ladder_steps(ladder))) for ladder in built if ladder.steps]


def chart(ladder: Ladder) -> Markup:
    """Return every variant that was timed, in the ladder's order, then the references."""
    steps = [(step, step.time) for step in ladder.steps if step.time]
    references = reference_times(ladder.steps)
    times = [*(time for _, time in steps), *references.values()]
    if not times:
        return Markup("")
    ends = list(chain.from_iterable(map(_ends, times)))
    place = logarithmic(min(ends), max(ends))
    rows = [_variant_row(step, time, place) for step, time in steps]
    for name, time in references.items():
        rows.append(_row(name, time, "reference", "a library call", timed(time), place))
    label = f"Case {ladder.case}: time per call, warm L2, logarithmic"
    return part("div", *rows, class_="rungs", role="group", aria_label=label)


def _variant_row(step: Rung, interval: Interval, place: Place) -> Markup:
    time = step.change.time if step.change else None
    against = f"{changes.factor(time)} {time.answer} than {step.parent}" if time else step.note
    kind = time.answer if time and time.answer in ("faster", "slower") else "waiting"
    said = " · ".join(filter(None, (timed(interval), changes.factor(time))))
    more = ", ".join(filter(None, (against, step.bound)))
    return _row(step.variant, interval, kind, more, said, place)


def _row(name: str, time: Interval, kind: str, more: str, said: str, place: Place) -> Markup:
    x, *ends = (across(place(value)) for value in (time.median, *_ends(time)))
    drawn = (
        about(", ".join(filter(None, (name, timed(time), more)))),
        part("line", x1=ends[0], x2=ends[1], y1=ROW / 2, y2=ROW / 2),
        part("circle", cx=x, cy=ROW / 2, r=5),
    )
    svg = picture(ROW, name, drawn, class_=kind)
    return part("span", html(name)) + svg + part("span", html(said))


def timed_ladder(ladders: Iterable[Ladder]) -> dict[tuple[str | None, str | None], str]:
    """Return variant and case -> its time without a profiler: "54.6 µs ± 0.44 %"."""
    times: dict[tuple[str | None, str | None], str] = {}
    for ladder in ladders:
        known = {step.variant: step.time for step in ladder.steps}
        for name, time in {**known, **reference_times(ladder.steps)}.items():
            times[name, ladder.case] = timed(time)
    return times


def _ends(time: Interval) -> tuple[float, float]:
    """Return the 95 % interval; the median twice where there is none."""
    known = isfinite(time.low) and isfinite(time.high)
    return (time.low, time.high) if known else (time.median, time.median)


@dataclass(frozen=True)
class PageHistory:
    name: str
    steps: tuple[HistoryStep, ...]


def history_section(of: PageHistory, shown: Iterable[Judged]) -> dict[str, Any]:
    """Return a history as a part of a page of launches."""
    subjects = {f"{run.variant}.{run.case}" for run in shown}
    steps = [s for s in of.steps if s.run.subject in subjects] or list(of.steps)
    points = history_points(steps)
    machines = dict.fromkeys(p.machine for p in chain.from_iterable(points.values()))
    looks = {name: f"m-{i % MACHINES}" for i, name in enumerate(machines)}
    charts = {
        subject: picture(HIGH, f"{subject} over its runs", _history(some, looks), class_="history")
        for subject, some in points.items()
        if len(some) > 1
    }
    return {
        "name": of.name,
        "charts": charts,
        "machines": [(look, name) for name, look in looks.items()],
        "once": sum(len(some) == 1 for some in points.values()),
        "blocks": list(history_blocks(steps)),
    }


def _history(points: Sequence[HistoryPoint], looks: dict[str, str]) -> Iterator[str]:
    """Yield the median and interval of each run on a logarithmic axis; a line within a machine."""
    low, high = min(p.low for p in points), max(p.high for p in points)
    place, wide = logarithmic(low, high), max(1, len(points) - 1)

    def down(time: float) -> float:
        return HIGH - EDGE - (HIGH - 2 * EDGE) * place(time)

    yield words(figures.seconds(high), dx=-12, y=EDGE + 4, text_anchor="end")
    yield words(figures.seconds(low), dx=-12, y=HIGH - EDGE + 4, text_anchor="end")
    for before, point in pairwise(points):
        if before.machine == point.machine:
            x0, x1 = across(before.order / wide), across(point.order / wide)
            y0, y1 = down(before.median), down(point.median)
            corner = part("line", x1=x0, x2=x1, y1=y0, y2=y0) + part(
                "line", x1=x1, x2=x1, y1=y0, y2=y1
            )
            yield part("g", corner, class_=looks[point.machine])
    for point in points:
        x, y = across(point.order / wide), down(point.median)
        whole = part("line", class_="interval", x1=x, x2=x, y1=down(point.low), y2=down(point.high))
        title = about(f"{point.told}, {figures.seconds(point.median)}")
        dot = part("circle", title, class_="" if point.real else "hollow", cx=x, cy=y, r=5)
        yield part("g", whole, dot, class_=looks[point.machine])
        if point.real:
            yield words(point.change, x=x, y=y - 10, text_anchor="middle")
