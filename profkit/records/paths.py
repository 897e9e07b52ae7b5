"""What the user typed (files, folders, globs)  ->  the reports meant, each once, in order."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from profkit.errors import ProfkitError

SUFFIXES = (".ncu-rep", ".ncu-repz")
FULL = "ncu --set full --import-source yes -o full COMMAND"  # makes a report with everything in it


def is_table(path: str | Path) -> bool:
    """Whether a file is read as what `ncu --csv` prints: by its name."""
    return str(path).lower().endswith(".csv")


def expand(patterns: str | Path | Iterable[str | Path]) -> tuple[str, ...]:
    """The reports that files, folders (recursively) and globs name.

    A file that is named and does not exist stays in the list, for the reader to say so and go on
    with the others.

    `patterns`: one or several; `~` is expanded; a file may have any name.

    Returns:
        Paths, each once, in the order given and sorted within a folder or glob.

    Raises:
        ProfkitError: A glob that matches nothing, a folder without reports, or no pattern.
    """
    if isinstance(patterns, str | Path):
        patterns = [patterns]
    paths = [path for pattern in patterns for path in _one(str(pattern))]
    if not paths:
        raise ProfkitError("no report was named", "give a .ncu-rep file, a folder or a glob")
    return tuple(dict.fromkeys(paths))


def _one(pattern: str) -> list[str]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        return _folder(path)
    # A file first: [ and ] are legal in file names.
    if path.exists() or path.is_symlink() or not glob.has_magic(str(path)):
        return [str(path)]
    matched = sorted(glob.glob(str(path), recursive=True))
    if not matched:
        raise ProfkitError(f"{pattern}: matches no file", "check the path and the quotes")
    files = [name for name in matched if not Path(name).is_dir()]
    return files or [name for folder in matched for name in _folder(Path(folder))]


def _folder(folder: Path) -> list[str]:
    reports = sorted(str(p) for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    if not reports:
        raise ProfkitError(
            f"{folder}: a folder without reports", f"reports end in {' or '.join(SUFFIXES)}"
        )
    return reports
