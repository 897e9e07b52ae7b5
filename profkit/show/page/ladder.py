"""Reports with a run record beside them  ->  the ladder of each case, as a chart and as blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.evidence.comparison.ladder import Ladder, Rung, of_runs
from profkit.evidence.runs.runs import Run
from profkit.evidence.timing.samples import Interval
from profkit.records.record import read_record
from profkit.reports.frame import without_attrs
from profkit.show.text import figures
from profkit.show.text.blocks import Block
from profkit.show.views import comparison as changes

if TYPE_CHECKING:
    from profkit.reports.frame import Reports

REFERENCE = "reference"


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


def chart(ladder: Ladder) -> list[dict[str, Any]]:
    """The chart's rows: every variant that was timed, in the ladder's order, then the references."""
    rows = [_row(step) for step in ladder.steps if step.time]
    references = {n: c.before for step in ladder.steps for n, c in step.references.items()}
    return rows + [_reference(name, time) for name, time in references.items()]


def timed_ladder(ladders: Iterable[Ladder]) -> dict[tuple[str, str], str]:
    """Variant and case -> its time without a profiler: "54.6 µs ± 0.44 %"."""
    times: dict[tuple[str, str], str] = {}
    for ladder in ladders:
        for step in ladder.steps:
            times[step.variant, ladder.case] = _figure(step.time)
            for name, time in step.references.items():
                times[name, ladder.case] = _figure(time.before)
    return times


def _row(step: Rung) -> dict[str, Any]:
    time = step.change.time if step.change else None
    against = f"{changes.factor(time)} {time.answer}" if time else ""
    return {
        "line": step.variant,
        "variant": step.variant,
        **_interval(step.time),
        "kind": time.answer if time and time.answer in ("faster", "slower") else "",
        "parent": f"{against} than {step.parent}" if against else step.note,
        "said": " · ".join(filter(None, (_figure(step.time), changes.factor(time)))),
        "bound": step.bound,
    }


def _reference(name: str, time: Interval) -> dict[str, Any]:
    return {"line": name, "variant": name, **_interval(time), "kind": REFERENCE,
            "parent": "a library call", "said": _figure(time), "bound": ""}  # fmt: skip


def _figure(time: Interval | None) -> str:
    """106 µs ± 0.25 %."""
    if time is None:
        return ""
    return f"{figures.seconds(time.median)} {changes.half_width(time)}".rstrip()


def _interval(time: Interval | None) -> dict[str, Any]:
    if time is None:
        return {}
    known = isfinite(time.low) and isfinite(time.high)
    low, high = (time.low, time.high) if known else (time.median, time.median)
    ends = f"{figures.seconds(low)} to {figures.seconds(high)}"
    interval = ends if known else "none: see the notes"
    return {"median": time.median, "low": low, "high": high, "interval": interval,
            "text": figures.seconds(time.median)}  # fmt: skip
