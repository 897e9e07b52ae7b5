"""A recording  ->  its triage as frames, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.program.document import FirstEntry, StepEntry, TriageDocument


@dataclass(frozen=True)
class ProgramFrames:
    """What profkit triage says, as frames; times in milliseconds.

    Attributes:
        step: ms, gpu_busy_ms, idle_ms, plain_ms and how it was found.
        first: What to do first.
        findings: One row a finding, the one that saves most first: category, say, expect, low,
            high, on_top_ms, kernels, try, where.
        idle: One row a cause.
        kernels: One row a kernel with one grid and block.
        document: The whole "profkit.triage/1".
    """

    step: StepEntry
    first: FirstEntry
    findings: DataFrame
    idle: DataFrame
    kernels: DataFrame
    document: TriageDocument


Recorded = str | Path | ProgramFrames | Iterable[str | Path]
TAKES = "give a torch trace (.json, .json.gz), an nsys export or a .triage folder; a list for one a rank"


def triage(given: Recorded, step_ms: float | None = None, range: str = "") -> ProgramFrames:
    """Judge a recording of a program: a torch trace, an nsys export or a kept .triage folder.

    Args:
        given: Where it is: a path; a pattern or a list for one recording a rank; or what this returned.
        step_ms: Milliseconds of a step without the recorder, where somebody measured it.
        range: The range that is a step; found when empty.

    Returns:
        Frames, times in milliseconds, shares from 0 to 1:
        `findings`, one row a finding, the one that saves most first: category, say, expect, low,
        high and on_top_ms (saved by itself and beside the one before), kernels (ids), try, where;
        `idle`, one row a cause: cause, ms, where;
        `kernels`, one row a kernel with one grid and block: id, name, category, calls, ms, share,
        bound, limiter, headroom, counted, op, nvtx, source;
        beside them `step`, `first` and the whole `document`.

    Raises:
        ProfkitError: It is no recording, cannot be read, or nothing in it ran on a GPU.
    """
    if isinstance(given, ProgramFrames):
        return given
    import pandas as pd

    from profkit.program.document import triage_document
    from profkit.program.recorded import judge_recordings

    content = triage_document(*judge_recordings(_recordings(given), "all", range, step_ms))
    rows = [{**row, **row["saves_ms"]} for row in content["findings"]]
    columns = ["category", "say", "expect", "low", "high", "on_top_ms", "kernels", "try", "where"]
    return ProgramFrames(
        content["step"], content["first"], pd.DataFrame(rows, columns=columns),
        pd.DataFrame(content["step"]["idle"], columns=["cause", "ms", "where"]),
        pd.DataFrame(content["kernels"]), content,
    )  # fmt: skip


def _recordings(given: object) -> list[Path]:
    """The recordings that a path, a pattern or a list names.

    Raises:
        ProfkitError: None, or something else.
    """
    if isinstance(given, str | Path):
        path = Path(given).expanduser()
        paths = [path] if path.exists() else [Path(x) for x in sorted(glob(str(path)))] or [path]
    elif isinstance(given, list | tuple) and all(isinstance(x, str | Path) for x in given):
        paths = [Path(name).expanduser() for name in given]
    else:
        raise ProfkitError(f"{type(given).__name__}: no recording can be read from that", TAKES)
    if not paths:
        raise ProfkitError("an empty list: no recording", TAKES)
    for path in paths:
        if ".ncu-rep" in path.name:
            raise ProfkitError(
                f"{path}: a report of kernels, not a program", "pk.diagnose reads it"
            )
    return paths
