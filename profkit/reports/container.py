"""A report's bytes  ->  whether it is whole, what it should hold, and who wrote it.

A .ncu-rep is `NVR\0` and then frames, each a little-endian u32 length and a protobuf message: a file
header; then, again and again, a block header and the sources and results that it announces. A
.ncu-repz is a zstd stream of the same. Nothing in it is a checksum. What the check can see: a file
that ends early; frames, counts and messages that do not fit together, down to every metric; names
that are not text. What it cannot see: an overwrite that hits nothing but the inside of a value
(eight bytes of a double), of a name that stays one, or of a machine code section; and a file cut
exactly between two launches. The sha256 in the run record beside a report sees those too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from profkit.reports.contents import KINDS, Content, Header, header, nameless, result, source
from profkit.reports.wire import Malformed, Message, verify

Status = Literal["ok", "empty", "damaged", "unreadable"]
MAGIC = b"NVR\0"
LIMIT = 4 << 30  # bytes that a compressed report may become: the largest seen is 1/50 of it
# The newest ncu whose messages are known: an unknown field in a report that is no newer is damage.
NEWEST = (2026, 3)
_SOURCES = 1
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Frames:
    """What the bytes say.

    Attributes:
        status: ok, empty (nothing in it), damaged (a part is lost) or unreadable (not a report).
        message: Why it is not ok; empty when it is.
        contents: What each launch that is whole should hold.
        lost: Launches announced of which a part is missing.
        ncu_version: Version of the Nsight Compute that wrote it, None when not found.
        sha256: Of the file as it is, None when it cannot be opened.
    """

    status: Status
    message: str
    contents: tuple[Content, ...] = ()
    lost: int = 0
    ncu_version: str | None = None
    sha256: str | None = None


def check(path: str | Path) -> Frames:
    """Walk every frame of a report.

    Args:
        path: A .ncu-rep or .ncu-repz, or anything else.

    Returns:
        What the bytes say; never raises for a file that is not a report.
    """
    try:
        with open(path, "rb") as file:
            walk = _Walk()
            start = file.read(4)
            if start == _ZSTD:
                file.seek(0)
                _walk_compressed(file, walk)
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256")
            else:
                digest = hashlib.sha256(start)
                _walk(start, file, walk, digest.update, os.fstat(file.fileno()).st_size)
    except OSError as error:
        return Frames("unreadable", (error.strerror or str(error)).lower())
    return replace(walk.verdict(), sha256=digest.hexdigest())


def _walk_compressed(file: IO[bytes], walk: _Walk) -> None:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream:
            _walk(stream.read(4), stream, walk, lambda _: None, LIMIT)
    except zstandard.ZstdError:
        walk.problems.append("what is compressed in it is damaged")


def _walk(
    start: bytes, file: IO[bytes], walk: _Walk, update: Callable[[bytes], None], limit: int
) -> None:
    """Walk the frames behind the magic; `update` sees every byte that is read."""
    walk.start = start
    try:
        if start == MAGIC:
            for frame in _frames(file, limit, update):
                walk.step(frame)
            walk.end()
    except Malformed as error:  # from here on frames cannot be told apart
        walk.problems.append(str(error))
    while rest := file.read(1 << 20):
        update(rest)


def _frames(file: IO[bytes], limit: int, update: Callable[[bytes], None]) -> Iterator[bytes]:
    """The length-prefixed frames up to the end of the file."""
    at = len(MAGIC)
    while prefix := file.read(4):
        update(prefix)
        size = struct.unpack("<I", prefix)[0] if len(prefix) == 4 else 0
        at += 4 + size
        frame = file.read(size) if at <= limit else b""
        update(frame)
        if len(prefix) < 4 or len(frame) < size:
            raise Malformed(f"the file ends in the frame that should reach byte {at}")
        yield frame


class _Walk:
    """What was seen while walking the frames one by one."""

    def __init__(self) -> None:
        self.start = b""
        self.problems: list[str] = []
        self.newer: list[int] = []
        self._header = False
        self._contents: list[Content] = []
        self._lost = 0
        self._version: str | None = None
        self._names = 0
        self._sequences: set[tuple[bytes, ...]] = set()
        self._left: list[int] = []  # what this block still has to have, as fields of its header
        self._size = 0

    def step(self, frame: bytes) -> None:
        """Look at the next frame."""
        if not self._header:
            self._header = True
            verify(frame, 0, len(frame), Message({1: 0}, required={1}), self.newer)
            return
        if not self._left:
            self._begin(header(frame, self.newer))
            return
        field = self._left.pop()
        self._size -= 4 + len(frame)
        if self._size < 0 or (self._size and not self._left):
            raise Malformed("a block is not as long as its header says")
        try:
            if field in _KINDS:
                self._lost += 1
                content = result(frame, _KINDS[field], self.newer, self._sequences)
                self._contents.append(content)
                self._lost -= 1
            elif field == _SOURCES:
                source(frame, self.newer)
        except Malformed as error:
            what = f"launch {self._seen() - 1}" if field in _KINDS else "a kernel's machine code"
            self.problems.append(f"{what} is damaged: {error}")

    def _seen(self) -> int:
        return len(self._contents) + self._lost

    def _begin(self, block: Header) -> None:
        order = [number for number, count in block.counts.items() for _ in range(count)]
        self._left, self._size = order[::-1], block.size
        self._names += len(block.names)
        self._version = self._version or block.version
        if self._size and not order:
            raise Malformed("a block is not as long as its header says")

    def end(self) -> None:
        """The file ends here."""
        if self._left:
            raise Malformed("the file ends before the last block does")

    def verdict(self) -> Frames:
        """What all frames together say."""
        if not self.start and not self.problems:
            return Frames("empty", "the file has 0 bytes")
        if not MAGIC.startswith(self.start):
            return Frames("unreadable", "not an Nsight Compute report")
        if self.start != MAGIC:
            self.problems.append("the file ends in its first 4 bytes")
        self._lost += sum(field in _KINDS for field in self._left)
        if self._seen() and not self._version:
            self.problems.append("the session details after the first launch are missing")
        if nameless(self._sequences, self._names):
            self.problems.append("a metric has no name")
        if self.newer and not _is_newer(self._version):
            self.problems.append(f"fields that ncu {self._version} does not write")
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            status, message = "damaged", self.problems[0] + more
        elif self._contents:
            status, message = "ok", ""
        else:
            status, message = "empty", "it holds no launch"
        return Frames(status, message, tuple(self._contents), self._lost, self._version)


_KINDS = {kind.counter: kind for kind in KINDS}


def _is_newer(version: str | None) -> bool:
    numbers = [int(part) for part in re.findall(r"\d+", version or "")[:2]]
    return tuple(numbers) > NEWEST


def record_beside(path: str | Path) -> dict[str, Any]:
    """The run record `<stem>.json` beside a report, empty when there is none that can be read."""
    try:
        record = json.loads(Path(path).with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def recorded_sha256(record: Mapping[str, Any]) -> str | None:
    """The report's sha256 as a run record says it, None when it says none."""
    report = record.get("report")
    value = report.get("sha256") if isinstance(report, dict) else record.get("report_sha256")
    return value if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else None
