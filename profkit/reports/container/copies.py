"""The frames of a report that are whole  ->  another report that the library reads, or many small ones.

Every frame gets a block of its own, behind the names and sessions of all blocks before it: a launch
says the names of its metrics by their number in the one table that all blocks make together.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from profkit.reports.container.contents import block_of_one
from profkit.reports.container.wire import BYTES, KINDS, RESULT_SOURCE, SOURCES, Malformed, fields

MAGIC = b"NVR\0"
ZSTD = b"\x28\xb5\x2f\xfd"
_LAUNCHES = {kind.counter for kind in KINDS}
_ID = 1  # field of a source, and of what a launch says of its own
_Source = tuple[bytes, int | None]  # the process and the id, which two processes may both use


@contextmanager
def unpacked(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the bytes of an open report, decompressed where it is compressed.

    Raises:
        Malformed: What is compressed is damaged, as far on as it was read.
    """
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
        """Take the file's header."""
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
