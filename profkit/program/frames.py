"""A recording  ->  its triage as frames, for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame


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

    step: dict[str, Any]
    first: dict[str, Any]
    findings: DataFrame
    idle: DataFrame
    kernels: DataFrame
    document: dict[str, Any]


def triage(path: str | Path, step_ms: float | None = None, range: str = "") -> ProgramFrames:
    """Judge a recording of a program: a torch trace, an nsys export or a kept .triage folder.

    Args:
        path: Where it is.
        step_ms: Milliseconds of a step without the recorder, where somebody measured it.
        range: The range that is a step; found when empty.

    Raises:
        ProfkitError: It cannot be read, or nothing in it ran on a GPU.
    """
    import pandas as pd

    from profkit.program.document import triage_document
    from profkit.program.recorded import judge_recordings

    content = triage_document(*judge_recordings([Path(path)], "all", range, step_ms))
    rows = [{**row, **row["saves_ms"]} for row in content["findings"]]
    columns = ["category", "say", "expect", "low", "high", "on_top_ms", "kernels", "try", "where"]
    return ProgramFrames(
        content["step"], content["first"], pd.DataFrame(rows, columns=columns),
        pd.DataFrame(content["step"]["idle"], columns=["cause", "ms", "where"]),
        pd.DataFrame(content["kernels"]), content,
    )  # fmt: skip
