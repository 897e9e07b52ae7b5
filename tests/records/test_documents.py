"""A document is a Struct: its fields are its keys, and nothing else is written."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path

import msgspec
from msgspec import structs

from profkit.errors import ProfkitError
from profkit.records.record import ProfileDocument, ProfiledRun, Record
from profkit.records.store import Document, Unprinted, make_json_safe


class Part(Document, frozen=True, kw_only=True):
    factor: float = nan
    time: float | None = msgspec.field(default=None, name="time_s")
    seen: Unprinted[tuple[str, ...]] = ()


class Whole(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.test/1"):
    parts: tuple[Part, ...] = ()
    problems: tuple[ProfkitError, ...] = ()
    path: Path = msgspec.field(default_factory=Path)
    by_name: dict[str, Part] = msgspec.field(default_factory=dict)


def test_the_schema_is_first_and_keys_have_their_names() -> None:
    part = Part(factor=inf, time=1e-5, seen=("a",))
    whole = Whole(parts=(part,), problems=(ProfkitError("lost"),), path=Path("a/b"))
    document = json.loads(json.dumps(whole.to_json(), allow_nan=False))
    assert list(document) == ["schema", "parts", "problems", "path", "by_name"]
    assert document["parts"] == [{"factor": None, "time_s": 1e-5}], "no infinity, nothing unprinted"
    assert (document["problems"], document["path"]) == (["lost"], "a/b")


def test_a_document_in_anything_is_written_by_its_own_keys() -> None:
    whole = Whole(by_name={"x": Part(time=2.0)})
    plain = make_json_safe({"several": [whole], "one": Part()})
    assert plain["several"][0]["by_name"] == {"x": {"factor": None, "time_s": 2.0}}
    assert plain["one"] == {"factor": None, "time_s": None}


def test_a_profiled_run_is_its_record_and_what_hindered_it() -> None:
    record = Record(variant="v1", case="B", made="today", path=Path("x.json"))
    run = ProfiledRun(**structs.asdict(record), problem_message="no ncu")
    written = ProfileDocument(runs=(run,)).to_json()["runs"]
    assert written == [{**record.to_json(), "problem_message": "no ncu"}]
