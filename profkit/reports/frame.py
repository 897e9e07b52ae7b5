"""What was read of each file  ->  the frame: one row per launch, and all files' statuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profkit.reports.container import Status
from profkit.reports.launch import IDENTIFIED
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("report", "launch", *IDENTIFIED, "ncu_version")
RULE_COLUMNS = ("report", "launch", "rule", "title", "message", "speedup", "scope")


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


def assemble(parts: Sequence[Part]) -> Reports:
    """One frame out of the parts of all files."""
    import numpy as np
    import pandas as pd

    files = tuple(part.file for part in parts)
    rows = [row for part in parts for row in part.identity]
    launches = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    # astype() of two columns would take longer than all the rest.
    launches["launch"] = np.array([row[1] for row in rows], dtype=np.int64)
    values = np.frombuffer(b"".join(part.values for part in parts))
    metrics = pd.DataFrame(values.reshape(len(rows), len(CATALOGUE)), columns=list(CATALOGUE))
    launches = pd.concat([launches, metrics], axis=1)
    launches.attrs["reports"] = files
    said = [row for part in parts for row in part.rules]
    rules = pd.DataFrame(said, columns=list(RULE_COLUMNS), dtype=object)
    rules["launch"] = np.array([row[1] for row in said], dtype=np.int64)
    rules["speedup"] = np.array([row[5] for row in said], dtype=np.float64)
    return Reports(files, launches, rules)
