"""Values  ->  what JSON can hold, or a document of a declared form; a file  ->  its hash."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Hashable, Mapping
from dataclasses import is_dataclass
from functools import cache
from itertools import product
from math import isfinite
from pathlib import Path
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

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


def as_document(kind: type[T], *sources: object) -> T:
    """Fill a document of this form, a TypedDict, from attributes of its keys' names.

    Of several sources, and what one names as its `sources`, the first that has the attribute gives
    it; a key's `_s` says seconds and is no part of the attribute's name. NaN is null, and so is ""
    where a text may be null.
    """
    every = [x for source in sources for x in (source, *getattr(source, "sources", ()))]
    keys = _keys(cast("Hashable", kind))
    return cast("T", {key: _filled(_value(key, hint, every), hint) for key, hint in keys})


@cache
def _keys(kind: Hashable) -> list[tuple[str, Any]]:
    return list(get_type_hints(cast("type", kind)).items())


def _value(key: str, hint: Any, sources: list[object]) -> Any:
    if key == "schema" and get_origin(hint) is Literal:
        return get_args(hint)[0]
    names = key, key.removesuffix("_s")
    for source, name in product(sources, names):
        if hasattr(source, name):
            return getattr(source, name)
    raise AttributeError(f"{type(sources[0]).__name__} has no {key}")


def _filled(value: Any, hint: Any) -> Any:
    parts, kind = get_args(hint), get_origin(hint)
    if kind in (Union, types.UnionType):
        if value is None or (value == "" and str in parts):
            return None
        return _filled(value, parts[0] if len(parts) == 2 else Any)
    if kind is list:
        return [_filled(item, parts[0]) for item in value]
    if kind is dict:
        return {key: _filled(item, parts[1]) for key, item in value.items()}
    return _item(value, hint)


def _item(value: Any, hint: Any) -> Any:
    if is_typeddict(hint):
        if isinstance(value, tuple):  # before and after
            return dict(zip(hint.__annotations__, json_safe(value), strict=True))
        return as_document(hint, value)
    if hint is str:
        return str(value)
    return plain(value) if is_dataclass(value) else json_safe(value)


def digest(path: Path) -> str:
    """sha256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
