"""Nsight Systems' SQLite export (nsys export --type sqlite)  ->  a Timeline."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.program.timeline import Activity, Call, Device, HostSpan, Process, Timeline

DIRECTIONS = {1: "HtoD", 2: "DtoH", 3: "HtoD", 4: "DtoH", 5: "DtoD", 6: "DtoD", 7: "DtoD",
              8: "DtoD", 9: "HtoH", 10: "PtoP"}  # fmt: skip
PAGEABLE = 0  # nsys' ENUM_CUDA_MEM_KIND; pinned is 1, device 2
_KERNELS = """
  SELECT k.start, k.end, k.deviceId, k.streamId, k.correlationId, s.value, k.globalPid,
         k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY, k.blockZ,
         k.staticSharedMemory + k.dynamicSharedMemory, k.registersPerThread, {graph}
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
_PID = 0xFFFFFFFFFF000000  # of a globalTid: all but the thread's own bits


def read_nsys(path: Path) -> Timeline:
    """Read an export.

    Raises:
        ProfkitError: It is no export of nsys, or no kernel is in it.
    """
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as base:
            base.text_factory = _text
            return _timeline(base, path)
    except sqlite3.Error as error:
        raise ProfkitError(
            f"{path}: is no export of Nsight Systems that can be read: {error}",
            "nsys export --type sqlite --output x.sqlite x.nsys-rep",
        ) from error


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
        processes.append(
            Process(
                (pid >> 24) & 0xFFFFFF, rank, devices.get(own[len(own) // 2].device), own,
                [Call(str(n or ""), a, b, t & 0xFFFFFF, c) for a, b, t, c, n in calls.get(pid, [])],
                [
                    HostSpan("range", str(n or ""), a, b, t & 0xFFFFFF)
                    for a, b, t, n in ranges.get(pid, [])
                ],
            )
        )  # fmt: skip
    return Timeline("nsys", processes)


def _activities(base: sqlite3.Connection, tables: set[str]) -> Iterator[tuple[int, Activity]]:
    columns = {row[1] for row in base.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}
    graph = "COALESCE(k.graphNodeId, 0)" if "graphNodeId" in columns else "0"
    for row in base.execute(_KERNELS.format(graph=graph)):
        start, end, device, stream, correlation, name, pid, *rest = row
        yield pid, Activity(
            "kernel", str(name or "unknown"), start, end, device, stream, correlation,
            (rest[0], rest[1], rest[2]), (rest[3], rest[4], rest[5]), rest[6] or 0, rest[7] or 0,
            graph=bool(rest[8]),
        )  # fmt: skip
    if "CUPTI_ACTIVITY_KIND_MEMCPY" in tables:
        for start, end, device, stream, correlation, pid, size, kind, *ends in base.execute(
            _COPIES
        ):
            direction = DIRECTIONS.get(kind, "")
            words = [
                "Pageable" if e == PAGEABLE else "Pinned" if e == 1 else "Device" for e in ends
            ]
            yield pid, Activity(
                "copy", f"Memcpy {direction} ({words[0]} -> {words[1]})", start, end, device,
                stream, correlation, bytes=size, direction=direction, pageable=PAGEABLE in ends,
            )  # fmt: skip
    if "CUPTI_ACTIVITY_KIND_MEMSET" in tables:
        for start, end, device, stream, correlation, pid, size in base.execute(_SETS):
            yield (
                pid,
                Activity("set", "Memset", start, end, device, stream, correlation, bytes=size),
            )


def _by_process(base: sqlite3.Connection, query: str) -> dict[int, list[Sequence[int]]]:
    """Rows by the process that their thread belongs to, in order of start."""
    out: dict[int, list[Sequence[int]]] = {}
    for row in sorted(base.execute(query), key=lambda row: (row[0], -row[1])):
        out.setdefault(row[2] & _PID, []).append((row[0], row[1], row[2], *row[3:]))
    return out


def _devices(base: sqlite3.Connection) -> dict[int, Device]:
    columns = {row[1] for row in base.execute("PRAGMA table_info(TARGET_INFO_GPU)")}
    wanted = ["id", "name", "smMajor", "smMinor", "smCount"]
    if not set(wanted) <= columns:
        wanted = ["id", "name", "computeMajor", "computeMinor", "smCount"]
    if not set(wanted) <= columns:
        return {}
    rows = base.execute(f"SELECT {', '.join(wanted)} FROM TARGET_INFO_GPU")  # noqa: S608
    return {row[0]: Device(str(row[1]), (row[2], row[3]), row[4]) for row in rows}
