"""What a variant's header says today, for runs whose code is still the one that was measured.

A record keeps what the header said when it was made. Prose and promises are mended after the
counters have spoken, and then what the file says counts; with other code, the run is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from profkit.records.record import Record

_SAID = ("title", "after", "fixes", "fixes_not", "moves", "moves_not", "said_of")


@dataclass(frozen=True)
class Header:
    """The header of one file.

    Attributes:
        source: Hash of the code under it, as in the record.
        title: First line.
        text: Free text.
        after: The variant it changes.
        fixes: Rules that it clears.
        fixes_not: Rules that it provably does not clear.
        moves: What the counters will do, as written.
        moves_not: What they were to do and do not.
        said_of: The case that these speak of; None for every case.
        file: problem/name.cu.
    """

    source: str
    title: str
    text: str = ""
    after: str | None = None
    fixes: tuple[str, ...] = ()
    fixes_not: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    moves_not: tuple[str, ...] = ()
    said_of: str | None = None
    file: str = ""


def apply(record: Record, headers: Mapping[str, Header]) -> tuple[Record, bool]:
    """The record with what its file says today, and whether it is stale."""
    header = headers.get(f"{record.problem}/{record.variant}")
    if header is None or record.source is None:
        return record, False
    if header.source != record.source:
        return record, True
    return replace(record, **{k: getattr(header, k) for k in _SAID}), False
