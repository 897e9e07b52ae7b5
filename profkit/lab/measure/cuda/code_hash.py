"""A library and an object file that nvcc made  ->  hashes of what their code does.

Two builds with one `sass_hash` run the same instructions on the GPU, whatever their file names,
flags, comments and line tables say: comparing them measures noise. It is read from the ELF images
inside the fat binary, which nvcc stores as they are with --no-compress.

`host_hash` is of the launcher's instructions, the constants that it reads, and which of these each
place reads: a launcher that hands its kernel another number is another program, although its kernels
are the same to the byte. Names of files, of folders and of the compiler's own making do not count,
nor does the machine code for the GPU: one text gives one hash, wherever it is built.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.reports.cubin import (
    ELF,
    NOBITS,
    ElfSection,
    read_elf_sections,
    read_zero_terminated_text,
)

if TYPE_CHECKING:
    from profkit.units import ByteOffset, Sha256


SYMBOLS = 2
RELOCATIONS = 4
SECTION_SYMBOL = 3
ALLOCATED, MERGED, STRINGS = 0x2, 0x10, 0x20  # flags of a section
_RESERVED = 0xFF00  # section numbers from here on are no sections


@dataclass(frozen=True)
class ElfSymbol:
    """One symbol; section is None for one that another file defines, value its place in bytes."""

    name: str
    kind: int
    section: int | None
    value: int


def _read_symbols(sections: list[ElfSection]) -> list[ElfSymbol]:
    table = next((s for s in sections if s.kind == SYMBOLS), None)
    if table is None:
        return []
    names = next(s.content for s in sections if s.name == ".strtab")
    symbols = []
    for name, info, _other, at, value, _size in struct.iter_unpack("<IBBHQQ", table.content):
        section = None
        if 0 < at < _RESERVED:
            section = at
        symbols.append(
            ElfSymbol(read_zero_terminated_text(names, name), info & 0xF, section, value)
        )
    return symbols


_EM_CUDA = struct.pack("<H", 190)  # the machine of an image for the GPU
# Machine code, and constant banks that hold data; bank 0 holds launch parameters, filled at run
# time. Anything else (symbols, line tables, notes) does not reach the instruction stream.
_CODE = (".text.", ".nv.constant1", ".nv.constant2", ".nv.constant3")


def hash_all_machine_code(library_file: Path) -> Sha256 | None:
    """Return sha256 over the machine code of every kernel; None if no readable cubin is inside."""
    data = library_file.read_bytes()
    parts = []
    for found in re.finditer(re.escape(ELF), data):
        at = found.start()
        if at and data[at + 18 : at + 20] == _EM_CUDA:
            for kind, code in _iterate_code_sections(data[at:]):
                parts.append(hashlib.sha256(kind.encode() + code).digest())
    if parts:
        return hashlib.sha256(b"".join(sorted(parts))).hexdigest()
    return None


def _iterate_code_sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (kind, content) of the sections that hold code or constants."""
    for section in read_elf_sections(image):
        for prefix in _CODE:
            if section.name.startswith(prefix) and section.kind != NOBITS:
                yield prefix, section.content


# Code for the GPU, which nvcc and player.c put here; line tables in it name folders.
_GPU_CODE = (".nv_fatbin", ".nvFatBinSegment", ".profkit_images")
_DATA = (1, 8, 14, 15)  # bytes of the program, zeros, functions to call first and last
_UNWINDING = ".eh_frame"  # follows from the instructions
# __FILE__, also within "<file>:<line>": the folder is dropped.
_FOLDER = re.compile(rb"/(?:[^/\n]*/)*(?=[^/\s]+\.(?:cuh?|hh?|hpp|cc?|cpp|inl|inc)\b)")
# What nvcc calls things that only this file sees: a hash of the path, the length of the file's name,
# that name and one hash more.
_OF_FILE = re.compile(
    rb"(?:\d*_GLOBAL__N_|\d*_INTERNAL|\d*__nv_static_\d+_)?_[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}"
)


def hash_host_code(object_file: Path) -> Sha256 | None:
    """Return sha256 over host code and its constants; None if it is no ELF file, or a broken one."""
    try:
        data = object_file.read_bytes()
        if not data.startswith(ELF):
            return None
        parts = _list_hashed_parts(read_elf_sections(data))
        return hashlib.sha256(repr(parts).encode()).hexdigest()
    except (OSError, struct.error, ValueError, IndexError, OverflowError, StopIteration):
        return None


def _list_hashed_parts(sections: list[ElfSection]) -> list[tuple[object, ...]]:
    """Return what counts, section by section; literals count where they are read."""
    symbols = _read_symbols(sections)
    relocations: dict[int, bytes] = {}  # index of the section that they are for -> them
    numbers: dict[int, int] = {}  # index of a section that counts -> its number among those
    for index, section in enumerate(sections):
        if section.kind == RELOCATIONS:
            relocations[section.info] = section.content
        if _is_hashed_data(section):
            numbers[index] = len(numbers)
    parts: list[tuple[object, ...]] = []
    for at in numbers:
        parts.append(("section", sections[at].size, sections[at].content))
        for offset, info, addend in struct.iter_unpack("<QQq", relocations.get(at, b"")):
            target = _describe_relocation_target(symbols[info >> 32], addend, sections, numbers)
            parts.append((offset, info & 0xFFFFFFFF, *target))
    return parts


def _describe_relocation_target(
    symbol: ElfSymbol,
    addend: int,
    sections: list[ElfSection],
    number_by_symbol_index: dict[int, int],
) -> tuple[object, ...]:
    """Return what a place refers to, without names that a folder decides.

    `number_by_symbol_index`: index of a section that counts -> its number among those.
    """
    if symbol.section is None:
        return "name", _OF_FILE.sub(b"", symbol.name.encode()), addend
    section = sections[symbol.section]
    if section.flags & MERGED:
        if symbol.kind == SECTION_SYMBOL:  # then the addend says which literal
            return "literal", _read_literal_without_paths(section, symbol.value + addend), 0
        return "literal", _read_literal_without_paths(section, symbol.value), addend
    # Not where in the GPU's code: that moves with the length of the paths in it.
    if symbol.section not in number_by_symbol_index:
        return "other", section.name
    return "place", number_by_symbol_index[symbol.section], symbol.value, addend


def _is_hashed_data(section: ElfSection) -> bool:
    is_of_program = section.flags & ALLOCATED and section.kind in _DATA
    if not is_of_program or section.flags & MERGED:
        return False
    return section.name not in (*_GPU_CODE, _UNWINDING)


def _read_literal_without_paths(section: ElfSection, start: ByteOffset) -> bytes:
    """Return a number, or a string up to its end, without the folders in it."""
    width = max(1, section.entry)
    if not section.flags & STRINGS:
        return section.content[start : start + width]
    end = start
    while any(section.content[end : end + width]):
        end += width
    return _FOLDER.sub(b"", _OF_FILE.sub(b"", section.content[start:end]))
