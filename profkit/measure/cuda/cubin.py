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

_EM_CUDA = 190
_NOBITS = 8
# Machine code, and constant banks that hold data; bank 0 holds launch parameters, filled at run
# time. Anything else (symbols, line tables, notes) does not reach the instruction stream.
_CODE = (".text.", ".nv.constant1", ".nv.constant2", ".nv.constant3")


def sass_hash(library: Path) -> str | None:
    """sha256 over the machine code of every kernel; None if no readable cubin is inside."""
    data = library.read_bytes()
    sections = chain.from_iterable(_sections(data[start:]) for start in _images(data))
    parts = sorted(hashlib.sha256(kind.encode() + code).digest() for kind, code in sections)
    return hashlib.sha256(b"".join(parts)).hexdigest() if parts else None


def host_hash(object_file: Path) -> str | None:
    """sha256 over the machine code of an object file's host functions; None if it is no ELF file."""
    try:
        data = object_file.read_bytes()
    except OSError:
        return None
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    parts = (hashlib.sha256(code).digest() for _, code in _sections(data, (".text",)))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _images(data: bytes) -> Iterator[int]:
    """Offsets of the CUDA ELF images."""
    at = data.find(b"\x7fELF\x02\x01", 1)
    while at >= 0:
        if data[at + 18 : at + 20] == struct.pack("<H", _EM_CUDA):
            yield at
        at = data.find(b"\x7fELF\x02\x01", at + 1)


def _sections(image: bytes, kinds: tuple[str, ...] = _CODE) -> Iterator[tuple[str, bytes]]:
    """(kind, content) of the sections that hold code or constants."""
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names_index = struct.unpack_from("<HHH", image, 58)
    rows = [struct.unpack_from("<IIQQQQII", image, table + size * i) for i in range(count)]
    names = rows[names_index][4]
    for name, kind, _flags, _addr, offset, length, *_ in rows:
        label = image[names + name : image.index(b"\0", names + name)].decode("latin-1")
        for prefix in kinds:
            if label.startswith(prefix) and kind != _NOBITS:
                yield prefix, image[offset : offset + length]
