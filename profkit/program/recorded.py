"""Recordings  ->  the answer, with the counters that were kept beside one."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from profkit.program import readers as recordings
from profkit.program.counts import Counts, read_counts
from profkit.program.ranks import merged_timelines, only_ranks
from profkit.program.triage import Triage, triage_timeline

REPORTS = ("counters.ncu-repz", "counters.ncu-rep")  # in a folder that profkit triage -o has kept


def judge_recordings(
    paths: Sequence[Path], ranks: str = "all", step: str = "", plain_ms: float | None = None
) -> tuple[Triage, Counts | None]:
    """Judge recordings, one or one a rank.

    Args:
        paths: Torch traces, exports of Nsight Systems, or a .triage folder.
        ranks: all, or numbers with commas between them.
        step: A range that is a step; empty finds them.
        plain_ms: Milliseconds a step without the recorder, if somebody measured it.

    Returns:
        The answer, and what counters say of it; None where none were kept.

    Raises:
        ProfkitError: One cannot be read, or nothing in it ran on a GPU.
    """
    with _uncollected():
        read_all = [recordings.read_timeline(path) for path in paths]
        timeline = only_ranks(merged_timelines(read_all), ranks)
        answer = triage_timeline(timeline, step, plain_ms)
        report = kept_report(paths[0]) if len(paths) == 1 else None
        if report is None:
            return answer, None
        counts = read_counts(report, answer.groups)
        return triage_timeline(timeline, step, plain_ms, counts.gains), counts


@contextmanager
def _uncollected() -> Iterator[None]:
    """Millions of records and none in a circle: looking for one takes a fourth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def kept_report(folder: Path) -> Path | None:
    """The report of what was counted, where the folder holds one."""
    return next((folder / name for name in REPORTS if (folder / name).is_file()), None)
