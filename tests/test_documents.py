"""The schemas are those of the types, every document has one, and whatever is committed keeps to it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from profkit.diagnosis.document import make_diagnosis_document
from profkit.diagnosis.launches import add_source_lines, judge_reports
from profkit.program.document import convert_from_second_form, convert_to_second_form
from profkit.records.store import make_json_safe
from profkit.reports.reader import read_report_files
from tests.conftest import ROOT, committed
from tests.documents import SCHEMAS, held, is_valid, validator
from tests.found import find_files
from tests.program.said import said

sys.path.insert(0, str(ROOT / "tools"))
# Written to files with readers of their own, or part of a document: printed by no verb.
FILES = {"grid", "ladder", "timeline"}
DATA = ROOT / "tests" / "program" / "data"
RECORDINGS = sorted(
    {
        *find_files(DATA, "**/*.triage"),
        *find_files(DATA, "**/*.json.gz"),
    }
)


@pytest.mark.slow
def test_the_schemas_are_made_of_the_types() -> None:
    import jsonschema
    import schemas

    made = {schemas.file_of(name).name: schema for name, schema in schemas.make_schemas().items()}
    assert made == {p.name: json.loads(p.read_text("utf-8")) for p in find_files(SCHEMAS, "*.json")}
    for schema in made.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_document_has_a_schema() -> None:
    sources = (path.read_text("utf-8") for path in find_files(ROOT / "profkit", "**/*.py"))
    named = {name for text in sources for name in re.findall(r'"profkit\.(\w+)/1"', text)}
    assert named - FILES == {p.name.split(".")[1] for p in find_files(SCHEMAS, "*.json")}


def test_every_committed_run_record_keeps_to_its_schema() -> None:
    records = [
        json.loads(p.read_text("utf-8")) for p in find_files(ROOT / "artifacts", "**/*.json")
    ]
    runs = [record for record in records if record.get("schema") == "profkit.run/1"]
    assert len(runs) > 100
    for record in runs:
        held(record)
    for wrong in ({"variant": 3}, {"schema": "profkit.gate/1"}, {"timing": {"l2": []}}):
        assert not is_valid({**runs[0], **wrong}, "profkit.run/1")
        assert not validator("profkit.run/1").is_valid({**runs[0], **wrong})
    assert validator("profkit.run/1").is_valid(runs[0]), "by the official validator, too"


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: p.name)
def test_the_triage_of_every_recording_keeps_to_its_schema(path: Path) -> None:
    document = said(str(path.relative_to(DATA)))
    held(make_json_safe(document))
    second = convert_to_second_form(document)
    held(make_json_safe(second))
    assert convert_from_second_form(second) == document
    for key in document:  # each key is asked for
        without = {k: of for k, of in document.items() if k != key}
        assert not is_valid(make_json_safe(without), "profkit.triage/1")


@pytest.mark.slow
def test_the_diagnosis_of_every_report_keeps_to_its_schema() -> None:
    reports = read_report_files(committed())
    runs = judge_reports(reports)
    assert len(runs) > 100
    for run in [*add_source_lines(runs[:20], 5, 5), *runs]:
        held(make_json_safe(make_diagnosis_document((), [run])))
    held(make_json_safe(make_diagnosis_document(reports.files, ())))
