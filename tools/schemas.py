"""The typed documents of profkit  ->  profkit/schemas/<name>.json, a JSON Schema each.

    python tools/schemas.py

msgspec makes each of the type that a verb prints. Whatever a test prints is held to its schema
(tests/documents.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from profkit.diagnosis.document import DiagnosisDocument
from profkit.evidence.claims import ClaimsDocument
from profkit.evidence.compare import Compared
from profkit.evidence.gate import GateReport
from profkit.evidence.ladder import LaddersDocument, SummaryDocument
from profkit.evidence.noise import HistoryDocument, NoiseDocument
from profkit.evidence.stream import StreamedDocument
from profkit.evidence.tables import ColumnsDocument, QueryDocument
from profkit.files import write_text
from profkit.lab.measure.capture import CaptureDocument
from profkit.lab.measure.check import CheckDocument
from profkit.lab.measure.ladder import BuildDocument, ListDocument
from profkit.lab.measure.targets import BenchDocument
from profkit.lab.measure.variants.problem import NewDocument
from profkit.lab.measure.variants.toolchain import DoctorDocument
from profkit.lab.tune.run import TuneDocument
from profkit.model.whatif import WhatifDocument
from profkit.program.change import TriagesDocument
from profkit.program.document import SecondTriageDocument, TriageDocument
from profkit.records.ablation import AblateDocument
from profkit.records.record import ProfileDocument, Record
from profkit.records.store import Document

FOLDER = Path(__file__).parents[1] / "profkit" / "schemas"
DOCUMENTS = (
    AblateDocument,
    BenchDocument,
    BuildDocument,
    CaptureDocument,
    CheckDocument,
    ClaimsDocument,
    ColumnsDocument,
    Compared,
    DiagnosisDocument,
    DoctorDocument,
    GateReport,
    HistoryDocument,
    LaddersDocument,
    ListDocument,
    NewDocument,
    NoiseDocument,
    ProfileDocument,
    QueryDocument,
    SecondTriageDocument,
    StreamedDocument,
    SummaryDocument,
    TriageDocument,
    TriagesDocument,
    TuneDocument,
    WhatifDocument,
)
RUN = "profkit.run/1"


def make_schemas() -> dict[str, dict[str, Any]]:
    """Name -> schema of every document; two documents of one name are either of the two."""
    types: dict[str, list[Any]] = {}
    for document in DOCUMENTS:
        types.setdefault(_schema_name(document), []).append(document)
    schemas = {RUN: make_schema(RUN, [Record], "The run record <variant>.json next to a report.")}
    for name, kinds in types.items():
        schemas[name] = make_schema(name, kinds)
    return schemas


def _schema_name(document: Any) -> str:
    """Return what a document calls itself: its tag, or its `schema`."""
    if issubclass(document, msgspec.Struct):
        return str(document.__struct_config__.tag)
    (name,) = get_args(get_type_hints(document)["schema"])
    return str(name)


def make_schema(name: str, types: Iterable[Any], about: str = "") -> dict[str, Any]:
    refs, parts = msgspec.json.schema_components(types, schema_hook=_schema_of_text)
    about = about or " ".join(parts[_part_of(ref)]["description"] for ref in refs)
    if "VariantHeader" in parts:  # what a run record keeps of it: profkit.records.header
        parts["VariantHeader"] = {"type": ["object", "null"]}
    for kind in _structs_below(msgspec.Struct):
        if kind.__name__ in parts:
            _keep_printed(kind, parts[kind.__name__])
    either = refs[0] if len(refs) == 1 else {"anyOf": list(refs)}
    named = {"type": "object", "properties": {"schema": {"const": name}}, "required": ["schema"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "description": about,
        **named,
        **either,
        "$defs": _allow_null(_referenced_parts(refs, parts)),
    }


def _structs_below(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    yield kind
    for part in kind.__subclasses__():
        yield from _structs_below(part)


def _keep_printed(kind: type[msgspec.Struct], part: dict[str, Any]) -> None:
    """Leave out what no document shows; a document has each other key that is not UNSET."""
    properties = part["properties"]
    for key in [key for key, of in properties.items() if of.get("unprinted")]:
        del properties[key]
    for of in properties.values():
        for mark in ("where_known", "maybe_empty"):
            of.pop(mark, None)
    if issubclass(kind, Document):
        fields = msgspec.structs.fields(kind)
        absent = {field.encode_name for field in fields if field.default is msgspec.UNSET}
        part["required"] = [key for key in properties if key not in absent]


def _referenced_parts(refs: Iterable[Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the parts that are left, without those that only an unprinted field had."""
    waiting, found = list(refs), dict[str, Any]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, str) and one.startswith("#/$defs/"):
            name = one.removeprefix("#/$defs/")
            if name not in found:
                found[name] = parts[name]
                waiting.append(parts[name])
    return {name: found[name] for name in parts if name in found}


def _part_of(ref: dict[str, Any]) -> str:
    return str(ref["$ref"]).rpartition("/")[2]


def _schema_of_text(_: type) -> dict[str, Any]:
    """Return the schema of what is written as text: a path, an error; and of what is unprinted."""
    return {"type": "string"}


def _allow_null(schema: Any) -> Any:
    """Return it as it is printed: a number that is none (NaN, infinity) is null, wherever it is."""
    if isinstance(schema, list):
        return [_allow_null(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _allow_null(of) for key, of in schema.items() if key != "default"}
    return {**out, "type": ["number", "null"]} if out.get("type") == "number" else out


def file_of(name: str) -> Path:
    """Where the schema of a document stands: profkit.run/1 in profkit.run.1.json."""
    return FOLDER / f"{name.replace('/', '.')}.json"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, schema in make_schemas().items():
        write_text(file_of(name), json.dumps(schema, indent=1) + "\n")
