r"""A report's bytes  ->  whether it is whole, what it should hold, and who wrote it.

A .ncu-rep is `NVR\0` and then frames, each a little-endian u32 length and a protobuf message: a file
header; then, again and again, a block header and the sources and results that it announces. A
.ncu-repz is a zstd stream of the same. Nothing in it is a checksum. What the check can see: a file
that ends early; frames, counts and messages that do not fit together, down to every metric; names
that are not text. What it cannot see: an overwrite that hits nothing but the inside of a value
(eight bytes of a double), of a name that stays one, or of a machine code section; and a file cut
exactly between two launches. The sha256 in the run record next to a report sees those too.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from profkit.errors import OUT_OF_MEMORY, is_memory_limited
from profkit.files import BudgetSpent, ReadBudget, open_regular_file
from profkit.reports import wire
from profkit.reports.contents import (
    LAUNCH,
    MAGIC,
    ZSTD,
    BlockHeader,
    LaunchCopier,
    Result,
    encode_varint,
    has_id_without_name,
    open_decompressed,
    parse_block_header,
    repair_result,
    verify_and_summarize_result,
)
from profkit.reports.metrics import IDENTITY, INSTANCED, RAW_NAMES
from profkit.reports.wire import (
    SOURCES,
    Malformed,
    Oddities,
    TruncatedFile,
    load_message_shape,
    verify_message,
)

if TYPE_CHECKING:
    from profkit.units import ByteCount, FrameBytes, LaunchIndex, NcuMetricName


Status = Literal["ok", "empty", "damaged", "unreadable"]
LIMIT = 4 << 30  # bytes that a compressed report may become: the largest seen is 1/50 of it
# How many times larger it may become, from a size on that is no burden: 40 times is the most seen.
RATIO = 100
SMALL = 64 << 20
HOLLOW = 10_000  # blocks without anything in them: reports that were seen have one at most
REMEMBERED = 1024  # files whose check is remembered: a few hundred bytes each
LAUNCH_KEPT = 2 << 10  # bytes that a launch takes from when it is read until all are judged
PART = 4 << 20  # bytes of launches, with what they take besides, in each file that split makes
NO_WRITER = "the session details name other programs, and not the ncu that wrote it"
NO_SESSION = (
    "ncu's session details after the first launch are missing: later launches may be missing too"
)
_CHUNK = 64 << 20


_Key = tuple[str, int, int, int, int]  # see _identity


@dataclass(frozen=True)
class ContainerVerdict:
    """The verdict on a report's container: how it is damaged, and its launches."""

    status: Status  # empty: nothing in it; damaged: a part is lost; unreadable: not a report
    message: str  # why it is not ok; what ncu left out of one that is, mostly nothing
    launches: int = 0  # that it holds, damaged ones too
    ncu_version: str | None = None  # of the Nsight Compute that wrote it
    # Of the file as it is; None when it cannot be opened, or much is behind its damage (SMALL).
    sha256: str | None = None
    # Compressed under another suffix than .ncu-repz, or the reverse: the library goes by the suffix and
    # would find nothing.
    wrong_suffix: bool = False
    risky: bool = False  # it might crash the library: damaged, or of a kind that did
    # What the library must give of it, too: how many metrics each launch has (array of u32); and
    # whether their names can be believed: if not, no value can.
    metrics: bytes = field(default=b"", repr=False)
    names: bytes = field(
        default=b"", repr=False
    )  # and what sum_hashes_of_metric_names says of theirs (u32 too)
    is_named: bool = True
    size: int = field(default=0, compare=False)  # bytes, not compressed, as far as it was walked

    @property
    def memory_weight(self) -> ByteCount:
        """Return the memory that reading takes, in bytes: the file, and a share per launch."""
        return self.size + self.launches * LAUNCH


def hash_metric_name(name: NcuMetricName) -> int:
    """Return a number of 32 bits for the name of a metric; the sum of them stands for many."""
    return zlib.crc32(name.encode("utf-8", "backslashreplace"))


def sum_hashes_of_metric_names(names: Iterable[NcuMetricName]) -> int:
    """Return a number of 32 bits for some names of metrics, in whatever order they come."""
    return sum(map(hash_metric_name, names)) & _ALL_BITS


_ALL_BITS = 0xFFFFFFFF
_walked: dict[_Key, ContainerVerdict] = {}


def check_report_bytes(path: str | Path) -> ContainerVerdict:
    """Return what the bytes of a file say, of any file; it is walked once in this process."""
    try:
        key = _identify_file(path)
        if key not in _walked:
            _remember_verdict(key, _walk_to_end(path, _ContainerWalk(path)))
    except OSError as error:
        return ContainerVerdict("unreadable", (error.strerror or str(error)).lower())
    except ValueError:  # a NUL, or what is no character
        return ContainerVerdict("unreadable", "cannot be a path")
    except MemoryError:
        if not is_memory_limited():
            raise
        return ContainerVerdict("unreadable", OUT_OF_MEMORY)
    return _walked[key]


def _identify_file(path: str | Path) -> _Key:
    """Return what identifies a file until it is written to."""
    state = os.stat(path)
    where = os.path.abspath(path)
    return where, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _remember_verdict(key: _Key, walk: _ContainerWalk) -> ContainerVerdict:
    """Return the verdict of a finished walk over a file, and keep it for the next time."""
    frames = walk.make_verdict()
    if len(_walked) >= REMEMBERED:
        _walked.clear()
    _walked[key] = replace(
        frames,
        sha256=walk.sha256,
        wrong_suffix=walk.compressed != (Path(key[0]).suffix == ".ncu-repz"),
        risky=walk.risky or frames.status == "damaged",
        size=walk.size,
    )
    return _walked[key]


def write_readable_rest_of_report(
    path: str | Path, target: str | Path, metrics_only: bool = False
) -> None:
    """Write what is left of a damaged report into a .ncu-rep that the library can read.

    With metrics_only, only what repair_result keeps of every launch, not only of the damaged ones.
    """
    copies = LaunchCopier()
    _walk_to_end(path, _ContainerWalk(path, copies, metrics_only))
    copies.write_kept_launches(Path(target))


def split_report(
    path: str | Path,
    folder: str | Path,
    wanted_launches: Collection[LaunchIndex] | None = None,
    *,
    metrics_only: bool = False,
    code: bool = False,
) -> Generator[tuple[Path, tuple[LaunchIndex, ...]], None, ContainerVerdict]:
    """Yield small reports, each of about PART bytes and with the indices of the launches in it.

    Made one by one, on demand; the caller may remove one that it has read. Of a damaged report what is
    left, as repair. `wanted_launches`: indices of launches, None for all. `code`: with the machine code
    of all kernels in each; else with none. Returns what the bytes say, as check.
    """
    copies = LaunchCopier(wanted_launches, code=code)
    names = (Path(folder, f"{n}.ncu-rep") for n in count())
    key = _identify_file(path)
    walk = _ContainerWalk(path, copies, metrics_only)
    for _ in _walk_frames(path, walk):
        if copies.size >= PART:
            yield copies.write_kept_launches(next(names))
    if copies.size:
        yield copies.write_kept_launches(next(names))
    return _remember_verdict(key, walk)


def _walk_to_end(path: str | Path, walk: _ContainerWalk) -> _ContainerWalk:
    deque(_walk_frames(path, walk), maxlen=0)
    return walk


def _walk_frames(path: str | Path, walk: _ContainerWalk) -> Iterator[None]:
    """Walk a file, compressed or not, a frame at a time."""
    digest = hashlib.sha256()
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        walk.compressed = file.read(len(ZSTD)) == ZSTD
        file.seek(0)
        if walk.compressed:
            limit = min(LIMIT, max(SMALL, RATIO * size))
        else:
            limit = size
        try:
            with open_decompressed(file) as plain:
                update = (lambda _: None) if walk.compressed else digest.update
                walk.start = plain.read(len(MAGIC))
                update(walk.start)
                if walk.start == MAGIC:
                    for frame in iterate_length_prefixed_frames(plain, limit, update):
                        walk.process_frame(frame)
                        yield
                    walk.require_complete_blocks()
            is_whole = walk.start == MAGIC
        except Malformed as error:  # from here on frames cannot be told apart
            is_whole = False
            walk.note_unreadable_rest(error)
        if walk.compressed:
            file.seek(0)
            if not walk.start:
                walk.problems.append("what is compressed in it ends at once")
        # What is behind the damage is read for nothing but its sum: a hole of terabytes may be there.
        if is_whole or size - file.tell() <= SMALL:
            while rest := file.read(_CHUNK):
                digest.update(rest)
            walk.sha256 = digest.hexdigest()


def iterate_length_prefixed_frames(
    file: IO[bytes], limit: ByteCount, update: Callable[[bytes], object] = lambda _: None
) -> Iterator[FrameBytes]:
    """Yield the length-prefixed frames up to the end of the file; `update` sees all that is read."""
    at = len(MAGIC)
    while prefix := file.read(4):
        update(prefix)
        size = 0
        if len(prefix) == 4:
            size = struct.unpack("<I", prefix)[0]
        at += 4 + size
        room = min(size, limit - at + size)  # its size may be a lie
        pieces = []
        for n in range(0, room, _CHUNK):
            pieces.append(file.read(min(_CHUNK, room - n)))
        frame = b"".join(pieces)
        update(frame)
        if at > limit and len(frame) == room and room < size and len(prefix) == 4:
            raise TruncatedFile(f"it needs at least {at:,} bytes, and has at most {limit:,}", frame)
        if len(prefix) < 4 or len(frame) < size:
            raise TruncatedFile(f"it is cut off: it needs at least {at:,} bytes", frame)
        yield frame


class _ContainerWalk:
    """What was seen while walking the frames one by one."""

    def __init__(
        self, path: str | Path, out: LaunchCopier | None = None, metrics_only: bool = False
    ) -> None:
        self.start = b""
        self.compressed = False
        self.sha256: str | None = None
        self.problems: list[str] = []
        self._path = path
        self._out = out
        self._metrics_only = metrics_only
        self._first = True
        self._budget = ReadBudget(0, spare=ReadBudget.DOCUMENT)  # for launches
        self._odd = ""  # what only a newer ncu than those that are known can have written
        self._launches = 0
        self._hollow = 0
        self.risky = False
        self.size = len(MAGIC)
        self._version: str | None = None
        self._details = False  # a block without frames behind the first launch: the session's
        self._session: set[int] = set()  # the fields of the session that were said
        self._names: list[bytes] = []
        self._is_named = True
        self._sequences: dict[tuple[bytes, ...], int] = {}  # ids of metrics -> first launch
        self._metrics = array("I")
        self._same = array("I")  # for each launch the first one with the same metrics
        # Of this block: the field of its header that says which process; the frames still to come,
        # the next ones last: field and how many (a lie may say 2**60); and the bytes of all.
        self._process = b""
        self._left: list[tuple[int, int]] = []
        self._size = 0

    def process_frame(self, frame: FrameBytes) -> None:
        self.size += 4 + len(frame)
        self._budget.raise_limit(4 + len(frame))
        odd = Oddities()
        if self._first:
            self._first = False
            verify_message(frame, 0, len(frame), load_message_shape("FileHeader"), odd)
            if self._out is not None:
                self._out.keep_file_header(frame)
        elif not self._left:
            self._begin_block(parse_block_header(frame, odd), odd)
        else:
            field, count = self._left.pop()
            if count > 1:
                self._left.append((field, count - 1))
            self._size -= 4 + len(frame)
            self._verify_block_size()
            whole = self._check_and_count_frame(field, frame, odd)
            if odd.first and self._out is not None:
                whole = whole and self._is_from_newer_ncu()
            self._pass_frame_to_copier(field, frame, whole)
        self._odd = self._odd or odd.first

    def _is_from_newer_ncu(self) -> bool:
        """Return whether a newer ncu wrote the file, which may be said behind what is read now."""
        version = self._version or check_report_bytes(self._path).ncu_version
        return is_newer_ncu(version)

    def _begin_block(self, block: BlockHeader, oddities: Oddities) -> None:
        announced: list[tuple[int, int]] = []
        least_size = 0
        for kind, frames in block.counts.items():
            if frames > 0:
                announced.append((kind, frames))
                if kind != wire.GRAPH_DATA:  # whose frames are counted apart
                    least_size += 4 * frames
        self._hollow += not announced
        if self._hollow > HOLLOW:
            raise Malformed(f"more than {HOLLOW} blocks with nothing in them")
        if least_size > block.size:
            raise Malformed("a block is not as long as its header says")
        self._details |= bool(self._launches and not announced)
        self._left = announced[::-1]
        self._size = block.size
        self._verify_block_size()
        if block.names is None:
            self._is_named = False
            self.problems.append("the names of metrics are damaged")
        self._names += block.names or ()
        self._verify_single_session(block.session, oddities)
        if block.version is not None and not self._version:
            self._version = block.version  # "" when only others were said
        self._process = block.process
        if self._out is not None and self._is_named:
            self._out.append_block_header(block.about)

    def _verify_single_session(self, numbers: list[int], oddities: Oddities) -> None:
        """Check that the blocks of a file are of one session: they say each thing of it once."""
        shape = load_message_shape("SessionDetails")
        twice = self._session.intersection(numbers) - shape.repeated
        if twice and wire.MERGED not in self._session:
            oddities.keep_first_oddity(
                f"field {min(twice)} of SessionDetails twice, as in two reports in one file"
            )
        self._session.update(numbers)

    def _verify_block_size(self) -> None:
        """Check that the frames of a block have the size that its header says."""
        if self._size < 0 or (self._size and not self._left):
            raise Malformed("a block is not as long as its header says")
        if not self._size and [field for field, _ in self._left] == [wire.GRAPH_DATA]:
            self._left.clear()  # a count of what may be elsewhere: no report with it was seen

    def _check_and_count_frame(self, field: int, frame: FrameBytes, oddities: Oddities) -> bool:
        if field not in _KINDS:
            try:
                if field == SOURCES:
                    verify_message(frame, 0, len(frame), load_message_shape("Source"), oddities)
            except Malformed as error:
                self.problems.append(f"a kernel's machine code is damaged: {error}")
                return False
            return True
        try:
            self._budget.spend_bytes(LAUNCH_KEPT)
        except BudgetSpent as error:
            raise Malformed(f"behind launch {self._launches}: {error}") from error
        self._launches += 1
        self._metrics.append(0)
        self._same.append(self._launches - 1)
        try:
            self._add_launch(verify_and_summarize_result(frame, _KINDS[field], oddities))
        except Malformed as error:
            self.problems.append(f"launch {self._launches - 1} is damaged: {error}")
            return False
        return True

    def _add_launch(self, result: Result) -> None:
        if result.strange:  # its name: the library takes it, and so do we
            self.problems.append(f"launch {self._launches - 1} has a name that is not UTF-8")
        self.risky |= result.risky
        # Most launches have the same.
        self._same[-1] = self._sequences.setdefault(result.ids, self._launches - 1)
        self._metrics[-1] = len(result.ids)

    def note_unreadable_rest(self, error: Malformed) -> None:
        """Note that nothing behind this can be read."""
        self.problems.append(str(error))
        if isinstance(error, TruncatedFile) and self._left:
            self._pass_frame_to_copier(self._left[-1][0], error.left, is_whole=False)

    def _pass_frame_to_copier(self, field: int, frame: FrameBytes, is_whole: bool) -> None:
        if self._out is None or not self._is_named:
            return
        left: bytes | None = frame if is_whole else None
        if field in _KINDS and (self._metrics_only or not is_whole):
            left = repair_result(frame, _KINDS[field])
        if left is not None:
            self._out.collect_frame(field, self._process, left)

    def require_complete_blocks(self) -> None:
        if self._first or self._left:
            raise Malformed("the file ends before its last block does")

    def make_verdict(self) -> ContainerVerdict:
        if not self.start and not self.problems:
            return ContainerVerdict("empty", "the file has 0 bytes")
        if not MAGIC.startswith(self.start):
            return ContainerVerdict("unreadable", "not an Nsight Compute report")
        if self.start != MAGIC:
            self.problems.append("the file ends in its first 4 bytes")
        for kind, missing in self._left:
            if kind in _KINDS:
                self._launches += missing
        self._note_problems_of_whole_file()
        counted = (self._launches, self._version or None)
        if self.problems:
            more = ""
            if len(self.problems) > 1:
                more = f" (and {len(self.problems) - 1} more)"
            frames = ContainerVerdict("damaged", self.problems[0] + more, *counted)
        elif self._launches:
            frames = ContainerVerdict("ok", "; ".join(self._list_notes()), *counted)
        else:
            frames = ContainerVerdict("empty", "it contains no launch", *counted)
        metrics = self._metrics.tobytes()
        names = self._hash_names_of_each_launch()
        return replace(frames, metrics=metrics, names=names, is_named=self._is_named)

    def _hash_names_of_each_launch(self) -> bytes:
        """Return the sum for each launch; nothing of a damaged report, whose names may be wrong."""
        if self.problems:
            return b""
        known = [hash_metric_name(name.decode()) for name in self._names]
        digests: dict[int, int] = {}
        for ids, launch in self._sequences.items():
            digest = 0
            for id_ in ids:
                digest += known[wire.read_varint(id_, 0)[0]]
            digests[launch] = digest & _ALL_BITS
        return array("I", map(digests.__getitem__, self._same)).tobytes()

    def _note_problems_of_whole_file(self) -> None:
        """Add what only all blocks together show."""
        if self._details and self._version is None:
            self.problems.append("the session details after the first launch are damaged")
        if len(set(self._names)) < len(self._names):
            self._is_named = False
            self.problems.append("two of its blocks name a metric, as in two reports in one file")
        if has_id_without_name(self._sequences, len(self._names)) and not self.problems:
            self.problems.append("a metric has no name")
        if self._odd and not is_newer_ncu(self._version):
            self.problems.append(f"{self._name_writer()} does not write {self._odd}")

    def _name_writer(self) -> str:
        return f"ncu {self._version}" if self._version else "ncu"

    def _list_notes(self) -> Iterator[str]:
        """Yield what is to be said of a report in which nothing is damaged."""
        if self._version is None:
            yield NO_SESSION  # whole to the last frame, and no launch lacks anything
        elif not self._version:
            yield NO_WRITER
        if self._odd:
            yield f"it contains what ncu up to {NEWEST_KNOWN} does not write: {self._odd}"
        lacking = self._find_incomplete_launch()
        if lacking:
            launch, names = lacking
            more = ""
            if len(names) > 1:
                more = f" (and {len(names) - 1} more)"
            yield f"launch {launch} has no {names[0]}{more}, which the report names"

    def _find_incomplete_launch(self) -> tuple[LaunchIndex, list[NcuMetricName]] | None:
        """Return the first launch without a metric that the report names and profkit reads.

        It may not have been measured there, or its number in the table of names is damaged.
        """
        read = []
        for number, name in enumerate(self._names):
            if name in _READ:
                read.append((encode_varint(number), name))
        for ids, launch in self._sequences.items():
            has = set(ids)
            names = [name.decode() for id_, name in read if id_ not in has]
            if names:
                return launch, names
        return None


_READ = {name.encode() for name in RAW_NAMES.union(INSTANCED, IDENTITY)}
_KINDS = {kind.counter: kind for kind in wire.KINDS}
NEWEST_KNOWN = ".".join(map(str, wire.NEWEST))


def is_newer_ncu(version: str | None) -> bool:
    """Return whether ncu is newer than the newest version whose files are known."""
    numbers = [int(part) for part in re.findall(r"\d+", version or "")[:2]]
    return tuple(numbers) > wire.NEWEST
