"""Reports  ->  one row per launch, NVIDIA's rule results, and the status of every file.

The only module that imports ncu_report, and late: its library is 50 MB.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.reports import launch
from profkit.reports.container import (
    Frames,
    Status,
    check,
    record_beside,
    recorded_sha256,
)
from profkit.reports.contents import Content
from profkit.reports.metrics import CATALOGUE, evaluate
from profkit.reports.paths import expand
from profkit.reports.workers import apart, processors

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("report", "launch", *launch.IDENTIFIED, "ncu_version")
RULE_COLUMNS = ("report", "launch", "rule", "title", "message", "speedup", "scope")
# Up to so many files a child process costs more than reading them (it takes 0.2 s to start).
FEW = 8


@dataclass(frozen=True)
class ReportFile:
    """One file and what could be read of it.

    Attributes:
        path: As it was given.
        sha256: Of the file, None when it cannot be read.
        status: ok; empty (0 bytes, or whole without a launch); damaged (something is lost, the
            rest is in the frame); unreadable (missing, no permission, not a report).
        message: What and why, empty when ok.
        launches: Launches that were read.
        ncu_version: The Nsight Compute that wrote it, None when not known.
    """

    path: str
    sha256: str | None
    status: Status
    message: str
    launches: int
    ncu_version: str | None


@dataclass(frozen=True)
class Reports:
    """Everything that was read.

    Attributes:
        files: In the order in which they were given.
        launches: One row per launch: COLUMNS, then every catalogue metric (SI, float, NaN).
        rules: One row per launch and NVIDIA rule result: RULE_COLUMNS; speedup is a share.
    """

    files: tuple[ReportFile, ...]
    launches: pd.DataFrame
    rules: pd.DataFrame


@dataclass(frozen=True)
class Part:
    """One file's share of the frame, small enough to come back from a child process."""

    file: ReportFile
    identity: tuple[tuple[Any, ...], ...] = ()
    values: bytes = b""  # float64, launches x catalogue, row by row
    rules: tuple[tuple[Any, ...], ...] = ()


def load(patterns: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Read reports into one row per launch.

    Args:
        patterns: Files, folders (recursively) and globs.

    Returns:
        Columns as in Reports.launches; attrs["reports"] is the tuple of ReportFile, where every
        file that is not ok says why.

    Raises:
        ProfkitError: Nothing matches, or no file could be read at all.
    """
    reports = read(expand(patterns))
    if all(file.status == "unreadable" for file in reports.files):
        more = f" (and {len(reports.files) - 1} more)" if len(reports.files) > 1 else ""
        raise _unreadable(reports.files[0].path, reports.files[0].message + more)
    return reports.launches


def read(
    paths: Iterable[str | Path],
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reports:
    """Read reports; a file that is damaged or crashes the native library stops no other.

    Args:
        paths: Files; see expand for folders and globs.
        jobs: Child processes for many files; the number of processors when None.
        progress: Called with (files done, files) after each file.

    Returns:
        What could be read of every file.
    """
    names = [os.fspath(path) for path in paths]
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, len(names))

    if len(names) > FEW:
        parts = apart(f"{__name__}:read_part", names, jobs or processors(), _died, step)
    else:
        parts = []
        for name in names:
            parts.append(_read_here(name))
            step()
    return _assemble(parts)


def raw(path: str | Path) -> pd.DataFrame:
    """Every scalar metric of a report under ncu's own name and in ncu's own unit.

    Args:
        path: One report.

    Returns:
        Launches x raw names; numbers as float, texts as str, NaN where a launch has no value.

    Raises:
        ProfkitError: The file cannot be read at all.
    """
    import pandas as pd

    path = os.path.expanduser(path)
    status = check(path).status
    if status == "unreadable":
        raise _unreadable(path, check(path).message)
    if status == "damaged":
        rows = apart(f"{__name__}:raw_rows", [path], 1, lambda _path, _why: [])[0]
    else:
        rows = raw_rows(path)
    return pd.DataFrame(rows, index=pd.RangeIndex(len(rows), name="launch"))


def raw_rows(path: str) -> list[dict[str, float | str]]:
    """Raw name -> value of each launch, read in this process."""
    return [launch.scalars(action) for action in actions(path)]


def actions(path: str) -> Iterator[Any]:
    """The ncu_report actions of a file, over all its ranges."""
    import ncu_report

    if os.path.getsize(path):
        for launches in ncu_report.load_report(path):
            yield from launches


def read_part(path: str, frames: Frames | None = None) -> Part:
    """Read one report in this process.

    Args:
        path: The file.
        frames: Its frame check when it was made already.

    Returns:
        Its launches and its status: damaged, too, when the library gives less than the file holds
        or when the file is not the one that the run record beside it names.
    """
    frames = frames or check(path)
    if frames.status == "unreadable":
        return Part(ReportFile(path, frames.sha256, "unreadable", frames.message, 0, None))
    record = record_beside(path)
    identity: list[tuple[Any, ...]] = []
    values: array[float] = array("d")
    rules: list[tuple[Any, ...]] = []
    contents: list[Content] = []
    for index, action in enumerate(actions(path)):
        names, results = action.metric_names(), action.rule_results()
        metrics = evaluate(launch.raw(action, names))
        who = launch.identity(action, record, metrics["time"])
        identity.append((path, index, *who, frames.ncu_version))
        values.extend(metrics.values())
        rules.extend((path, index, *rule) for rule in launch.rules(results))
        contents.append(launch.content(action, len(names), len(results)))
    status, message = _verdict(frames, contents, record)
    file = ReportFile(path, frames.sha256, status, message, len(identity), frames.ncu_version)
    return Part(file, tuple(identity), values.tobytes(), tuple(rules))


def _read_here(path: str) -> Part:
    """Read one file in this process, unless it is damaged and might crash it."""
    frames = check(path)
    if frames.status == "damaged":
        return apart(f"{__name__}:read_part", [path], 1, _died)[0]  # type: ignore[no-any-return]
    return read_part(path, frames)


def _died(path: str, why: str) -> Part:
    message = f"Nsight Compute's library crashed reading it ({why})"
    frames = check(path)
    return Part(ReportFile(path, frames.sha256, "damaged", message, 0, frames.ncu_version))


def _unreadable(path: str, why: str) -> ProfkitError:
    return ProfkitError(f"{path}: {why}", "give a .ncu-rep file that ncu wrote")


def _verdict(
    frames: Frames, given: list[Content], record: Mapping[str, Any]
) -> tuple[Status, str]:
    if frames.status in ("damaged", "unreadable"):
        return frames.status, frames.message
    if recorded_sha256(record) not in (None, frames.sha256):
        return "damaged", "not the file that the run record beside it names (sha256 differs)"
    if len(given) != len(frames.contents):
        return "damaged", f"{len(given)} of {len(frames.contents)} launches could be read"
    for part, held, got in zip(Content._fields, _sums(frames.contents), _sums(given), strict=True):
        if got < held:  # more is well: rules have results without a message
            return "damaged", f"{got} of {held} {part} could be read"
    return frames.status, frames.message


def _sums(contents: Iterable[Content]) -> list[int]:
    return [sum(column) for column in zip(*contents, strict=True)]


def _assemble(parts: Sequence[Part]) -> Reports:
    """One frame out of the parts of all files."""
    import numpy as np
    import pandas as pd

    files = tuple(part.file for part in parts)
    identity = pd.DataFrame(
        [row for part in parts for row in part.identity], columns=list(COLUMNS), dtype=object
    ).astype({"launch": "int64"})
    values = np.frombuffer(b"".join(part.values for part in parts))
    metrics = pd.DataFrame(values.reshape(len(identity), len(CATALOGUE)), columns=list(CATALOGUE))
    launches = pd.concat([identity, metrics], axis=1)
    launches.attrs["reports"] = files
    rules = pd.DataFrame(
        [row for part in parts for row in part.rules], columns=list(RULE_COLUMNS)
    ).astype({"speedup": "float64"})
    return Reports(files, launches, rules)
