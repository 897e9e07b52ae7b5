"""An object file that nvcc made  ->  a hash of what its host code does.

The launcher's instructions, the constants that it reads, and which of these each place reads: a
launcher that hands its kernel another number is another program, although its kernels are the same
to the byte. Names of files, of folders and of the compiler's own making do not count, nor does the
machine code for the GPU (cubin.sass_hash): one text gives one hash, wherever it is built.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from profkit.measure.cuda import elf
from profkit.measure.cuda.elf import ElfSection, ElfSymbol

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


def host_hash(object_file: Path) -> str | None:
    """sha256 over host code and its constants; None if it is no ELF file, or a broken one."""
    try:
        data = object_file.read_bytes()
        if not data.startswith(elf.MAGIC):
            return None
        parts = _HostCode(elf.elf_sections(data)).parts()
        return hashlib.sha256(repr(list(parts)).encode()).hexdigest()
    except (OSError, struct.error, ValueError, IndexError, OverflowError, StopIteration):
        return None


@dataclass(frozen=True)
class _HostCode:
    """The sections of an object file."""

    sections: list[ElfSection]

    def parts(self) -> Iterator[tuple[object, ...]]:
        """What counts, section by section."""
        relocations = {s.info: s for s in self.sections if s.kind == elf.RELOCATIONS}
        for at in self._numbers:
            section = self.sections[at]
            yield "section", section.size, section.content
            if at in relocations:
                for offset, kind, symbol, addend in elf.elf_relocations(relocations[at]):
                    yield offset, kind, *self._target(self._symbols[symbol], addend)

    @cached_property
    def _symbols(self) -> list[ElfSymbol]:
        return elf.elf_symbols(self.sections)

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """Section -> its number among those that count; literals count where they are read."""
        counting = [i for i, section in enumerate(self.sections) if _counts(section)]
        return {at: number for number, at in enumerate(counting)}

    def _target(self, symbol: ElfSymbol, addend: int) -> tuple[object, ...]:
        """What a place refers to, without names that a folder decides."""
        if symbol.section is None:
            return "name", _OF_FILE.sub(b"", symbol.name.encode()), addend
        section = self.sections[symbol.section]
        if section.flags & elf.MERGED:
            whole = symbol.kind == elf.SECTION_SYMBOL  # then the addend says which literal
            start, rest = (symbol.value + addend, 0) if whole else (symbol.value, addend)
            return "literal", _literal(section, start), rest
        # Not where in the GPU's code: that moves with the length of the paths in it.
        if symbol.section not in self._numbers:
            return "other", section.name
        return "place", self._numbers[symbol.section], symbol.value, addend


def _counts(section: ElfSection) -> bool:
    of_program = section.flags & elf.ALLOCATED and section.kind in _DATA
    left_out = section.flags & elf.MERGED or section.name in (*_GPU_CODE, _UNWINDING)
    return bool(of_program and not left_out)


def _literal(section: ElfSection, start: int) -> bytes:
    """A number, or a string up to its end, without the folders in it."""
    width = max(1, section.entry)
    if not section.flags & elf.STRINGS:
        return section.content[start : start + width]
    end = start
    while any(section.content[end : end + width]):
        end += width
    return _FOLDER.sub(b"", _OF_FILE.sub(b"", section.content[start:end]))
