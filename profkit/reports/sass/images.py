"""A report's bytes  ->  the machine code of the functions in it.

The library under ncu_report gives machine code only as text, and takes half a second to make ready
for the first line. A report holds the cubins themselves: field 4 of a source frame is an ELF image,
field 9 the address that each of its functions had.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from profkit.files import open_regular
from profkit.reports.container.copies import MAGIC, unpacked
from profkit.reports.container.wire import BYTES, Malformed, fields
from profkit.reports.sass.inlined import LineTable, line_tables

_LIMIT = 256 << 20  # bytes of a source that is looked into: the largest cubin seen is 14 MB
_HEAD = 4096  # of a frame, enough for its first field
_IMAGE, _PLACES, _NAME, _ADDRESS = 4, 9, 1, 2
_CODE = ".text."


@dataclass(frozen=True)
class Function:
    """A function in a report."""

    name: str  # mangled
    # Address of its first instruction; None where the report does not say it (before 2023.2): then it
    # is known by its name alone.
    start: int | None
    code: bytes
    cubin: Cubin = field(repr=False)  # the image it is in


def functions(path: str | Path) -> list[Function]:
    """Return the functions with machine code in a report, as far as it can be read; never an error."""
    known: list[Function] = []
    for frame in _sources(path):
        try:
            known += _functions(frame)
        except (Malformed, struct.error, ValueError, IndexError, OverflowError):
            continue  # the frame check says that it is damaged
    return known


def of(functions: list[Function], name: str, starts: Collection[int]) -> Function | None:
    """Return a kernel, with its start, by its mangled name and the addresses of all that it calls.

    None when the report has no code of it, or cannot tell which it ran.
    """
    named = [f for f in functions if f.name == name]
    placed = [f for f in named if f.start in starts]
    if len(starts) == 1 and not placed:  # no address in the report: this one must be it
        placed = [replace(f, start=next(iter(starts))) for f in named if f.start is None]
    return placed[0] if len({f.code for f in placed}) == 1 else None


def _sources(path: str | Path) -> Iterator[bytes]:
    """Yield the frames that hold an image; others are only passed over."""
    with suppress(OSError, Malformed), open_regular(path) as file, unpacked(file) as plain:
        if plain.read(4) != MAGIC:
            return
        while len(prefix := plain.read(4)) == 4:
            (size,) = struct.unpack("<I", prefix)
            head = plain.read(min(size, _HEAD))
            left = size - len(head)
            if b"\x7fELF" in head[:64] and size <= _LIMIT:
                yield head + plain.read(left)
            elif plain is file:
                file.seek(left, 1)
            else:
                while left > 0 and (piece := plain.read(min(left, 1 << 20))):
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
    cubin = Cubin(image)
    for label, number in cubin.labels.items():
        if label.startswith(_CODE):
            name = label[len(_CODE) :]
            yield Function(name, places.get(name), cubin.section(number), cubin)


def _places(frame: bytes, start: int, stop: int) -> Iterator[tuple[str, int]]:
    for _, wire, begin, end in fields(frame, start, stop):
        if wire != BYTES:
            continue
        values = {n: (w, a, b) for n, w, a, b in fields(frame, begin, end)}
        if _NAME in values and _ADDRESS in values and values[_NAME][0] == BYTES:
            _, a, b = values[_NAME]
            yield frame[a:b].decode("utf-8", "replace"), values[_ADDRESS][1]


class Cubin:
    """An ELF image of machine code: its sections by number, and its line tables on demand."""

    def __init__(self, image: bytes) -> None:
        """Of the whole image."""
        self._image = image
        (table,) = struct.unpack_from("<Q", image, 40)
        size, count, names = struct.unpack_from("<HHH", image, 58)
        self._rows = [
            struct.unpack_from("<IIQQQQII", image, table + size * n) for n in range(count)
        ]
        labels = self._rows[names][4]
        self.labels = {self._text(labels + row[0]): n for n, row in enumerate(self._rows)}

    def _text(self, at: int) -> str:
        return self._image[at : self._image.index(b"\0", at)].decode("utf-8", "replace")

    def section(self, number: int) -> bytes:
        """Return the bytes of a section."""
        row = self._rows[number]
        return self._image[row[4] : row[4] + row[5]]

    @cached_property
    def lines(self) -> dict[str, LineTable]:
        """Function -> its line table; empty when it was built without -lineinfo."""
        if ".debug_line" not in self.labels:
            return {}
        try:
            functions = dict(self._relocated())
        except (struct.error, ValueError, IndexError):
            return {}
        return line_tables(self.section(self.labels[".debug_line"]), functions)

    def _relocated(self) -> Iterator[tuple[int, str]]:
        """Yield offset in .debug_line of a function's address, and which function it is."""
        names = {n: label for label, n in self.labels.items()}
        symbols = self.section(self.labels[".symtab"])
        for kind, size in ((".rela.debug_line", 24), (".rel.debug_line", 16)):
            if kind not in self.labels:
                continue
            table = self.section(self.labels[kind])
            for at in range(0, len(table) - size + 1, size):
                offset, about = struct.unpack_from("<QQ", table, at)
                _, _, _, section = struct.unpack_from("<IBBH", symbols, 24 * (about >> 32))
                label = names.get(section, "")
                if label.startswith(_CODE):
                    yield offset, label[len(_CODE) :]
