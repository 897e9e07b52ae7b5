"""The typed documents of profkit  ->  profkit/schemas/<name>.json, a JSON Schema each.

    python tools/schemas.py

Each is made (msgspec) of the type that the document's writer returns, or of the classes in it: what
a class says of itself is in its `JSON`. Whatever a test prints is held to its schema
(tests/documents.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from profkit.diagnosis.launches import HotLine, NvidiaRule
from profkit.diagnosis.rule import SourceShare
from profkit.errors import ProfkitError
from profkit.evidence.claims import Verified
from profkit.evidence.compare import Compared
from profkit.evidence.counters import Both
from profkit.evidence.gate import GateReport
from profkit.evidence.ladder import Ladder, Summary
from profkit.evidence.noise import HistoryStep, MachineNoise
from profkit.files import write_text
from profkit.measure.capture import CapturedEntry
from profkit.measure.check import Check
from profkit.measure.cuda.device import Gpu
from profkit.measure.cuda.library import GraphLaunch
from profkit.measure.ladder import Compiled, ListedVariant
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


class BuildDocument(TypedDict):
    """What `profkit check --build-only --json` prints."""

    schema: Literal["profkit.build/1"]
    builds: list[Compiled]


class CaptureDocument(TypedDict):
    """What `profkit capture --json` prints."""

    schema: Literal["profkit.capture/1"]
    kernels: list[CapturedEntry]


class CheckDocument(TypedDict):
    """What `profkit check --json` prints."""

    schema: Literal["profkit.check/1"]
    checks: list[Check]


class ClaimsDocument(TypedDict):
    """What `profkit claims --json` prints: each claim with its answer."""

    schema: Literal["profkit.claims/1"]
    files: list[Verified]


class ColumnsDocument(TypedDict):
    """What `profkit query --json` without a question prints: the columns that there are."""

    schema: Literal["profkit.history/1"]
    columns: list[dict[str, str]]


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


class HistoryDocument(TypedDict):
    """What `profkit history --json` prints."""

    schema: Literal["profkit.history/1"]
    steps: list[HistoryStep]


class LaddersDocument(TypedDict):
    """What `profkit ladder --json` prints: each variant against its parent."""

    schema: Literal["profkit.ladders/1"]
    ladders: list[Ladder]


class ListDocument(TypedDict):
    """What `profkit list --json` prints."""

    schema: Literal["profkit.list/1"]
    variants: list[ListedVariant]


class NewDocument(TypedDict):
    """What `profkit new --json` prints."""

    schema: Literal["profkit.new/1"]
    folder: str
    files: list[str]


class NoiseDocument(TypedDict):
    """What `profkit bench --aa N --json` prints."""

    schema: Literal["profkit.noise/1"]
    machines: list[MachineNoise]


class ProfileDocument(TypedDict):
    """What `profkit profile --variant NAME --json` prints: run records, with problem_message each."""

    schema: Literal["profkit.profile/1"]
    runs: list[Record]


class QueryDocument(TypedDict):
    """What `profkit query QUESTION --json` prints."""

    schema: Literal["profkit.query/1"]
    rows: list[dict[str, Any]]


class StreamedDocument(TypedDict):
    """What `profkit diagnose --history DIR --json` prints."""

    schema: Literal["profkit.streamed/1"]
    reports: int
    known: int
    launches: int
    not_ok: list[str]


class SummaryDocument(TypedDict):
    """What `profkit decide VARIANT --json` prints: one variant against others."""

    schema: Literal["profkit.summary/1"]
    summaries: list[Summary]


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


def every() -> dict[str, dict[str, Any]]:
    """Name -> schema of every document; two documents of one name are either of the two."""
    types: dict[str, list[Any]] = {}
    for document in map(_printed_as, DOCUMENTS):
        (name,) = get_args(get_type_hints(document)["schema"])
        types.setdefault(name, []).append(document)
    run = _schema(RUN, [Record], "The run record <variant>.json next to a report.")
    return {RUN: run, **{name: _schema(name, of) for name, of in types.items()}}


def _printed_as(hint: Any) -> Any:
    """The type of what is printed of a type: a class that is a Document is an object of its `JSON`."""
    kind, parts = get_origin(hint), [_printed_as(part) for part in get_args(hint)]
    if kind in (Union, UnionType):
        return reduce(or_, parts)
    if kind in (list, tuple, dict, Mapping):
        return dict[parts[0], parts[1]] if kind in (dict, Mapping) else list[parts[0]]
    if kind is Both:
        name = f"Both {getattr(parts[0], '__name__', '')}"
        return _object(name, Both.__doc__, (("before", parts[0]), ("after", parts[0])))
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        printed = {key: _printed_as(of) for key, of in hints.items()}
        return (
            hint
            if printed == hints
            else _object(hint.__name__, hint.__doc__, tuple(printed.items()))
        )
    written = isinstance(hint, type) and issubclass(hint, Document) and hint.JSON
    return _of_document(hint) if written else str if hint is ProfkitError else hint


@cache
def _of_document(kind: Any) -> Any:
    keys: dict[str, Any] = {}
    for word in kind.JSON.split():
        path, _, only = word.removesuffix("?").partition(":")
        hint = kind
        for name in path.split("."):
            hint = _attribute(hint, name)
        if only:
            several = get_origin(hint) is tuple
            one = get_args(hint)[0] if several else hint
            inner = ((key, _printed_as(_attribute(one, key))) for key in only.split(","))
            hint = _object(f"{one.__name__} of {kind.__name__}", one.__doc__, tuple(inner))
            hint = list[hint] if several else hint
        printed = _printed_as(hint)
        keys[path.rpartition(".")[2]] = printed | None if word.endswith("?") else printed
    return _object(kind.__name__, kind.__doc__, tuple(keys.items()))


def _attribute(kind: Any, name: str) -> Any:
    """The type of an attribute, as `Document` finds it."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    hints = get_type_hints(kind)
    name = name if name in hints or hasattr(kind, name) else name.removesuffix("_s")
    member = getattr(kind, name, None)
    if isinstance(member, property):
        return get_type_hints(member.fget)["return"]
    return hints[name] if name in hints else Literal[member]


@cache
def _object(name: str, about: str | None, keys: tuple[tuple[str, Any], ...]) -> Any:
    kind: Any = TypedDict(name, dict(keys))  # type: ignore[operator]
    kind.__doc__ = about
    return kind


def _schema(name: str, types: Iterable[Any], about: str = "") -> dict[str, Any]:
    refs, parts = msgspec.json.schema_components(types, schema_hook=_hook)
    about = about or " ".join(parts[ref["$ref"].rpartition("/")[2]]["description"] for ref in refs)
    if "Record" in parts:  # how it is written: profkit.records.store
        del parts["Record"]["properties"]["path"]
        parts["Header"] = {"type": ["object", "null"]}
    either = refs[0] if len(refs) == 1 else {"anyOf": list(refs)}
    named = {"type": "object", "properties": {"schema": {"const": name}}, "required": ["schema"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "description": about,
        **named,
        **either,
        "$defs": _printed(parts),
    }


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
