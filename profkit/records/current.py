"""What a variant's header says today, for runs whose code is still the one that was measured.

A record keeps what the header said when it was made. Prose and predictions are mended after the
counters have spoken, and then what the file says counts; with other code, the run is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from profkit.records.header import Header
from profkit.records.record import Record


@dataclass(frozen=True)
class SourceFile:
    """One variant's file as it is today."""

    header: Header  # what its header says
    sha256: str  # hash of the code under it, as in the record
    file: str = ""  # problem/name.cu


def apply(record: Record, files: Mapping[str, SourceFile]) -> tuple[Record, bool]:
    """The record with what its file (of problem/variant) says today, and whether it is stale."""
    today = files.get(f"{record.problem}/{record.variant}")
    if today is None or record.source_hash is None:
        return record, False
    if record.stale(today.sha256):
        return record, True
    return replace(record, header=today.header), False
