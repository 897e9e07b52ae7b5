"""A report's bytes  ->  the machine code of the functions in it.

The library under ncu_report gives machine code only as text, and takes half a second to make ready
for the first line. A report holds the cubins themselves: field 4 of a source frame is an ELF image,
field 9 the address that each of its functions had.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from profkit.reports.container.wire import BYTES, Malformed, fields

_MAGIC = b"NVR\0"
_ZSTD = b"\x28\xb5\x2f\xfd"
_LIMIT = 256 << 20  # bytes of a source that is looked into: the largest cubin seen is 14 MB
_HEAD = 4096  # of a frame, enough for its first field
_IMAGE, _PLACES, _NAME, _ADDRESS = 4, 9, 1, 2
_CODE = ".text."


@dataclass(frozen=True)
class Function:
    """A function in a report.

    Attributes:
        name: Mangled.
        start: Address of its first instruction, None where the report does not say it (before
            2023.2): then it is known by its name alone.
        code: Its machine code.
    """

    name: str
    start: int | None
    code: bytes


def functions(path: str | Path) -> list[Function]:
    """Every function with machine code in a report; as far as it can be read, never an error."""
    found: list[Function] = []
    for frame in _sources(path):
        try:
            found += _functions(frame)
        except (Malformed, struct.error, ValueError, IndexError):
            continue  # the frame check says that it is damaged
    return found


def of(functions: list[Function], name: str, start: int) -> bytes | None:
    """The machine code of one function; None when the report has none, or several unlike ones."""
    named = [f for f in functions if f.name == name]
    placed = [f.code for f in named if f.start == start]
    codes = set(placed or [f.code for f in named if f.start is None])
    return codes.pop() if len(codes) == 1 else None


def _sources(path: str | Path) -> Iterator[bytes]:
    """The frames that hold an image; others are only passed over."""
    try:
        with open(path, "rb") as file:
            compressed = file.read(4) == _ZSTD
            file.seek(0)
            if not compressed:
                yield from _images(file)
                return
            import zstandard

            reader = zstandard.ZstdDecompressor()
            with reader.stream_reader(file, read_across_frames=True, closefd=False) as plain:
                try:
                    yield from _images(plain)
                except zstandard.ZstdError:
                    return
    except OSError:
        return


def _images(file: IO[bytes]) -> Iterator[bytes]:
    if file.read(4) != _MAGIC:
        return
    while len(prefix := file.read(4)) == 4:
        (size,) = struct.unpack("<I", prefix)
        head = file.read(min(size, _HEAD))
        if b"\x7fELF" in head[:64] and size <= _LIMIT:
            yield head + file.read(size - len(head))
        elif file.seekable() and hasattr(file, "fileno"):
            file.seek(size - len(head), 1)
        else:
            left = size - len(head)
            while left > 0 and (piece := file.read(min(left, 1 << 20))):
                left -= len(piece)


def _functions(frame: bytes) -> Iterator[Function]:
    image, places = b"", {}
    for number, wire, start, stop in fields(frame, 0, len(frame)):
        if wire == BYTES and number == _IMAGE:
            image = frame[start:stop]
        elif wire == BYTES and number == _PLACES:
            places = dict(_places(frame, start, stop))
    if image[:6] != b"\x7fELF\x02\x01":
        return
    for name, code in _sections(image):
        yield Function(name, places.get(name), code)


def _places(frame: bytes, start: int, stop: int) -> Iterator[tuple[str, int]]:
    for _, wire, begin, end in fields(frame, start, stop):
        if wire != BYTES:
            continue
        about = {n: (w, a, b) for n, w, a, b in fields(frame, begin, end)}
        if _NAME in about and _ADDRESS in about and about[_NAME][0] == BYTES:
            _, a, b = about[_NAME]
            yield frame[a:b].decode("utf-8", "replace"), about[_ADDRESS][1]


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    """(function, machine code) of each code section of an ELF image."""
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names_index = struct.unpack_from("<HHH", image, 58)
    rows = [struct.unpack_from("<IIQQQQII", image, table + size * n) for n in range(count)]
    names = rows[names_index][4]
    for row in rows:
        at = names + row[0]
        label = image[at : image.index(b"\0", at)].decode("utf-8", "replace")
        if label.startswith(_CODE):
            yield label[len(_CODE) :], image[row[4] : row[4] + row[5]]
