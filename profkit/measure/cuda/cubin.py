"""A shared library with CUDA code  ->  a hash of its machine code alone.

Two builds with one hash run the same instructions, whatever their file names, flags, comments and
line tables say: comparing them measures noise. Read from the ELF images inside the fat binary,
which nvcc stores as they are with --no-compress.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from profkit.measure.cuda.elf import MAGIC, NOBITS, elf_sections

_EM_CUDA = 190
# Machine code, and constant banks that hold data; bank 0 holds launch parameters, filled at run
# time. Anything else (symbols, line tables, notes) does not reach the instruction stream.
_CODE = (".text.", ".nv.constant1", ".nv.constant2", ".nv.constant3")


def sass_hash(library: Path) -> str | None:
    """sha256 over the machine code of every kernel; None if no readable cubin is inside."""
    data = library.read_bytes()
    sections = chain.from_iterable(_code(data[start:]) for start in _images(data))
    parts = sorted(hashlib.sha256(kind.encode() + code).digest() for kind, code in sections)
    return hashlib.sha256(b"".join(parts)).hexdigest() if parts else None


def _images(data: bytes) -> Iterator[int]:
    """Offsets of the CUDA ELF images."""
    at = data.find(MAGIC, 1)
    while at >= 0:
        if data[at + 18 : at + 20] == struct.pack("<H", _EM_CUDA):
            yield at
        at = data.find(MAGIC, at + 1)


def _code(image: bytes) -> Iterator[tuple[str, bytes]]:
    """(kind, content) of the sections that hold code or constants."""
    for section in elf_sections(image):
        for prefix in _CODE:
            if section.name.startswith(prefix) and section.kind != NOBITS:
                yield prefix, section.content
