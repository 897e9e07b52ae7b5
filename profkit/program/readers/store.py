"""A Timeline  <->  a folder of Parquet files: profkit's own form, small and readable by anything.

timeline.json says how it was made; activities, calls and spans of all processes are a file each.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError, needing
from profkit.files import is_there, open_regular, read_json, write_bytes, write_text
from profkit.program.timeline import (
    Activity,
    Call,
    Device,
    HostSpan,
    Place,
    Process,
    Timeline,
    tensor_sizes,
)
from profkit.records.store import name_schema

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA = "profkit.timeline/1"
Row = Activity | Call | HostSpan | Place
HEAD = "timeline.json"
TABLES: dict[str, type[Row]] = {
    "activities": Activity,
    "calls": Call,
    "spans": HostSpan,
    "places": Place,
}
LATER = {"places"}  # tables that recordings up to 0.2.0 do not have
AS_TEXT = {"shapes", "types", "lines"}  # fields that are kept as JSON
ROWS_MOST = 4_000_000  # of a table, as many as are read of a torch trace
BYTES_MOST = 4 << 30  # of a table, unpacked
_BATCH = 4096  # rows unpacked before their bytes are counted
_DAMAGED = OSError, ValueError, TypeError, KeyError, AttributeError
_WRONG = (*_DAMAGED, OverflowError, NotImplementedError, MemoryError)


def write(timeline: Timeline, folder: Path) -> None:
    """Write a timeline into a folder, which is made.

    Raises:
        ProfkitError: The folder cannot be written, or pyarrow is missing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table, frame in frames(timeline).items():
            with needing("pyarrow", "a timeline that is kept"):
                into = io.BytesIO()
                frame.to_parquet(into, index=False, compression="zstd")
            write_bytes(folder / f"{table}.parquet", into.getvalue())
        ranks = [
            {"pid": p.pid, "rank": p.rank, "device": asdict(p.device) if p.device else None}
            for p in timeline.processes
        ]
        head: dict[str, Any] = {"schema": SCHEMA, "how": timeline.how, "command": timeline.command}
        head |= {"notes": list(timeline.notes), "processes": ranks}
        write_text(folder / HEAD, json.dumps(head, indent=1))
    except OSError as error:
        raise ProfkitError(f"{folder}: cannot be written: {error.strerror or error}") from error


def frames(timeline: Timeline) -> dict[str, DataFrame]:
    """The timeline as frames, one row an activity, call or span; times in nanoseconds."""
    import pandas as pd

    out = {}
    for table, kind in TABLES.items():
        names = [f.name for f in fields(kind)]
        rows: list[tuple[Any, ...]] = []
        for p in timeline.processes:
            rows += [(p.rank, *(_cell(row, name) for name in names)) for row in getattr(p, table)]
        out[table] = pd.DataFrame(rows, columns=["rank", *names])
    return out


def _cell(row: Row, name: str) -> Any:
    value = getattr(row, name)
    return json.dumps(value) if name in AS_TEXT else value


def read_store(folder: Path) -> Timeline:
    """Read what write has written.

    Raises:
        ProfkitError: Something is missing or is not what it should be.
    """
    try:
        head = read_json(folder / HEAD)
        schema = head.get("schema") if isinstance(head, dict) else None
        if schema != SCHEMA:
            why = f"{folder}: is {name_schema(schema)}, not {SCHEMA}"
            raise ProfkitError(why, "record it again")
        with needing("pyarrow", "a timeline that was kept"):
            tables = _read_tables(folder)
        processes = [_process(row, tables) for row in head["processes"]]
        notes = tuple(str(note) for note in head["notes"])
        return Timeline(str(head["how"]), processes, str(head["command"]), notes)
    except _WRONG as error:  # it may say anything of anything
        why = f"{folder}: is no timeline that can be read: {error}"
        raise ProfkitError(why, "record it again") from error


def _read_tables(folder: Path) -> dict[str, DataFrame]:
    import pandas as pd

    tables = {}
    for name, kind in TABLES.items():
        path = folder / f"{name}.parquet"
        if name in LATER and not is_there(path):
            tables[name] = pd.DataFrame(columns=["rank", *(field.name for field in fields(kind))])
        else:
            tables[name] = _table(path, kind)
    return tables


def _table(path: Path, kind: type[Row]) -> DataFrame:
    """A table, within bounds: a Parquet file of some kB may say that it has a billion rows."""
    from pyarrow import Table, parquet

    batches, size = [], 0
    with open_regular(path) as file:
        packed = parquet.ParquetFile(file)
        if packed.metadata.num_rows > ROWS_MOST:
            raise ValueError(f"{path.name} has more than {ROWS_MOST:,} rows")
        for batch in packed.iter_batches(batch_size=_BATCH):
            size += batch.nbytes
            if size > BYTES_MOST:
                raise ValueError(f"{path.name} unpacks to more than {BYTES_MOST / 1e9:.1f} GB")
            batches.append(batch)
        frame = Table.from_batches(batches, packed.schema_arrow).to_pandas()
    if "origin" not in frame and any(field.name == "origin" for field in fields(kind)):
        frame["origin"] = -1  # as recordings up to 0.2.0 were kept
    for column in fields(kind):
        _check(frame[column.name], str(column.type), f"{path.name}: {column.name}")
    return frame  # type: ignore[no-any-return]


def _check(column: Any, kind: str, where: str) -> None:
    """Raise a ValueError where a column holds something else than its field."""
    if kind == "int" and len(column) and column.dtype.kind not in "iu":
        raise ValueError(f"{where} is {column.dtype}, no whole numbers")
    if kind == "str" and not all(isinstance(text, str) for text in column):
        raise ValueError(f"{where} is no text")


def _process(about: dict[str, Any], tables: dict[str, DataFrame]) -> Process:
    rows: dict[str, list[Any]] = {}
    for table, kind in TABLES.items():
        frame = tables[table]
        own = frame[frame["rank"] == about["rank"]].drop(columns="rank")
        own = own[[f.name for f in fields(kind)]]
        rows[table] = [kind(**_values(record)) for record in own.to_dict("records")]
    last = len(rows["places"]) - 1
    for row in (*rows["activities"], *rows["calls"]):
        if not -1 <= row.origin <= last:
            raise ValueError(f"place {row.origin} of {last + 1}")
    device = about["device"]
    cc = tuple(device["cc"]) if device and device["cc"] else None
    gpu = Device(device["name"], cc, device["multiprocessors"]) if device else None
    return Process(about["pid"], about["rank"], gpu, **rows)


def _values(record: dict[Any, Any]) -> dict[str, Any]:
    for key in ("grid", "block"):
        if key in record:
            value = record[key]
            record[key] = tuple(int(n) for n in value) if hasattr(value, "__len__") else None
    if "shapes" in record:
        record["shapes"] = tuple(tensor_sizes(shape) for shape in json.loads(record["shapes"]))
        record["types"] = tuple(json.loads(record["types"]))
    if "lines" in record:
        record["lines"] = tuple(str(line) for line in json.loads(record["lines"]))
    return record
