"""Random damage  ->  inputs that profkit does not answer with a result or an error of its own.

    python tools/fuzz.py [--seconds 600] [--seed 0] [TARGET ...]

What breaks a target is kept in tests/data/fuzz, where a test tries it from then on. Each target is
given a text or bytes; it may return, or raise ProfkitError, within LIMIT seconds of a processor. Damage
is random bytes, and what is worse than random: pieces that are repeated, shared or nested. The BOMBS
are doubled: twice the bytes may take twice the time.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import json
import random
import resource
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.reports.frame import ReportLaunches

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "data" / "fuzz"
TRACE = ROOT / "tests" / "program" / "data" / "copy_results_to_host.planted.json.gz"
EXPORT = """
  CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
  CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start, end, deviceId, streamId, correlationId, demangledName, globalPid, gridX, gridY, gridZ,
    blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, registersPerThread);
  CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
  CREATE TABLE NVTX_EVENTS (start, end, globalTid, text, textId, eventType);
  CREATE TABLE TARGET_INFO_GPU (id, name, smMajor, smMinor, smCount);
"""  # of Nsight Systems: the tables and columns that are read
LIMIT = 10  # seconds of a processor for one input
WAITED = 200  # seconds by the clock, for what waits and computes nothing
LINEAR = 2.2  # times the time and the memory that twice the bytes may take
SHORT = 0.02  # seconds that are too short to be compared
LONGEST = 1 << 18  # bytes of an input that still grows
# What opens something, and is not closed.
NESTED = (b"[", b'{"a":', b"(", b"/*", b'R"(', b"{ ", b"\x0a\x7f", b"NOT ", b"<")
MEMORY = 4 << 30  # bytes of the whole search: more for one input is an error too
WORDS = (
    "bound",
    "==",
    "'memory'",
    "time",
    ">",
    "1e-5",
    "and",
    "not",
    "in",
    "[",
    "]",
    "(",
    ")",
    "*",
    "kernel",
    "9" * 400,
    "'a'",
    "-",
    "nan",
    ",",
    "or",
    "<=",
    "\\",
    "\n",
    "cc",
    "1/0",
)
KEYS = (
    "after:",
    "fixes:",
    "flags:",
    "tune:",
    "A=1,2",
    "budget:",
    "regs=9",
    "where:",
    "A>1",
    "arch:",
    "90a",
    "80+",
    "\n",
    "*/",
    "/*",
    "//",
    "takes:",
    "smem=A*2",
    "moves:",
    "x<0.5x",
)


def _container(content: bytes, folder: Path) -> None:
    from profkit.reports.container import check_report_bytes, write_readable_rest_of_report

    path = folder / "x.ncu-rep"
    path.write_bytes(content)
    check_report_bytes(path)
    write_readable_rest_of_report(path, folder / "left.ncu-rep", True)


def _flips(content: bytes, folder: Path) -> None:
    """A bit of a report's structure, as the library reads it: the first bytes say which bit."""
    from profkit.reports.isolated import run_in_child_processes
    from profkit.reports.reader import recover_metrics_after_crash

    data = content[_BIT.size :]
    at, bit = _BIT.unpack(content[: _BIT.size])
    path = folder / "x.ncu-rep"
    whole = _read_whole(data, path)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
    (part,) = run_in_child_processes(
        "profkit.reports.reader:read_report_unless_large",
        [str(path)],
        1,
        recover_metrics_after_crash,
    )
    if part.file.status == "ok" and not part.file.message and not _is_same(part, whole):
        raise AssertionError(f"bit {bit} of byte {at} is not seen")


@lru_cache(maxsize=8)
def _read_whole(data: bytes, path: Path) -> ReportLaunches:
    from profkit.reports.reader import read_report_unless_large

    path.write_bytes(data)
    return read_report_unless_large(str(path))


def _is_same(one: ReportLaunches, other: ReportLaunches) -> bool:
    """Whether two parts have the same launches; as text, for NaN is not NaN."""
    rows = [repr((list(part.identity), list(part.rules))) for part in (one, other)]
    return rows[0] == rows[1] and one.values == other.values


_BIT = struct.Struct("<IB")  # the offset of a byte and the number of a bit


def _header(content: bytes, folder: Path) -> None:
    from profkit.lab.measure.variants.variants import read_variant

    path = folder / "v1_x.cu"
    path.write_bytes(content)
    variant = read_variant(path)
    _ = variant.source_hash, variant.space


def _where(content: bytes, _: Path) -> None:
    import pandas as pd

    from profkit.cli.launches import filter_rows_by_expression as where

    frame = pd.DataFrame(
        {
            "kernel": ["a", "b"],
            "bound": ["memory", "x"],
            "time": [1e-5, float("nan")],
            "cc": ["9.0", "8.0"],
        }
    )
    where(frame, content.decode("utf-8", "replace"))


def _record(content: bytes, folder: Path) -> None:
    from profkit.records.record import read_record

    path = folder / "x.json"
    path.write_bytes(content)
    read_record(path).to_json()


def _benchmark(content: bytes, folder: Path) -> None:
    from profkit.evidence.benchmarks import judge_benchmarks

    path = folder / "benchmark.json"
    path.write_bytes(content)
    judge_benchmarks(path, path)


def _csv(content: bytes, _: Path) -> None:
    import io

    import pandas as pd

    from profkit.show.text.escape import iterate_csv

    cells = content.decode("utf-8", "replace").replace("\0", "").split("|")
    text = "".join(iterate_csv(pd.DataFrame({"x": cells})))
    reading = {"keep_default_na": False, "dtype": str, "skip_blank_lines": False}
    back = pd.read_csv(io.StringIO(text), **reading)["x"]
    if [cell.removeprefix("'") for cell in back] != cells:
        raise AssertionError("a cell did not come back")


def _flags(content: bytes, _: Path) -> None:
    from profkit.lab.measure.languages.cuda import refuse_unsafe_flags

    refuse_unsafe_flags(content.decode("utf-8", "replace").split(), "x.cu")


def _recording(suffix: str) -> Callable[[bytes, Path], None]:
    def read(content: bytes, folder: Path) -> None:
        path = folder / f"x{suffix}"
        path.write_bytes(content)
        _triaged(path)

    return read


def _timeline(content: bytes, folder: Path) -> None:
    """The first byte says which file of the folder it is; the others are whole."""
    place = folder / "x.triage"
    if not place.exists():
        _kept(place)
    names = sorted(p.name for p in place.iterdir())
    path = place / names[content[0] % len(names) if content else 0]
    whole = path.read_bytes()
    path.write_bytes(content[1:])
    try:
        _triaged(place)
    finally:
        path.write_bytes(whole)


def _triaged(path: Path) -> None:
    from profkit.program import readers as recordings
    from profkit.program.document import make_triage_document
    from profkit.program.triage import triage_timeline

    json.dumps(
        make_triage_document(triage_timeline(recordings.read_timeline(path))), allow_nan=False
    )


def _events(most: int = 400) -> list[dict[str, Any]]:
    """The first GPU work of a recorded trace and the calls before it."""
    with gzip.open(TRACE) as file:
        events = json.load(file)["traceEvents"]
    wanted = {"kernel", "gpu_memcpy", "cuda_runtime", "user_annotation", "cpu_op"}
    return [e for e in events if e.get("cat") in wanted][:most]


def _kept(place: Path) -> None:
    from profkit.program.readers import store, torch_trace

    path = place.with_suffix(".json")
    path.write_text(json.dumps({"traceEvents": _events()}))
    store.write_timeline(torch_trace.read_torch_trace(path), place)
    path.unlink()


def _base() -> bytes:
    """An export of Nsight Systems of a few launches."""
    rows = [e for e in _events() if e.get("cat") == "kernel"][:60]
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.executescript(EXPORT)
        for n, event in enumerate(rows):
            start = round(event["ts"] * 1000)
            end = start + round(event["dur"] * 1000)
            base.execute("INSERT INTO StringIds VALUES (?, ?)", (n, event["name"]))
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
                "(?, ?, 0, 7, ?, ?, 704643072, 8, 1, 1, 128, 1, 1, 0, 0, 32)",
                (start, end, n, n),
            )
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
                (start - 5000, start - 2000, (42 << 24) + 1, n, n),
            )
        base.commit()
        return base.serialize()


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "container": _container,
    "flips": _flips,
    "header": _header,
    "where": _where,
    "record": _record,
    "csv": _csv,
    "benchmark": _benchmark,
    "flags": _flags,
    "trace": _recording(".json"),
    "packed": _recording(".json.gz"),
    "nsys": _recording(".sqlite"),
    "timeline": _timeline,
}


def _reports() -> list[bytes]:
    files = sorted((ROOT / "artifacts").rglob("*.ncu-rep*"), key=lambda p: p.stat().st_size)
    return [f.read_bytes() for f in files[:4]]


def _headers() -> list[bytes]:
    files = sorted((ROOT / "kernels" / "attention").rglob("*.cu"))
    return [f.read_bytes()[:3000] for f in files[:6]] + [" ".join(KEYS).encode()]


def _records() -> list[bytes]:
    files = sorted((ROOT / "artifacts" / "attention").rglob("*.json"))
    return [f.read_bytes() for f in files[:4]]


def _traces() -> list[bytes]:
    return [json.dumps({"traceEvents": _events(60)}).encode()]


def _folders() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "x.triage"
        _kept(place)
        return [bytes([n]) + f.read_bytes() for n, f in enumerate(sorted(place.iterdir()))]


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "benchmark": lambda: [_samples(400)],
    "container": _reports,
    "header": _headers,
    "record": _records,
    "trace": _traces,
    "packed": lambda: [gzip.compress(_traces()[0])],
    "nsys": lambda: [_base()],
    "timeline": _folders,
}


def seeds(target: str) -> list[bytes]:
    """What is damaged: real files, or words to be put together."""
    if target in SEEDS:
        return SEEDS[target]()
    return [" ".join(WORDS).encode(), b"=1+1|@x|'-|\t|a", b"-O3 -DX=1 -Xptxas -v"]


def damaged(draw: random.Random, start: bytes, words: tuple[str, ...]) -> bytes:
    """A few random changes of one kind or another."""
    content = bytearray(start)
    for _ in range(draw.randint(1, 8)):
        at, kind = draw.randrange(len(content) + 1), draw.randrange(9)
        if kind == 0 and content:
            content[at % len(content)] = draw.randrange(256)
        elif kind == 1:
            content[at:at] = draw.randbytes(draw.randint(1, 9))
        elif kind == 2:
            del content[at : at + draw.choice((1, 7, 200, 5000))]
        elif kind == 3:
            content[at:at] = content[at : at + draw.choice((4, 60, 900))]
        elif kind == 4:
            content[at:at] = f" {draw.choice(words)} ".encode()
        elif kind == 5:
            _share(draw, content, at)
        elif kind == 6 and len(content) < LONGEST:
            content[at:at] = content[at : at + draw.choice((2, 9, 60))] * draw.choice((20, 2000))
        elif kind == 7 and len(content) < LONGEST:
            content[at:at] = draw.choice(NESTED) * draw.choice((20, 2000))
        else:
            content[at : at + 4] = draw.choice((b"\xff" * 4, b"\0" * 4, b"\x80" * 4, b"[[[[", b'"'))
    return bytes(content)


def _share(draw: random.Random, content: bytearray, at: int) -> None:
    """Let several places say the same: offsets, numbers of names, sizes."""
    size = draw.choice((4, 8, 24))
    piece = content[at : at + size]
    for _ in range(draw.randint(2, 40)):
        other = draw.randrange(len(content) + 1)
        content[other : other + len(piece)] = piece


def inputs(target: str, draw: random.Random) -> Iterator[bytes]:
    """Without end."""
    if target == "flips":
        yield from _flipped(draw)
    starts, words = seeds(target), KEYS if target in {"header", "flags"} else WORDS
    while True:
        if target in {"where", "flags"} and draw.random() < 0.7:
            yield " ".join(draw.choices(words, k=draw.randint(1, 12))).encode()
        else:
            yield damaged(draw, draw.choice(starts), words)


def _flipped(draw: random.Random) -> Iterator[bytes]:
    """Bits of the structure of small reports, all with the same chance."""
    from tests.reports import flips
    from tests.reports.test_flips import make_everything, read_bytes

    files = sorted((ROOT / "artifacts").rglob("*.ncu-rep*"), key=lambda p: p.stat().st_size)
    reports = [make_everything(), *(read_bytes(file) for file in files[:3])]
    places = [flips.places(data) for data in reports]
    while True:
        which = draw.randrange(len(reports))
        yield _BIT.pack(draw.choice(places[which]), draw.randrange(8)) + reports[which]


def fault(target: str, content: bytes, folder: Path) -> str:
    """What is wrong with how an input is taken; empty when nothing is."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {LIMIT} s of a processor, or {WAITED} s")

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    signal.alarm(WAITED)
    try:
        TARGETS[target](content, folder)
    except ProfkitError:
        return ""
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    return ""


def main(words: list[str]) -> int:
    """Try until the time is up; 1 if something broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    tried, broken = dict.fromkeys(given.targets, 0), 0
    with tempfile.TemporaryDirectory() as name:
        for target in given.targets:
            until = time.monotonic() + given.seconds / len(given.targets)
            draw = random.Random(f"{target} {given.seed}")  # noqa: S311 - keeps no secret
            for content in inputs(target, draw):
                tried[target] += 1
                if why := fault(target, content, Path(name)):
                    broken += 1
                    keep(target, content, why)
                if time.monotonic() > until:
                    break
        for bomb in BOMBS:
            seconds, memory = doubled(bomb, Path(name))
            print(
                f"{bomb}: twice the bytes take {seconds:.1f} of the time, {memory:.1f} of the memory"
            )
            broken += max(seconds, memory) > LINEAR
    print(json.dumps({"tried": tried, "broken": broken, "seed": given.seed}))
    return 1 if broken else 0


# Bombs: a target, and an input of about so many bytes, each of which asks for as much as it can.


def _trace_of(value: bytes) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        return b'{"traceEvents":[' + value * (size // len(value)) + b"{}]}"

    return make


def _packed_of(value: bytes) -> Callable[[int], bytes]:
    return lambda size: gzip.compress(_trace_of(value)(40 * size))


def _shared_name(size: int) -> bytes:
    """An export whose kernels, one for 1,000 bytes, share a name of half the bytes."""
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(_base())
        base.execute("UPDATE StringIds SET value = ?", ("n" * (size // 2),))
        base.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 1")
        base.commit()
        return base.serialize()


def _fields_of_header(size: int) -> bytes:
    """A report whose block header has a field for two bytes."""
    from tests.reports import made

    header = made.field(1, 0) + made.field(2, 1) + made.field(5, 0) + b"\x58\x00" * (size // 2)
    return b"NVR\0" + made.frame(made.field(1, 7)) + made.frame(header)


def _begins_without_ends(size: int) -> bytes:
    """Half of a trace begins events of one name, the other half ends those of another."""
    count = size // 64
    begins, ends = (b'{"ph":"%c","ts":1,"name":"%c"},' % pair for pair in ((66, 97), (69, 98)))
    return b'{"traceEvents":[' + begins * count + ends * count + b"{}]}"


def _packed_in_pieces(size: int) -> bytes:
    """A trace whose one event is packed in members of gzip of 100 characters."""
    member = gzip.compress(b"n" * 100)
    begin, end = (gzip.compress(text) for text in (b'{"traceEvents":[{"name":"', b'"}]}'))
    return begin + member * (size // len(member)) + end


def _samples(size: int) -> bytes:
    """A result of pytest-benchmark whose one test has a time for five bytes, and they drift."""
    times = ",".join(f"1.{n:05}" for n in range(size // 8))
    row = f'{{"fullname":"t","stats":{{"data":[{times}]}}}}'
    return f'{{"machine_info":{{}},"benchmarks":[{row}]}}'.encode()


def _repeated(piece: bytes) -> Callable[[int], bytes]:
    return lambda size: piece * (size // len(piece))


BOMBS: dict[str, tuple[str, Callable[[int], bytes], int]] = {
    "trace of numbers": ("trace", _trace_of(b"0,"), 1 << 17),
    "trace of nothing": ("trace", _trace_of(b"{},"), 1 << 17),
    "trace of nested lists": ("trace", _repeated(b"["), 1 << 20),
    "trace of blanks": ("trace", _trace_of(b" ,\n"), 1 << 22),
    "packed trace of numbers": ("packed", _packed_of(b"0,"), 1 << 12),
    "one name of an export": ("nsys", _shared_name, 1 << 17),
    "fields of a block header": ("container", _fields_of_header, 1 << 16),
    "raw strings of a kernel": ("header", _repeated(b'R"('), 1 << 18),
    "comments of a kernel": ("header", _repeated(b"/* "), 1 << 18),
    "begins that nothing ends": ("trace", _begins_without_ends, 1 << 19),
    "a trace packed in pieces": ("packed", _packed_in_pieces, 1 << 18),
    "times of a benchmark": ("benchmark", _samples, 1 << 18),
    "lines of a kernel's header": ("header", _repeated(b"// fixes: a b c\n"), 1 << 17),
}


def doubled(name: str, folder: Path, times: int = 3) -> tuple[float, float]:
    """Return how many times the time, and the memory, twice the bytes of a bomb take."""
    target, make, size = BOMBS[name]
    small, large = make(size), make(2 * size)
    fault(target, make(size // 16), folder)  # what is imported and compiled
    seconds = []
    for content in (small, large):
        took = [_processor_time(target, content, folder) for _ in range(times)]
        seconds.append(min(took))
    memory = [_memory(target, content, folder) for content in (small, large)]
    return seconds[1] / max(seconds[0], SHORT), memory[1] / memory[0]


def _processor_time(target: str, content: bytes, folder: Path) -> float:
    began = time.process_time()
    why = fault(target, content, folder)
    if why:
        raise AssertionError(why)
    return time.process_time() - began


def _memory(target: str, content: bytes, folder: Path) -> float:
    tracemalloc.start()
    try:
        fault(target, content, folder)
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def keep(target: str, content: bytes, why: str) -> None:
    """Put an input where a test finds it."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{target}-{hashlib.sha256(content).hexdigest()[:12]}"
    path.write_bytes(content)
    print(f"{path.name}: {why[:300]}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
