"""What was done to one variant at one case  ->  artifacts/<id>.<case>.json, and back.

The record stands beside the report and says what the report cannot: which source, was it right,
how fast it was without a profiler, and under which conditions.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError

SCHEMA = "profkit.run/1"


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


def save(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record; numbers that are no numbers become null."""
    write_text(path, json.dumps(clean({"schema": SCHEMA, **record}), indent=1) + "\n")


def load(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        ProfkitError: It cannot be read, or is of another schema.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfkitError(
            f"{path} is no run record: {error}", "profile the variant again"
        ) from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        said = record.get("schema") if isinstance(record, dict) else None
        raise ProfkitError(
            f"{path}: schema {said!r}, wanted {SCHEMA!r}", "profile the variant again"
        )
    return record


def clean(value: Any) -> Any:
    """The same value with NaN and infinity as None, tuples as lists and paths as text."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stale(record: Mapping[str, Any], source_hash: str) -> bool:
    """Whether the source has changed since the record was made."""
    source = record.get("source")
    return not isinstance(source, Mapping) or source.get("sha256") != source_hash
