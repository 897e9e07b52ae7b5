"""A folder of artifacts  ->  where the record and the report of each variant at each case are.

<problem>/<case>/<variant>.json    what `profkit profile` writes, its .ncu-rep(z) beside it
<variant>.<case>.json              the same in a flat folder, or in one folder below it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.records.paths import MARK, SUFFIXES

RunName = tuple[str, str]  # variant and case
HISTORY = "artifacts/history"  # the tables of all that was measured, where nobody names others
_WORD = re.compile(r"[A-Za-z0-9][\w-]*")


@dataclass(frozen=True)
class RunFiles:
    """The files of one variant at one case: one of them is there."""

    stem: Path  # their path without a suffix
    record: Path | None = None  # the run record
    report: Path | None = None  # the report; of two, the one that is not compressed


def is_word(name: str) -> bool:
    return _WORD.fullmatch(name) is not None


def files_of(stem: Path) -> RunFiles:
    """Return what is there: a record, a report, both or neither."""
    record = stem.with_name(f"{stem.name}.json")
    reports = (stem.with_name(stem.name + suffix) for suffix in SUFFIXES)
    report = next((r for r in reports if r.is_file()), None)
    return RunFiles(stem, record if record.is_file() else None, report)


def run_files(root: Path) -> dict[RunName, tuple[RunFiles, ...]]:
    """Return everything recorded in a folder, by variant and case, sorted by name.

    A name has more than one entry where two folders hold a run of it.
    """
    stems: dict[RunName, set[Path]] = {}
    for path, depth in _candidates(root):
        name = _name(path, depth)
        if name is not None:
            stems.setdefault(name, set()).add(path.with_suffix(""))
    return {name: tuple(map(files_of, sorted(paths))) for name, paths in sorted(stems.items())}


def place_for(root: Path, problem: str, variant: str, case: str) -> tuple[Path, Path]:
    """Return where the report and the record of a run are to be written.

    Where the run is already, there again; else `<problem>/<case>/<variant>.*`.
    """
    stem = root / problem / case / variant
    flat = files_of(root / f"{variant}.{case}")
    if flat.record or flat.report:
        there = files_of(stem)
        only_one((flat, there) if there.record or there.report else (flat,), (variant, case))
        stem = flat.stem
    return stem.with_name(f"{stem.name}.ncu-rep"), stem.with_name(f"{stem.name}.json")


def only_one(files: tuple[RunFiles, ...], name: RunName) -> RunFiles:
    """Return the files of a run; a ProfkitError where two folders hold one of this name."""
    if len(files) > 1:
        where = " and ".join(str(f.stem) for f in files)
        hint = "remove one, or name the folder of the other with --artifacts"
        raise ProfkitError(f"{name[0]} at case {name[1]} is there twice: {where}", hint)
    return files[0]


def _candidates(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield records and reports in the folder and two below it, with how deep they are."""
    for depth, pattern in enumerate(("*.*", "*/*.*", "*/*/*.*")):
        for path in root.glob(pattern):
            if path.suffix in (".json", *SUFFIXES):
                yield path, depth


def _name(path: Path, depth: int) -> RunName | None:
    """Return variant and case of a file, None where it is not a run's."""
    variant, dot, case = path.stem.rpartition(".")
    if not dot:
        variant, case = path.stem, path.resolve().parent.name
    elif depth == 2:
        return None  # a folder of something else: a search keeps its champion so
    if not (is_word(variant) and is_word(case)):
        return None
    return (variant, case) if dot or depth == 2 or _has_record(path) else None


def _has_record(path: Path) -> bool:
    """Return whether the file beside it says that it is a run record: there is other JSON, too."""
    try:
        with path.with_suffix(".json").open("rb") as file:
            return MARK in file.read(200)
    except OSError:
        return False
