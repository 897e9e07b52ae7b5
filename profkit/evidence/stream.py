"""Any number of reports  ->  diagnosed launches in the history, a few reports in memory at a time.

Each report is read and diagnosed in a process of its own, here or on a cluster. What is done is
written down every few hundred reports, so that whoever is killed has lost those of one batch and
nothing that was written; a report that is in the history already is not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.diagnosis import verdict  # noqa: F401 - here, so that fresh forks have the rules already
from profkit.evidence.history import History
from profkit.evidence.tables import (
    HistoryLaunch,
    HistoryReport,
    HistoryRow,
    iterate_launch_rows,
)
from profkit.records.store import Document, compute_sha256_of_file
from profkit.reports.cluster import iterate_results_by_path
from profkit.reports.frame import ReportLaunches
from profkit.reports.reader import (
    prepare_child,
    read_large_reports,
    read_report_unless_large,
    recover_metrics_after_crash,
)

if TYPE_CHECKING:
    from profkit.units import DaskClientOrExecutor


__all__ = [
    "StreamedCounts",
    "add_new_reports_to_history",
    "make_history_rows_of_file",
    "prepare_child",
]  # children prepare
BATCH = 500  # reports of one file of the history


@dataclass(frozen=True)
class StreamedCounts:
    """How many reports went into a history, and which of them are not whole."""

    reports: int
    launches: int  # how many diagnosed launches they hold
    known: int  # how many were in the history already
    not_ok: tuple[HistoryReport, ...]  # those that could not be read whole


class StreamedDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.streamed/1"
):
    """What `profkit diagnose --history DIR --json` prints."""

    reports: int = 0
    known: int = 0
    launches: int = 0
    not_ok: tuple[str, ...] = ()


def make_stream_document(streamed: StreamedCounts) -> StreamedDocument:
    """Return the document of what was streamed."""
    return StreamedDocument(
        reports=streamed.reports,
        known=streamed.known,
        launches=streamed.launches,
        not_ok=tuple(file.path for file in streamed.not_ok),
    )


def _find_recorded_reports(paths: Collection[str], history: History) -> set[str]:
    """Return the paths whose reports, as they are today, are in the history."""
    table = history.read_table("reports").found
    seen = table.select(["path", "report"]).to_pydict()
    before = set(zip(seen["path"], seen["report"], strict=True))
    named = set(seen["path"])
    known = set()
    for path in paths:
        if path in named and (path, compute_sha256_of_file(Path(path))) in before:
            known.add(path)
    return known


def add_new_reports_to_history(
    paths: Collection[str],
    history: History,
    executor: DaskClientOrExecutor = None,
    progress: Callable[[int], None] = lambda _: None,
) -> StreamedCounts:
    """Read, diagnose and write down reports that are not in the history yet.

    `executor`: an executor or a Dask client; None takes this machine's processors.
    """
    known = _find_recorded_reports(paths, history)
    new = (path for path in paths if path not in known)
    here = (
        f"{__name__}:make_history_rows_of_file",
        f"{__name__}:make_history_rows_after_reader_crash",
    )
    reports = launches = 0
    not_ok: list[HistoryReport] = []
    waiting: list[HistoryRow] = []
    try:
        for _, (report, found) in iterate_results_by_path(here[0], new, here[1], executor):
            reports += 1
            launches += len(found)
            if report.status != "ok":
                not_ok += [report]
            waiting += [report, *found]
            if not reports % BATCH:
                history.append_rows(waiting)
                waiting = []
            progress(reports)
    finally:  # what is known when somebody stops it is kept
        history.append_rows(waiting)
    return StreamedCounts(reports, launches, len(known), tuple(not_ok))


ReportRows = tuple[HistoryReport, list[HistoryLaunch]]


def make_history_rows_of_file(path: str) -> ReportRows:
    """Return the report's row, and one for each of its launches that ncu could finish."""
    part = read_report_unless_large(path)
    return make_history_rows_of_report(
        part
        if isinstance(part, ReportLaunches)
        else read_large_reports([path], part.memory_weight)[0]
    )


def make_history_rows_after_reader_crash(path: str, why_crashed: str) -> ReportRows:
    """Return what is known of a report whose process died: at most its metrics."""
    return make_history_rows_of_report(recover_metrics_after_crash(path, why_crashed))


def make_history_rows_of_report(part: ReportLaunches) -> ReportRows:
    """Return a report's row and those of its launches."""
    file = part.file
    about = file.status, file.message or None, file.launches, file.ncu_version
    report = HistoryReport(file.path, file.sha256, *about)
    return report, list(iterate_launch_rows(part.iterate_launches(), file.sha256 or file.path))
