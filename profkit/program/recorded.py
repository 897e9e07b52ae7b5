"""Recordings  ->  the answer, with the counters that were kept beside one; and frames of it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.files import expand_home, is_file, is_path_there, list_matching_paths
from profkit.program.counts import KernelVerdicts, judge_groups_by_counters
from profkit.program.ranks import merge_timelines, select_ranks
from profkit.program.readers import describe_accepted_recordings
from profkit.program.readers.gathered import read_recordings
from profkit.program.triage import Triage, triage_timeline

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.program.document import FirstEntry, StepEntry, TriageDocument
    from profkit.units import Milliseconds, RangeName

REPORTS = ("counters.ncu-repz", "counters.ncu-rep")  # in a folder that profkit triage -o has kept


@dataclass(frozen=True)
class ProgramFrames:
    """What profkit triage says, as frames; times in milliseconds, columns as `triage` lists them."""

    step: StepEntry
    first: FirstEntry
    findings: DataFrame
    idle: DataFrame
    kernels: DataFrame
    document: TriageDocument  # the whole "profkit.triage/1"


Recorded = str | Path | ProgramFrames | Iterable[str | Path]


def judge_recordings(
    paths: Sequence[Path],
    ranks: str = "all",
    range_name: RangeName = "",
    unprofiled_step_ms: Milliseconds | None = None,
) -> tuple[Triage, KernelVerdicts | None]:
    """Judge torch traces or exports of Nsight Systems, one or one a rank, or a .triage folder.

    Those of several ranks may lie in one folder or zip; "-" is standard input.

    Returns:
        The answer, and what counters say of it; None where none were kept.

    Raises:
        ProfkitError: One cannot be read, or nothing in it ran on a GPU.
    """
    with _pause_garbage_collector(), _name_recording_in_errors(paths):
        read_all = read_recordings(paths)
        timeline = select_ranks(merge_timelines(read_all), ranks)
        answer = triage_timeline(timeline, range_name, unprofiled_step_ms)
        report = None
        if len(paths) == 1:
            report = find_kept_report(paths[0])
        if report is None:
            return answer, None
        counts = judge_groups_by_counters(report, answer.groups)
        return triage_timeline(
            timeline, range_name, unprofiled_step_ms, counts.expected_gains
        ), counts


@contextmanager
def _name_recording_in_errors(paths: Sequence[Path]) -> Iterator[None]:
    """Say of which recording an error is, where it does not."""
    try:
        yield
    except ProfkitError as error:
        if any(str(path) in error.message for path in paths):
            raise
        raise ProfkitError(f"{paths[0]}: {error.message}", error.hint) from error


@contextmanager
def _pause_garbage_collector() -> Iterator[None]:
    """Pause the garbage collector: a fourth of the time of reading millions of records is its."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def find_kept_report(folder: Path) -> Path | None:
    """Return the report of what was counted, where the folder holds one."""
    for name in REPORTS:
        if is_file(folder / name):
            return folder / name
    return None


def triage(given: Recorded, step_ms: float | None = None, range: str = "") -> ProgramFrames:
    """Judge a recording of a program, or several of one; `profkit.triage` says what is in the frames."""
    if isinstance(given, ProgramFrames):
        return given
    import pandas as pd

    from profkit.program.document import make_triage_document

    content = make_triage_document(
        *judge_recordings(_list_recordings(given), "all", range, step_ms)
    )
    rows = [{**row, **row["saves_ms"]} for row in content["findings"]]
    columns = ["category", "say", "expect", "low", "high", "on_top_ms", "kernels", "try", "where"]
    idle = pd.DataFrame(content["step"]["idle"], columns=["cause", "ms", "where"])
    frames = pd.DataFrame(rows, columns=columns), idle, pd.DataFrame(content["kernels"])
    return ProgramFrames(content["step"], content["first"], *frames, content)


def _list_recordings(paths_or_patterns: object) -> list[Path]:
    """Return the recordings that a path, a pattern or a list names."""
    if isinstance(paths_or_patterns, str | Path):
        path = expand_home(paths_or_patterns)
        if is_path_there(path):
            paths = [path]
        else:
            paths = [Path(x) for x in list_matching_paths(path)] or [path]
    elif isinstance(paths_or_patterns, list | tuple) and all(
        isinstance(x, str | Path) for x in paths_or_patterns
    ):
        paths = [expand_home(name) for name in paths_or_patterns]
    else:
        raise ProfkitError(
            f"{type(paths_or_patterns).__name__}: cannot read a recording from this type",
            describe_accepted_recordings(),
        )
    if not paths:
        raise ProfkitError("an empty list has no recording", describe_accepted_recordings())
    for path in paths:
        if ".ncu-rep" in path.name:
            raise ProfkitError(
                f"{path}: a report of kernels, not a program", "pk.diagnose reads it"
            )
    return paths
