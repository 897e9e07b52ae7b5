"""An ELF file of 64 bits, little-endian  ->  its sections, symbols and relocations."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"\x7fELF\x02\x01"
NOBITS, SYMBOLS, RELOCATIONS, SECTION_SYMBOL = 8, 2, 4, 3
ALLOCATED, MERGED, STRINGS = 0x2, 0x10, 0x20  # flags of a section
_RESERVED = 0xFF00  # section numbers from here on are no sections


@dataclass(frozen=True)
class ElfSection:
    """One section."""

    name: str  # of it: `.text`
    kind: int
    flags: int
    info: int  # the section that relocations are for
    entry: int  # bytes of one entry; 0 without any
    size: int  # in memory, bytes
    content: bytes  # in the file; empty for NOBITS


@dataclass(frozen=True)
class ElfSymbol:
    """One symbol; section is None for one that another file defines, value its place in bytes."""

    name: str
    kind: int
    section: int | None
    value: int


def elf_sections(image: bytes) -> list[ElfSection]:
    """The sections of an image, in order; bytes behind its end do not matter.

    Raises:
        struct.error, ValueError, IndexError, OverflowError: It ends before its tables.
    """
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names_index = struct.unpack_from("<HHH", image, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", image, table + size * i) for i in range(count)]
    names = rows[names_index][4]
    return [
        ElfSection(
            _text(image, names + name),
            kind,
            flags,
            info,
            entry,
            length,
            b"" if kind == NOBITS else image[offset : offset + length],
        )
        for name, kind, flags, _address, offset, length, _link, info, _align, entry in rows
    ]


def elf_symbols(sections: list[ElfSection]) -> list[ElfSymbol]:
    """The symbols of an object file; none without a table."""
    table = next((s for s in sections if s.kind == SYMBOLS), None)
    if table is None:
        return []
    names = next(s.content for s in sections if s.name == ".strtab")
    return [
        ElfSymbol(_text(names, name), info & 0xF, at if 0 < at < _RESERVED else None, value)
        for name, info, _other, at, value, _size in struct.iter_unpack("<IBBHQQ", table.content)
    ]


def elf_relocations(section: ElfSection) -> Iterator[tuple[int, int, int, int]]:
    """Offset, type, symbol number and addend of each entry of a section of RELOCATIONS."""
    for offset, info, addend in struct.iter_unpack("<QQq", section.content):
        yield offset, info & 0xFFFFFFFF, info >> 32, addend


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("latin-1")
