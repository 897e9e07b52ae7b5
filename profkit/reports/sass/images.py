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
from pathlib import Path

from profkit.files import open_regular
from profkit.reports.container.container import frames_of
from profkit.reports.container.copies import MAGIC, unpacked
from profkit.reports.container.wire import BYTES, Malformed, fields
from profkit.reports.sass.cubin import ELF, Cubin

_LIMIT = 256 << 20  # bytes that are looked into: the largest cubin seen is 14 MB
_IMAGE, _PLACES, _NAME, _ADDRESS = 4, 9, 1, 2


@dataclass(frozen=True)
class Function:
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
    with suppress(OSError, Malformed), open_regular(path) as file, unpacked(file) as plain:
        if plain.read(len(MAGIC)) == MAGIC:
            yield from (x for x in frames_of(plain, _LIMIT) if ELF[:4] in x[:64])


def _functions(frame: bytes) -> Iterator[Function]:
    image, places = b"", {}
    for number, wire, start, stop in fields(frame, 0, len(frame)):
        if wire == BYTES and number == _IMAGE:
            image = frame[start:stop]
        elif wire == BYTES and number == _PLACES:
            places = dict(_places(frame, start, stop))
    if not image.startswith(ELF):
        return
    cubin = Cubin(image)
    for number, name in cubin.functions.items():
        yield Function(name, places.get(name), cubin.sections[number].content, cubin)


def _places(frame: bytes, start: int, stop: int) -> Iterator[tuple[str, int]]:
    for _, wire, begin, end in fields(frame, start, stop):
        if wire != BYTES:
            continue
        values = {n: (w, a, b) for n, w, a, b in fields(frame, begin, end)}
        if _NAME in values and _ADDRESS in values and values[_NAME][0] == BYTES:
            _, a, b = values[_NAME]
            yield frame[a:b].decode("utf-8", "replace"), values[_ADDRESS][1]
