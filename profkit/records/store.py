"""Values  ->  what JSON can hold; a file  ->  its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, cast

from profkit.files import open_regular

T = TypeVar("T")
JsonObject = dict[str, Any]  # what json.loads gives of a document of ours: a border, nothing else


def json_safe(value: Any) -> Any:
    """The same value with NaN and infinity as None, tuples as lists and paths as text."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): json_safe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def plain(value: T) -> T:
    """A dataclass, or several, as the plain values that JSON has of it; typed as what it was.

    So the type of a document names the dataclass, and nobody writes its fields down twice.
    """
    import msgspec

    return cast("T", msgspec.to_builtins(value))


def digest(path: Path) -> str:
    """sha256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
