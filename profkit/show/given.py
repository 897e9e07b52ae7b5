"""What a person gives for launches (a path, a list, a frame, a row, a variant's name)  ->  a frame.

The public functions all take the same, so that what one returns the next one accepts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from profkit.errors import ProfkitError
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.sides import named_runs
from profkit.records.paths import SUFFIXES, expand
from profkit.reports import reader
from profkit.show.text.names import short

# A path, a pattern, a frame, a row of one, a mapping of metrics, a variant's name, or several of them.
Given = str | Path | pd.DataFrame | pd.Series | Mapping[str, Any] | Iterable[Any]
LONGEST = 48  # characters of a kernel's name in the head of a comparison
TAKES = (
    "give a report's path, a pattern, a folder, a variant's name, a frame from pk.load, a row of it, "
    "or a list of these"
)


def given_launches(given: Given, artifacts: str | Path = "artifacts") -> pd.DataFrame:
    """Return the launches that are meant, one row each.

    `given`: a report's path, a pattern, a folder, a variant's name ("stage2", "stage2.B"), a frame, a
    row of one (or a mapping of short metric names), or a list of these.

    Raises:
        ProfkitError: It is none of these, or names nothing.
    """
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, pd.Series):
        return given.to_frame().T.infer_objects()
    if isinstance(given, Mapping):
        return pd.DataFrame([dict(given)])
    if not isinstance(given, str | Path | Iterable):
        raise ProfkitError(f"{type(given).__name__}: no launches can be read from that", TAKES)
    parts = [given] if isinstance(given, str | Path) else list(given)
    if parts and all(isinstance(p, Path) or (isinstance(p, str) and _is_path(p)) for p in parts):
        return reader.load_reports(parts)  # at once: many files are read in several processes
    if isinstance(given, str | Path):
        runs = named_runs(given, Evidence(Path(artifacts)))
        frames = [run.launches for run in runs if len(run.launches)]
        why = f"{given}: its record has no report", "profkit profile makes one"
    else:
        frames = [given_launches(part, artifacts) for part in parts]
        why = "an empty list: no launches", TAKES
    if not frames:
        raise ProfkitError(*why)
    return pd.concat(frames, ignore_index=True)


def _is_path(name: str | Path) -> bool:
    text = str(name)
    there = os.path.exists(os.path.expanduser(text))
    return there or any(c in text for c in "*?[/\\") or text.endswith((*SUFFIXES, ".csv"))


def given_run(given: Any) -> Any:
    """Return a side of a comparison: a frame or a row becomes a run, the rest is passed on."""
    if not isinstance(given, pd.DataFrame | pd.Series | Mapping):
        return given
    frame = given_launches(given)
    if frame.empty:
        raise ProfkitError("a frame without rows: nothing to compare", TAKES)
    variant, case, kernel = (_only(frame, column) for column in ("variant", "case", "kernel"))
    name = variant or (short(kernel, LONGEST) if kernel else f"{len(frame)} launches")
    if not variant and len(frame) == 1 and "launch" in frame:
        name += f" (launch {frame['launch'].iloc[0]})"
    return Run(name, case, None, frame)


def _only(frame: pd.DataFrame, column: str) -> str | None:
    """Return a column's only value; None where it has several, or is not there."""
    values = set(frame[column].dropna()) if column in frame else set()
    return str(values.pop()) if len(values) == 1 else None


def given_reports(
    given: Given, artifacts: str | Path = "artifacts"
) -> tuple[list[str], set[tuple[str, int]]]:
    """The files that are meant, and which launches in them; every launch where files were given.

    Raises:
        ProfkitError: As given_launches; or the launches are in no report (counters from elsewhere).
    """
    if isinstance(given, str | Path) and _is_path(given):
        return [str(path) for path in expand(given)], set()
    frame = given_launches(given, artifacts)
    if not {"report", "launch"} <= set(frame.columns) or frame["report"].isna().any():
        raise ProfkitError("these launches are in no report", "give a report, or a row of pk.load")
    reports = frame["report"].astype(str)
    return list(reports.unique()), set(zip(reports, frame["launch"].astype(int), strict=True))
