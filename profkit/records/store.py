"""Documents and run records  <->  JSON; a file  ->  its hash.

Both are msgspec Structs: their fields are the keys. A run record comes from anywhere and outlives the
profkit that wrote it, so reading one never fails on a field: what is absent or of another kind is the
field's default, and the path of what is of another kind is kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import inspect, structs

from profkit.errors import ProfkitError
from profkit.files import open_regular_file

if TYPE_CHECKING:
    from profkit.units import PlainValues, Sha256


T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class Read(NamedTuple, Generic[T]):
    """What was read, and an error for each file that could not be."""

    found: T
    problems: list[ProfkitError]


JsonObject = dict[str, Any]  # what json.loads gives of a document of ours: a border, nothing else

# Of a field that the program needs and no document shows.
Unprinted = Annotated[T, msgspec.Meta(extra_json_schema={"unprinted": True})]
# Of a field that is left out of the JSON where it is None.
WhereKnown = Annotated[T | None, msgspec.Meta(extra_json_schema={"where_known": True})]
# Of a text that says something when it is empty; any other empty text is not known.
MaybeEmpty = Annotated[str | None, msgspec.Meta(extra_json_schema={"maybe_empty": True})]
_UNPRINTED, _WHERE_KNOWN, _MAYBE_EMPTY = (
    get_args(mark)[1] for mark in (Unprinted, WhereKnown, MaybeEmpty)
)
_LARGEST = 1e300  # of a number that counts as one
_MOST_DAMAGED = 100  # values of one document that are named


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Anything that is printed as JSON: each field is a key, in this order; null where not known.

    A key that is UNSET is left out.
    """

    def to_json(self) -> JsonObject:
        """Return plain values under the keys of the document."""
        return convert_struct_to_json(self)


def convert_struct_to_json(struct: msgspec.Struct) -> JsonObject:
    """Return the JSON of a Struct: its schema, then each field that is printed."""
    config = struct.__struct_config__
    document: JsonObject = {}
    if config.tag_field is not None:
        document[config.tag_field] = config.tag
    for field in _list_fields(type(struct)):
        value = getattr(struct, field.name)
        left_out = value is msgspec.UNSET or (value is None and field.mark == _WHERE_KNOWN)
        if not left_out:
            document[field.key] = make_json_safe(value)
    return document


class _Field(NamedTuple):
    """One field that is printed."""

    name: str
    key: str
    kind: inspect.Type
    mark: msgspec.Meta | None  # WhereKnown, MaybeEmpty or none
    is_scalar: Callable[[Any], bool] | None  # whether a value is of this type; None of a compound


@cache
def _list_fields(struct: type[msgspec.Struct]) -> tuple[_Field, ...]:
    """Return the fields of a Struct without those that are Unprinted."""
    (info,) = inspect.multi_type_info([struct])
    if isinstance(info, inspect.StructType):
        types = info.fields
    else:
        types = ()
    printed = []
    for field, typed in zip(structs.fields(struct), types, strict=True):
        marks = []
        for part in get_args(field.type):
            if isinstance(part, msgspec.Meta):
                marks.append(part)
        mark = None
        if marks:
            mark = marks[0]
        if mark != _UNPRINTED:
            kind = _strip_null_type(typed.type)
            printed.append(
                _Field(field.name, field.encode_name, kind, mark, _SCALARS.get(type(kind)))
            )
    return tuple(printed)


def make_json_safe(value: Any) -> PlainValues:
    """Return a value for JSON: NaN and infinity as None, tuples as lists, paths and errors as text."""
    if isinstance(value, float):
        if isfinite(value):
            return value
        return None
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, msgspec.Struct):
        return convert_struct_to_json(value)
    if isinstance(value, Mapping):
        return {str(k): make_json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [make_json_safe(v) for v in value]
    if is_dataclass(value):
        return {field.name: make_json_safe(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Path | Exception):
        return str(value)
    return value


# What is not known, of the kinds of values that JSON has; msgspec's own types say which are meant.


def read_struct(
    struct_type: type[S], document: Mapping[str, Any], damaged_fields: list[str] | None = None
) -> S:
    """Return a Struct of what a JSON document says of it.

    What is absent, null or of another kind is the field's default. `damaged_fields` takes the path of
    each value that is of another kind: `timing.l2.warm.samples[3]`.
    """
    known = _FieldReader([] if damaged_fields is None else damaged_fields)
    values = known.read_fields(struct_type, document, "")
    return msgspec.convert(values, struct_type)


class _FieldReader:
    """Keeps the values that are of their field's type, and names the others.

    Most values are numbers and texts: these are tried first, and the path of a value is only written
    where something is wrong with it, or in it.
    """

    def __init__(self, damaged: list[str]) -> None:
        self.damaged = damaged

    def read_fields(
        self, struct: type[msgspec.Struct], document: Mapping[str, Any], parent_path: str
    ) -> JsonObject:
        """Return the known fields that are of their kind; the others are noted as damaged."""
        values = {}
        for field in _list_fields(struct):
            found = document.get(field.key)
            if found is None or (found == "" and field.mark != _MAYBE_EMPTY):
                continue
            if field.is_scalar is not None and field.is_scalar(found):
                values[field.key] = found
                continue
            if parent_path:
                place = f"{parent_path}.{field.key}"
            else:
                place = field.key
            value = self.read_value(field.kind, found, place)
            if value is not None:
                values[field.key] = value
        return values

    def read_value(self, value_type: inspect.Type, value: PlainValues, field_path: str) -> Any:
        """Return the value as one of this type; None, with its path kept, where it is none."""
        value_type = _strip_null_type(value_type)
        if isinstance(value_type, inspect.StructType) and isinstance(value, Mapping):
            return self.read_fields(value_type.cls, value, field_path)
        if isinstance(value_type, inspect.DataclassType) and isinstance(value, Mapping):
            return value_type.cls.from_record(value)  # type: ignore[attr-defined]  # a kernel's header
        if isinstance(value_type, inspect.DictType) and isinstance(value, Mapping):
            return self.read_mapping_items(value_type.value_type, value, field_path)
        # A record made in this process has tuples.
        if isinstance(value_type, inspect.VarTupleType) and isinstance(value, list | tuple):
            return self.read_list_items(value_type.item_type, value, field_path)
        is_scalar = _SCALARS.get(type(value_type))
        if is_scalar is not None and is_scalar(value):
            return value
        if len(self.damaged) < _MOST_DAMAGED:
            self.damaged.append(field_path)
        return None

    def read_mapping_items(
        self, item_type: inspect.Type, items: Mapping[str, Any], field_path: str
    ) -> JsonObject:
        """Return the items of a mapping that can be read; `field_path` is its name in problems."""
        read = {}
        for key, item in items.items():
            if item in (None, ""):
                value = None
            else:
                value = self.read_value(item_type, item, f"{field_path}.{key}")
            if value is not None:
                read[key] = value
        return read

    def read_list_items(
        self, item_type: inspect.Type, items: list[Any] | tuple[Any, ...], field_path: str
    ) -> Any:
        """Return the items; a number that is none stays as NaN, to be counted."""
        is_number = isinstance(item_type, inspect.FloatType)
        if is_number and all(map(_is_float, items)):
            return tuple(items)
        read = []
        for place, item in enumerate(items):
            is_absent = item is None or item == ""
            if is_absent:
                value = None
            else:
                value = self.read_value(item_type, item, f"{field_path}[{place}]")
            if is_number:
                read.append(nan if value is None else value)
            elif value is not None:
                read.append(value)
        return tuple(read)


def _strip_null_type(kind: inspect.Type) -> inspect.Type:
    """Return the type of a field where it is known."""
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        kinds = []
        for part in kind.types:
            if not isinstance(part, inspect.NoneType):
                kinds.append(part)
        return _strip_null_type(kinds[0])
    return kind


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # which Python counts as a number


def _is_float(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < _LARGEST  # NaN is not


# Type of a number or text -> whether a value is one.
_SCALARS: Mapping[type[inspect.Type], Callable[[Any], bool]] = {
    inspect.AnyType: lambda _value: True,
    inspect.StrType: _is_text,
    inspect.BoolType: _is_bool,
    inspect.IntType: _is_int,
    inspect.FloatType: _is_float,
}


def amend_document(
    document: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a JSON object with what changed put in, and everything else as it is, to the letter.

    `document`: as it is: it may lack fields, or have some that nobody reads. `before`: what was
    read of it, written again. `after`: the same with the changes. A field more comes behind the one
    it follows here.
    """
    items = {}
    for k, v in document.items():
        if k in after or k not in before:
            items[k] = v
    names = list(after)
    for key, new in after.items():
        if key in before and before[key] == new:
            continue
        held = items.get(key)
        read = before.get(key)
        if isinstance(held, Mapping) and isinstance(read, Mapping) and isinstance(new, Mapping):
            items[key] = amend_document(held, read, new)
        elif key in items:
            items[key] = new
        else:
            items = _insert_key(items, key, new, names[: names.index(key)])
    return items


def _insert_key(
    items: Mapping[str, Any], key: str, value: Any, ahead: Sequence[str]
) -> dict[str, Any]:
    """Return the items with one more, behind the last of `ahead` that is there."""
    there = [name for name in ahead if name in items]
    place = 0
    if there:
        place = list(items).index(there[-1]) + 1
    rows = list(items.items())
    return dict([*rows[:place], (key, value), *rows[place:]])


_SCHEMA = re.compile(r"profkit\.[a-z]{1,20}/\d{1,3}", re.ASCII)


def get_schema_name(schema: object) -> str:
    """Return what a document says it is, where that is a document of profkit's.

    Anything else stays unsaid: an error would show a part of a file that is none of ours.
    """
    if isinstance(schema, str) and _SCHEMA.fullmatch(schema):
        return schema
    return "something else"


def compute_sha256_of_file(path: Path) -> Sha256:
    """Return the SHA-256 of a file's content, as hexadecimal digits."""
    with open_regular_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
