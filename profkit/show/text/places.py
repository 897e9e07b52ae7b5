"""Source lines of a finding  ->  text: which they are, what part of the cause, what waits for what."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename

from profkit.diagnosis.launches import LINES
from profkit.diagnosis.rule import Finding, SourceShare, share


def at(line: SourceShare) -> str:
    """A line and its part: "stage.cu:41 (63 %, for LDG at stage.cu:38)"."""
    source = line.waits_for
    where = f"{basename(line.file)}:{line.line}"
    if source is None:
        return f"{where} ({share(line.share)})"
    if (source.file, source.line) == (line.file, line.line):
        return f"{where} ({share(line.share)}, for {source.opcode})"
    return f"{where} ({share(line.share)}, for {source.opcode} at {basename(source.file)}:{source.line})"


def places_text(finding: Finding) -> str:
    """The first few lines where a finding happens, in one line."""
    return ", ".join(at(line) for line in finding.where[:LINES])


def listed(finding: Finding) -> Iterator[tuple[str, str]]:
    """Every line of a finding: where it is and its part, and its text ("" when not known)."""
    for line in finding.where:
        yield at(line), line.source or ""
