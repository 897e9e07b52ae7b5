"""A Timeline  <->  a folder of Parquet files: profkit's own form, small and readable by anything.

timeline.json says how it was made; activities, calls and spans of all processes are a file each.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError, needing
from profkit.program.timeline import Activity, Call, Device, HostSpan, Process, Timeline

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA = "profkit.timeline/1"
HEAD = "timeline.json"
TABLES = {"activities": Activity, "calls": Call, "spans": HostSpan}


def write(timeline: Timeline, folder: Path) -> None:
    """Write a timeline into a folder, which is made.

    Raises:
        ProfkitError: The folder cannot be written, or pyarrow is missing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table, frame in frames(timeline).items():
            with needing("pyarrow", "a timeline that is kept"):
                frame.to_parquet(folder / f"{table}.parquet", index=False, compression="zstd")
        head = {
            "schema": SCHEMA, "how": timeline.how, "command": timeline.command,
            "notes": list(timeline.notes),
            "processes": [
                {"pid": p.pid, "rank": p.rank, "device": asdict(p.device) if p.device else None}
                for p in timeline.processes
            ],
        }  # fmt: skip
        (folder / HEAD).write_text(json.dumps(head, indent=1))
    except OSError as error:
        raise ProfkitError(f"{folder}: cannot be written: {error.strerror or error}") from error


def frames(timeline: Timeline) -> dict[str, DataFrame]:
    """The timeline as frames, one row an activity, call or span; times in nanoseconds."""
    import pandas as pd

    out = {}
    for table, kind in TABLES.items():
        rows = []
        for process in timeline.processes:
            rows += [(process.rank, *_cells(row)) for row in getattr(process, table)]
        out[table] = pd.DataFrame(rows, columns=["rank", *(f.name for f in fields(kind))])
    return out


def _cells(row: Any) -> list[Any]:
    cells = []
    for field in fields(row):
        value = getattr(row, field.name)
        cells.append(json.dumps(value) if field.name in {"shapes", "types"} else value)
    return cells


def read_store(folder: Path) -> Timeline:
    """Read what write has written.

    Raises:
        ProfkitError: Something is missing or is not what it should be.
    """
    try:
        head = json.loads((folder / HEAD).read_text())
        if head.get("schema") != SCHEMA:
            raise ProfkitError(
                f"{folder}: is {head.get('schema')}, not {SCHEMA}", "record it again"
            )
        import pandas as pd

        with needing("pyarrow", "a timeline that was kept"):
            tables = {table: pd.read_parquet(folder / f"{table}.parquet") for table in TABLES}
    except (OSError, ValueError) as error:
        raise ProfkitError(
            f"{folder}: is no timeline that can be read: {error}", "record it again"
        ) from error
    processes = [_process(row, tables) for row in head["processes"]]
    return Timeline(head["how"], processes, head["command"], tuple(head["notes"]))


def _process(about: dict[str, Any], tables: dict[str, DataFrame]) -> Process:
    rows = {}
    for table, kind in TABLES.items():
        frame = tables[table]
        own = frame[frame["rank"] == about["rank"]].drop(columns="rank")
        rows[table] = [kind(**_values(record)) for record in own.to_dict("records")]
    device = about["device"]
    cc = tuple(device["cc"]) if device and device["cc"] else None
    return Process(
        about["pid"], about["rank"],
        Device(device["name"], cc, device["multiprocessors"]) if device else None,
        rows["activities"], rows["calls"], rows["spans"],
    )  # fmt: skip


def _values(record: dict[Any, Any]) -> dict[str, Any]:
    for key in ("grid", "block"):
        if key in record:
            value = record[key]
            record[key] = tuple(int(n) for n in value) if hasattr(value, "__len__") else None
    if "shapes" in record:
        record["shapes"] = tuple(tuple(shape) for shape in json.loads(record["shapes"]))
        record["types"] = tuple(json.loads(record["types"]))
    return record
