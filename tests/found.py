"""Files of the repository that tests read: none found is a mistake, not an empty test."""

from pathlib import Path


def find_files(folder: Path, pattern: str) -> list[Path]:
    """Return what matches in a folder of the repository, sorted; fail where nothing does."""
    found = sorted(folder.glob(pattern))
    assert found, f"nothing is called {pattern} in {folder}"
    return found
