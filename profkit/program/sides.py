"""Two sides of a comparison  ->  what became of each finding, where both are recordings of programs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import is_file, is_folder
from profkit.program.change import TriagesDocument, compare_triages
from profkit.program.document import TriageDocument, make_triage_document, read_triage_document
from profkit.program.recorded import judge_recordings
from profkit.records.paths import detect_file_kind, suggest_command_for_file


def compare_recordings(before: str, after: str) -> TriagesDocument | None:
    """Compare two recordings of programs; None where neither side is one.

    Raises:
        ProfkitError: Only one of them is, or a side is something that is not compared at all.
    """
    if is_recording_or_triage(before) and is_recording_or_triage(after):
        return compare_triages(read_or_judge_side(before), read_or_judge_side(after))
    for side, other in ((before, after), (after, before)):
        if is_recording_or_triage(side):
            hint = "compare two variants, two reports, two recordings or two folders"
            raise ProfkitError(f"{side}: is a recording of a program, {other} is not", hint)
        if wrong := suggest_command_for_file(side, "compare"):
            why = f"{side}: {wrong.meaning}, which compare does not read"
            raise ProfkitError(why, wrong.command)
    return None


def is_recording_or_triage(side: str | Path) -> bool:
    """Return whether it is a recording of a program, or what `triage -o` keeps of one."""
    with suppress(ProfkitError):
        return is_file(Path(side) / "triage.json") or detect_file_kind(side) == "trace"
    return False


def read_or_judge_side(side: str) -> TriageDocument:
    """Return the document of a recording: the one that was kept, or of what is judged now."""
    path = Path(side)
    if is_folder(path):
        return read_triage_document(path)
    answer, counts = judge_recordings([path])
    return make_triage_document(answer, counts)
