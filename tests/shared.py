"""What several workers of a session need and one of them makes, in a folder that they share."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

_FOLDERS: list[Path] = []  # of this session


def use_folder(factory: pytest.TempPathFactory) -> None:
    """Let the workers of this session meet in a folder."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    _FOLDERS[:] = [folder]


def has_folder() -> bool:
    return bool(_FOLDERS)


def find_folder() -> Path:
    (folder,) = _FOLDERS
    return folder


def make_once(made: Path, make: Callable[[Path], object]) -> Path:
    """Return what is there, made by whichever worker comes first; the others wait for it."""
    if made.exists():
        return made
    with made.with_name(f"{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            part = made.with_name(f"part-{made.name}")
            shutil.rmtree(part, ignore_errors=True)  # of a worker that did not come to its end
            make(part)
            part.rename(made)
    return made
