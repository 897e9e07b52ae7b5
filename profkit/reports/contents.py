"""One frame of a report (block header, source, result)  ->  what it holds, or Malformed; its copies.

Metrics are many and small, so they are checked by regular expressions (400 MB/s). What those do not
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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from sys import byteorder
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from profkit.reports.wire import (
    BYTES,
    COUNTERS,
    KINDS,
    NAMES,
    PROCESS,
    RESULT_SOURCE,
    SESSION,
    SIZE,
    SOURCES,
    Malformed,
    MessageShape,
    NotText,
    NumberTypeStartEnd,
    Oddities,
    ResultKind,
    iterate_fields,
    load_message_shape,
    read_field,
    read_varint,
    verify_field,
    verify_field_order,
    verify_message,
)

if TYPE_CHECKING:
    from profkit.units import (
        ByteCount,
        ByteOffset,
        FrameBytes,
        LaunchIndex,
        ProtobufMessage,
        TextOrEmpty,
    )


@dataclass(frozen=True)
class BlockHeader:
    """The header of a block of frames: how many there are of each kind, and their size in bytes."""

    counts: dict[int, int]  # field number -> how many frames of that kind follow
    size: int  # bytes of these frames
    names: list[bytes] | None  # of metrics, which it adds to the string table; None: damaged
    session: list[int]  # the numbers of the session's fields that are in it
    version: str | None  # of the ncu that wrote the report; "" when it says other versions only
    about: bytes  # the header without the counts: string table, session, process
    process: bytes  # the field of `about` that says which process


def parse_block_header(data: ProtobufMessage, oddities: Oddities) -> BlockHeader:
    """Return a block's header; Malformed where its bytes are no protobuf."""
    counts = dict.fromkeys(COUNTERS, 0)
    size = 0
    names: list[bytes] | None = []
    session: list[int] = []
    version = None
    process = b""
    about = bytearray()
    for number, start, stop, whole in _iterate_verified_header_fields(data, oddities):
        if number in counts:
            counts[number] = start
        elif number == SIZE:
            size = start
        else:
            about += whole  # in place: what is joined to bytes is copied each time
        if number == NAMES:
            table = parse_string_table(data, start, stop)
            if table is None or names is None:
                names = None
            else:
                names.extend(table)
        elif number == SESSION:
            session += [field for field, *_ in iterate_fields(data, start, stop)]
            version = _read_version_of_writer(data, start, stop)
        elif number == PROCESS:
            process = whole
    return BlockHeader(counts, size, names, session, version, bytes(about), process)


NumberStartEndBytes = tuple[int, int, int, bytes]  # of a field; all its bytes, its number's too


def _iterate_verified_header_fields(
    data: ProtobufMessage, oddities: Oddities
) -> Iterator[NumberStartEndBytes]:
    """Yield the fields of a block header, checked: number, start (or value), end, all its bytes.

    Not the names, of which a report has thousands: they are read at once.
    """
    shape = load_message_shape("BlockHeader")
    before = 0
    for number, wire_type, start, stop, begin, end in _iterate_field_offsets(data):
        verify_field_order(number, before, shape, oddities)
        before = number
        if number != NAMES or wire_type != BYTES:
            verify_field(data, (number, wire_type, start, stop), shape, oddities)
        yield number, start, stop, data[begin:end]


def make_single_frame_header(counter: int, frame: FrameBytes, process: bytes = b"") -> bytes:
    """Return a block header that announces one frame, with the field that says of which process."""
    count = bytes([counter << 3, 1])
    size = bytes([SIZE << 3]) + encode_varint(4 + len(frame))
    if counter < SIZE:
        return count + size + process
    return size + process + count


def encode_varint(number: int) -> bytes:
    """Return a number as a protobuf varint."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


@dataclass(frozen=True)
class Result:
    """What was seen of a launch that is whole."""

    risky: bool  # of the kind that the library might crash on
    ids: tuple[bytes, ...]  # of its metrics (varints), each once: see nameless
    strange: str = ""  # its name is not UTF-8: the library gives it all the same


def verify_and_summarize_result(
    data: ProtobufMessage, kind: ResultKind, oddities: Oddities
) -> Result:
    """Check a result; Malformed where it is damaged.

    Not what is inside a section or a chart: nobody reads that, and the library gives nothing of the
    whole launch when it is wrong.
    """
    shape = kind.message
    tag = kind.metrics << 3 | BYTES
    seen: set[int] = set()
    ids: list[bytes] = []
    metrics: dict[bytes, bytes] = {}
    strange = ""
    risky = False
    at = before = 0
    while at < len(data):
        if data[at] == tag:
            verify_field_order(kind.metrics, before, shape, oddities)
            before = kind.metrics
            at = _collect_consecutive_metrics(data, at, tag, (ids, metrics), oddities)
            continue
        number, wire_type, start, stop, at = read_field(data, at, len(data))
        verify_field_order(number, before, shape, oddities)
        before = number
        seen.add(number)
        strange = (
            _find_tolerated_fault_in_field(data, (number, wire_type, start, stop), shape, oddities)
            or strange
        )
        if number == kind.samples:
            risky = risky or not _are_warp_samples_in_order(data, start, stop)
        elif number == kind.nvtx:
            _verify_nvtx_domains(data, start, stop)
    _verify_result_is_complete(seen, ids, shape)
    return Result(risky, tuple(metrics), strange)


def _verify_result_is_complete(seen: set[int], ids: Sequence[bytes], shape: MessageShape) -> None:
    """Raise Malformed where a result lacks a part, or a metric."""
    if not shape.required <= seen:
        raise Malformed("a result that lacks a part")
    if find_misplaced_ids(tuple(ids)):
        raise Malformed("a metric is in the place of another")


def _find_tolerated_fault_in_field(
    data: ProtobufMessage, field: NumberTypeStartEnd, shape: MessageShape, oddities: Oddities
) -> TextOrEmpty:
    """Check one field of a result; return what is strange in it, though the library reads it."""
    try:
        verify_field(data, field, shape, oddities)
    except NotText as error:
        if field[0] not in shape.texts:
            raise Malformed(str(error)) from None
        return str(error)
    return ""


@lru_cache(maxsize=16)
def find_misplaced_ids(ids: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the ids that stand where another should, which the launch does not have.

    ncu numbers the names of metrics in the order in which it first writes them, so the ids of a launch
    are runs of numbers one after the other. One that breaks a run was another.
    """
    numbers = [read_varint(id_, 0)[0] for id_ in ids]
    known = set(numbers)
    found = []
    for place in range(1, len(numbers) - 1):
        expected = numbers[place - 1] + 1
        if numbers[place] == expected or numbers[place + 1] != expected + 1 or expected in known:
            continue
        longer = numbers[max(0, place - 2)], numbers[min(place + 2, len(numbers) - 1)]
        if longer[0] == expected - 2 or longer[1] == expected + 2:
            found.append(ids[place])
    return tuple(found)


def _verify_nvtx_domains(data: ProtobufMessage, offset: ByteOffset, end: ByteOffset) -> None:
    """Check that each stack of NVTX ranges is of a domain that is there."""
    known: set[int | None] = set()
    used: set[int | None] = set()
    for number, _, start, stop in iterate_fields(data, offset, end):
        if number == 1:
            known.add(_read_id_of_message(data, start, stop))
        elif number == 3:
            used.add(_read_id_of_message(data, start, stop))
        elif number == 2:
            for inner, _, begin, behind in iterate_fields(data, start, stop):
                if inner == 2:
                    used.add(_read_id_of_message(data, begin, behind))
    if not used <= known:
        raise Malformed("an NVTX range of a domain that is not there")


def _read_id_of_message(data: ProtobufMessage, offset: ByteOffset, end: ByteOffset) -> int | None:
    """Return field 1 of a message, an id; None where it has none."""
    for number, _, value, _ in iterate_fields(data, offset, end):
        if number == 1:
            return value
    return None


def repair_result(data: ProtobufMessage, kind: ResultKind) -> ProtobufMessage | None:
    """Return what can be read of a damaged result; None when not even the identity is left.

    The library drops a whole launch for a wrong byte in a section that is not read here. So only
    the identity, the metrics and the NVTX state are kept, as far as each of them is whole. Of a metric
    that is there with two values neither is.
    """
    shape = kind.message
    readable = shape.required | {kind.nvtx}
    kept: dict[int, bytes] = {}
    metrics = _KeptMetrics()
    try:
        for number, wire_type, start, stop, begin, at in _iterate_field_offsets(data):
            if number == kind.metrics and wire_type == BYTES:
                if _is_whole_metric(data, start, stop):
                    metrics.add_metric(_read_metric_id(data, start), data[begin:at])
                continue
            part = number, wire_type, start, stop
            if number in readable and number not in kept and _is_whole_field(data, part, shape):
                kept[number] = data[begin:at]
    except Malformed:  # what follows cannot be told apart
        pass
    kept[kind.metrics] = metrics.join_fields()
    missing = shape.required - kept.keys()
    if missing == {RESULT_SOURCE}:
        kept[RESULT_SOURCE] = bytes([RESULT_SOURCE << 3 | BYTES, 0])
        missing = set()
    if missing:
        return None
    return b"".join(kept[number] for number in sorted(kept))


class _KeptMetrics:
    """The metrics of a damaged launch that are whole, by their ids."""

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        self._bodies: dict[bytes, bytes] = {}

    def add_metric(self, id_: bytes, field_bytes: bytes) -> None:
        self._ids.append(id_)
        if self._bodies.setdefault(id_, field_bytes) != field_bytes:
            self._bodies[id_] = b""

    def join_fields(self) -> bytes:
        for id_ in find_misplaced_ids(tuple(self._ids)):
            self._bodies[id_] = b""
        return b"".join(self._bodies.values())


# Number, wire type, where the value begins and ends, where the field begins, and the next offset.
NumberTypeAndOffsets = tuple[int, int, int, int, int, int]


def _iterate_field_offsets(data: ProtobufMessage) -> Iterator[NumberTypeAndOffsets]:
    """Yield the fields of a message, each also with where it begins and ends."""
    at = 0
    while at < len(data):
        begin = at
        number, wire_type, start, stop, at = read_field(data, at, len(data))
        yield number, wire_type, start, stop, begin, at


def _is_whole_field(data: ProtobufMessage, field: NumberTypeStartEnd, shape: MessageShape) -> bool:
    odd = Oddities()
    try:
        verify_field(data, field, shape, odd)
    except NotText:  # a name is one in any bytes
        return field[0] in shape.texts
    except Malformed:
        return False
    return not odd.first


def _is_whole_metric(data: ProtobufMessage, start: ByteOffset, stop: ByteOffset) -> bool:
    odd = Oddities()
    try:
        _verify_metric(data, start, stop, odd)
    except Malformed:
        return False
    return not odd.first


# Metrics and their instances by patterns. Each takes only what is as long as its size says.

_LAST = rb"[\x00-\x7f]"


def _make_varint_pattern(size_bytes: ByteCount) -> bytes:
    """Return a pattern of a varint of so many bytes, the shortest for its number."""
    if size_bytes == 1:
        return _LAST
    return rb"[\x80-\xff]{%d}[\x01-\x7f]" % (size_bytes - 1)


def _make_value_pattern(size_bytes: ByteCount) -> bytes:
    """Return a pattern of a metric's value of so many bytes, its size in front; not of a text."""
    kinds = [rb"\x28" + _make_varint_pattern(size_bytes - 1)]
    if size_bytes <= 5:
        kinds.append(rb"\x20" + _make_varint_pattern(size_bytes - 1))
    if size_bytes == 5:
        kinds.append(rb"\x15.{4}")
    if size_bytes == 9:
        kinds.insert(0, rb"\x19.{8}")
    return re.escape(bytes([size_bytes])) + b"(?:" + b"|".join(kinds) + b")"


_ID = rb"(?:%b|%b)" % (_make_varint_pattern(2), _make_varint_pattern(1))
_VALUES = b"(?:%b)" % b"|".join(map(_make_value_pattern, (9, 2, 3, 4, 5, 6, 7, 8)))
_CATEGORY = rb"\x20" + _LAST


@cache
def _compile_plain_metric_pattern(tag: int) -> re.Pattern[bytes]:
    """Return a pattern of a metric under a tag without instances and texts, as nearly all are."""
    forms = []
    for size in (9, 2, 3, 4, 5, 0):
        value = rb"\x12" + _make_value_pattern(size) if size else b""
        for digits in (2, 1):
            length = 1 + digits + (2 + size if size else 0)
            body = rb"\x08" + _make_varint_pattern(digits) + value
            forms.append(re.escape(bytes([length + 2])) + body + _CATEGORY)
            forms.append(re.escape(bytes([length])) + body)
    begin = re.escape(bytes([tag]))
    return re.compile(rb"%b(?=.\x08(%b))(?:%b)" % (begin, _ID, b"|".join(forms)), re.DOTALL)


# Bytes of an instance's key and value: most are an address and a small number, or a time and a double.
# Others are looked at one by one.
_FREQUENT_INSTANCE_SIZES = (
    *((8, 2), (10, 9), (3, 2), (4, 2), (2, 2), (6, 2), (7, 9)),
    *((8, 4), (8, 3), (8, 5), (8, 9), (6, 3), (2, 9)),
)


class _InstancePatterns(NamedTuple):
    """Patterns of the parts of a metric with instances, in their order."""

    begin: re.Pattern[bytes]
    run: re.Pattern[bytes]  # of instances whose sizes are frequent
    value: re.Pattern[bytes]  # of one instance
    ending: re.Pattern[bytes]


@cache
def _compile_instance_patterns() -> _InstancePatterns:
    instances = []
    for key_size, value_size in _FREQUENT_INSTANCE_SIZES:
        size = re.escape(bytes([4 + key_size + value_size]))
        key = _make_value_pattern(key_size)
        value = _make_value_pattern(value_size)
        instances.append(rb"%b\n%b\x12%b" % (size, key, value))
    return _InstancePatterns(
        begin=re.compile(rb"\x08%b(?:\x12%b)?+" % (_ID, _VALUES), re.DOTALL),
        run=re.compile(rb"(?:\x1a(?:%b))*+" % b"|".join(instances), re.DOTALL),
        value=re.compile(rb"\x12" + _VALUES, re.DOTALL),
        ending=re.compile(rb"(?:%b)?\Z" % _CATEGORY),
    )


_INSTANCE = 3 << 3 | BYTES  # the tag of an instance in a metric


def _verify_metric(
    data: ProtobufMessage, start: ByteOffset, stop: ByteOffset, oddities: Oddities
) -> None:
    """Raise Malformed unless a metric is whole, its instances too."""
    patterns = _compile_instance_patterns()
    if match := patterns.begin.match(data, start, stop):
        at = match.end()
        while at < stop and data[at] == _INSTANCE:
            at = patterns.run.match(data, at, stop).end()  # type: ignore[union-attr]
            if at < stop and data[at] == _INSTANCE:
                at = _verify_instance(data, at, stop, oddities)
        if patterns.ending.match(data, at, stop):
            return
    verify_message(data, start, stop, load_message_shape("Metric"), oddities)


def _verify_instance(
    data: ProtobufMessage, offset: ByteOffset, stop: ByteOffset, oddities: Oddities
) -> ByteOffset:
    """Check one instance of a metric, of a short text mostly; return where it ends."""
    value = _compile_instance_patterns().value
    head = data[offset : offset + 6]  # tag, size, tag of the key, size, tag of a text, size
    if len(head) == 6 and head[2] == head[4] == 1 << 3 | BYTES and head[5] + 2 == head[3]:
        text = data[offset + 6 : offset + 6 + head[5]]
        match = value.match(data, offset + 6 + head[5], stop)
        if match and match.end() == offset + 2 + head[1] and head[1] < 0x80 and text.isascii():
            return match.end()
    _, _, start, behind, offset = read_field(data, offset, stop)
    verify_message(data, start, behind, load_message_shape("MetricInstance"), oddities)
    return offset


def _read_metric_id(data: ProtobufMessage, start: ByteOffset) -> bytes:
    """Return the id of a metric, which comes first, as the varint that it is."""
    return data[start + 1 : read_varint(data, start + 1)[1]]


def _collect_consecutive_metrics(
    data: ProtobufMessage,
    offset: ByteOffset,
    tag: int,
    ids_and_metrics: tuple[list[bytes], dict[bytes, bytes]],
    oddities: Oddities,
) -> ByteOffset:
    """Check the metrics at an offset, and take their ids and each by its id; return where they end.

    Since 2024, ncu writes some of them twice. With two values one is wrong: Malformed.
    """
    plain = _compile_plain_metric_pattern(tag)
    ids, metrics = ids_and_metrics
    end = len(data)
    while offset < end and data[offset] == tag:
        begin = offset
        if match := plain.match(data, offset):
            id_ = match[1]
            offset = match.end()
        else:
            _, _, start, stop, offset = read_field(data, offset, end)
            _verify_metric(data, start, stop, oddities)
            id_ = _read_metric_id(data, start)
        ids.append(id_)
        whole = data[begin:offset]
        if metrics.setdefault(id_, whole) != whole:
            raise Malformed("a metric appears twice, with two values")
    return offset


def has_id_without_name(launch_ids: Iterable[tuple[bytes, ...]], name_count: int) -> bool:
    """Return whether one of the metrics' ids is beyond the string table."""
    ids = set[bytes]().union(*launch_ids)
    if not ids:
        return False
    # A varint has its highest bits last.
    largest = max(ids, key=lambda id_: (len(id_), id_[::-1]))
    return read_varint(largest, 0)[0] >= name_count


_SAMPLES_OF_SMS = 2  # the field of timed warp samples that repeats, once per SM


def _are_warp_samples_in_order(data: ProtobufMessage, start: ByteOffset, end: ByteOffset) -> bool:
    """Return whether timed warp samples are as they should be: the library trusts them, and crashes.

    Per SM there are records of 16 bytes, (time, samples so far), and the samples, 16 bytes each.
    """
    for number, _, group, stop in iterate_fields(data, start, end):
        if number != _SAMPLES_OF_SMS:
            continue
        for _, _, per_sm, behind in iterate_fields(data, group, stop):
            spans = {n: (a, b) for n, _, a, b in iterate_fields(data, per_sm, behind)}
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


def parse_string_table(
    data: ProtobufMessage, offset: ByteOffset, end: ByteOffset
) -> list[bytes] | None:
    """Return the string table at [at, end), None when it cannot be right."""
    names = _split_plain_string_table(data[offset:end])
    try:
        if names is None:
            names = []
            for number, wire_type, start, stop in iterate_fields(data, offset, end):
                if number != 1 or wire_type != BYTES:
                    return None
                names.append(data[start:stop])
        text = b" ".join(names).decode()  # a space ends any character that is cut short
    except (Malformed, UnicodeDecodeError):
        return None
    if max(map(len, names), default=0) > _NAME_MOST:
        return None
    if _CONTROL.search(text) or len(set(names)) < len(names):
        return None
    return names


def _split_plain_string_table(table: bytes) -> list[bytes] | None:
    """Return the strings of a table whose names are short and have no newline (the tag of a string)."""
    first, *parts = table.split(b"\n")
    if first or any(not part or len(part) - 1 != part[0] for part in parts):
        return None
    return [part[1:] for part in parts]


_NAME_MOST = 1000  # bytes of a metric's name: each launch says it again; the longest seen has 110
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _read_version_of_writer(
    data: ProtobufMessage, offset: ByteOffset, end: ByteOffset
) -> str | None:
    """Return the writer's version out of session details, like 2025.3.1.0; as in Header."""
    version = None
    for number, _, start, stop in iterate_fields(data, offset, end):
        if number == 8:
            parts = {n: data[a:b] for n, _, a, b in iterate_fields(data, start, stop)}
            if b"Nsight Compute" in parts.get(1, b""):
                return parts[2].split(b" ")[0].decode()
            version = ""
    return version


# Copies of a report.

MAGIC = b"NVR\0"
ZSTD = b"\x28\xb5\x2f\xfd"
_LAUNCHES = {kind.counter for kind in KINDS}
_Source = tuple[bytes, int | None]  # the process and the id, which two processes may both use


# Compressed bytes that may be read before anything comes out: what is asked for at once is less.
HOLLOW_BYTES = 128 << 20


@contextmanager
def open_decompressed(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the bytes of an open report, decompressed; Malformed as soon as damage is read."""
    start = file.read(len(ZSTD))
    file.seek(0)
    if start != ZSTD:
        yield file
        return
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    packed: Any = _PackedFile(file)
    try:
        with decompressor.stream_reader(packed, read_across_frames=True, closefd=False) as plain:
            packed.count_given = plain.tell
            yield plain
    except zstandard.ZstdError:
        raise Malformed("what is compressed in it is damaged") from None


class _PackedFile:
    """A file that is decompressed; Malformed once far more was read of it than came out.

    Of a hole, zstd reads one empty block after the other.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._taken = 0
        self.count_given: Callable[[], int] = lambda: 0

    def read(self, size: int = -1) -> bytes:
        some = self._file.read(size)
        self._taken += len(some)
        if self._taken > self.count_given() + HOLLOW_BYTES:
            raise Malformed("what is compressed in it is damaged: too much of it holds nothing")
        return some


LAUNCH = 4 << 10  # bytes that a launch takes where it is read, however few it has in the file


class LaunchCopier:
    """What is copied on a walk: launches, and the sources of these.

    Of all launches, or of those that are wanted; without `code` no sources, which are machine code.
    """

    def __init__(self, wanted: Collection[int] | None = None, *, code: bool = True) -> None:
        self._wanted = wanted
        self._code = code
        self._head = bytearray()  # what every file begins with
        self._sources: dict[_Source, dict[bytes, bytes]] = {}  # -> digest -> block and frame
        self._used: set[_Source] = set()
        self._seen = 0
        self._indices: list[int] = []
        self._launches: list[bytes] = []
        self.size = 0  # bytes of launches that are in no file yet, and LAUNCH of each

    def keep_file_header(self, frame: FrameBytes) -> None:
        """Keep the frame that begins a file."""
        self._head += MAGIC + _prefix_with_size(frame)

    def append_block_header(self, frame: FrameBytes) -> None:
        """Take a block's header without its counts: names, session, process."""
        if frame:
            self._head += _prefix_with_size(frame)

    def collect_frame(self, field: int, process: bytes, frame: FrameBytes) -> None:
        """Take a launch or a source, with the field of its block that says which process."""
        block = _prefix_with_size(make_single_frame_header(field, frame, process))
        if field == SOURCES and self._code:
            same = self._sources.setdefault((process, _read_source_id(frame)), {})
            same.setdefault(hashlib.sha256(frame).digest(), block + _prefix_with_size(frame))
        elif field in _LAUNCHES:
            index = self._seen
            self._seen = self._seen + 1
            if self._wanted is None or index in self._wanted:
                self._used.add((process, _find_source_id(frame)))
                self._indices.append(index)
                self._launches.append(block + _prefix_with_size(frame))
                self.size += len(self._launches[-1]) + LAUNCH

    def write_kept_launches(self, path: Path) -> tuple[Path, tuple[LaunchIndex, ...]]:
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


def _read_source_id(source: bytes, offset: ByteOffset = 0, end: int | None = None) -> int | None:
    """Return the id of a source, None when unknown."""
    with suppress(Malformed):
        return _read_id_of_message(source, offset, end or len(source))
    return None


def _find_source_id(launch: bytes) -> int | None:
    """Return the id of the source that a launch ran, None when it may be any."""
    try:
        parts = []
        for x in iterate_fields(launch, 0, len(launch)):
            if x[:2] == (RESULT_SOURCE, BYTES):
                parts.append(x)
    except Malformed:
        return None
    if len(parts) == 1:
        return _read_source_id(launch, *parts[0][2:])
    return None


def _prefix_with_size(frame: FrameBytes) -> bytes:
    return struct.pack("<I", len(frame)) + frame
