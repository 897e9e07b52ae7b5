"""A recording of any kind  ->  a Timeline, by what the file is and not by what it is called."""

from __future__ import annotations

import zlib
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import is_file, is_folder, open_regular
from profkit.program.readers.others import explain_known_kind
from profkit.program.timeline import Timeline

HEAD_BYTES = 4096  # of a file, that tell what it is


def read_timeline(path: Path) -> Timeline:
    """Read a torch trace, an export of Nsight Systems, or a folder that profkit triage has kept.

    Raises:
        ProfkitError: It is none of them, or nothing in it can be judged.
    """
    from profkit.program.readers import nsys, store, torch_trace

    if is_folder(path):
        if not is_file(path / store.HEAD):
            raise ProfkitError(
                f"{path}: contains no {store.HEAD}", "name a .triage folder or a trace"
            )
        return store.read_saved_timeline(path)
    try:
        with open_regular(path) as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise ProfkitError(
            f"{path}: no such file", "for a command: profkit triage -- COMMAND"
        ) from error
    except OSError as error:
        raise ProfkitError(f"{path}: {error.strerror or error}") from error
    if not head:
        raise ProfkitError(f"{path}: is empty", "copy it again, or record again")
    if head.startswith(b"SQLite format 3"):
        return nsys.read_nsys(path)
    if other := explain_known_kind(path, head=_unpack_gzip(head)):
        raise other
    return torch_trace.read_torch_trace(path)


def _unpack_gzip(head: bytes) -> bytes:
    """Return the beginning of a file without gzip round it."""
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:
        return head
