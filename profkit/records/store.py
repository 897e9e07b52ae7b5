"""Values, dataclasses, documents of a declared form  <->  JSON; a file  ->  its hash.

A run record comes from anywhere and outlives the profkit that wrote it, so reading a dataclass never
fails on a field: what is absent or of another kind is the field's default, and a number that is text
is a number that is not known. A class that reads itself has `of_record` and `to_record`.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from itertools import chain, product
from math import isfinite, nan
from pathlib import Path
from types import NoneType
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
ABSENT = {"absent": True}  # metadata of a field that is left out of the JSON when it is None
EMPTY = {"empty": True}  # of a text that says something when it is empty; "file": of no JSON
_TEXT = object()  # the type of such a text


def json_safe(value: Any) -> Any:
    """Return a value for JSON: NaN and infinity as None, tuples as lists, paths as text."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): json_safe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(v) for v in value]
    if hasattr(value, "to_record"):
        return value.to_record()
    if is_dataclass(value):
        pairs = ((f, getattr(value, f.name)) for f in fields(value) if not f.metadata.get("file"))
        kept = ((f, v) for f, v in pairs if v is not None or not f.metadata.get("absent"))
        return {f.name: json_safe(v) for f, v in kept}
    return str(value) if isinstance(value, Path) else value


def from_json(kind: Callable[..., T], document: Mapping[str, Any]) -> T:
    """Return a dataclass of this kind from a JSON object."""
    read = ((name, _read(hint, document.get(name))) for name, hint in _hints(kind))
    return kind(**{name: value for name, value in read if value is not None})


@cache
def _hints(kind: Any) -> list[tuple[str, Any]]:
    """Return the name and the type of each field that is in the JSON."""
    hints = get_type_hints(kind)
    named = (f for f in fields(kind) if not f.metadata.get("file"))
    return [(f.name, _TEXT if f.metadata.get("empty") else _known(hints[f.name])) for f in named]


def _known(hint: Any) -> Any:
    """Return the type without None."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(part for part in get_args(hint) if part is not NoneType)
    return hint


def _read(hint: Any, value: Any) -> Any:
    """Return the value as one of this type; None where it is of another kind."""
    if hint in _SCALARS:
        return _SCALARS[hint](value)
    kind, parts = get_origin(hint), get_args(hint)
    if kind is tuple:
        return _items(parts[0], value)
    if not isinstance(value, Mapping):
        return None
    if kind is not None:  # Mapping[str, X]
        items = ((k, _read(parts[1], v)) for k, v in value.items())
        return {k: v for k, v in items if v is not None}
    return hint.of_record(value) if hasattr(hint, "of_record") else from_json(hint, value)


def _items(hint: Any, value: Any) -> Any:
    """Return every item of a list; a number that is none stays as NaN, to be counted."""
    if not isinstance(value, list | tuple):  # a record made in this process has tuples
        return None
    items = map(_SCALARS.get(hint) or partial(_read, hint), value)
    if hint is float:
        return tuple(nan if v is None else v for v in items)
    return tuple(v for v in items if v is not None)


def _number(value: Any) -> float | None:
    """Return a number that a float can hold: int stays int, to be written as it was."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) < 1e300 and isfinite(value) else None


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    str: lambda value: value if isinstance(value, str) and value else None,
    _TEXT: lambda value: value if isinstance(value, str) else None,
    bool: lambda value: value if isinstance(value, bool) else None,
    int: lambda value: value if isinstance(value, int) and not isinstance(value, bool) else None,
    float: _number,
    Any: lambda value: value,
}


def amended(
    document: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a JSON object with what changed put in, and everything else as it is, to the letter.

    `document`: as it is: it may lack fields, or have some that nobody reads. `before`: what was
    read of it, written again. `after`: the same with the changes. A field more comes behind the one
    it follows here.
    """
    items = {k: v for k, v in document.items() if k in after or k not in before}
    names = list(after)
    for key, new in after.items():
        if key in before and before[key] == new:
            continue
        held, read = items.get(key), before.get(key)
        if isinstance(held, Mapping) and isinstance(read, Mapping) and isinstance(new, Mapping):
            new = amended(held, read, new)  # noqa: PLW2901
        if key in items:
            items[key] = new
        else:
            ahead = [k for k in names[: names.index(key)] if k in items]
            place = list(items).index(ahead[-1]) + 1 if ahead else 0
            rows = list(items.items())
            items = dict([*rows[:place], (key, new), *rows[place:]])
    return items


def plain(value: T) -> T:
    """Return a dataclass, or several, as the plain values of its JSON; typed as what it was.

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
    every = list(chain.from_iterable((x, *getattr(x, "sources", ())) for x in sources))
    keys = _keys(cast("Hashable", kind))
    return cast("T", {key: _filled(_value(key, hint, every), hint) for key, hint in keys})


@cache
def _keys(kind: Hashable) -> list[tuple[str, Any]]:
    return list(get_type_hints(cast("type", kind)).items())


def _value(key: str, hint: Any, sources: list[object]) -> Any:
    if key == "schema" and get_origin(hint) is Literal:
        return get_args(hint)[0]
    for source, name in product(sources, (key, key.removesuffix("_s"))):
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
    return json_safe(plain(value) if is_dataclass(value) else value)


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
