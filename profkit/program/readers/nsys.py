"""Nsight Systems' SQLite export (nsys export --type sqlite)  ->  a Timeline.

Schemas differ from version to version: a table is found by its name with or without a version
(NVTX_EVENTS_V2) and by the columns that it must have; columns that it may have are NULL where it
lacks them. Since 2022.3 nsys records a launch of a CUDA graph as one by default: then what ran
inside of it is known by its time alone.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.files import (
    BudgetSpent,
    ReadBudget,
    get_file_size_or_zero,
    is_file,
    make_read_error,
    open_regular_file,
    resolve_path,
)
from profkit.program.readers import RecordingKind
from profkit.program.readers.others import explain_known_kind
from profkit.program.timeline import (
    DIRECTIONS,
    FARTHEST,
    GRAPH,
    UNIFIED_MEMORY,
    Activity,
    Call,
    Device,
    Dims,
    HostSpan,
    Process,
    Timeline,
    close_open_ranges,
    find_recording_end,
    make_activity,
    note_open_ranges,
    remove_version_suffix,
)
from profkit.reports.figures import format_percent

if TYPE_CHECKING:
    from profkit.units import ByteCount, Sentence, SqlText


ProcessAndActivity = tuple[int | None, Activity]  # None: the export does not say whose it is
ProcessAndGpuNumber = tuple[int | None, int]  # None: the number is nsys' own

PAGEABLE = 0  # nsys' ENUM_CUDA_MEM_KIND; 2 is device
MEMORIES = {PAGEABLE: "Pageable", 1: "Pinned"}
PUSH_POP, START_END = 59, 60  # nsys' ENUM_NSYS_EVENT_TYPE of ranges
WARNING, ERROR = 2, 3  # nsys' ENUM_DIAGNOSTIC_SEVERITY_LEVEL: 1 informs
# nsys' ENUM_CUDA_MEMCPY_OPER of pages that move by themselves: no call copies them.
UNIFIED = {11: "HtoD", 12: "DtoH", 13: "DtoD"}
# Of what nsys says of itself, what concerns the GPU's record; the rest is of CPU samples and graphics.
_CONCERNS = re.compile(
    r"\b(CUDA|CUPTI|GPU|driver)\b|dropped|\blost\b|missing|overflow", re.IGNORECASE
)
# That pages of unified memory are not recorded does not say why kernels are not.
_OF_OTHER_RECORDS = re.compile(r"\bUnified Memory cannot be traced\b")
_LOST = re.compile(r"dropped|\blost\b|might be missing|overflow", re.IGNORECASE)
SAID_MOST = 5  # of the recorder's own warnings and errors
SAID_LENGTH = 300  # characters of one
LOOKED_AT = 10 * SAID_LENGTH  # characters of one that are looked at
SECONDS_MOST = 120.0  # of a processor, for all queries: a busy machine takes longer by the clock
TEXT_MOST = 1 << 24  # bytes of a row
# Pages and texts of a file can be shared by as many rows as somebody likes: no row takes fewer bytes of
# an honest one, and to read all of it takes about ten steps of SQLite's machine a byte.
ROW_LEAST = 8
STEPS = 64
STEPS_SPARE = 20_000_000
STEPS_APART = 100_000  # so often they are counted
ROWS_MOST = 4_000_000  # of a query, as many as are read of a torch trace
SHAPES_MOST = 10_000  # sizes of grids and blocks that are kept to be shared
_PID = 0xFFFFFFFFFF000000  # of a globalTid: all but the thread's own bits
_EXPORT = "nsys export --type sqlite --output x.sqlite x.nsys-rep"
_CUPTI = "CUPTI_ACTIVITY_KIND_"
_VERSIONED = re.compile(r"(?P<family>.+?)(_V(?P<version>\d+))?", re.IGNORECASE)
# What a table must have, to be read at all.
_REQUIRED: Mapping[str, frozenset[str]] = {
    "STRINGIDS": frozenset({"id", "value"}),
    _CUPTI + "KERNEL": frozenset({"start", "end", "correlationId"}),
    _CUPTI + "MEMCPY": frozenset({"start", "end", "correlationId", "bytes"}),
    _CUPTI + "MEMSET": frozenset({"start", "end", "correlationId", "bytes"}),
    _CUPTI + "GRAPH_TRACE": frozenset({"start", "end"}),
    _CUPTI + "RUNTIME": frozenset({"start", "end", "globalTid", "correlationId", "nameId"}),
    "NVTX_EVENTS": frozenset({"start", "end", "globalTid"}),
    "DIAGNOSTIC_EVENT": frozenset({"text"}),
    "TARGET_INFO_GPU": frozenset({"id", "name"}),
    "TARGET_INFO_CUDA_DEVICE": frozenset({"gpuId", "cudaId"}),
}
_PLACE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_USED = ("staticSharedMemory", "dynamicSharedMemory", "registersPerThread", "graphNodeId")
_NAMES = ("demangledName", "shortName", "mangledName")


def read_nsys(path: Path) -> Timeline:
    """Read an export.

    Raises:
        ProfkitError: It is no export of nsys, is too large, or no kernel is in it.
    """
    _refuse_journals(path)
    _refuse_truncated_export(path)
    try:
        # Immutable: no journal beside it is believed, and none is made.
        with contextlib.closing(
            sqlite3.connect(f"{resolve_path(path).as_uri()}?mode=ro&immutable=1", uri=True)
        ) as base:
            return _read_timeline(_Export(base, path))
    except (sqlite3.Error, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise ProfkitError(
            f"{path}: cannot be read as an export of Nsight Systems: {error}", _EXPORT
        ) from error


RECORDING = RecordingKind(
    name="an nsys export",
    suffixes=(".sqlite",),
    is_kind=lambda file: file.head.startswith(b"SQLite format 3"),
    read=read_nsys,
)
JOURNAL = bytes.fromhex("d9d505f920a163d7")  # what a journal that is not done with begins with


def _refuse_journals(path: Path) -> None:
    """Refuse an export of which a part is in a file beside it, or is still to be taken back.

    Raises:
        ProfkitError: There is such a file.
    """
    for place in dict.fromkeys((path, resolve_path(path))):
        log = place.with_name(f"{place.name}-wal")
        if is_file(log) and get_file_size_or_zero(log):
            raise ProfkitError(
                f"{path}: some of its rows are still in {log.name} next to it",
                f"sqlite3 {shlex.quote(str(path))} 'PRAGMA wal_checkpoint(TRUNCATE)', or export again",
            )
        journal = place.with_name(f"{place.name}-journal")
        if is_file(journal) and _is_unfinished_journal(journal):
            raise ProfkitError(
                f"{path}: writing did not finish: {journal.name} next to it would undo rows",
                f"sqlite3 {shlex.quote(str(path))} 'PRAGMA user_version', or export again",
            )


def _refuse_truncated_export(path: Path) -> None:
    """Refuse an export that is shorter than its own header says: SQLite reads what is left of it.

    Raises:
        ProfkitError: It is.
    """
    try:
        with open_regular_file(path) as file:
            head = file.read(100)
    except OSError as error:
        raise make_read_error(path, error) from error
    if len(head) < 100:
        return
    page = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    # The number of pages holds where the last writer kept both counters of changes alike.
    holds = head[24:28] == head[92:96]
    if page == 1:  # two bytes do not hold 65,536
        page = 65536
    whole = page * pages
    if holds and get_file_size_or_zero(path) < whole:
        raise ProfkitError(
            f"{path}: is cut: {get_file_size_or_zero(path):,} of its {whole:,} bytes are there",
            "copy it again, or export again",
        )


def _is_unfinished_journal(journal: Path) -> bool:
    """Return whether a journal is not done with: one that is begins with zeros, or is empty."""
    try:
        with open_regular_file(journal) as file:
            return file.read(len(JOURNAL)) == JOURNAL
    except OSError as error:
        raise make_read_error(journal, error) from error


def _convert_to_integer_or_zero(value: object) -> int:
    """Return a column that should be an integer; 0 for what is none: SQLite holds anything anywhere."""
    if isinstance(value, int):
        return value
    return 0


@dataclass(frozen=True)
class _Table:
    """A table of the export."""

    name: str
    columns: frozenset[str]

    def find_first_column(self, names: Sequence[str]) -> str | None:
        """Return the first of some columns that it has."""
        for name in names:
            if name in self.columns:
                return name
        return None


@dataclass
class _Export:
    """An open export: its tables, and the names that its rows give by number."""

    base: sqlite3.Connection
    path: Path
    tables: dict[str, _Table] = field(init=False)  # by family, as _REQUIRED names them
    budget: ReadBudget = field(init=False)  # for names: a million rows may share one
    reading: ReadBudget = field(
        init=False
    )  # for what SQLite reads: rows may share bytes of the file
    rows_left: int = field(init=False)

    def __post_init__(self) -> None:
        size = get_file_size_or_zero(self.path)
        self.budget, self.reading = ReadBudget(size), ReadBudget(size)
        self.rows_left = size // ROW_LEAST
        self._limit_query_resources(size)
        self.tables = self._find_newest_tables_of_families()

    def _limit_query_resources(self, size: ByteCount) -> None:
        """Let a base of so many bytes compute no more than reading them takes.

        A base may hold more than tables: what its own schema computes gets no functions.
        """
        self.base.text_factory = self._decode_text
        self.base.execute("PRAGMA trusted_schema = OFF")
        self.base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_MOST)
        until = time.process_time() + SECONDS_MOST
        steps = itertools.count(STEPS_APART, STEPS_APART)
        most = STEPS_SPARE + STEPS * size

        def is_too_much() -> bool:
            return next(steps) > most or time.process_time() > until

        self.base.set_progress_handler(is_too_much, STEPS_APART)

    def _decode_text(self, stored: bytes) -> str:
        """Decode a text in whatever encoding: what is not UTF-8 is escaped, and loses nobody else's."""
        self.reading.spend_bytes(len(stored))
        return stored.decode("utf-8", "backslashreplace")

    def query_rows(self, query: SqlText) -> Iterator[tuple[Any, ...]]:
        """Run a query; its rows draw on what may be read of the file."""
        for row in self.base.execute(query):
            if bytes in map(type, row):  # nsys writes none: a text is counted as it is decoded
                self.reading.spend_bytes(sum(len(cell) for cell in row if type(cell) is bytes))
            yield row

    def _find_newest_tables_of_families(self) -> dict[str, _Table]:
        """Return of each family the newest version that has rows and the columns that it must have."""
        names = self.base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        versions: dict[str, list[tuple[int, str]]] = {}
        for (name,) in names.fetchall():
            parts = _VERSIONED.fullmatch(name)
            if parts and parts["family"].upper() in _REQUIRED:
                version = int(parts["version"] or 0)
                versions.setdefault(parts["family"].upper(), []).append((version, name))
        found = {}
        for family, named in versions.items():
            for _, name in sorted(named, reverse=True):
                about = self.base.execute(f"PRAGMA table_info({_quote_identifier(name)})")
                columns = frozenset(str(row[1]) for row in about)
                if _REQUIRED[family] <= columns and self._has_rows(name):
                    found[family] = _Table(name, columns)
                    break
        return found

    def _has_rows(self, name: str) -> bool:
        query = f"SELECT 1 FROM {_quote_identifier(name)} LIMIT 1"  # noqa: S608
        return self.base.execute(query).fetchone() is not None

    def read_rows(
        self, table: _Table, columns: Sequence[str], where: SqlText = ""
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows of a table, in bounds, whose first two columns are times that a clock can show."""
        query = (
            f"SELECT {_select_columns(table, columns)} FROM {_quote_identifier(table.name)} {where}"  # noqa: S608
        )
        for count, row in enumerate(self.query_rows(query)):
            if count >= ROWS_MOST:
                raise ValueError(f"a table has more than {ROWS_MOST:,} rows")
            self.rows_left -= 1
            if self.rows_left < 0:
                raise BudgetSpent("it has more rows than its bytes can hold")
            if (
                -FARTHEST < _convert_to_integer_or_zero(row[0]) < FARTHEST
                and -FARTHEST < _convert_to_integer_or_zero(row[1]) < FARTHEST
            ):
                yield row

    def read_names_by_number(self, table: _Table, column: str | None) -> dict[int, str]:
        """Return the names that a column of a table gives by number, each once."""
        strings = self.tables.get("STRINGIDS")
        if strings is None or column is None:
            return {}
        query = (
            f"SELECT id, value FROM {_quote_identifier(strings.name)} WHERE id IN "  # noqa: S608
            f"(SELECT {_quote_identifier(column)} FROM {_quote_identifier(table.name)})"
        )
        names = {}
        for number, value in self.query_rows(query):
            names[number] = self.budget.intern_text(str(value))
        return names


def _quote_identifier(name: str) -> SqlText:
    """Return an identifier in SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _select_columns(table: _Table, columns: Sequence[str]) -> SqlText:
    """Return columns to select; NULL for those that this version's table lacks."""
    selected = []
    for name in columns:
        if name in table.columns:
            selected.append(_quote_identifier(name))
        else:
            selected.append("NULL")
    return ", ".join(selected)


def _join_ended_and_closed_spans(
    ended: Sequence[HostSpan],
    begun: Sequence[HostSpan],
    activities: Sequence[Activity],
    calls: Sequence[Call],
) -> list[HostSpan]:
    """Return the ranges of a process in order; what nobody ended lasts until the recording's end."""
    spans = [*ended, *close_open_ranges(begun, find_recording_end(activities, calls, ended))]
    spans.sort(key=lambda span: (span.start, -span.end))
    return spans


def _read_timeline(export: _Export) -> Timeline:
    if "STRINGIDS" not in {name.upper() for name in _list_tables(export)}:
        raise _make_no_export_error(export)
    said = _list_recorder_messages(export)
    calls = _read_calls_by_process(export)
    activities = _group_activities_by_process(export, calls)
    if not activities:
        raise _make_no_kernels_error(export, said, calls)
    ranges, begun = _read_ranges(export)
    devices = _read_gpus_by_process_and_number(export)
    processes = []
    for rank, pid in enumerate(sorted(activities)):
        own = sorted(activities[pid], key=lambda a: (a.start, a.end))
        number = (pid >> 24) & 0xFFFFFF
        used = own[len(own) // 2].device
        device = devices.get((number, used)) or devices.get((None, used))
        made = calls.get(pid, [])
        spans = _join_ended_and_closed_spans(ranges.get(pid, []), begun.get(pid, []), own, made)
        processes.append(Process(number, rank, device, own, made, spans))
    notes = (*said, *_note_graphs_recorded_whole(processes), *note_open_ranges(processes))
    return Timeline("nsys", processes, "", notes)


def _note_graphs_recorded_whole(processes: Sequence[Process]) -> Iterator[Sentence]:
    """Say so where graphs were recorded as one: nothing is known of what runs inside of them."""
    inside = whole = 0
    for process in processes:
        for activity in process.activities:
            whole += activity.duration
            if activity.kind == GRAPH:
                inside += activity.duration
    if inside:
        share = inside / max(1, whole)
        yield (
            f"{format_percent(share)} of the GPU's time is inside CUDA graphs, and each graph launch "
            "was recorded as one event: nsys profile --cuda-graph-trace=node records the kernels in "
            "them"
        )


def _make_no_export_error(export: _Export) -> ProfkitError:
    other = explain_known_kind(export.path, tables=_list_tables(export))
    if other is not None:
        return other
    return ProfkitError(f"{export.path}: SQLite, but not an export of Nsight Systems", _EXPORT)


def _list_tables(export: _Export) -> list[str]:
    rows = export.base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [str(row[0]) for row in rows]


def _make_no_kernels_error(
    export: _Export, messages: Sequence[str], calls: Mapping[int, Sequence[Call]]
) -> ProfkitError:
    """Return why nothing ran on a GPU, as far as the export tells."""
    launches = sum(call.launches_kernels for own in calls.values() for call in own)
    why = ""
    messages = [text for text in messages if not _OF_OTHER_RECORDS.search(text)]
    if messages:
        said = [text.removeprefix("nsys: ").rstrip(".") for text in messages]
        why = f"; nsys says: {'; '.join(said)}"
    if launches:
        if launches == 1:
            lost = "one launch was recorded, but not its kernel"
        else:
            lost = f"{launches:,} launches were recorded, but none of their kernels"
        problem = f"{export.path}: {lost}{why}"
        hint = (
            "another profiler held the GPU, its records were lost, or nsys is older than the driver: "
            "record it alone, with a newer nsys"
        )
        return ProfkitError(problem, "fix what nsys says, and record again" if messages else hint)
    if messages:
        problem = f"{export.path}: no kernel was recorded{why}"
        return ProfkitError(problem, "fix what nsys says, and record again")
    return ProfkitError(
        f"{export.path}: nothing in it ran on a GPU", "record with nsys --trace=cuda"
    )


def _list_recorder_messages(export: _Export) -> list[Sentence]:
    """Return what nsys recorded of itself and concerns the GPU: errors, warnings, and what was lost."""
    table = export.tables.get("DIAGNOSTIC_EVENT")
    if table is None:
        return []
    if "severity" in table.columns:
        severity = "severity"
    else:
        severity = "NULL"
    query = f"SELECT text, {severity} FROM {_quote_identifier(table.name)} LIMIT 10000"  # noqa: S608
    worst: dict[str, int] = {}
    for text, level in export.query_rows(query):
        line = " ".join(str(text or "")[:LOOKED_AT].split())[:SAID_LENGTH]
        concerns = _convert_to_integer_or_zero(level) >= WARNING and _CONCERNS.search(line)
        if line and (_convert_to_integer_or_zero(level) >= ERROR or concerns or _LOST.search(line)):
            worst[line] = max(worst.get(line, 0), _convert_to_integer_or_zero(level))
    ordered = sorted(worst, key=lambda line: -worst[line])
    return [f"nsys: {line}" for line in ordered[:SAID_MOST]]


def _read_activities(export: _Export) -> Iterator[ProcessAndActivity]:
    yield from _read_kernels(export)
    yield from _read_copies(export)
    yield from _read_memsets(export)
    yield from _read_graph_launches(export)


def _group_activities_by_process(
    export: _Export, calls: Mapping[int, Sequence[Call]]
) -> dict[int, list[Activity]]:
    """Return what the GPU did for each process."""
    lone = max(calls, key=lambda pid: len(calls[pid]), default=0)
    activities: dict[int, list[Activity]] = {}
    for pid, activity in _read_activities(export):
        # The first schemas name no process: then it is the one that calls most.
        activities.setdefault(pid if pid is not None else lone, []).append(activity)
    for pid, own in activities.items():
        activities[pid] = _match_graphs_to_launches(own, calls.get(pid, []))
    return activities


def _read_kernels(export: _Export) -> Iterator[ProcessAndActivity]:
    table = export.tables.get(_CUPTI + "KERNEL")
    if table is None:
        return
    named = table.find_first_column(_NAMES)
    names = export.read_names_by_number(table, named)
    known_sizes: dict[Dims, Dims] = {}  # each once: a program launches few shapes of grids
    for row in export.read_rows(table, (*_PLACE, *_SIZES, *_USED, named or "demangledName")):
        place, pid = _read_activity_place(row)
        sizes = []
        for value in row[6:12]:
            sizes.append(_convert_to_integer_or_zero(value))
        static, dynamic, registers, node = (
            _convert_to_integer_or_zero(value) for value in row[12:16]
        )
        grid = _intern_sizes((sizes[0], sizes[1], sizes[2]), known_sizes)
        block = _intern_sizes((sizes[3], sizes[4], sizes[5]), known_sizes)
        known = min(sizes) > 0
        yield (
            pid,
            make_activity(
                "kernel",
                names.get(_convert_to_integer_or_zero(row[16])) or "unknown",
                place,
                grid=grid if known else None,
                block=block if known else None,
                shared=static + dynamic,
                registers=registers,
                graph=bool(node),
            ),
        )


def _intern_sizes(sizes: Dims, known: dict[Dims, Dims]) -> Dims:
    """Return sizes that are equal to these, the first that there were."""
    if len(known) < SHAPES_MOST:
        return known.setdefault(sizes, sizes)
    return known.get(sizes, sizes)


def _read_copies(export: _Export) -> Iterator[ProcessAndActivity]:
    table = export.tables.get(_CUPTI + "MEMCPY")
    if table is None:
        return
    for row in export.read_rows(table, (*_PLACE, "bytes", "copyKind", "srcKind", "dstKind")):
        place, pid = _read_activity_place(row)
        number = _convert_to_integer_or_zero(row[7])
        way = DIRECTIONS.get(number, "") or UNIFIED.get(number, "")
        source, target = (MEMORIES.get(side, "Device") for side in row[8:10])
        name = f"Memcpy {way} ({source} -> {target})"
        if number in UNIFIED:
            name = f"{UNIFIED_MEMORY} {way}"
        copied = make_activity(
            "copy",
            name,
            place,
            bytes=_convert_to_integer_or_zero(row[6]),
            direction=way,
            pageable=PAGEABLE in row[8:10],
        )
        yield pid, copied


def _read_memsets(export: _Export) -> Iterator[ProcessAndActivity]:
    table = export.tables.get(_CUPTI + "MEMSET")
    if table is None:
        return
    for row in export.read_rows(table, (*_PLACE, "bytes")):
        place, pid = _read_activity_place(row)
        yield pid, make_activity("set", "Memset", place, bytes=_convert_to_integer_or_zero(row[6]))


def _read_graph_launches(export: _Export) -> Iterator[ProcessAndActivity]:
    """Yield launches of CUDA graphs that were recorded as one, with the time that each took."""
    table = export.tables.get(_CUPTI + "GRAPH_TRACE")
    if table is None:
        return
    own = table.find_first_column(("graphId", "originalGraphId", "graphExecId"))
    rows = list(export.read_rows(table, (*_PLACE, own or "graphId")))
    counts = Counter(_convert_to_integer_or_zero(row[6]) for row in rows)
    # A program that captures anew for each launch has a graph of another number each time.
    numbered = 2 * len(counts) <= len(rows) or len(rows) == 1
    for row in rows:
        place, pid = _read_activity_place(row)
        name = "CUDA graph"
        if numbered:
            name = f"CUDA graph {_convert_to_integer_or_zero(row[6])}"
        yield pid, make_activity(GRAPH, name, place, graph=True)


def _match_graphs_to_launches(activities: list[Activity], calls: Sequence[Call]) -> list[Activity]:
    """Give graphs that name no launch theirs: as many launches of graphs come in the same order."""
    nameless = [a for a in activities if a.kind == GRAPH and not a.correlation]
    launches = [call for call in calls if call.launches_graph]
    if not nameless or len(nameless) != len(launches):
        return activities
    rest = [a for a in activities if a.kind != GRAPH or a.correlation]
    nameless.sort(key=lambda a: a.start)
    for graph, launch in zip(nameless, launches, strict=True):
        rest.append(replace(graph, correlation=launch.correlation))
    return rest


def _read_activity_place(row: Sequence[object]) -> tuple[list[int], int | None]:
    """Return a row's start, end, device, stream and correlation, and its process."""
    start, end, device, stream, correlation = (
        _convert_to_integer_or_zero(value) for value in row[:5]
    )
    pid = None
    if isinstance(row[5], int):
        pid = row[5]
    return [start, max(start, end), device, stream, correlation], pid


def _read_calls_by_process(export: _Export) -> dict[int, list[Call]]:
    """Return calls by process, in order of start."""
    table = export.tables.get(_CUPTI + "RUNTIME")
    if table is None:
        return {}
    numbered = export.read_names_by_number(table, "nameId")
    names = {number: remove_version_suffix(name) for number, name in numbered.items()}
    calls: dict[int, list[Call]] = {}
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    for row in export.read_rows(table, columns):
        start, end, thread, correlation, number = (
            _convert_to_integer_or_zero(value) for value in row
        )
        name = names.get(number, "")
        made = Call(name, start, max(start, end), thread & 0xFFFFFF, correlation)
        calls.setdefault(thread & _PID, []).append(made)
    for own in calls.values():
        # By start, the longer one first; two sorts, for a pair of numbers each would double a call.
        own.sort(key=lambda call: call.end, reverse=True)
        own.sort(key=lambda call: call.start)
    return calls


RangesByProcess = dict[int, list[HostSpan]]  # by process


def _read_ranges(export: _Export) -> tuple[RangesByProcess, RangesByProcess]:
    """Return NVTX ranges: those that have an end, and those that were open when the recording ended."""
    ranges: RangesByProcess = {}
    begun: RangesByProcess = {}
    table = export.tables.get("NVTX_EVENTS")
    if table is None:
        return ranges, begun
    if "textId" in table.columns:
        numbered = "textId"
    else:
        numbered = None
    names = export.read_names_by_number(table, numbered)
    where = "WHERE end IS NOT NULL"  # a mark has no end either
    if "eventType" in table.columns:
        where = f"WHERE eventType IN ({PUSH_POP}, {START_END})"
    columns = ("start", "end", "globalTid", "text", "textId")
    for start, end, thread, text, number in export.read_rows(table, columns, where):
        name = names.get(_convert_to_integer_or_zero(number), "")
        if text is not None:
            name = export.budget.intern_text(str(text))
        begin = _convert_to_integer_or_zero(start)
        process = _convert_to_integer_or_zero(thread) & _PID
        is_ended = isinstance(end, int) and end >= begin
        if is_ended:
            last = end
        else:
            last = begin
        span = HostSpan("range", name, begin, last, _convert_to_integer_or_zero(thread) & 0xFFFFFF)
        if is_ended:
            own = ranges
        else:
            own = begun
        own.setdefault(process, []).append(span)
    return ranges, begun


def _read_gpus_by_process_and_number(export: _Export) -> dict[ProcessAndGpuNumber, Device]:
    """Return GPUs by process and CUDA's number for it there; without a process by nsys' own number."""
    table = export.tables.get("TARGET_INFO_GPU")
    if table is None:
        return {}
    major = table.find_first_column(("smMajor", "computeMajor"))
    if major == "smMajor":
        minor = "smMinor"
    else:
        minor = "computeMinor"
    columns = ("id", "id", "name", major or "smMajor", minor, "smCount")
    by_number = {}
    for number, _, name, high, low, multiprocessors in export.read_rows(table, columns):
        cc = None
        if _convert_to_integer_or_zero(high):
            cc = (_convert_to_integer_or_zero(high), _convert_to_integer_or_zero(low))
        label = export.budget.intern_text(str(name))
        by_number[number] = Device(label, cc, _convert_to_integer_or_zero(multiprocessors) or None)
    devices: dict[ProcessAndGpuNumber, Device] = {
        (None, number): device for number, device in by_number.items()
    }
    numbers = export.tables.get("TARGET_INFO_CUDA_DEVICE")
    if numbers is None:
        return devices
    for gpu, number, pid in export.read_rows(numbers, ("gpuId", "cudaId", "pid")):
        if gpu in by_number:
            devices[pid if isinstance(pid, int) else None, number] = by_number[gpu]
    return devices
