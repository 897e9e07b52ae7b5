"""One frame of a report (block header, source, result)  ->  what it holds, or Malformed; its copies.

Metrics are many and small, so they are checked by regular expressions (200 MB/s). What those do not
match is walked field by field, and only that decides.

Frames that are whole are copied into another report that the library reads, or many small ones. There
every frame gets a block of its own, behind the names and sessions of all blocks before it: a launch
says the names of its metrics by their number in the one table that all blocks make together.
"""

from __future__ import annotations

import hashlib
import re
import struct
from array import array
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from sys import byteorder
from typing import IO

from profkit.reports import wire
from profkit.reports.wire import (
    BYTES,
    KINDS,
    RESULT_SOURCE,
    SOURCES,
    Kind,
    Malformed,
    fields,
    one,
)


@dataclass(frozen=True)
class BlockHeader:
    counts: dict[int, int]  # field number -> how many frames of that kind follow
    size: int  # bytes of these frames
    names: list[bytes] | None  # of metrics, which it adds to the string table; None: damaged
    version: str | None  # of the ncu that wrote the report; "" when it says other versions only
    about: bytes  # the header without the counts: string table, session, process
    process: bytes  # the field of `about` that says which process


def header(data: bytes, newer: list[int]) -> BlockHeader:
    counts, size = dict.fromkeys(wire.COUNTERS, 0), 0
    names: list[bytes] | None = []
    version, about, process, at = None, b"", b"", 0
    while at < len(data):
        begin = at
        number, wire_type, start, stop, at = one(data, at, len(data))
        wire.inspect(data, (number, wire_type, start, stop), wire.HEADER, newer)
        if number in counts:
            counts[number] = start
            continue
        if number == wire.SIZE:
            size = start
            continue
        about += data[begin:at]
        if number == wire.SESSION:
            version = _version(data, start, stop)
        elif number == wire.NAMES:
            table = _names(data, start, stop)
            names = None if names is None or table is None else names + table
        elif number == wire.PROCESS:
            process = data[begin:at]
    return BlockHeader(counts, size, names, version, about, process)


def block_of_one(counter: int, frame: bytes) -> bytes:
    """Return the counts of a block header that announces one frame."""
    size, left = b"", 4 + len(frame)
    while left > 0x7F:
        size, left = size + bytes([left & 0x7F | 0x80]), left >> 7
    return bytes([counter << 3, 1, wire.SIZE << 3]) + size + bytes([left])


def result(data: bytes, kind: Kind, newer: list[int], sequences: set[tuple[bytes, ...]]) -> bool:
    """Check a result; return whether it is of the kind that the library might crash on.

    Not what is inside the instances of a metric, a section or a rule result: the library checks
    that too, and gives nothing of the whole launch when it is wrong. `sequences` gets the ids
    (varints) of its metrics, in their order: see nameless. Malformed where it is damaged; NotText where
    all is well but for its names, which the library gives all the same.
    """
    at, end, tag = 0, len(data), kind.metrics << 3 | BYTES
    seen, risky = set(), False
    strange: wire.NotText | None = None
    while at < end:
        if data[at] == tag:
            at = _metrics(data, at, tag, newer, sequences)
            continue
        number, wire_type, start, stop, at = one(data, at, end)
        try:
            wire.inspect(data, (number, wire_type, start, stop), kind.message, newer)
        except wire.NotText as error:
            if number not in kind.message.texts:
                raise Malformed(str(error)) from None
            strange = error
        seen.add(number)
        if number == kind.samples:
            risky = risky or not _in_order(data, start, stop)
    if not kind.message.required <= seen:
        raise Malformed("a result that lacks a part")
    if strange:
        raise strange
    return risky


def repair_frame(data: bytes, kind: Kind) -> bytes | None:
    """Return what can be read of a damaged result; None when not even the identity is left.

    The library drops a whole launch for a wrong byte in a section that is not read here. So only
    the identity, the metrics and the NVTX state are kept, as far as each of them is whole.
    """
    repaired, seen, at = bytearray(), set(), 0
    readable = kind.message.required | {kind.metrics, kind.nvtx}
    try:
        while at < len(data):
            begin = at
            number, wire_type, start, stop, at = one(data, at, len(data))
            if number not in readable:
                continue
            with suppress(Malformed):
                if (
                    number not in kind.message.texts or wire_type != BYTES
                ):  # a name is one in any bytes
                    wire.inspect(data, (number, wire_type, start, stop), kind.message, [])
                if number == kind.metrics and not _is_usual(data, start, stop):
                    wire.verify_message(data, start, stop, wire.METRIC, [])
                repaired += data[begin:at]
                seen.add(number)
    except Malformed:  # what follows cannot be told apart
        pass
    missing = kind.message.required - seen
    if missing == {wire.RESULT_SOURCE}:
        repaired, missing = repaired + bytes([wire.RESULT_SOURCE << 3 | BYTES, 0]), set()
    return None if missing else bytes(repaired)


_MORE, _LAST = rb"[\x80-\xff]", rb"[\x00-\x7f]"  # bytes of a varint
_NUMBER = rb"(?:%b|%b{1,4}%b)" % (_LAST, _MORE, _LAST)


def _value() -> bytes:
    def sized(size: int, body: bytes) -> bytes:
        return re.escape(bytes([size])) + body

    values = (
        sized(9, rb"\x19.{8}"),
        *(sized(n + 1, rb"\x28%b{%d}%b" % (_MORE, n - 1, _LAST)) for n in range(1, 11)),
        sized(5, rb"\x15.{4}"),
        *(sized(n + 2, rb"\n" + sized(n, rb"[\x20-\x7e]{%d}" % n)) for n in range(64)),
    )
    return b"(?:" + b"|".join(values) + b")"


@cache
def _instances() -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return what a metric begins with, and then one of its instances, its size apart, or its end."""
    value = _value()
    begin = rb"\x08%b(?:\x12%b)?" % (_NUMBER, value)
    element = rb"(\x1a.)((?:\n%b)?\x12%b)|(\x20%b\Z)" % (value, value, _NUMBER)
    return re.compile(begin, re.DOTALL), re.compile(element, re.DOTALL)


def _is_usual(data: bytes, start: int, stop: int) -> bool:
    """Return whether a metric is whole, instances too, and laid out as ncu does: most are."""
    begin, element = _instances()
    if not (match := begin.match(data, start, stop)):
        return False
    parts = element.findall(data, match.end(), stop)
    if any(head and head[1] != len(body) for head, body, _ in parts):
        return False
    # A part that is passed over is missing in the sum.
    return sum(len(head) + len(body) + len(end) for head, body, end in parts) == stop - match.end()


@cache
def _patterns(tag: int) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """For metrics under a tag: a run without instances, the name ids in it, the head of another."""
    last, number, value = _LAST, _NUMBER, _value()
    head = rb"%b%b\x08(%b)(?:\x12%b)?+" % (re.escape(bytes([tag])), number, number, value)
    plain = rb"%b(?![\x12\x1a])(?:\x20%b)?" % (head, last)
    return (
        re.compile(rb"(?:%b)*+" % plain.replace(b"(%b)" % number, number), re.DOTALL),
        re.compile(plain, re.DOTALL),
        re.compile(rb"%b\x1a" % head, re.DOTALL),
    )


def _metrics(
    data: bytes, at: int, tag: int, newer: list[int], sequences: set[tuple[bytes, ...]]
) -> int:
    """Check the run of metrics at an offset; returns where it ends."""
    run, plain, listed = _patterns(tag)
    ids: list[bytes] = []
    end = len(data)
    while at < end and data[at] == tag:
        start, at = at, run.match(data, at).end()  # type: ignore[union-attr]
        ids += plain.findall(data, start, at)
        if at == end or data[at] != tag:
            break
        match = listed.match(data, at)
        _, _, start, stop, at = one(data, at, end)
        if match:
            ids.append(match[1])
        else:
            wire.verify_message(data, start, stop, wire.METRIC, newer)
            ids.append(data[start + 1 : wire.varint(data, start + 1)[1]])  # the id comes first
    sequences.add(tuple(ids))  # most launches of a report have the same
    return at


def nameless(sequences: Iterable[tuple[bytes, ...]], names: int) -> bool:
    """Return whether one of the metrics' ids is beyond the string table."""
    ids = set[bytes]().union(*sequences)
    longest = max(map(len, ids), default=0)
    # A varint has its highest bits last, so that the largest id is the last one in this order.
    largest = max((id_[::-1] for id_ in ids if len(id_) == longest), default=b"")
    return bool(ids) and wire.varint(largest[::-1], 0)[0] >= names


def _in_order(data: bytes, start: int, end: int) -> bool:
    """Return whether timed warp samples are as they should be: the library trusts them, and crashes.

    Per SM there are records of 16 bytes, (time, samples so far), and the samples, 16 bytes each.
    """
    for number, _, group, stop in fields(data, start, end):
        for _, _, per_sm, behind in fields(data, group, stop) if number == 2 else ():
            spans = {n: (a, b) for n, _, a, b in fields(data, per_sm, behind)}
            (times, times_end), (samples, samples_end) = spans[2], spans[3]
            if (times_end - times) % 16 or (samples_end - samples) % 16:
                return False
            stamps = array("Q", data[times:times_end])
            if byteorder == "big":
                stamps.byteswap()
            ends = [0, *stamps[1::2], (samples_end - samples) // 16]
            if any(a > b for a, b in pairwise(ends)):
                return False
    return True


def _names(data: bytes, at: int, end: int) -> list[bytes] | None:
    """Return the string table at [at, end), None when it cannot be right."""
    names = _split(data[at:end])
    try:
        if names is None:
            parts = list(fields(data, at, end))
            names = [
                data[start:stop] for number, wire_type, start, stop in parts if wire_type == BYTES
            ]
        text = b" ".join(names).decode()  # a space ends any character that is cut short
    except (Malformed, UnicodeDecodeError):
        return None
    return None if _CONTROL.search(text) or len(set(names)) < len(names) else names


def _split(table: bytes) -> list[bytes] | None:
    """Return the strings of a table whose names are short and have no newline (the tag of a string)."""
    first, *parts = table.split(b"\n")
    if first or any(len(part) - 1 != part[0] if part else True for part in parts):
        return None
    return [part[1:] for part in parts]


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _version(data: bytes, at: int, end: int) -> str | None:
    """Return the writer's version out of session details, like 2025.3.1.0; as in Header."""
    version = None
    for number, _, start, stop in fields(data, at, end):
        if number == 8:
            parts = {n: data[a:b] for n, _, a, b in fields(data, start, stop)}
            if b"Nsight Compute" in parts.get(1, b""):
                return parts[2].split(b" ")[0].decode()
            version = ""
    return version


# Copies of a report.

MAGIC = b"NVR\0"
ZSTD = b"\x28\xb5\x2f\xfd"
_LAUNCHES = {kind.counter for kind in KINDS}
_ID = 1  # field of a source, and of what a launch says of its own
_Source = tuple[bytes, int | None]  # the process and the id, which two processes may both use


@contextmanager
def unpacked(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the bytes of an open report, decompressed; Malformed as soon as damage is read."""
    start = file.read(len(ZSTD))
    file.seek(0)
    if start != ZSTD:
        yield file
        return
    import zstandard

    packed = zstandard.ZstdDecompressor()
    try:
        with packed.stream_reader(file, read_across_frames=True, closefd=False) as plain:
            yield plain
    except zstandard.ZstdError:
        raise Malformed("what is compressed in it is damaged") from None


class Copies:
    """What is copied on a walk: launches, and the sources of these.

    Of all launches, or of those that are wanted; without `code` no sources, which are machine code.
    """

    def __init__(self, wanted: Collection[int] | None = None, *, code: bool = True) -> None:
        self._wanted, self._code = wanted, code
        self._head = bytearray()  # what every file begins with
        self._sources: dict[_Source, dict[bytes, bytes]] = {}  # -> digest -> block and frame
        self._used: set[_Source] = set()
        self._seen = 0
        self._indices: list[int] = []
        self._launches: list[bytes] = []
        self.size = 0  # bytes of launches that are in no file yet

    def start(self, frame: bytes) -> None:
        self._head += MAGIC + _sized(frame)

    def about(self, frame: bytes) -> None:
        """Take a block's header without its counts: names, session, process."""
        self._head += _sized(frame) if frame else b""

    def frame(self, field: int, process: bytes, frame: bytes) -> None:
        """Take a launch or a source, with the field of its block that says which process."""
        block = _sized(process + block_of_one(field, frame))
        if field == SOURCES and self._code:
            same = self._sources.setdefault((process, _number(frame)), {})
            same.setdefault(hashlib.sha256(frame).digest(), block + _sized(frame))
        elif field in _LAUNCHES:
            index, self._seen = self._seen, self._seen + 1
            if self._wanted is None or index in self._wanted:
                self._used.add((process, _used(frame)))
                self._indices.append(index)
                self._launches.append(block + _sized(frame))
                self.size += len(self._launches[-1])

    def write(self, path: Path) -> tuple[Path, tuple[int, ...]]:
        """Write the launches since the last file into one that the library can read.

        Return it, and their indices.
        """
        with open(path, "wb") as out:
            out.write(self._head)
            for source, blocks in self._sources.items():
                if source in self._used or (source[0], None) in self._used:
                    out.writelines(blocks.values())
            out.writelines(self._launches)
        indices = tuple(self._indices)
        self._indices, self._launches, self.size, self._used = [], [], 0, set()
        return path, indices


def _number(source: bytes, at: int = 0, end: int | None = None) -> int | None:
    """Return the id of a source, None when unknown."""
    try:
        return next(n for field, _, n, _ in fields(source, at, end or len(source)) if field == _ID)
    except (Malformed, StopIteration):
        return None


def _used(launch: bytes) -> int | None:
    """Return the id of the source that a launch ran, None when it may be any."""
    try:
        parts = [x for x in fields(launch, 0, len(launch)) if x[:2] == (RESULT_SOURCE, BYTES)]
    except Malformed:
        return None
    return _number(launch, *parts[0][2:]) if len(parts) == 1 else None


def _sized(frame: bytes) -> bytes:
    return struct.pack("<I", len(frame)) + frame
