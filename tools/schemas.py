"""The typed documents of profkit  ->  profkit/schemas/<name>.json, a JSON Schema each.

    python tools/schemas.py

Each is made of the type that the document's writer returns (msgspec): what it may be is written once.
Whatever a test prints is held to its schema (tests/documents.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from profkit.evidence.calibration import ScoresDocument
from profkit.evidence.claims import ClaimsDocument
from profkit.evidence.gate import GateDocument
from profkit.evidence.history.noise import NoiseDocument
from profkit.evidence.history.steps import ColumnsDocument, HistoryDocument, QueryDocument
from profkit.evidence.history.stream import StreamedDocument
from profkit.evidence.ladder import LaddersDocument, SummaryDocument
from profkit.evidence.sides import CompareDocument
from profkit.files import write_text
from profkit.measure.capture import CaptureDocument
from profkit.measure.check.check import CheckDocument
from profkit.measure.doctor import DoctorDocument
from profkit.measure.ladder import BuildDocument, ListDocument
from profkit.measure.targets import BenchDocument
from profkit.measure.variants.scaffold import NewDocument
from profkit.model.whatif import WhatifDocument
from profkit.program.change import TriagesDocument
from profkit.program.document import TriageDocument
from profkit.records.record import ProfileDocument, Record
from profkit.show.views.document import DiagnosisDocument
from profkit.tune.run import TuneDocument

FOLDER = Path(__file__).parents[1] / "profkit" / "schemas"
DOCUMENTS = (
    BenchDocument, BuildDocument, CaptureDocument, CheckDocument, ClaimsDocument, ColumnsDocument,
    CompareDocument, DiagnosisDocument, DoctorDocument, GateDocument, HistoryDocument, LaddersDocument,
    ListDocument, NewDocument, NoiseDocument, ProfileDocument, QueryDocument, ScoresDocument,
    StreamedDocument, SummaryDocument, TriageDocument, TriagesDocument, TuneDocument, WhatifDocument,
)  # fmt: skip
RUN = "profkit.run/1"


def every() -> dict[str, dict[str, Any]]:
    """Name -> schema of every document; two documents of one name are either of the two."""
    types: dict[str, list[Any]] = {}
    for document in DOCUMENTS:
        (name,) = get_args(get_type_hints(document)["schema"])
        types.setdefault(name, []).append(document)
    run = _schema(RUN, [Record], "The run record <variant>.json next to a report.")
    return {RUN: run, **{name: _schema(name, of) for name, of in types.items()}}


def _schema(name: str, types: Iterable[Any], about: str = "") -> dict[str, Any]:
    refs, parts = msgspec.json.schema_components(types, schema_hook=_hook)
    about = about or " ".join(parts[ref["$ref"].rpartition("/")[2]]["description"] for ref in refs)
    if "Record" in parts:  # how it is written: profkit.records.store
        del parts["Record"]["properties"]["path"]
        parts["Header"] = {"type": ["object", "null"]}
    either = refs[0] if len(refs) == 1 else {"anyOf": list(refs)}
    named = {"type": "object", "properties": {"schema": {"const": name}}, "required": ["schema"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": name,
        "description": about, **named, **either, "$defs": _printed(parts),
    }  # fmt: skip


def _hook(kind: type) -> dict[str, Any]:
    """Of what msgspec does not know: a path, which no document holds."""
    if issubclass(kind, Path):
        return {"type": "string"}
    raise NotImplementedError(kind)


def _printed(schema: Any) -> Any:
    """As it is printed: a number that is none (NaN, infinity) is null, wherever it stands."""
    if isinstance(schema, list):
        return [_printed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _printed(of) for key, of in schema.items() if key != "default"}
    return {**out, "type": ["number", "null"]} if out.get("type") == "number" else out


def file_of(name: str) -> Path:
    """Where the schema of a document stands: profkit.run/1 in profkit.run.1.json."""
    return FOLDER / f"{name.replace('/', '.')}.json"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, schema in every().items():
        write_text(file_of(name), json.dumps(schema, indent=1) + "\n")
