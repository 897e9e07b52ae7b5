"""Bytes and text  ->  a file that is written whole or not at all; and its hash."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError

JsonObject = dict[str, Any]  # what json.loads gives of a document of ours: a border, nothing else


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: beside it first, then renamed over it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        whole = False
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, 0o644)
            os.replace(name, path)
            whole = True
        finally:
            if not whole:
                os.unlink(name)
    except OSError as error:
        raise ProfkitError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: Path, content: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, content.encode())


def paths(folder: Path, name: str, case: str) -> tuple[Path, Path]:
    """Where the report and the record of a variant at a case are."""
    return folder / f"{name}.{case}.ncu-rep", folder / f"{name}.{case}.json"


def json_safe(value: Any) -> Any:
    """The same value with NaN and infinity as None, tuples as lists and paths as text."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): json_safe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
