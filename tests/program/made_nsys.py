"""A process as nsys export --type sqlite writes it: graphs by their kernels or as one, any version."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from profkit.program.timeline import Activity, Process

PID = 42 << 24
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId streamId correlationId globalPid demangledName gridX gridY gridZ blockX "
        "blockY blockZ staticSharedMemory dynamicSharedMemory registersPerThread graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId streamId correlationId globalPid bytes copyKind srcKind dstKind"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start end deviceId graphId originalGraphId graphExecId contextId streamId correlationId "
        "globalPid"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    "NVTX_EVENTS": "start end globalTid eventType text textId",
    "DIAGNOSTIC_EVENT": "timestamp severity text",
    "TARGET_INFO_GPU": "id name computeMajor computeMinor smCount",
}


class Export:
    """An export that is filled row by row."""

    def __init__(self, path: Path, version: str = "") -> None:
        self.base = sqlite3.connect(path)
        self.version = version
        self.names: dict[str, int] = {}
        self.base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        for table, columns in TABLES.items():
            named = ", ".join(f'"{column}"' for column in columns.split())
            self.base.execute(f"CREATE TABLE {table}{version} ({named})")
        self.add("TARGET_INFO_GPU", 0, "NVIDIA H200", 9, 0, 132)

    def add(self, table: str, *row: object) -> None:
        """A row of a table."""
        marks = ", ".join("?" * len(row))
        self.base.execute(f"INSERT INTO {table}{self.version} VALUES ({marks})", row)

    def number(self, name: str) -> int:
        """The number of a name."""
        return self.names.setdefault(name, len(self.names) + 1)

    def close(self) -> None:
        """Write the names, and end."""
        rows = [(number, name) for name, number in self.names.items()]
        self.base.executemany("INSERT INTO StringIds VALUES (?, ?)", rows)
        self.base.commit()
        self.base.close()


def exported(
    process: Process, path: Path, *, graphs: str = "node", version: str = "", ranges: bool = True
) -> Path:
    """A process as an export; with graphs="graph" each launch of a graph is one row."""
    export = Export(path, version)
    as_one: dict[int, list[Activity]] = {}
    for activity in process.activities:
        if graphs == "graph" and activity.graph:
            as_one.setdefault(activity.correlation, []).append(activity)
        elif activity.kind == "kernel":
            add_kernel(export, activity)
        elif activity.kind == "copy":
            add_copy(export, activity)
    for correlation, own in as_one.items():
        start, end = min(a.start for a in own), max(a.end for a in own)
        row = (start, end, 0, 3, 3, 4, 1, own[0].stream, correlation, PID)
        export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *row)
    for call in process.calls:
        number = export.number(f"{call.name}_v7000")
        row = (call.start, call.end, PID + 7, call.correlation, number)
        export.add("CUPTI_ACTIVITY_KIND_RUNTIME", *row)
    for span in process.spans if ranges else ():
        name = "train_step" if span.kind == "step" else span.name
        if span.kind in {"step", "range"}:
            export.add("NVTX_EVENTS", span.start, span.end, PID + 7, 59, name, None)
    export.close()
    return path


def add_kernel(export: Export, activity: Activity) -> None:
    """A row of a kernel."""
    sizes: Sequence[int] = [*(activity.grid or (0, 0, 0)), *(activity.block or (0, 0, 0))]
    place = activity.start, activity.end, 0, activity.stream, activity.correlation, PID
    name, node = export.number(activity.name), 1 if activity.graph else None
    used = 0, activity.shared, activity.registers, node
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", *place, name, *sizes, *used)


def add_copy(export: Export, activity: Activity) -> None:
    """A row of a copy between the host and the GPU."""
    host = 0 if activity.pageable else 1
    kinds = (1, host, 2) if activity.direction == "HtoD" else (2, 2, host)
    place = activity.start, activity.end, 0, activity.stream, activity.correlation, PID
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", *place, activity.bytes, *kinds)
