"""The JSON documents of profkit  ->  profkit/schemas/<name>.json, a JSON Schema each.

    python tools/schemas.py

They are inferred (GenSON) from the committed run records and from what the verbs print about committed
artifacts; tests/test_site.py holds each document to its schema.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genson import SchemaBuilder
from typer.testing import CliRunner

from profkit.cli.app import app
from profkit.files import write_text

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "profkit" / "schemas"
# Objects whose keys are names (of metrics, of cases), not fields.
MAPS = ("metrics", "evidence", "recorded")
# Schema -> what the document is, and the command lines whose output it is.
DOCUMENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "profkit.diagnosis/1": (
        "What `profkit diagnose --json` prints: files, and launches with verdict and findings.",
        (
            "diagnose artifacts/stage2.B.ncu-rep artifacts/sdpa-cudnn.B.ncu-rep --lines 3 --json",
            "diagnose artifacts/copy.1GiB.ncu-rep artifacts/matmul.4096.ncu-rep --json",
        ),
    ),
    "profkit.compare/1": (
        "What `profkit compare BEFORE AFTER --json` prints.",
        ("compare stage1 stage2 --case B --json", "compare stage2 stage2swizzle --case B --json"),
    ),
    "profkit.ladders/1": (
        "What `profkit compare --ladder --json` prints: each variant against its parent.",
        ("compare --ladder --case B --json",),
    ),
    "profkit.summary/1": (
        "What `profkit report VARIANT --json` prints: one variant against baseline and references.",
        ("report stage2 --case B --json", "report champion --case B --json"),
    ),
    "profkit.claims/1": (
        "What `profkit verify --json` prints: each claim with its answer.",
        ("verify analyses/v3_gate.py --json",),
    ),
    "profkit.whatif/1": (
        "What `profkit whatif --json` prints.",
        ("whatif stage2 --with shared_wavefronts*0.25 --json",),
    ),
    "profkit.scores/1": ("What `profkit ledger --json` prints.", ("ledger --json",)),
    "profkit.triage/1": (
        "What `profkit triage --json` prints: a program's step, and what to do first.",
        ("triage tests/program/data/elementwise_chain.planted.json.gz --json",),
    ),
    "profkit.list/1": ("What `profkit list --json` prints.", ("list --json",)),
    "profkit.doctor/1": ("What `profkit doctor --json` prints.", ("doctor --json",)),
}


def printed(command: str) -> Any:
    """The document that a command prints, given in the project's folder."""
    with contextlib.chdir(ROOT):
        done = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    return json.loads(done.stdout)


def of_documents(name: str) -> dict[str, Any]:
    """The schema of what the commands of a document print."""
    about, asked = DOCUMENTS[name]
    builder = SchemaBuilder()
    for command in asked:
        document = printed(command)
        if document["schema"] != name:
            raise ValueError(f"{command}: prints {document['schema']}, not {name}")
        builder.add_object(document)
    return _finished(name, about, builder.to_schema())


def of_run_record() -> dict[str, Any]:
    """The schema of the run record beside a report, from the records that are committed."""
    builder = SchemaBuilder()
    for file in sorted((ROOT / "artifacts" / "attention").rglob("*.json")):
        builder.add_object(json.loads(file.read_text("utf-8")))
    about = "The run record <variant>.json that stands beside a report."
    return _finished("profkit.run/1", about, builder.to_schema())


def _finished(name: str, about: str, schema: dict[str, Any]) -> dict[str, Any]:
    body = _opened(schema)
    body.pop("$schema", None)
    body["properties"]["schema"] = {"const": name}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name}
    return {**head, "description": about, **body}


def _opened(schema: Any) -> Any:
    """A schema in which what is keyed by names is a map, and numbers may be whole."""
    if isinstance(schema, list):
        return [_opened(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _opened(value) for key, value in schema.items()}
    if isinstance(out.get("properties"), dict):
        for name in MAPS:
            if name in out["properties"]:
                out["properties"][name] = {"type": ["object", "null"]}
    return out


def file_of(name: str) -> Path:
    """Where the schema of a document stands: profkit.run/1 in profkit.run.1.json."""
    return FOLDER / f"{name.replace('/', '.')}.json"


def every() -> dict[str, dict[str, Any]]:
    """Name -> schema of every document."""
    return {"profkit.run/1": of_run_record(), **{name: of_documents(name) for name in DOCUMENTS}}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, schema in every().items():
        write_text(file_of(name), json.dumps(schema, indent=1) + "\n")
