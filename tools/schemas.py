"""The typed documents of profkit  ->  profkit/schemas/<name>.json, a JSON Schema each.

    python tools/schemas.py

msgspec makes each of the type that a verb prints. Whatever a test prints is held to its schema
(tests/documents.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args, get_type_hints

import msgspec

from profkit.diagnosis.launches import HotLine, NvidiaRule
from profkit.diagnosis.rule import SourceShare
from profkit.evidence.claims import ClaimsDocument
from profkit.evidence.compare import Compared
from profkit.evidence.gate import GateReport
from profkit.evidence.ladder import LaddersDocument, SummaryDocument
from profkit.evidence.noise import HistoryDocument, NoiseDocument
from profkit.evidence.tables import ColumnsDocument, QueryDocument
from profkit.files import write_text
from profkit.measure.capture import CapturedEntry
from profkit.measure.check import Check
from profkit.measure.cuda.device import Gpu
from profkit.measure.cuda.library import GraphLaunch
from profkit.measure.ladder import BuildDocument, ListedVariant
from profkit.measure.variants.toolchain import Inspection
from profkit.model.launch import Missing
from profkit.model.scenario import Expectation
from profkit.model.whatif import CounterChange
from profkit.program.change import TriagesDocument
from profkit.program.document import TriageDocument
from profkit.records.ablation import AblationRecord
from profkit.records.record import Record
from profkit.records.store import Document
from profkit.reports.frame import ReportFile


class TimedRow(TypedDict):
    """One variant or reference at a case; timing as a run record has it."""

    name: str
    backend: str | None
    launches: list[GraphLaunch]
    timing: dict[str, Any]


class AblatedRun(TypedDict):
    """What each cause costs a variant at a case."""

    variant: str
    case: str
    problem: str
    ablation: AblationRecord


class AblateDocument(TypedDict):
    """What `profkit ablate --json` prints."""

    schema: Literal["profkit.ablate/1"]
    runs: list[AblatedRun]


class BenchDocument(TypedDict):
    """What `profkit bench --json` prints: case -> what was timed, and on which GPU."""

    schema: Literal["profkit.bench/1"]
    gpu: dict[str, Any]
    gpus: dict[str, Gpu]
    cases: dict[str, list[TimedRow]]


class CaptureDocument(TypedDict):
    """What `profkit capture --json` prints."""

    schema: Literal["profkit.capture/1"]
    kernels: list[CapturedEntry]


class CheckDocument(TypedDict):
    """What `profkit check --json` prints."""

    schema: Literal["profkit.check/1"]
    checks: list[Check]


class NearBorderEntry(TypedDict):
    """The verdict that is nearly as true."""

    other: str
    margin: float


# In the form for keys that are words of Python.
FindingEntry = TypedDict(
    "FindingEntry",
    {
        "rule": str,
        "status": str,
        "cause": str,
        "gain": float | None,
        "expect": Expectation | None,
        "evidence": dict[str, float | None],
        "where": tuple[SourceShare, ...],
        "try": str,
        "note": bool,
    },
)


class TogetherEntry(TypedDict):
    """Two findings whose gains multiply, priced at once."""

    rules: list[str]
    gain: float | None
    expect: Expectation


class LaunchEntry(TypedDict):
    """One launch and the verdict on it; SI, shares from 0 to 1, null where not known."""

    report: str
    index: int
    kernel: str
    device: str | None
    cc: str | None
    grid: list[int] | None
    block: list[int] | None
    variant: str | None
    case: str | None
    status: str
    time_s: float | None
    bound: str
    limiter: str | None
    because: str
    near_border: NearBorderEntry | None
    headroom: float | None
    saves_s: float | None
    metrics: dict[str, float | None]
    findings: list[FindingEntry]
    together: TogetherEntry | None
    missing: tuple[Missing, ...]
    ncu_rules: tuple[NvidiaRule, ...]
    lines: tuple[HotLine, ...]


class DiagnosisDocument(TypedDict):
    """What `profkit diagnose --json` prints: files, and launches with verdict and findings."""

    schema: Literal["profkit.diagnosis/1"]
    reports: list[ReportFile]
    launches: list[LaunchEntry]


class DoctorDocument(TypedDict):
    """What `profkit doctor --json` prints."""

    schema: Literal["profkit.doctor/1"]
    findings: list[Inspection]


class ListDocument(TypedDict):
    """What `profkit list --json` prints."""

    schema: Literal["profkit.list/1"]
    variants: list[ListedVariant]


class NewDocument(TypedDict):
    """What `profkit new --json` prints."""

    schema: Literal["profkit.new/1"]
    folder: str
    files: list[str]


class ProfileDocument(TypedDict):
    """What `profkit profile --variant NAME --json` prints: run records, with problem_message each."""

    schema: Literal["profkit.profile/1"]
    runs: list[Record]


class StreamedDocument(TypedDict):
    """What `profkit diagnose --history DIR --json` prints."""

    schema: Literal["profkit.streamed/1"]
    reports: int
    known: int
    launches: int
    not_ok: list[str]


class TrialEntry(TypedDict):
    """A trial of a search: its configuration and what was said of it."""

    config: dict[str, Any]
    number: int
    name: str
    said: dict[str, Any]


class TuneDocument(TypedDict):
    """What `profkit tune --json` prints: how a search ended; with counts of its trials."""

    schema: Literal["profkit.tune/1"]
    variant: str
    problem: str
    case: str
    gpu: dict[str, Any]
    space: dict[str, list[Any]]
    possible: int
    refused_by_arithmetic: dict[str, Any]
    ended: str
    seconds: float
    champion: TrialEntry
    default: TrialEntry
    times: dict[str, Any]
    keep: bool
    because: str
    steered: bool
    output: str
    history: str


class WhatifAnswer(TypedDict):
    """What one run is expected to become."""

    case: str | None
    time_s: float | None
    expect: Expectation


class WhatifDocument(TypedDict):
    """What `profkit whatif SUBJECT CHANGES --json` prints."""

    schema: Literal["profkit.whatif/1"]
    variant: str
    changes: tuple[CounterChange, ...]
    answers: list[WhatifAnswer]


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
    if "Record" in parts:  # how it is written: profkit.records.store
        del parts["Record"]["properties"]["path"]
        parts["Header"] = {"type": ["object", "null"]}
    for kind in _documents_in(Document):
        if kind.__name__ in parts:
            _keep_printed(parts[kind.__name__])
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


def _documents_in(kind: type[Document]) -> Iterator[type[Document]]:
    yield kind
    for part in kind.__subclasses__():
        yield from _documents_in(part)


def _keep_printed(part: dict[str, Any]) -> None:
    """Leave out what no document shows; each of the other keys is always written."""
    properties = part["properties"]
    for key in [key for key, of in properties.items() if of.get("unprinted")]:
        del properties[key]
    part["required"] = list(properties)


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
