"""A Timeline  <->  a folder of Parquet files: profkit's own form, small and readable by anything.

timeline.json says how it was made; activities, calls and spans of all processes are a file each.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from profkit.errors import ProfkitError, require_package
from profkit.files import (
    ReadBudget,
    get_file_size_or_zero,
    is_path_there,
    open_regular_file,
    read_json_or_toml_bytes,
    write_bytes,
    write_text,
)
from profkit.program.timeline import (
    FARTHEST,
    GRAPH,
    Activity,
    Call,
    Device,
    HostSpan,
    Process,
    SourcePlace,
    Timeline,
    read_tensor_sizes,
)
from profkit.records.store import get_schema_name

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA = "profkit.timeline/1"
Row = Activity | Call | HostSpan | SourcePlace
HEAD = "timeline.json"
TABLES: dict[str, type[Row]] = {
    "activities": Activity,
    "calls": Call,
    "spans": HostSpan,
    "places": SourcePlace,
}
LATER = {"places"}  # tables that recordings up to 0.2.0 do not have
# fields that recordings up to 0.2.0 do not have
ADDED: dict[str, int | str] = {
    "origin": -1,
    "sequence": -1,
    "backward": False,
    "ended": True,
    "traced": 0,
    "captured": 0,
    "needless": "",
}
AS_TEXT = {"shapes", "types", "lines"}  # fields that are kept as JSON
ROWS_MOST = 4_000_000  # of a table, as many as are read of a torch trace
VALUE = 8  # bytes of a number in a column
_BATCH = 4096  # rows unpacked before their bytes are counted
# A table has fewer rows than its file has bytes (8 bytes a row are the least that was seen), or few.
FEW_ROWS = 10_000
_DAMAGED = OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError
_WRONG = (*_DAMAGED, OverflowError, NotImplementedError, MemoryError)
# What may be in a column of words.
WORDS = {
    "activities": {"kind": {"kernel", "copy", "set", GRAPH}},
    "spans": {"kind": {"op", "range", "step", "python"}},
}


class KeptDevice(TypedDict):
    """A GPU as it is kept."""

    name: str
    cc: tuple[int, int] | None
    multiprocessors: int | None


class KeptProcess(TypedDict):
    """A process as it is kept, without its events."""

    pid: int
    rank: int
    device: KeptDevice | None
    disturbed: NotRequired[list[tuple[int, int]]]


class KeptHead(TypedDict):
    """What timeline.json says: how the tables beside it were made."""

    schema: Literal["profkit.timeline/1"]
    how: str
    command: str
    notes: list[str]
    processes: list[KeptProcess]


def write_timeline(timeline: Timeline, folder: Path) -> None:
    """Write a timeline into a folder, which is made.

    Raises:
        ProfkitError: The folder cannot be written, or pyarrow is missing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table, frame in make_timeline_dataframes(timeline).items():
            with require_package("pyarrow", "a timeline that is kept"):
                into = io.BytesIO()
                frame.to_parquet(into, index=False, compression="zstd")
            write_bytes(folder / f"{table}.parquet", into.getvalue())
        ranks = []
        for process in timeline.processes:
            about: dict[str, Any] = {"pid": process.pid, "rank": process.rank, "device": None}
            if process.device is not None:
                about["device"] = asdict(process.device)
            if process.disturbed:
                about["disturbed"] = list(process.disturbed)
            ranks.append(about)
        head: dict[str, Any] = {"schema": SCHEMA, "how": timeline.how, "command": timeline.command}
        head |= {"notes": list(timeline.notes), "processes": ranks}
        write_text(folder / HEAD, json.dumps(head, indent=1))
    except OSError as error:
        raise ProfkitError(f"{folder}: cannot be written: {error.strerror or error}") from error


def make_timeline_dataframes(timeline: Timeline) -> dict[str, DataFrame]:
    """Return the timeline as frames, one row an activity, call or span; times in nanoseconds."""
    import pandas as pd

    out = {}
    for table, kind in TABLES.items():
        names = [f.name for f in fields(kind)]
        rows: list[tuple[Any, ...]] = []
        for process in timeline.processes:
            for row in getattr(process, table):
                cells = [_get_cell(row, name) for name in names]
                rows.append((process.rank, *cells))
        out[table] = pd.DataFrame(rows, columns=["rank", *names])
    return out


def _get_cell(row: Row, name: str) -> Any:
    value = getattr(row, name)
    if name in AS_TEXT:
        return json.dumps(value)
    return value


def read_saved_timeline(folder: Path) -> Timeline:
    """Read what write has written.

    Raises:
        ProfkitError: Something is missing or is not what it should be.
    """
    try:
        head = _read_head(folder)
        with require_package("pyarrow", "a timeline that was kept"):
            tables = _read_tables(folder)
        by_rank = {table: _group_by_rank(frame) for table, frame in tables.items()}
        size = sum(get_file_size_or_zero(folder / f"{table}.parquet") for table in TABLES)
        cells = _JsonCells(ReadBudget(size, is_packed=True))
        processes = []
        for row in head["processes"]:
            processes.append(_make_process_from_tables(row, by_rank, cells))
        return Timeline(head["how"], processes, head["command"], tuple(head["notes"]))
    except _WRONG as error:  # it may say anything of anything
        why = f"{folder}: cannot be read as a timeline: {error}"
        raise ProfkitError(why, "record it again") from error


def _read_head(folder: Path) -> KeptHead:
    import msgspec

    content = msgspec.json.decode(read_json_or_toml_bytes(folder / HEAD))
    schema = None
    if isinstance(content, dict):
        schema = content.get("schema")
    if schema != SCHEMA:
        why = f"{folder}: is {get_schema_name(schema)}, not {SCHEMA}"
        raise ProfkitError(why, "record it again")
    try:
        head = msgspec.convert(content, KeptHead)
    except msgspec.ValidationError as error:
        raise ValueError(f"{HEAD}: {error}") from error
    if not head["processes"]:
        raise ValueError(f"{HEAD}: no process - at `$.processes`")
    ranks = {process["rank"] for process in head["processes"]}
    if len(ranks) < len(head["processes"]):
        raise ValueError(f"{HEAD}: a rank appears twice")
    for process in head["processes"]:
        device = process["device"]
        if device and not 0 < (device["multiprocessors"] or 1) < 1 << 16:
            raise ValueError(f"{HEAD}: a device of {device['multiprocessors']} multiprocessors")
    return head


def _read_tables(folder: Path) -> dict[str, DataFrame]:
    import pandas as pd

    tables = {}
    for name, kind in TABLES.items():
        path = folder / f"{name}.parquet"
        if name in LATER and not is_path_there(path):
            tables[name] = pd.DataFrame(columns=["rank", *(field.name for field in fields(kind))])
        else:
            tables[name] = _read_table(path, name, kind)
    return tables


def _read_table(path: Path, name: str, row_class: type[Row]) -> DataFrame:
    """Return a table whose columns hold what their fields say."""
    frame = _read_frame(path, row_class)
    own = {field.name for field in fields(row_class)}
    for added, value in ADDED.items():  # as recordings up to 0.2.0 were kept
        if added in own and added not in frame:
            frame[added] = value
    _verify_column_type(frame["rank"], "int", f"{path.name}: rank")
    for column in fields(row_class):
        where = f"{path.name}: {column.name}"
        _verify_column_type(frame[column.name], str(column.type), where)
        known = WORDS.get(name, {}).get(column.name)
        if known and not known.issuperset(frame[column.name]):
            raise ValueError(f"{where} is none of {', '.join(sorted(known))}")
    if "start" in frame:
        _verify_times(frame, path.name)
    return frame


def _refuse_repeated_columns(columns: list[str], name: str) -> None:
    if len(set(columns)) < len(columns):
        raise ValueError(f"{name}: a column appears twice")


def _read_frame(path: Path, row_class: type[Row]) -> DataFrame:
    """Read a frame within bounds: a Parquet file of some kB may say that it has a billion rows."""
    from pyarrow import Table, parquet

    batches = []
    texts = _list_text_columns(row_class)
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        budget = ReadBudget(size, is_packed=True)
        # A text that many rows share is one in memory, as it is in the file.
        packed = parquet.ParquetFile(file, read_dictionary=texts)
        _refuse_repeated_columns(packed.schema_arrow.names, path.name)
        most = min(ROWS_MOST, max(FEW_ROWS, size))
        if packed.metadata.num_rows > most:
            raise ValueError(f"{path.name} has more than {most:,} rows")
        for n in range(packed.metadata.num_row_groups):
            group = packed.metadata.row_group(n)
            # A list in one row may have any number of values, and a run of equal ones takes no bytes.
            values = sum(group.column(at).num_values for at in range(group.num_columns))
            budget.spend_bytes(group.total_byte_size + VALUE * values)
        for batch in packed.iter_batches(batch_size=_BATCH):
            budget.spend_bytes(batch.nbytes)
            batches.append(batch)
        frame = Table.from_batches(batches, packed.schema_arrow).to_pandas()
    shared = frame.select_dtypes("category").columns
    return frame.astype(dict.fromkeys(shared, object))  # type: ignore[no-any-return]


def _list_text_columns(row_class: type[Row]) -> list[str]:
    """Return the names of the columns of text that every recording has had."""
    texts = []
    for field in fields(row_class):
        is_text = str(field.type) == "str" or field.name in AS_TEXT
        if is_text and field.name not in ADDED:
            texts.append(field.name)
    return texts


def _verify_column_type(column: Any, type_name: str, place_in_errors: str) -> None:
    """Raise a ValueError where a column holds something else than its field."""
    if type_name == "int" and len(column) and column.dtype.kind not in "iu":
        raise ValueError(f"{place_in_errors} is {column.dtype}, not integers")
    if type_name == "bool" and len(column) and column.dtype.kind != "b":
        raise ValueError(f"{place_in_errors} is {column.dtype}, not booleans")
    if type_name == "str" and not all(isinstance(text, str) for text in column):
        raise ValueError(f"{place_in_errors} is not text")


def _verify_times(frame: DataFrame, name: str) -> None:
    """Raise a ValueError where a time is none that a clock can show, or an end is before its start."""
    if not len(frame):
        return
    start = frame["start"]
    end = frame["end"]
    if min(start.min(), end.min()) <= -FARTHEST or max(start.max(), end.max()) >= FARTHEST:
        raise ValueError(f"{name}: a time is too far away")
    if (end < start).any():
        raise ValueError(f"{name}: an end is before its start")


def _group_by_rank(frame: DataFrame) -> dict[int, DataFrame]:
    """Return the rows of each process, in their order."""
    ranks = frame["rank"].unique()
    if len(ranks) < 2:
        return {int(rank): frame for rank in ranks}
    groups = frame.groupby("rank", sort=False)
    return {int(rank): groups.get_group(rank) for rank in ranks}


def _make_process_from_tables(
    about: KeptProcess, by_rank: Mapping[str, Mapping[int, DataFrame]], cells: _JsonCells
) -> Process:
    rows: dict[str, list[Any]] = {}
    for table, kind in TABLES.items():
        rows[table] = []
        frame = by_rank[table].get(about["rank"])
        if frame is not None:
            own = frame[[f.name for f in fields(kind)]]
            rows[table] = [kind(**_restore_values(row, cells)) for row in own.to_dict("records")]
    last = len(rows["places"]) - 1
    for row in (*rows["activities"], *rows["calls"]):
        if not -1 <= row.origin <= last:
            raise ValueError(f"place {row.origin} of {last + 1}")
    device = about["device"]
    gpu = None
    if device:
        gpu = Device(device["name"], device["cc"], device["multiprocessors"])
    disturbed = about.get("disturbed", [])
    return Process(about["pid"], about["rank"], gpu, **rows, disturbed=disturbed)


class _JsonCells:
    """Lists that are kept as JSON: rows whose text is equal share one."""

    def __init__(self, budget: ReadBudget) -> None:
        self._budget = budget
        self._shapes: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._texts: dict[str, tuple[str, ...]] = {}

    def read_shapes(self, cell: str) -> tuple[tuple[int, ...], ...]:
        """Return the sizes of an operator's inputs."""
        if cell not in self._shapes:
            self._budget.spend_document(cell)
            self._shapes[cell] = tuple(read_tensor_sizes(shape) for shape in json.loads(cell))
        return self._shapes[cell]

    def read_texts(self, cell: str) -> tuple[str, ...]:
        """Return a list of texts; a ValueError where it is none."""
        import msgspec

        if cell not in self._texts:
            self._budget.spend_document(cell)
            self._texts[cell] = msgspec.json.decode(cell, type=tuple[str, ...])
        return self._texts[cell]


def _restore_values(record: dict[Any, Any], cells: _JsonCells) -> dict[str, Any]:
    for key in ("grid", "block"):
        if key in record:
            value = record[key]
            if hasattr(value, "__len__"):
                record[key] = tuple(int(n) for n in value)
            else:
                record[key] = None
    if "shapes" in record:
        record["shapes"] = cells.read_shapes(record["shapes"])
        record["types"] = cells.read_texts(record["types"])
    if "lines" in record:
        record["lines"] = cells.read_texts(record["lines"])
    return record
