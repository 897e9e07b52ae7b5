"""Records, diagnosed launches, A/A runs  ->  rows of the history's tables: `runs`, `launches`, ...

A column more is one line in a class below. Tables of an older or newer profkit are read all the
same: a column that a file does not have is null, one that nobody knows is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from profkit.errors import ProfkitError, needing
from profkit.evidence.runs import verdict
from profkit.evidence.stats import median_interval
from profkit.records.record import MachineCode, Record

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA: Final = "profkit.history/1"


@dataclass(frozen=True)
class HistoryRun:
    """One measurement of one variant at one case. Seconds, Hz; null where not known."""

    record: str  # sha256 of the run record: what makes a row a new one
    variant: str
    case: str
    problem: str | None = None
    report: str | None = None  # sha256 of the report, to join `launches`
    commit: str | None = None  # of the code that was measured
    # where that is known from: record, option, environment, source (the commit of the code
    # with that hash) or log (the commit that brought the record in)
    commit_from: str | None = None
    dirty: bool | None = None  # whether files differed from the commit
    made: str | None = None  # when it was measured, ISO 8601
    # hash of the code, made_from of the code that it was measured with, where only comments
    # changed since; sass of the kernels' machine code, host of the launcher's
    source: str | None = None
    sass: str | None = None
    correct: bool | None = None
    gpu: str | None = None
    gpu_uuid: str | None = None
    driver: str | None = None
    nvcc: str | None = None
    ncu: str | None = None
    torch: str | None = None
    session: str | None = None  # equal for what was timed in turns in one process
    samples: tuple[float, ...] = ()  # with a warm L2, in the order taken
    median: float | None = None  # of the samples; low and high are its 95 % interval
    low: float | None = None
    high: float | None = None
    sm_clock: float | None = None  # after the timing
    made_from: str | None = None
    host: str | None = None
    flags: tuple[str, ...] = ()  # what the compiler was given
    launches: tuple[str, ...] = ()  # what was started, a line each; empty where not known

    @property
    def machine_code(self) -> MachineCode:
        """What was run."""
        return MachineCode(
            sources=frozenset(filter(None, (self.source, self.made_from))),
            flags=self.flags,
            sass=self.sass,
            host=self.host,
            launches=self.launches,
        )

    @property
    def certainty(self) -> tuple[int, str]:
        """Of several rows of one record the least counts: its commit is known, and from the surest."""
        known = self.commit is not None and self.commit_from in ORIGINS
        rank = ORIGINS.index(self.commit_from or "") if known else len(ORIGINS)
        return rank, self.commit or ""

    @property
    def subject(self) -> str:
        """Variant and case as one word."""
        return f"{self.variant}.{self.case}"


@dataclass(frozen=True)
class HistoryLaunch:
    """One diagnosed launch of one report. Seconds; gain is the largest of its findings."""

    report: str  # sha256 of the report
    launch: int  # its index there
    kernel: str | None = None
    variant: str | None = None
    case: str | None = None
    gpu: str | None = None
    time: float | None = None
    bound: str | None = None
    limiter: str | None = None
    cause: str | None = None
    gain: float | None = None
    findings: tuple[str, ...] = ()  # the rules that fire


@dataclass(frozen=True)
class HistoryTwin:
    """One variant timed twice in turns in one process: an A/A comparison. Seconds, Hz."""

    session: str  # of the process, with variant and case the row's name
    variant: str
    case: str
    problem: str | None = None
    made: str | None = None
    sass: str | None = None  # hash of the machine code, which both sides are
    gpu: str | None = None
    gpu_uuid: str | None = None
    driver: str | None = None
    # of one side with a warm L2, in the order taken; `again` those of the other
    samples: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    sm_clock: float | None = None  # after the timing


@dataclass(frozen=True)
class HistoryReport:
    """One report that was read into the history, also one that could not be."""

    path: str  # where it was
    # its sha256, to join `launches`; null where it could not be read at all
    report: str | None = None
    status: str | None = None  # ok, empty, damaged or unreadable; message says why
    message: str | None = None
    launches: int | None = None  # how many it holds
    ncu: str | None = None


TABLES: dict[str, type] = {
    "runs": HistoryRun,
    "launches": HistoryLaunch,
    "reports": HistoryReport,
    "twins": HistoryTwin,
}
# Where a commit is known from, the surest first: of rows of one record that differ in nothing else.
ORIGINS = ("record", "option", "environment", "source", "log")
# What makes a row of each table one row, however many files hold it.
KEYS = {
    "runs": ("record",),
    "launches": ("report", "launch"),
    "reports": ("path", "report"),
    "twins": ("session", "variant", "case"),
}
HistoryRow = HistoryRun | HistoryLaunch | HistoryReport | HistoryTwin


def table_columns(table: str) -> pa.Schema:
    """The columns of a table, from its class."""
    with needing("pyarrow", "the history"):
        import pyarrow as pa

    kinds: dict[Any, Any] = {
        str: pa.string(),
        float: pa.float64(),
        bool: pa.bool_(),
        int: pa.int64(),
    }
    listed = {tuple[float, ...]: pa.list_(pa.float64()), tuple[str, ...]: pa.list_(pa.string())}
    hints = get_type_hints(TABLES[table])
    known = kinds | {kind | None: arrow for kind, arrow in kinds.items()} | listed
    return pa.schema([(f.name, known[hints[f.name]]) for f in fields(TABLES[table])])


def schema_rows() -> list[dict[str, str]]:
    """Every column of every table: table, column, type, and whether it is part of the row's name."""
    return [
        {"table": table, "column": field.name, "type": str(field.type),
         "key": "yes" if field.name in KEYS[table] else ""}
        for table in TABLES
        for field in table_columns(table)
    ]  # fmt: skip


def run_row(record: Record, sha256: str, commit: str | None, origin: str | None) -> HistoryRun:
    """The row of a record.

    `commit`: what is known of the commit beside the record. `origin`: where that is known from; the
    record's own commit comes first.
    """
    own = record.git.commit if record.git else None
    gpu, source = record.gpu, record.source
    return HistoryRun(
        record=sha256,
        variant=record.variant,
        case=record.case,
        problem=record.problem or None,
        report=record.report.sha256 if record.report else None,
        commit=own or commit,
        commit_from="record" if own else origin if commit else None,
        dirty=record.git.dirty if record.git else None,
        made=record.made,
        source=source.sha256 if source else None,
        sass=source.sass if source else None,
        correct=record.correct,
        gpu=gpu.name if gpu else None,
        gpu_uuid=gpu.uuid if gpu else None,
        driver=gpu.driver if gpu else None,
        nvcc=record.versions.nvcc,
        ncu=record.versions.ncu,
        torch=record.versions.torch,
        session=record.session,
        sm_clock=record.sm_clock,
        made_from=source.made_from if source else None,
        host=source.host if source else None,
        flags=source.flags if source else (),
        launches=record.machine_code.launches,
        **_times(record),
    )


def _times(record: Record) -> dict[str, Any]:
    """Samples, median and interval; none where the samples are no times."""
    samples = tuple(record.warm)
    try:
        interval = median_interval(samples)
    except ProfkitError:
        return {}
    ends = {"median": interval.median, "low": interval.low, "high": interval.high}
    return {"samples": samples, **{k: v if isfinite(v) else None for k, v in ends.items()}}


def launch_rows(rows: Iterable[Mapping[Any, Any]], report: str) -> Iterator[HistoryLaunch]:
    """The diagnosed launches of a report: those that ncu could finish."""
    for row in rows:
        if row["status"] != "ok":
            continue
        found = verdict(row)
        firing = [f for f in found.findings if f.status == "fires"]
        gains = [f.gain for f in firing if f.gain is not None]
        time = float(row["time"])
        yield HistoryLaunch(
            report=report,
            launch=int(row["launch"]),
            kernel=row["kernel"],
            variant=row["variant"],
            case=row["case"],
            gpu=row["device"],
            time=time if isfinite(time) else None,
            bound=found.bound,
            limiter=found.limiter,
            cause=found.because,
            gain=max(gains, default=None),
            findings=tuple(f.rule for f in firing),
        )
