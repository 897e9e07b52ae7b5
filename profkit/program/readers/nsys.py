"""Nsight Systems' SQLite export (nsys export --type sqlite)  ->  a Timeline."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.files import resolve_path
from profkit.program.timeline import (
    DIRECTIONS,
    FARTHEST,
    Activity,
    Call,
    Device,
    HostSpan,
    Process,
    Timeline,
    placed,
)

PAGEABLE = 0  # nsys' ENUM_CUDA_MEM_KIND; 2 is device
MEMORIES = {PAGEABLE: "Pageable", 1: "Pinned"}
_KERNELS = """
  SELECT k.start, k.end, k.deviceId, k.streamId, k.correlationId, k.globalPid,
         k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY, k.blockZ,
         k.staticSharedMemory + k.dynamicSharedMemory, k.registersPerThread, {graph}, s.value
  FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN StringIds s ON s.id = k.demangledName"""
_COPIES = """
  SELECT start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind
  FROM CUPTI_ACTIVITY_KIND_MEMCPY"""
_SETS = """
  SELECT start, end, deviceId, streamId, correlationId, globalPid, bytes
  FROM CUPTI_ACTIVITY_KIND_MEMSET"""
_CALLS = """
  SELECT r.start, r.end, r.globalTid, r.correlationId, s.value
  FROM CUPTI_ACTIVITY_KIND_RUNTIME r LEFT JOIN StringIds s ON s.id = r.nameId"""
_RANGES = """
  SELECT n.start, n.end, n.globalTid, COALESCE(n.text, s.value)
  FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
  WHERE n.end IS NOT NULL AND n.eventType IN (59, 60)"""
SECONDS_MOST = 120.0  # for all queries
TEXT_MOST = 1 << 24  # bytes of a name
ROWS_MOST = 4_000_000  # of a query, as many as are read of a torch trace
_PID = 0xFFFFFFFFFF000000  # of a globalTid: all but the thread's own bits


def read_nsys(path: Path) -> Timeline:
    """Read an export.

    Raises:
        ProfkitError: It is no export of nsys, is too large, or no kernel is in it.
    """
    try:
        # Immutable: no journal beside it is believed, and none is made.
        with contextlib.closing(
            sqlite3.connect(f"{resolve_path(path).as_uri()}?mode=ro&immutable=1", uri=True)
        ) as base:
            _bound(base)
            return _timeline(base, path)
    except (sqlite3.Error, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise ProfkitError(
            f"{path}: is no export of Nsight Systems that can be read: {error}",
            "nsys export --type sqlite --output x.sqlite x.nsys-rep",
        ) from error


def _bound(base: sqlite3.Connection) -> None:
    """A base may hold more than tables: what its own schema computes gets no functions and no time."""
    base.text_factory = _text
    base.execute("PRAGMA trusted_schema = OFF")
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_MOST)
    until = time.monotonic() + SECONDS_MOST
    base.set_progress_handler(lambda: time.monotonic() > until, 1_000_000)


def _whole(value: object) -> int:
    """A column that should be an integer; 0 for what is none: SQLite holds anything anywhere."""
    return value if isinstance(value, int) else 0


def _text(stored: bytes) -> str:
    """A name in whatever encoding: what is not UTF-8 is escaped, and loses nobody else's."""
    return stored.decode("utf-8", "backslashreplace")


def _timeline(base: sqlite3.Connection, path: Path) -> Timeline:
    tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "StringIds" not in tables:
        raise ProfkitError(
            f"{path}: is SQLite, but no export of Nsight Systems",
            "nsys export --type sqlite --output x.sqlite x.nsys-rep",
        )
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
        raise ProfkitError(f"{path}: nothing in it ran on a GPU", "record with nsys --trace=cuda")
    activities: dict[int, list[Activity]] = {}
    for pid, activity in _activities(base, tables):
        activities.setdefault(pid, []).append(activity)
    if not activities:
        raise ProfkitError(f"{path}: nothing in it ran on a GPU", "record with nsys --trace=cuda")
    calls = _by_process(base, _CALLS) if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables else {}
    ranges = _by_process(base, _RANGES) if "NVTX_EVENTS" in tables else {}
    devices = _devices(base) if "TARGET_INFO_GPU" in tables else {}
    processes = []
    for rank, pid in enumerate(sorted(activities)):
        own = sorted(activities[pid], key=lambda a: (a.start, a.end))
        device = devices.get(own[len(own) // 2].device)
        called = [
            Call(str(name or ""), start, end, thread, _whole(correlation))
            for start, end, thread, correlation, name in calls.get(pid, [])
        ]
        spans = [
            HostSpan("range", str(name or ""), start, end, thread)
            for start, end, thread, name in ranges.get(pid, [])
        ]
        processes.append(Process((pid >> 24) & 0xFFFFFF, rank, device, own, called, spans))
    return Timeline("nsys", processes)


def _activities(base: sqlite3.Connection, tables: set[str]) -> Iterator[tuple[int, Activity]]:
    columns = {row[1] for row in base.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}
    graph = "COALESCE(k.graphNodeId, 0)" if "graphNodeId" in columns else "0"
    for row in _timed_rows(base, _KERNELS.format(graph=graph)):
        place, (pid, *rest) = _place(row)
        *sizes, shared, registers, launched, _ = rest
        more: dict[str, Any] = {"shared": shared, "registers": registers, "graph": bool(launched)}
        more |= {"grid": tuple(sizes[:3]), "block": tuple(sizes[3:])}
        yield pid, placed("kernel", str(row[-1] or "unknown"), place, **more)
    for table, query in (("MEMCPY", _COPIES), ("MEMSET", _SETS)):
        if f"CUPTI_ACTIVITY_KIND_{table}" not in tables:
            continue
        for row in _timed_rows(base, query):
            place, (pid, size, *copied) = _place(row)
            kind, name, way, ends = "set", "Memset", "", copied[1:]
            if copied:
                way = DIRECTIONS.get(copied[0], "")
                source, target = (MEMORIES.get(side, "Device") for side in ends)
                kind, name = "copy", f"Memcpy {way} ({source} -> {target})"
            more = {"bytes": size, "direction": way, "pageable": PAGEABLE in ends}
            yield pid, placed(kind, name, place, **more)


def _place(row: Sequence[object]) -> tuple[list[int], list[int]]:
    """Return a row's start, end, device, stream and correlation, and its other columns."""
    start, end, *rest = map(_whole, row)
    return [start, max(start, end), *rest[:3]], rest[3:]


def _by_process(base: sqlite3.Connection, query: str) -> dict[int, list[Sequence[int]]]:
    """Rows by the process that their thread belongs to, in order of start."""
    out: dict[int, list[Sequence[int]]] = {}
    rows = [(*map(_whole, row[:3]), *row[3:]) for row in _timed_rows(base, query)]
    for row in sorted(rows, key=lambda row: (row[0], -row[1])):
        begin, end, thread, *rest = row
        out.setdefault(thread & _PID, []).append((begin, max(begin, end), thread & 0xFFFFFF, *rest))
    return out


def _timed_rows(base: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Rows of a query, in bounds, whose first two columns are times that a clock can show."""
    for count, row in enumerate(base.execute(query)):
        if count >= ROWS_MOST:
            raise ValueError(f"a table has more than {ROWS_MOST:,} rows")
        if all(-FARTHEST < _whole(time) < FARTHEST for time in row[:2]):
            yield row


def _devices(base: sqlite3.Connection) -> dict[int, Device]:
    columns = {row[1] for row in base.execute("PRAGMA table_info(TARGET_INFO_GPU)")}
    wanted = ["id", "name", "smMajor", "smMinor", "smCount"]
    if not set(wanted) <= columns:
        wanted = ["id", "name", "computeMajor", "computeMinor", "smCount"]
    if not set(wanted) <= columns:
        return {}
    rows = base.execute(f"SELECT {', '.join(wanted)} FROM TARGET_INFO_GPU")  # noqa: S608
    return {
        row[0]: Device(str(row[1]), (_whole(row[2]), _whole(row[3])), _whole(row[4]) or None)
        for row in rows
    }
