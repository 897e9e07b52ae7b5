"""Records, diagnosed launches, A/A runs  ->  rows of the history's tables: `runs`, `launches`, ...

A column more is one line in a class below. Tables of an older or newer profkit are read all the
same: a column that a file does not have is null, one that nobody knows is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from profkit.diagnosis.verdict import judge_launch
from profkit.errors import ProfkitError, require_package
from profkit.evidence.ablated import HistoryAblation
from profkit.evidence.stats import estimate_median
from profkit.records.parts import (
    Commit,
    RecordedGpu,
    TimedSide,
    TimedSides,
    Timing,
)
from profkit.records.record import CodeIdentity, Record
from profkit.records.store import Document

if TYPE_CHECKING:
    import pyarrow as pa

    from profkit.units import CommitHash, FieldName, RankValue, RunLabel, Sha256

SCHEMA: Final = "profkit.history/1"


class ColumnsDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """What `profkit query --json` without a question prints: the available columns."""

    columns: tuple[dict[str, str], ...] = ()


class QueryDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.query/1"):
    """What `profkit query QUESTION --json` prints."""

    rows: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class HistoryRun:
    """One measurement of one variant at one case. Seconds, Hz; null where not known."""

    record: str  # sha256 of the run record: what makes a row a new one
    variant: str
    case: str
    problem: str | None = None
    report: str | None = None  # to join `launches`
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
    # what was started, a line each; empty where not known
    launches: tuple[str, ...] = ()

    @property
    def code_identity(self) -> CodeIdentity:
        """Return the hashes of what ran."""
        sources = frozenset(filter(None, (self.source, self.made_from)))
        return CodeIdentity(sources, self.flags, self.sass, self.host, self.launches)

    @property
    def timed(self) -> Record:
        """Return a record with the fields that a comparison of times reads."""
        sides = TimedSides(warm=TimedSide(samples=self.samples))
        gpu = RecordedGpu(name=self.gpu, uuid=self.gpu_uuid)
        timing = Timing(l2=sides, session=self.session)
        return Record(variant=self.variant, case=self.case, timing=timing, gpu=gpu)

    @property
    def subject(self) -> RunLabel:
        """Return variant and case as one name: stage2.B."""
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
    "ablations": HistoryAblation,
}
# Where a commit is known from, the surest first: of rows of one record that differ in nothing else.
ORIGINS = ("record", "option", "environment", "source", "log")


def rank_commit_doubt(commit: CommitHash | None, commit_from: str | None) -> tuple[RankValue, str]:
    """Rank a run's commit: the least is surest."""
    if commit is None or commit_from not in ORIGINS:
        return len(ORIGINS), commit or ""
    return ORIGINS.index(commit_from), commit


# What makes a row of each table one row, however many files hold it.
KEYS = {
    "runs": ("record",),
    "launches": ("report", "launch"),
    "reports": ("path", "report"),
    "twins": ("session", "variant", "case"),
    "ablations": ("record", "ablation"),
}
HistoryRow = HistoryRun | HistoryLaunch | HistoryReport | HistoryTwin | HistoryAblation


def make_arrow_schema_of_table(table: str) -> pa.Schema:
    """Return the columns of a table, from its class."""
    with require_package("pyarrow", "the history"):
        import pyarrow as pa

    kinds: dict[Any, Any] = {
        str: pa.string(),
        float: pa.float64(),
        bool: pa.bool_(),
        int: pa.int64(),
    }
    arrow_types = {
        tuple[float, ...]: pa.list_(pa.float64()),
        tuple[str, ...]: pa.list_(pa.string()),
    }
    for kind, arrow_type in kinds.items():
        arrow_types[kind] = arrow_type
        arrow_types[kind | None] = arrow_type
    hints = get_type_hints(TABLES[table])
    columns = []
    for column in fields(TABLES[table]):
        columns.append((column.name, arrow_types[hints[column.name]]))
    return pa.schema(columns)


def list_columns_never_null(table: str) -> set[str]:
    """Return the columns of a table that every row has a value in."""
    hints = get_type_hints(TABLES[table])
    required = set()
    for field in fields(TABLES[table]):
        if hints[field.name] in (str, int):
            required.add(field.name)
    return required


def list_schema_rows() -> list[dict[FieldName, str]]:
    """Return table, name and type of every column, and whether it is part of a row's name."""
    rows = []
    for table in TABLES:
        for column in make_arrow_schema_of_table(table):
            if column.name in KEYS[table]:
                key = "yes"
            else:
                key = ""
            row = {"table": table, "column": column.name, "type": str(column.type), "key": key}
            rows.append(row)
    return rows


def make_run_row(
    record: Record,
    record_sha256: Sha256,
    fallback_commit: CommitHash | None,
    fallback_commit_from: str | None,
) -> HistoryRun:
    """Return the row of a record; a fallback is of a record that does not say its commit."""
    source = record.known_source
    gpu = record.known_gpu
    git = record.git or Commit()
    commit = fallback_commit
    commit_from = fallback_commit_from
    if git.commit:
        commit = git.commit
        commit_from = "record"
    if not commit:
        commit = commit_from = None
    report = None
    if record.report:
        report = record.report.sha256
    return HistoryRun(
        record=record_sha256,
        variant=record.variant,
        case=record.case,
        problem=record.problem or None,
        report=report,
        commit=commit,
        commit_from=commit_from,
        dirty=git.dirty,
        made=record.made,
        source=source.sha256,
        made_from=source.made_from,
        sass=source.sass,
        host=source.host,
        flags=source.flags,
        launches=record.code_identity.launches,
        correct=record.correct,
        gpu=gpu.name or None,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver,
        nvcc=record.versions.nvcc,
        ncu=record.versions.ncu,
        torch=record.versions.torch,
        session=record.timing_session,
        sm_clock=record.sm_clock,
        **make_columns_of_warm_times(record),
    )


def make_columns_of_warm_times(record: Record) -> dict[str, Any]:
    """Return samples, median and interval; none where the samples are no times."""
    try:
        interval = estimate_median(record.warm_samples)
    except ProfkitError:
        return {}
    ends = {"median": interval.median, "low": interval.low, "high": interval.high}
    known = {}
    for name, value in ends.items():
        if isfinite(value):
            known[name] = value
    return {"samples": tuple(record.warm_samples), **known}


def iterate_launch_rows(
    rows: Iterable[Mapping[Any, Any]], report_sha256: Sha256
) -> Iterator[HistoryLaunch]:
    """Yield the diagnosed launches of a report: those that ncu could finish."""
    for row in rows:
        if row["status"] != "ok":
            continue
        found = judge_launch(row)
        firing = []
        gains = []
        for finding in found.findings:
            if finding.status == "fires":
                firing.append(finding.rule)
                if finding.gain is not None:
                    gains.append(finding.gain)
        time = float(row["time"])
        yield HistoryLaunch(
            report=report_sha256,
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
            findings=tuple(firing),
        )
