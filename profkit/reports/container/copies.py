"""The frames of a report that are whole  ->  another report that the library reads, or many small ones.

Every frame gets a block of its own, behind the names and sessions of all blocks before it: a launch
says the names of its metrics by their number in the one table that all blocks make together.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import inf
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
    """What is copied on a walk: some launches a file, with the sources of these.

    With `folder`, files in it of about `most` bytes of launches: of all, or of those that are wanted.
    Without `code`, none of the sources, which are machine code.
    """

    def __init__(
        self,
        folder: Path | None = None,
        most: float = inf,
        wanted: Collection[int] | None = None,
        *,
        code: bool = True,
    ) -> None:
        self._folder, self._most, self._wanted, self._code = folder, most, wanted, code
        self._head = bytearray()  # what every file begins with
        self._sources: dict[_Source, dict[bytes, bytes]] = {}  # -> digest -> block and frame
        self._used: set[_Source] = set()
        self._seen = self._made = 0
        self._indices: list[int] = []
        self._launches: list[bytes] = []
        self._size = 0
        self._ready: list[tuple[Path, tuple[int, ...]]] = []

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
                self._take(index, block + _sized(frame), (process, _used(frame)))

    def _take(self, index: int, launch: bytes, source: _Source) -> None:
        if self._launches and self._size + len(launch) > self._most:
            self._close()
        self._used.add(source)
        self._indices.append(index)
        self._launches.append(launch)
        self._size += len(launch)

    def write(self, path: str | Path) -> None:
        """Write the launches since the last file into one that the library can read."""
        with open(path, "wb") as out:
            out.write(self._head)
            for source, blocks in self._sources.items():
                if source in self._used or (source[0], None) in self._used:
                    out.writelines(blocks.values())
            out.writelines(self._launches)

    def _close(self) -> None:
        path = (self._folder or Path()) / f"{self._made}.ncu-rep"
        self.write(path)
        self._ready.append((path, tuple(self._indices)))
        self._made += 1
        self._indices, self._launches, self._size = [], [], 0
        self._used = set()

    def taken(self, *, last: bool = False) -> Iterator[tuple[Path, tuple[int, ...]]]:
        """Yield the files made since the last call, each with the indices of its launches."""
        if last and self._launches:
            self._close()
        ready, self._ready = self._ready, []
        yield from ready


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
