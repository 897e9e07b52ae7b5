"""What was done to one variant at one case  ->  artifacts/<id>.<case>.json, and back."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from profkit.errors import ProfkitError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: beside it first, then renamed over it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ProfkitError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: Path, content: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, content.encode())
