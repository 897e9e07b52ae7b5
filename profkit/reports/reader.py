"""Reports  ->  one row per launch, NVIDIA's rule results, and the status of every file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.files import read_bytes, temporary_folder
from profkit.records.paths import expand, is_table
from profkit.reports import library
from profkit.reports.container.container import Frames, Status, check, split
from profkit.reports.frame import Part, ReportFile, Reports
from profkit.reports.isolated import is_limited, isolated, processors
from profkit.reports.library import LARGE, actions, openable, part_from, prepare_child

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ReportFile", "Reports", "actions", "expand", "prepare_child"]

# Up to so many files of so many bytes are read here: a child takes 0.1 s to start. More are not: one
# might crash, and the library never gives back what it took, about five times the bytes in the file.
FEW, MUCH = 8, 16 << 20
_SWELLS = 20  # times, at most, that a compressed report becomes larger
TABLE_MOST = 256 << 20  # bytes of a table that ncu printed: 10,000 launches of a full set


def load_reports(patterns: str | Path | Iterable[str | Path], client: Any = None) -> pd.DataFrame:
    """Do `pk.load`: read files, folders (recursively) and globs into one row per launch."""
    return read_some(expand(patterns), client).launches


def read_some(paths: Sequence[str | Path], client: Any = None) -> Reports:
    """Read reports, or raise a ProfkitError where none of them can be read."""
    reports = read_report(paths, client=client)
    if all(file.status == "unreadable" for file in reports.files):
        more = f" (and {len(reports.files) - 1} more)" if len(reports.files) > 1 else ""
        raise _unreadable(reports.files[0].path, reports.files[0].message + more)
    return reports


def read_report(
    paths: Iterable[str | Path],
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    client: Any = None,
) -> Reports:
    """Read reports; a file that is damaged or crashes the native library stops no other.

    `jobs`: child processes for many files; the number of processors when None. `progress` is called
    with (files done, files) after each file. `client`: a Dask client or an executor that reads them.
    """
    names = [os.fspath(path) for path in paths]
    known: dict[str, Part] = {}
    # A file that is large even when it is packed is not walked first to learn that.
    large = {} if client else {x: report_weight(x) for x in names if _bytes_of(x) > LARGE}

    def keep(name: str, part: Part) -> None:
        known[name] = part
        if progress:
            progress(len(known), len(names))

    for name, part in _read_each([x for x in dict.fromkeys(names) if x not in large], jobs, client):
        if isinstance(part, Frames):
            large[name] = part.size
        else:
            keep(name, part)
    if large:
        parts = library.read_large([*large], sum(large.values()), jobs)
        for name, part in zip(large, parts, strict=True):
            keep(name, part)
    return Reports(tuple(known[name] for name in names))


def _read_each(
    names: list[str], jobs: int | None, client: Any
) -> Iterator[tuple[str, Part | Frames]]:
    """Yield each file with its part as it is done; of a large one only what the check says."""
    if client is not None or len(names) > FEW or sum(map(report_weight, names)) > MUCH:
        from profkit.reports.cluster import each_report

        most = min(jobs or processors(), len(names))
        yield from each_report(f"{__name__}:read_part", names, f"{__name__}:_died", client, most)
    else:
        for name in names:
            yield name, _read_here(name)


def _bytes_of(path: str) -> int:
    """Return the size of a report's file in bytes; 0 where it cannot be read.

    0 of a compressed one, too, where memory is limited: a child unpacks it first, and may run out.
    """
    is_unpacked_in_child = path.endswith(".ncu-repz") and is_limited()
    readable = not is_table(path) and os.path.isfile(path) and os.access(path, os.R_OK)
    return os.path.getsize(path) if readable and not is_unpacked_in_child else 0


def raw_frame(path: str | Path) -> pd.DataFrame:
    """Return every scalar metric of a report under ncu's own name and in ncu's own unit.

    Launches x raw names; numbers as float, texts as str, NaN where a launch has no value.

    Raises:
        ProfkitError: The file cannot be read at all.
    """
    import pandas as pd

    path = os.path.expanduser(path)
    frames = check(path)
    if frames.status == "unreadable":
        raise _unreadable(path, frames.message)

    def died(_item: Any, why: str) -> None:
        raise _unreadable(path, why)

    if frames.size > LARGE or frames.risky:
        with temporary_folder() as folder:
            parts = split(path, folder, metrics_only=frames.risky)
            copies, many = (
                ([os.fspath(copy)] for copy, _ in parts),
                library.children_for(frames.size),
            )
            read = isolated(f"{library.__name__}:raw_rows", copies, many, died, library.remove_copy)
        rows = [*chain.from_iterable(read)]
    else:
        with openable(path, repaired=frames.wrong_suffix) as copy:
            rows = library.raw_rows([copy])
    return pd.DataFrame(rows, index=pd.RangeIndex(len(rows), name="launch"))


@contextmanager
def opened_launches(path: str | Path) -> Iterator[Callable[[int], Any]]:
    """Yield a function from the index of a launch to its ncu_report action, good within the `with`.

    Raises:
        ProfkitError: The file cannot be read; from the function: it has no such launch.
    """
    path = os.path.expanduser(path)
    frames = check(path)
    if frames.status == "unreadable":
        raise _unreadable(path, frames.message)
    with openable(path, repaired=frames.wrong_suffix, metrics_only=frames.risky) as source:
        groups = list(library.open_report(source)) if frames.launches else []

        def action(index: int) -> Any:
            left = index
            for group in groups:
                if 0 <= left < group.num_actions():
                    return group.action_by_idx(left)
                left -= group.num_actions()
            raise ProfkitError(f"{path}: has no launch {index}", "launches are counted from 0")

        yield action


def read_part(path: str) -> Part | Frames:
    """Read one report in this process; of a large one only what the check says.

    It is damaged, too, when the library gives less than the file holds, or when the file is not the
    one that the run record next to it names.
    """
    if is_table(path):
        return _read_table(path)
    frames = check(path)
    if frames.status == "unreadable":
        return Part(file=ReportFile(path, frames.sha256, "unreadable", frames.message, 0, None))
    if frames.size > LARGE:
        return frames
    with openable(path, repaired=frames.status == "damaged" or frames.wrong_suffix) as copy:
        rows, kernels = library.read_rows([copy, path, 0])
    return part_from(path, frames, [rows], kernels)


def read_metrics_only(path: str) -> Part:
    """Read only the metrics of a report: it crashed a child otherwise."""
    rows = library.metric_rows([path, path, 0])
    return part_from(path, check(path), [rows], [row[2] for row in rows.identity])


def report_weight(path: str) -> int:
    """Return the bytes of a report when it is not compressed, about; 0 when it cannot be opened."""
    try:
        return os.path.getsize(path) * (_SWELLS if path.endswith(".ncu-repz") else 1)
    except OSError:
        return 0


def _read_table(path: str) -> Part:
    from profkit.reports.raw_counters import part_from_raw, table_rows

    content, rows = None, []
    status: Status = "unreadable"
    try:
        content = read_bytes(path, TABLE_MOST)
        if content.strip():
            rows = table_rows(content.decode("utf-8-sig", "backslashreplace"), path)
        status = "ok" if rows else "empty"
        message = "" if rows else "a header without launches" if content.strip() else "0 bytes"
    except OSError as error:
        message = error.strerror or "cannot be read"
    except ProfkitError as error:
        message = f"{error.message.removeprefix(f'{path}: ')}: {error.hint}"
    sha256 = None if content is None else hashlib.sha256(content).hexdigest()
    return part_from_raw(rows, ReportFile(path, sha256, status, message, len(rows), None))


def _read_here(path: str) -> Part | Frames:
    """Read one file in this process, unless it might crash it."""
    frames = None if is_table(path) else check(path)
    # Without memory, the library takes its process with it.
    if frames and frames.size <= LARGE and (frames.risky or is_limited()):
        return isolated(f"{__name__}:read_part", [path], 1, _died)[0]  # type: ignore[no-any-return]
    return read_part(path)


def _died(path: str, why: str) -> Part:
    """Read only the metrics of a file that a child died of."""
    part: Part = isolated(f"{__name__}:read_metrics_only", [path], 1, _lost)[0]
    if part.file.status == "damaged":
        return part
    return replace(part, file=replace(part.file, status="damaged", message=why))


def _lost(path: str, why: str) -> Part:
    """Say that a child died even so."""
    frames = check(path)
    return Part(file=ReportFile(path, frames.sha256, "damaged", why, 0, frames.ncu_version))


def _unreadable(path: str, why: str) -> ProfkitError:
    return ProfkitError(f"{path}: {why}", "give a .ncu-rep file that ncu wrote")
