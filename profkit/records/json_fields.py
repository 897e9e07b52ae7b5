"""A dataclass  <->  its JSON object: what is absent or of another kind is the field's default.

A run record comes from anywhere and outlives the profkit that wrote it, so reading never fails on a
field: a number that is text is a number that is not known. A class that reads itself (`of_record`,
`to_record`) does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from math import isfinite, nan
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]
ABSENT = {"absent": True}  # metadata of a field that is left out of the JSON when it is None
EMPTY = {"empty": True}  # of a text that says something when it is empty


def from_json(kind: Callable[..., T], document: Mapping[str, Any]) -> T:
    """A dataclass of this kind from a JSON object."""
    known: dict[str, Any] = {}
    for name, read in _readers(kind):
        value = read(document.get(name))
        if value is not None:
            known[name] = value
    return kind(**known)


def as_json(value: Any) -> Any:
    """Plain values: tuples as lists, numbers that are no numbers as None."""
    if hasattr(value, "to_record"):
        return value.to_record()
    if is_dataclass(value):
        present = ((f, getattr(value, f.name)) for f in fields(value) if not f.metadata.get("file"))
        return {f.name: as_json(v) for f, v in present if not _left_out(f, v)}
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def amended(
    document: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """A JSON object with what changed put in, and everything else as it stands, to the letter.

    `document`: as it stands: it may lack fields, or have some that nobody reads. `before`: what was
    read of it, written again. `after`: the same with the changes. A field more comes behind the one
    it follows here.
    """
    items = {k: v for k, v in document.items() if k in after or k not in before}
    names = list(after)
    for key in names:
        new = after[key]
        if key in before and before[key] == new:
            continue
        held, read = items.get(key), before.get(key)
        if isinstance(held, Mapping) and isinstance(read, Mapping) and isinstance(new, Mapping):
            new = amended(held, read, new)
        if key in items:
            items[key] = new
        else:
            ahead = [k for k in names[: names.index(key)] if k in items]
            place = list(items).index(ahead[-1]) + 1 if ahead else 0
            rows = list(items.items())
            items = dict([*rows[:place], (key, new), *rows[place:]])
    return items


def _left_out(of: Field[Any], value: Any) -> bool:
    return value is None and bool(of.metadata.get("absent"))


@cache
def _readers(kind: Any) -> list[tuple[str, Reader]]:
    """Of each field that stands in the JSON, its name and what reads it."""
    hints = get_type_hints(kind)
    named = (f for f in fields(kind) if not f.metadata.get("file"))
    return [(f.name, _text if f.metadata.get("empty") else _reader(hints[f.name])) for f in named]


@cache
def _reader(hint: Any) -> Reader:
    """What reads a value of this type; None where it is of another kind."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _reader(next(part for part in parts if part is not NoneType))
    if origin is tuple:
        return _items(parts[0])
    if origin is not None:  # Mapping[str, X]
        return _values(_reader(parts[1]))
    if hasattr(hint, "of_record"):
        return lambda value: hint.of_record(value) if isinstance(value, Mapping) else None
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: from_json(hint, value) if isinstance(value, Mapping) else None
    return _SCALARS.get(hint, lambda value: value)


def _items(item: Any) -> Reader:
    """Of a list, every item; a number that is none stays as NaN, so that it can be counted."""
    read, missing = _reader(item), nan if item is float else None

    def items(value: Any) -> Any:
        if not isinstance(value, list | tuple):  # a record made in this process has tuples
            return None
        parts = [read(v) for v in value]
        return tuple(missing if v is None else v for v in parts if v is not None or missing)

    return items


def _values(read: Reader) -> Reader:
    def values(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return None
        return {k: v for k, entry in value.items() if (v := read(entry)) is not None}

    return values


def _number(value: Any) -> float | None:
    """A number that a float can hold: int stays int, so that a record is written as it was."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) < 1e300 and isfinite(value) else None


def _text(value: Any) -> str | None:
    """A text, also an empty one."""
    return value if isinstance(value, str) else None


_SCALARS: dict[Any, Reader] = {
    str: lambda value: value if isinstance(value, str) and value else None,
    bool: lambda value: value if isinstance(value, bool) else None,
    int: lambda value: value if isinstance(value, int) and not isinstance(value, bool) else None,
    float: _number,
}
