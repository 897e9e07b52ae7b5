"""What was named  ->  its recordings: files, a folder or a zip of one a rank, or standard input.

What comes out of a zip or of standard input is kept in a temporary folder while it is read, and is
called by its own name in what is said.
"""

from __future__ import annotations

import sys
import zipfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.files import (
    is_file,
    is_folder,
    list_folder_entries,
    make_temporary_folder,
    open_new_log,
    open_regular_file,
)
from profkit.program.readers import list_suffixes, read_timeline, store
from profkit.program.timeline import Activity, Process, Timeline

if TYPE_CHECKING:
    from profkit.units import ByteCount


STANDARD_INPUT = Path("-")
FILES_MOST = 1024  # of a folder or a zip
BYTES_MOST = 8 << 30  # out of a zip, or of standard input
RATIO_MOST = 400  # bytes of a packed one: traces reach 30, a bomb 1,000
PACKED_AGAIN = 2  # the same of one that was packed before
_CHUNK = 1 << 20
# Clocks count nanoseconds, and no two processes keep the same ones: of a copy all times are alike, of
# another rank none. So many activities of a process are looked at, and more than so much of them must
# be alike.
SAMPLES = 1000
SAME = 0.5


@dataclass(frozen=True)
class _NamedRecording:
    """A file to read, and what it is called."""

    path: Path
    name: str
    gathered: bool = False  # whether it was found in a folder or zip, and may be something else


def read_recordings(paths: Sequence[Path]) -> list[Timeline]:
    """Read each recording that some paths name.

    Raises:
        ProfkitError: One cannot be read, or several are of one process.
    """
    with ExitStack() as stack:
        sources: list[_NamedRecording] = []
        for path in paths:
            sources += _list_recordings_of_path(path, stack)
        return _read_named_recordings(sources, paths)


def _list_recordings_of_path(path: Path, stack: ExitStack) -> list[_NamedRecording]:
    """Return the recordings that one path names."""
    if path == STANDARD_INPUT:
        folder = stack.enter_context(make_temporary_folder())
        return [_read_standard_input(folder / "input")]
    if is_folder(path) and not is_file(path / store.HEAD):
        return _list_recordings_in_folder(path)
    if _is_zip(path):
        folder = stack.enter_context(make_temporary_folder())
        return list(_unpack_recordings_of_zip(path, folder))
    return [_NamedRecording(path, str(path))]


def _read_standard_input(into: Path) -> _NamedRecording:
    with open_new_log(into) as file:
        if not _copy_with_limit(sys.stdin.buffer, file, BYTES_MOST, "standard input"):
            raise ProfkitError(
                "-: nothing came from standard input", "profkit triage - < trace.json.gz"
            )
    return _NamedRecording(into, "standard input")


def _list_recordings_in_folder(folder: Path) -> list[_NamedRecording]:
    """Return recordings in a folder, or else in the folders in it."""
    suffixes = list_suffixes()
    inside = list_folder_entries(folder)
    below = []
    for path in inside:
        if is_folder(path):
            below.append(list_folder_entries(path))
    for paths in (inside, list(chain.from_iterable(below))):
        files = []
        for path in paths:
            if path.name.endswith(suffixes) and is_file(path):
                files.append(path)
        if len(files) > FILES_MOST:
            raise ProfkitError(f"{folder}: contains more than {FILES_MOST:,} files", "name them")
        if files:
            return [_NamedRecording(path, str(path), gathered=True) for path in files]
    raise ProfkitError(
        f"{folder}: contains no {store.HEAD} and no traces ({', '.join(suffixes)})",
        "name a .triage folder or a trace",
    )


def _is_zip(path: Path) -> bool:
    try:
        with open_regular_file(path) as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False  # its reader says what is wrong


def _unpack_recordings_of_zip(path: Path, folder: Path) -> Iterator[_NamedRecording]:
    """Yield recordings in a zip, unpacked within bounds."""
    suffixes = list_suffixes()
    try:
        with open_regular_file(path) as raw, zipfile.ZipFile(raw) as packed:
            members = []
            for m in packed.infolist():
                if m.filename.endswith(suffixes):
                    members.append(m)
            if not members:
                raise ProfkitError(
                    f"{path}: contains no traces ({', '.join(suffixes)})", "name a trace"
                )
            if len(members) > FILES_MOST:
                raise ProfkitError(f"{path}: contains more than {FILES_MOST:,} files", "name them")
            left = BYTES_MOST
            for number, member in enumerate(members):
                most = min(left, (1 << 24) + RATIO_MOST * member.compress_size)
                if member.filename.endswith(".gz"):  # a zip makes it no smaller, and a bomb much
                    most = min(left, (1 << 20) + PACKED_AGAIN * member.compress_size)
                name = f"{path}/{member.filename}"
                into = folder / f"{number}"
                with packed.open(member) as source, open_new_log(into) as file:
                    left -= _copy_with_limit(source, file, most, name)
                yield _NamedRecording(into, name, gathered=True)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError) as error:
        raise ProfkitError(
            f"{path}: cannot be read as a zip file: {error}", "unpack it, and name the traces in it"
        ) from error


def _copy_with_limit(
    source: IO[bytes], file: IO[bytes], most_bytes: ByteCount, name: str
) -> ByteCount:
    """Copy what is there, in bounds; return how many bytes."""
    copied = 0
    while chunk := source.read(_CHUNK):
        copied += len(chunk)
        if copied > most_bytes:
            raise ProfkitError(
                f"{name}: unpacks to more than {most_bytes / 1e9:.1f} GB", "unpack it"
            )
        file.write(chunk)
    return copied


def _read_named_recordings(
    sources: Sequence[_NamedRecording], named: Sequence[Path]
) -> list[Timeline]:
    """Read recordings; of those that were found in a folder, what is none is left out and said."""
    timelines: list[Timeline] = []
    problems: list[ProfkitError] = []
    read: list[_NamedRecording] = []
    for source in sources:
        try:
            timeline = read_timeline(source.path)
        except ProfkitError as error:
            problem = ProfkitError(
                _replace_path_by_source_name(error.message, source),
                _replace_path_by_source_name(error.hint, source),
            )
            if not source.gathered:
                raise problem from error
            problems.append(problem)
            continue
        notes = tuple(_replace_path_by_source_name(note, source) for note in timeline.notes)
        timelines.append(replace(timeline, notes=notes))
        read.append(source)
    if not timelines:
        raise problems[0]
    timelines, read = _drop_copies_of_recordings(timelines, read)
    _refuse_same_process(timelines, read, named)
    if problems:
        said = f"{len(problems)} files were left out; the first, {problems[0].message}"
        timelines[0] = replace(timelines[0], notes=(said, *timelines[0].notes))
    return timelines


def _replace_path_by_source_name(text: str, source: _NamedRecording) -> str:
    return text.replace(str(source.path), source.name)


def _drop_copies_of_recordings(
    timelines: Sequence[Timeline], sources: Sequence[_NamedRecording]
) -> tuple[list[Timeline], list[_NamedRecording]]:
    """Return recordings, each once: a copy of a file is no second rank. What was left out is said."""
    kept: list[Timeline] = []
    kept_sources: list[_NamedRecording] = []
    said: list[str] = []
    for timeline, source in zip(timelines, sources, strict=True):
        same = (at for at, other in enumerate(kept) if _is_same_recording(timeline, other))
        at = next(same, None)
        if at is None:
            kept.append(timeline)
            kept_sources.append(source)
            continue
        said.append(
            f"{source.name} is the same recording as {kept_sources[at].name} (the same kernels at "
            "the same times), and no other rank: it is read once"
        )
        if _count_activities(timeline) > _count_activities(kept[at]):  # the first one is cut
            kept[at] = timeline
            kept_sources[at] = source
    if said:
        kept[0] = replace(kept[0], notes=(*said, *kept[0].notes))
    return kept, kept_sources


def _count_activities(timeline: Timeline) -> int:
    return sum(len(process.activities) for process in timeline.processes)


def _is_same_recording(first: Timeline, second: Timeline) -> bool:
    """Return whether two recordings have the same processes and activities at the same times."""
    if len(first.processes) != len(second.processes):
        return False
    pairs = zip(first.processes, second.processes, strict=True)
    return all(_is_same_process(one, other) for one, other in pairs)


def _is_same_process(first: Process, second: Process) -> bool:
    """Return whether two processes are one; a file that was cut may hold less of it."""
    if (first.rank, first.pid) != (second.rank, second.pid):
        return False
    shorter, longer = sorted((first.activities, second.activities), key=len)
    if not shorter:
        return False
    samples = shorter[:: max(1, len(shorter) // SAMPLES)]
    found = sum(_has_activity(longer, sample) for sample in samples)
    return found > SAME * len(samples)


def _has_activity(activities: Sequence[Activity], wanted: Activity) -> bool:
    """Return whether activities, in order of start, hold one of a name, place and time."""
    at = bisect_left(activities, wanted.start, key=lambda activity: activity.start)
    while at < len(activities) and activities[at].start == wanted.start:
        found = activities[at]
        if (found.name, found.end, found.stream) == (wanted.name, wanted.end, wanted.stream):
            return True
        at += 1
    return False


def _refuse_same_process(
    timelines: Sequence[Timeline], sources: Sequence[_NamedRecording], named: Sequence[Path]
) -> None:
    """Raise a ProfkitError where a folder holds one process several times: those are no ranks."""
    seen: dict[tuple[int, int], _NamedRecording] = {}
    for timeline, source in zip(timelines, sources, strict=True):
        if not source.gathered:
            continue
        for process in timeline.processes:
            key = process.rank, process.pid
            if key in seen:
                raise ProfkitError(
                    f"{named[0]}: contains several recordings of one process instead of one per rank: "
                    f"{seen[key].name}, {source.name}",
                    "name the one to judge",
                )
            seen[key] = source
