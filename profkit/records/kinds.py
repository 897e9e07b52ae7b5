"""A file or folder of any kind  ->  what it is, and the command that reads it."""

from __future__ import annotations

import re
import shlex
import zlib
from pathlib import Path

from profkit.files import open_regular
from profkit.records.artifacts import MARK

_HEAD = 4096  # bytes that are looked at
_SYSTEMS = (".nsys-rep", ".qdrep")
# What it is, the verbs that read it, the command that does.
_KINDS = {
    "report": ("a report of Nsight Compute", "diagnose report roofline compare gate history",
               "profkit diagnose {}"),
    "trace": ("a trace of a whole program", "triage", "profkit triage {}"),
    "kept": ("what profkit triage keeps of a program", "triage report compare",
             "profkit triage {}"),
    "systems": ("a report of Nsight Systems, of which the export is read: profkit triage", "",
                "nsys export --type sqlite {}"),
    "grid": ("times by shape", "roofline", "profkit roofline {}"),
    "record": ("a run record", "compare gate history report", "profkit compare {} OTHER"),
    "program": ("a Python program", "claims", "profkit triage -- python {}"),
    "empty": ("empty (0 bytes)", "", "copy it again, or record it again"),
}  # fmt: skip
_TRACE = re.compile(rb'"(?:traceEvents|deviceProperties|ph)"\s*:')


def wrong_verb(path: str | Path, verb: str) -> tuple[str, str] | None:
    """What a file is and the command for it; None where the verb reads it, or nobody knows it."""
    kind = kind_of(path)
    if kind is None or verb in _KINDS[kind][1].split():
        return None
    what, _, command = _KINDS[kind]
    return what, command.format(shlex.quote(str(path)))


def kind_of(path: str | Path) -> str | None:
    """The kind of a file, by what is in it before what it is called; None where nobody knows it."""
    path = Path(path)
    if path.is_dir():
        return "kept" if (path / "triage.json").is_file() else None
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    text = _unpacked(head) if head.startswith(b"\x1f\x8b") else head
    is_json = text.lstrip()[:1] in (b"{", b"[")
    tests = {
        "empty": not head,
        "report": head.startswith(b"NVR"),
        "systems": path.suffix in _SYSTEMS,
        "grid": is_json and b'"profkit.grid/1"' in text,
        "record": is_json and MARK in text,
        "trace": head.startswith(b"SQLite format 3") or (is_json and bool(_TRACE.search(text))),
        "program": path.suffix == ".py",
    }
    return next((kind for kind, holds in tests.items() if holds), None)


def _unpacked(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD)
    except zlib.error:
        return b""
