"""What a person names of a history (its folder, variants, a frame)  ->  a frame."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd

from profkit.errors import ProfkitError, did_you_mean
from profkit.evidence.history.dataset import History
from profkit.evidence.history.tables import TABLES
from profkit.records.paths import HISTORY

Named = str | Path | pd.DataFrame | pd.Series | Mapping[str, str] | list[str] | tuple[str, ...]
TAKES = (
    "give a history's folder, a variant (champion, champion.B, stage*), a list of these, or a frame "
    "or row with a variant"
)


def history(
    given: Named = HISTORY, table: str = "runs", folder: str | Path = HISTORY
) -> pd.DataFrame:
    """The history as a frame.

    `given`: all of a history: its folder, or a URL that fsspec knows. Or of `folder` what is named:
    a variant, with its case or a pattern ("champion", "champion.B", "stage*"), a list of these, or
    a frame or row with `variant` and perhaps `case`. `table`: "runs", one row a measurement;
    "launches", one row a diagnosed launch; "reports", one row a file that was read; or "twins", one
    row an A/A comparison. `folder`: the history that names are looked up in.

    Returns:
        A frame; times in seconds, clocks in Hz, null where not known. Of "runs": record, variant,
        case, problem, report, commit, commit_from, dirty, made, source, sass, correct, gpu, gpu_uuid,
        driver, nvcc, ncu, torch, session, samples, median, low, high (95 % interval), sm_clock. Of
        "launches": report, launch, kernel, variant, case, gpu, time, bound, limiter, cause, gain,
        findings. profkit.evidence.history.tables says what each is. Files that cannot be read are left
        out; `profkit history` names them.

    Raises:
        ProfkitError: There is no such table, folder or variant.
    """
    if table not in TABLES:
        raise ProfkitError(f"no table {table!r}", f"one of {', '.join(TABLES)}")
    text = given if isinstance(given, str) else ""
    whole = isinstance(given, Path) or "/" in text or os.sep in text or os.path.isdir(text)
    place = given if whole else folder
    frame: pd.DataFrame = _existing(place).table(table)[0].to_pandas()
    return frame if whole else _of_subjects(frame, given, table)


def _existing(place: object) -> History:
    if not isinstance(place, str | Path):
        raise ProfkitError(f"{type(place).__name__}: no folder of a history", TAKES)
    if "://" not in str(place) and not os.path.isdir(place):
        raise ProfkitError(f"{place}: no history", "profkit history --add --history DIR begins one")
    return History(place)


def _of_subjects(frame: pd.DataFrame, given: object, table: str) -> pd.DataFrame:
    if "variant" not in frame:
        raise ProfkitError(f"the table {table} knows no variants", "pk.history(folder, table)")
    subjects = frame["variant"].astype(str) + "." + frame["case"].astype(str)
    wanted: set[str] = set()
    for name in _names(given):
        fits = {x for x in subjects if name in (x, x.partition(".")[0]) or fnmatchcase(x, name)}
        if not fits:
            known = sorted({*subjects, *frame["variant"].astype(str)})
            hint = did_you_mean(name, known, "pk.history() has all of them")
            raise ProfkitError(f"{name}: not in the history", hint)
        wanted |= fits
    return frame[subjects.isin(wanted)].reset_index(drop=True)


def _names(given: object) -> list[str]:
    """Variants, with their case where there is one."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, pd.Series | Mapping):
        given = pd.DataFrame([dict(given)])
    if isinstance(given, pd.DataFrame) and "variant" in given:
        rows = given.reindex(columns=["variant", "case"]).dropna(subset=["variant"])
        pairs = rows.drop_duplicates().itertuples(index=False)
        return [v if pd.isna(c) else f"{v}.{c}" for v, c in pairs]
    if isinstance(given, list | tuple) and given and all(isinstance(x, str) for x in given):
        return list(given)
    raise ProfkitError(f"{type(given).__name__}: names nothing in a history", TAKES)
