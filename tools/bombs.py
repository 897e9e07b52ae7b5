"""Files that ask for as much as they can  ->  what profkit takes for each, as a table.

    python tools/bombs.py [--source FOLDER] [NAME ...]

Memory is that of profkit and of all processes that it starts, together, at its highest; a page that
several of them share counts once (PSS). The promise of SECURITY.md is three times the bytes and 200 MB.
With --source another checkout of profkit is measured. No process may have more than MOST bytes of
addresses.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from profkit.reports.wire import BYTES, SIZE, SOURCES, iterate_fields  # noqa: E402
from tests.reports import made  # noqa: E402
from tests.speed import peak  # noqa: E402
from tools import fuzz  # noqa: E402

REPORT = ROOT / "artifacts" / "stage2.B.ncu-rep"
TIMES, SPARE = 3, 200e6  # the promise
MOST = 3 << 30  # bytes of a process that is measured
SECONDS = 120  # of a processor, for each process of a bomb: what is not done then is stopped
WAITED = 1200  # on a machine that does other things, too
SECTION = struct.Struct("<IIQQQQIIQQ")


@dataclass(frozen=True)
class Bomb:
    """A kind of file, and how one is made at a path."""

    what: str
    make: Callable[[Path], Path]  # in a folder that is empty
    verb: str = "diagnose"
    words: tuple[str, ...] = ()  # behind the path; {} is the folder
    unpacked: int = 0  # bytes, of a packed report: the promise is of these


@dataclass(frozen=True)
class Cost:
    """What a verb took for a file."""

    size: int  # bytes of the file, and of those next to it; of a packed report unpacked
    memory: float  # bytes of all processes together
    seconds: float  # of the processor
    answer: str

    @property
    def is_kept(self) -> bool:
        """Whether it is within the promise."""
        return self.memory <= TIMES * self.size + SPARE


# --- reports ---------------------------------------------------------------------------------------


def change_images(change: Callable[[bytes], bytes], path: Path) -> Path:
    """Write a committed report with another image of machine code in each of its sources."""
    data = REPORT.read_bytes()
    out = [data[:4]]
    at = 4
    left: list[bool] = []  # of the frames that a block's header announced: whether it is a source
    waiting: list[bytes] = []  # the header, and the frames that were read of its block
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        frame = data[at + 4 : at + 4 + size]
        at += 4 + size
        if len(out) == 1:
            out.append(made.frame(frame))  # of the file
            continue
        if not waiting:
            counts = {
                n: value for n, wire, value, _ in iterate_fields(frame, 0, len(frame)) if wire == 0
            }
            launches = sum(counts.get(number, 0) for number in (2, 7, 8, 9))
            left = [True] * counts.get(SOURCES, 0) + [False] * launches
            waiting = [frame]
        else:
            waiting.append(change_source(frame, change) if left.pop(0) else frame)
        if not left:
            header, *inside = waiting
            framed = b"".join(map(made.frame, inside))
            out += [made.frame(replace_field(header, SIZE, len(framed))), framed]
            waiting = []
    path.write_bytes(b"".join(out))
    return path


def change_source(frame: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return a source's frame with another image."""
    image = next(
        (frame[a:b] for n, wire, a, b in iterate_fields(frame, 0, len(frame)) if n == 4), b""
    )
    return replace_field(frame, 4, change(image)) if image[:4] == b"\x7fELF" else frame


def replace_field(message: bytes, wanted: int, value: bytes | int) -> bytes:
    """Return a message with another value of one of its fields."""
    out = b""
    for number, wire, start, stop in iterate_fields(message, 0, len(message)):
        old = message[start:stop] if wire == BYTES else start
        out += made.field(number, value if number == wanted else old)
    return out


def read_sections(image: bytes) -> list[list[int]]:
    """Return the rows of an image's table of sections."""
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    return [list(SECTION.unpack_from(image, table + size * n)) for n in range(count)]


def write_sections(image: bytes, rows: list[list[int]], behind: bytes) -> bytes:
    """Return an image with more bytes behind it and another table of sections."""
    body = bytearray(image + behind)
    body += bytes(-len(body) % 8)
    struct.pack_into("<Q", body, 40, len(body))
    struct.pack_into("<H", body, 60, len(rows))
    for row in rows:
        body += SECTION.pack(*row)
    return bytes(body)


def find_names(image: bytes, rows: list[list[int]]) -> int:
    """Return where the names of an image's sections begin."""
    (number,) = struct.unpack_from("<H", image, 62)
    return rows[number][4]


def share_section_name(image: bytes, sections: int = 2000, length: int = 1 << 20) -> bytes:
    rows = read_sections(image)
    name = len(image) - find_names(image, rows)
    more = [[name, 1, 0, 0, 0, 0, 0, 0, 1, 0]] * sections
    return write_sections(image, rows + more, b"A" * length + b"\0")


def share_section_code(image: bytes, sections: int = 3000) -> bytes:
    rows = read_sections(image)
    name = len(image) - find_names(image, rows)
    more = [[name, 1, 6, 0, 0, len(image), 0, 0, 1, 0]] * sections
    return write_sections(image, rows + more, b".text.aaaa\0")


def find_line_table(image: bytes, rows: list[list[int]]) -> list[int]:
    """Return the row of the section with the line table."""
    names = find_names(image, rows)
    return next(row for row in rows if image[names + row[0] :].startswith(b".debug_line\0"))


def add_line_rows(image: bytes, count: int = 4_000_000) -> bytes:
    rows = read_sections(image)
    row = find_line_table(image, rows)
    table = image[row[4] : row[4] + row[5]]
    (size,) = struct.unpack_from("<I", table, 0)
    end = table.rindex(b"\0\x01\x01", 0, 4 + size)
    more = table[4:end] + b"\xf0" * count + table[end:]
    row[4], row[5] = len(image), 4 + len(more)
    return write_sections(image, rows, struct.pack("<I", size + count) + more)


def share_folder(image: bytes, files: int = 2000, length: int = 1 << 20) -> bytes:
    """A line table whose files are all in one folder with a long name."""
    rows = read_sections(image)
    row = find_line_table(image, rows)
    table = image[row[4] : row[4] + row[5]]
    (size,) = struct.unpack_from("<I", table, 0)
    (header,) = struct.unpack_from("<I", table, 6)
    first = 15 + table[14] - 1 if struct.unpack_from("<H", table, 4)[0] < 4 else 16 + table[15] - 1
    names = b"/" + b"A" * length + b"\0\0" + b"f\0\x01\0\0" * files + b"\0"
    more = len(names) - (10 + header - first)
    about = struct.pack("<IHI", size + more, *struct.unpack_from("<H", table, 4), header + more)
    new = about + table[10:first] + names + table[10 + header :]
    row[4], row[5] = len(image), len(new)
    return write_sections(image, rows, new)


def make_images(change: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    return lambda folder: change_images(change, folder / "x.ncu-rep")


def make_header(folder: Path) -> Path:
    path = folder / "x.ncu-rep"
    names = [*made.METRICS]
    launch = made.frame(made.result(names))
    table = b"".join(made.field(1, name) for name in names)
    header = made.field(1, 0) + made.field(2, 1) + made.field(4, table)
    header += made.field(5, len(launch)) + made.field(6, made.field(1, 42)) + b"\x58\0" * 400_000
    start = b"NVR\0" + made.frame(made.field(1, 7))
    path.write_bytes(start + made.frame(header) + launch + made.block(session=made.details()))
    return path


def make_launches(count: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "x.ncu-rep"
        path.write_bytes(made.numbered(count))
        return path

    return make


def make_packed_report(plain: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import zstandard

        path = folder / "x.ncu-repz"
        path.write_bytes(zstandard.compress(plain(), 19))
        return path

    return make


def make_record(value: str, times: int) -> Callable[[Path], Path]:
    """Make a report whose run record has a list of many values besides."""

    def make(folder: Path) -> Path:
        path = folder / REPORT.name
        path.write_bytes(REPORT.read_bytes())
        record = REPORT.with_suffix(".json").read_text("utf-8").rstrip().removesuffix("}")
        values = f"{value}," * times
        path.with_suffix(".json").write_text(f'{record}, "more": [{values}0]}}', encoding="utf-8")
        return path

    return make


def make_printed(rows: str) -> Callable[[Path], Path]:
    """Make a table as ncu prints it, of rows behind the header and one launch."""

    def make(folder: Path) -> Path:
        path = folder / "x.csv"
        head = '"ID","Kernel Name","gpu__time_duration.sum"\n"0","k","1"\n'
        path.write_text(head + rows, encoding="utf-8")
        return path

    return make


def make_printed_launches(folder: Path) -> Path:
    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = [f'"{n}","k","gpu__time_duration.sum","ns","7"\n' for n in range(20_000)]
    path = folder / "x.csv"
    path.write_text(head + "".join(rows), encoding="utf-8")
    return path


def make_history(folder: Path) -> Path:
    """Make a history of which one row stands in a file again and again."""
    import pyarrow as pa
    from pyarrow import parquet

    from profkit.evidence import tables

    schema = tables.make_arrow_schema_of_table("runs")
    columns = []
    for field in schema:
        is_text = pa.types.is_string(field.type)
        columns.append(pa.array(["x"] * 400_000) if is_text else pa.nulls(400_000, field.type))
    (folder / "runs").mkdir()
    table = pa.table(columns, schema=schema)
    parquet.write_table(table, folder / "runs" / "x.parquet", compression="zstd")
    return folder


def make_kernel(text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        place = folder / "kernels" / "p"
        place.mkdir(parents=True)
        (place / "problem.py").write_text("", encoding="utf-8")
        (place / "v1_x.cu").write_text(f"// t\n{text}", encoding="utf-8")
        return folder / "kernels"

    return make


# --- recordings ------------------------------------------------------------------------------------


def make_packed(value: bytes, times: int) -> Callable[[Path], Path]:
    """Make a packed trace of one value again and again."""

    def make(folder: Path) -> Path:
        path = folder / "x.json.gz"
        packer = zlib.compressobj(9, wbits=31)
        most = max(1, (1 << 20) // len(value))
        with path.open("wb") as file:
            file.write(packer.compress(b'{"traceEvents":['))
            for done in range(0, times, most):
                file.write(packer.compress(value * min(most, times - done)))
            file.write(packer.flush())
        return path

    return make


def make_empty_texts(folder: Path) -> Path:
    path = folder / "x.json"
    path.write_bytes(b'{"traceEvents":[' + b'"",' * 20_000_000 + b'""]}')
    return path


def make_long_names(folder: Path) -> Path:
    path = folder / "x.json.gz"
    event = {"ph": "X", "cat": "kernel", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
    events = ({**event, "name": str(n) + "n" * 1_000_000} for n in range(390))
    with gzip.open(path, "wb") as file:
        file.write(b'{"traceEvents":[')
        for one in events:
            file.write(json.dumps(one).encode() + b",")
        file.write(b"{}]}")
    return path


def make_long_kinds(folder: Path) -> Path:
    path = folder / "x.json.gz"
    with gzip.open(path, "wb") as file:
        file.write(b'{"traceEvents":[')
        for number in range(60):
            file.write(b'{"ph":"X","ts":1,"cat":"%d' % number + b"c" * 8_000_000 + b'"},')
        file.write(b"{}]}")
    return path


def make_export(kernels: int, length: int = 15_000_000) -> Callable[[Path], Path]:
    """Make an export of Nsight Systems whose kernels share one name."""

    def make(folder: Path) -> Path:
        path = folder / "x.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as base:
            base.executescript(fuzz.EXPORT)
            base.execute("INSERT INTO StringIds VALUES (1, ?)", ("n" * length,))
            base.execute("INSERT INTO StringIds VALUES (2, 'cudaLaunchKernel')")
            for n in range(kernels):
                start = 10_000 * n
                base.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
                    "(?, ?, 0, 7, ?, 1, 704643072, 8, 1, 1, 128, 1, 1, 0, 0, 32)",
                    (start + 5000, start + 9000, n),
                )
                base.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 2)",
                    (start, start + 2000, (42 << 24) + 1, n),
                )
            base.commit()
        return path

    return make


def make_export_rows(folder: Path) -> Path:
    """Make an export of 150,000 kernels and as many calls, each as short as a row can be."""
    path = folder / "x.sqlite"
    rows = range(150_000)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.executescript(fuzz.EXPORT)
        base.execute("INSERT INTO StringIds VALUES (1, 'k'), (2, 'cudaLaunchKernel')")
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
            "(?, ?, 0, 7, ?, 1, 704643072, 8, 1, 1, 128, 1, 1, 0, 0, 32)",
            ((10_000 * n + 5000, 10_000 * n + 9000, n) for n in rows),
        )
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 2)",
            ((10_000 * n, 10_000 * n + 2000, (42 << 24) + 1, n) for n in rows),
        )
        base.commit()
    return path


def make_tables(rows: int, name: str | None = None) -> Callable[[Path], Path]:
    """Make a kept recording with one of its spans again and again, all with one name."""

    def make(folder: Path) -> Path:
        import pyarrow as pa
        from pyarrow import parquet

        place = folder / "x.triage"
        fuzz._kept(place)
        path = place / "spans.parquet"
        spans = parquet.read_table(path)
        columns = {}
        for column in spans.column_names:
            value = name if name and column == "name" else spans.column(column)[0].as_py()
            columns[column] = pa.array([value] * rows, spans.schema.field(column).type)
        parquet.write_table(pa.table(columns), path, compression="zstd")
        return place

    return make


def make_shared_rows(children: int) -> Callable[[Path], Path]:
    """Make an export whose table of kernels names one page of rows again and again."""

    def make(folder: Path) -> Path:
        path = make_export(300, 100)(folder)
        with contextlib.closing(sqlite3.connect(path)) as base:
            query = "SELECT rootpage FROM sqlite_master WHERE name LIKE '%_KERNEL'"
            ((root,),) = base.execute(query).fetchall()
            ((size,),) = base.execute("PRAGMA page_size").fetchall()
        data = bytearray(path.read_bytes())
        top = data[size * (root - 1) : size * root]
        (cell,) = struct.unpack_from(">H", top, 12)
        (leaf,) = struct.unpack_from(">I", top, cell)
        data += write_page(size, leaf, 200)
        last = len(data) // size
        data[size * (root - 1) : size * root] = write_page(size, last, children)
        struct.pack_into(">I", data, 28, last)
        path.write_bytes(data)
        return path

    return make


def write_page(size: int, child: int, count: int) -> bytes:
    """Return an inner page of a table of SQLite, all of whose children are one."""
    page = bytearray(size)
    at = size
    for number in range(count):
        at -= 5
        page[at : at + 5] = struct.pack(">IB", child, 1)
        struct.pack_into(">H", page, 12 + 2 * number, at)
    struct.pack_into(">BHHHBI", page, 0, 5, 0, count, at, 0, child)
    return bytes(page)


def make_message(folder: Path) -> Path:
    path = make_export(1, 10)(folder)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE DIAGNOSTIC_EVENT (text, severity)")
        base.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, 3)", ("ab " * 5_000_000,))
        base.commit()
    return path


def make_list(values: int) -> Callable[[Path], Path]:
    """Make a kept recording of which one kernel has so many sizes of its grid."""

    def make(folder: Path) -> Path:
        import numpy as np
        import pyarrow as pa
        from pyarrow import parquet

        place = folder / "x.triage"
        fuzz._kept(place)
        path = place / "activities.parquet"
        first = parquet.read_table(path).slice(0, 1)
        column = first.column_names.index("grid")
        sizes = pa.ListArray.from_arrays(pa.array([0, values]), pa.array(np.ones(values, np.int64)))
        long = first.set_column(column, "grid", sizes)
        parquet.write_table(long, path, compression="zstd")
        return place

    return make


def make_packed_trace(
    before: bytes, value: bytes, times: int, behind: bytes
) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "x.json.gz"
        path.write_bytes(gzip.compress(before + value * times + behind))
        return path

    return make


def make_benchmarks(folder: Path) -> Path:
    """Make a result of nvbench of which 30 states have one file of a million samples."""
    values = [{"name": "filename", "value": "x.bin"}, {"name": "size", "value": "1000000"}]
    summaries = [{"tag": "nv/json/bin:nv/cold/sample_times", "data": values}]
    states = [{"name": f"{n}", "device": 0, "summaries": summaries} for n in range(30)]
    devices = [{"id": 0, "name": "GPU"}]
    document = {"devices": devices, "benchmarks": [{"name": "b", "states": states}]}
    (folder / "x.bin").write_bytes(struct.pack("<f", 1e-3) * 1_000_000)
    path = folder / "x.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


BOMBS = {
    "section-names": Bomb(
        "2,000 sections of machine code that share a name of 1 MB", make_images(share_section_name)
    ),
    "section-code": Bomb(
        "3,000 sections that are each the whole image", make_images(share_section_code)
    ),
    "folder-names": Bomb("2,000 files in a folder with a name of 1 MB", make_images(share_folder)),
    "line-rows": Bomb("4 million rows of a line table", make_images(add_line_rows)),
    "header-fields": Bomb("400,000 fields of a block header", make_header),
    "launches": Bomb("10,000 launches of 274 bytes", make_launches(10_000)),
    "launches-csv": Bomb(
        "the same, as a table (`--csv`)", make_launches(10_000), words=("--csv", "{}/out.csv")
    ),
    "launches-report": Bomb(
        "the same, as a page (`report`)", make_launches(10_000), "report", ("-o", "{}/out.html")
    ),
    "launches-many": Bomb("40,000 launches of 274 bytes", make_launches(40_000)),
    "packed-launches": Bomb(
        "a packed report of 20,000 launches",
        make_packed_report(lambda: made.numbered(20_000)),
        unpacked=5_489_384,
    ),
    "packed-name": Bomb(
        "a packed report with a name of 50 MB",
        make_packed_report(
            lambda: made.report(
                [made.result([*made.METRICS], kernel="n" * 50_000_000)], [*made.METRICS]
            )
        ),
        unpacked=50_000_400,
    ),
    "record-lists": Bomb("a run record with 5 million empty lists", make_record("[]", 5_000_000)),
    "record-texts": Bomb(
        "a run record with 3 million texts of two letters", make_record('"ab"', 3_000_000)
    ),
    "table-lines": Bomb(
        "a printed table with 10 million empty lines", make_printed("\n" * 10_000_000)
    ),
    "table-cells": Bomb(
        "a printed table with a row of 10 million cells", make_printed("," * 10_000_000)
    ),
    "table-launches": Bomb("a printed table of 20,000 launches", make_printed_launches),
    "history-rows": Bomb(
        "a file of a history with 400,000 equal rows", make_history, "history", ("--history", "{}")
    ),
    "kernel-strings": Bomb(
        'a kernel of 300 kB of `R"(`',
        make_kernel('R"(' * 100_000),
        "list",
        ("--kernels", "{}/kernels"),
    ),
    "kernel-tokens": Bomb(
        "a kernel of 1.6 million words",
        make_kernel("ab " * 1_600_000),
        "list",
        ("--kernels", "{}/kernels"),
    ),
    "kernel-letters": Bomb(
        "a kernel of 600,000 letters of four bytes among others",
        make_kernel("\U0001f600 ab;cd " * 600_000),
        "list",
        ("--kernels", "{}/kernels"),
    ),
    "packed-numbers": Bomb(
        "a packed trace of 30 million numbers", make_packed(b"0,", 30_000_000), "triage"
    ),
    "packed-objects": Bomb(
        "a packed trace of 21 million `{}`", make_packed(b"{},", 21_000_000), "triage"
    ),
    "empty-texts": Bomb("a trace of 20 million empty texts", make_empty_texts, "triage"),
    "packed-names": Bomb("a packed trace of 390 names of 1 MB", make_long_names, "triage"),
    "nsys-60": Bomb(
        "an export of nsys: 60 kernels share a name of 15 MB", make_export(60), "triage"
    ),
    "nsys-500": Bomb("the same with 500 kernels", make_export(500), "triage"),
    "nsys-1M": Bomb(
        "an export of nsys: 5,000 kernels share a name of 1 MB",
        make_export(5000, 1_000_000),
        "triage",
    ),
    "nsys-rows": Bomb(
        "an export of nsys: 150,000 kernels and as many calls", make_export_rows, "triage"
    ),
    "nsys-pages": Bomb(
        "an export of nsys: a table is 20,000 times one page of rows",
        make_shared_rows(100),
        "triage",
    ),
    "nsys-message": Bomb(
        "an export of nsys: its own message has 5 million words", make_message, "triage"
    ),
    "parquet-list": Bomb(
        "a table of Parquet with a list of 20 million numbers", make_list(20_000_000), "triage"
    ),
    "trace-header": Bomb(
        "a packed trace that names 5 million GPUs",
        make_packed_trace(b'{"deviceProperties":[', b"{},", 5_000_000, b'{}],"traceEvents":[{}]}'),
        "triage",
    ),
    "trace-event": Bomb(
        "a packed trace with an event of 5 million lists",
        make_packed_trace(b'{"traceEvents":[{"args":[', b"[],", 5_000_000, b"0]}]}"),
        "triage",
    ),
    "trace-kinds": Bomb(
        "a packed trace of 60 kinds of events with names of 8 MB",
        make_long_kinds,
        "triage",
    ),
    "benchmark-samples": Bomb(
        "a result of nvbench: 30 states have one file of a million samples",
        make_benchmarks,
        "gate",
        ("{}/x.json",),
    ),
    "parquet-rows": Bomb(
        "a table of Parquet with 3.9 million equal rows", make_tables(3_900_000), "triage"
    ),
    "parquet-names": Bomb(
        "a table of Parquet: 9,000 rows share a name of 10 kB",
        make_tables(9000, "n" * 10_000),
        "triage",
    ),
}


def measure(bomb: Bomb, folder: Path, source: Path = ROOT, words: tuple[str, ...] = ()) -> Cost:
    """Run a verb on a bomb and see what it takes."""
    path = bomb.make(folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    own = [word.format(folder) for word in bomb.words]
    named = [] if bomb.verb in ("history", "list") else [str(path)]
    command = [sys.executable, "-m", "profkit", bomb.verb, *named, *own, *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ["prlimit", f"--as={MOST}", f"--cpu={SECONDS}", "timeout", str(WAITED), *command],
            cwd=source,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, "PYTHONPATH": str(source)},
        )
        memory = peak(process)
        said.seek(0)
        words_said = said.read().decode("utf-8", "replace").split()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answer = f"{process.returncode}: {' '.join(words_said)[-120:]}"
    return Cost(bomb.unpacked or size, memory, seconds, answer)


def main(words: list[str]) -> int:
    """Print the table; 1 if the promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(BOMBS))
    parser.add_argument("--source", type=Path, default=ROOT)
    given = parser.parse_args(words)
    broken = 0
    print("| what | bytes | memory | promise | processor | answer |\n|---|---|---|---|---|---|")
    for name in given.names:
        bomb = BOMBS[name]
        with tempfile.TemporaryDirectory() as folder:
            cost = measure(bomb, Path(folder), given.source.resolve())
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
        broken += not cost.is_kept
        sizes = f"{cost.size / 1e6:.2f} MB | {cost.memory / 1e6:.0f} MB"
        promise = f"{(TIMES * cost.size + SPARE) / 1e6:.0f} MB"
        mark = "" if cost.is_kept else " MISSED"
        print(
            f"| {bomb.what} | {sizes} | {promise}{mark} | {cost.seconds:.1f} s | {cost.answer} |",
            flush=True,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
