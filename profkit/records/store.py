"""Values, dataclasses, documents of a declared form  <->  JSON; a file  ->  its hash.

A run record comes from anywhere and outlives the profkit that wrote it, so reading a dataclass never
fails on a field: what is absent or of another kind is the field's default, and a number that is text
is a number that is not known. A class that reads itself has `of_record`, one that writes itself
`to_json`.
"""

from __future__ import annotations

import hashlib
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from math import isfinite, nan
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from profkit.files import open_regular

T = TypeVar("T")
JsonObject = dict[str, Any]  # what json.loads gives of a document of ours: a border, nothing else
ABSENT = {"absent": True}  # metadata of a field that is left out of the JSON when it is None
EMPTY = {"empty": True}  # of a text that says something when it is empty; "file": of no JSON
_TEXT = object()  # the type of such a text


# Of a field that the program needs and no document shows.
Unprinted = Annotated[T, msgspec.Meta(extra_json_schema={"unprinted": True})]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Anything that is printed as JSON: each field is a key, in this order; null where not known.

    A key that is UNSET is left out.
    """

    def to_json(self) -> JsonObject:
        """Return plain values under the keys of the document."""
        config = self.__struct_config__
        document: JsonObject = {}
        if config.tag_field is not None:
            document[config.tag_field] = config.tag
        for field in _printed_fields(type(self)):
            value = getattr(self, field.name)
            if value is not msgspec.UNSET:
                document[field.encode_name] = json_safe(value)
        return document


@cache
def _printed_fields(kind: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    """Return the fields of a document without those that are Unprinted."""
    (unprinted,) = get_args(Unprinted)[1:]
    fields_of = msgspec.structs.fields(kind)
    return [field for field in fields_of if unprinted not in get_args(field.type)[1:]]


def json_safe(value: Any) -> Any:
    """Return a value for JSON: NaN and infinity as None, tuples as lists, paths and errors as text."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(k): json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(v) for v in value]
    if is_dataclass(value):
        return json_fields(value)
    return str(value) if isinstance(value, Path | Exception) else value


def json_fields(value: Any) -> JsonObject:
    """Return the fields of a dataclass for JSON: as their metadata say."""
    pairs = ((f, getattr(value, f.name)) for f in fields(value) if not f.metadata.get("file"))
    kept = ((f, v) for f, v in pairs if v is not None or not f.metadata.get("absent"))
    return {f.name: json_safe(v) for f, v in kept}


def from_json(kind: Callable[..., T], document: Mapping[str, Any]) -> T:
    read = ((name, _read(hint, document.get(name))) for name, hint in _hints(kind))
    return kind(**{name: value for name, value in read if value is not None})


@cache
def _hints(kind: Any) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind)
    named = (f for f in fields(kind) if not f.metadata.get("file"))
    return [(f.name, _TEXT if f.metadata.get("empty") else _known(hints[f.name])) for f in named]


def _known(hint: Any) -> Any:
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


_SCHEMA = re.compile(r"profkit\.[a-z]{1,20}/\d{1,3}", re.ASCII)


def name_schema(schema: object) -> str:
    """Return what a document says it is, where that is a document of profkit's.

    Anything else stays unsaid: an error would show a part of a file that is none of ours.
    """
    return schema if isinstance(schema, str) and _SCHEMA.fullmatch(schema) else "something else"


def digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
