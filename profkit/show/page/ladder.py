"""Reports with a run record beside them  ->  the ladder of each case, as a chart and as blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from profkit.errors import ProfkitError
from profkit.evidence.comparison.ladder import Ladder, Rung, of_runs
from profkit.evidence.runs.runs import Run
from profkit.evidence.timing.samples import Interval
from profkit.records.record import read_record
from profkit.reports.frame import without_attrs
from profkit.show.text import figures
from profkit.show.text.blocks import Block
from profkit.show.text.escape import html
from profkit.show.views import comparison as changes

if TYPE_CHECKING:
    from profkit.reports.frame import Reports

WIDTH, HEIGHT, LABEL, SAID = 1200, 22, 220, 230  # of the picture, a row, names, figures


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

    Args:
        reports: What was read.
        shown: Paths of the reports that the page shows.

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
    references = {n: c.before for step in ladder.steps for n, c in step.references.items()}
    rows += [
        _Bar(name, t, "reference", "a library call", _figure(t)) for name, t in references.items()
    ]
    if not rows:
        return Markup("")
    times = [t for row in rows for t in _ends(row.time)]
    low, span = log(min(times)), log(max(times) / min(times)) or 1.0
    parts = []
    for n, row in enumerate(rows):
        x, *ends = (
            LABEL + (WIDTH - LABEL - SAID) * (log(t) - low) / span
            for t in (row.time.median, *_ends(row.time))
        )
        y = HEIGHT * n + HEIGHT / 2
        about = html(", ".join(filter(None, (row.name, _figure(row.time), row.about))))
        parts.append(
            f'<g class="{row.kind or "waiting"}"><title>{about}</title>'
            f'<text x="0" y="{y + 4}">{html(row.name)}</text>'
            f'<path d="M{ends[0]:.1f} {y}H{ends[1]:.1f}"/><circle cx="{x:.1f}" cy="{y}" r="5"/>'
            f'<text x="{max(x, ends[1]) + 10:.1f}" y="{y + 4}">{html(row.said)}</text></g>'
        )
    about = html(f"Case {ladder.case}: time per call, warm L2, logarithmic")
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT * len(rows)}" role="img" aria-label="{about}">'
    return Markup(f"{head}{''.join(parts)}</svg>")  # noqa: S704 - every text went through html()


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
