"""A field or a key more is one line in one file: nothing is lost on the way to JSON and back."""

from __future__ import annotations

import json
from math import nan

import msgspec
import pytest

from profkit.records.header import KEYS, SPEAKS, VariantHeader, parse_header
from profkit.records.paths import find_all_run_files
from profkit.records.record import SCHEMA, Record, amend_record, read_record
from profkit.records.store import WhereKnown, make_json_safe, read_struct
from tests.conftest import ROOT
from tests.copies import replace
from tests.found import find_files

RECORDED = [
    files.record for several in find_all_run_files(ROOT / "artifacts").values() for files in several
]


def known(value):
    """A document without what it does not say."""
    if isinstance(value, dict):
        held = {k: known(v) for k, v in value.items()}
        return {k: v for k, v in held.items() if v not in (None, [], {}, "")}
    return [known(v) for v in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in RECORDED if p], ids=lambda p: p.stem + p.parent.name)
def test_every_committed_record_loses_nothing(path) -> None:
    assert known(read_record(path).to_json()) == known(json.loads(path.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in RECORDED if p], ids=lambda p: p.stem + p.parent.name)
def test_every_committed_record_is_written_again_to_the_letter(path, tmp_path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    record = read_record(copy)
    amend_record(record)
    assert copy.read_bytes() == path.read_bytes()
    if record.source and not record.source.host:
        amend_record(replace(record, source=replace(record.source, host="a" * 64)))
        old, new = (p.read_text().splitlines() for p in (path, copy))
        assert [line for line in new if "a" * 64 not in line] == old
        assert len(new) == len(old) + 1


def test_only_what_changed_is_written(tmp_path) -> None:
    path = tmp_path / "v1.B.json"
    document = {
        "schema": SCHEMA,
        "nobody": {"knows": 1},
        "case": "B",
        "variant": "v1",
        "backend": "x",
        "timing": {"why_wide": ""},
        "source": {"sha256": "old", "more": [2], "sass": "s"},
    }
    path.write_text(json.dumps(document))
    record = read_record(path)
    assert record.timing.why_wide == "", "known to be narrow"
    source = replace(record.source, sha256="new", host="h", made_from="old")
    amend_record(replace(record, made="today", backend=None, source=source))
    source = {"sha256": "new", "more": [2], "sass": "s", "host": "h", "made_from": "old"}
    wanted = {**document, "source": source, "made": "today"}
    assert json.loads(path.read_text()) == {k: v for k, v in wanted.items() if k != "backend"}
    assert read_record(path).source.made_from == "old"


class Inner(msgspec.Struct, frozen=True):
    size: float | None = None
    names: tuple[str, ...] = ()


class Outer(msgspec.Struct, frozen=True):
    """Every kind of field that a record has."""

    text: str | None = None
    whole: int | None = None
    flag: bool | None = None
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    samples: tuple[float, ...] = ()
    named: dict[str, float] = msgspec.field(default_factory=dict)
    rare: WhereKnown[str] = None


def test_a_class_is_its_own_reader_and_writer() -> None:
    outer = Outer("a", 3, False, Inner(1.5, ("x",)), (Inner(2),), (1.0, 2.0), {"b": 1.0}, "r")
    assert read_struct(Outer, json.loads(json.dumps(make_json_safe(outer)))) == outer
    assert "rare" not in make_json_safe(replace(outer, rare=None))


@pytest.mark.parametrize(
    ("said", "read", "damaged"),
    [
        (
            {"text": 3, "whole": "3", "flag": 1, "inner": [], "several": {}, "named": 3},
            Outer(),
            ["text", "whole", "flag", "inner", "several", "named"],
        ),
        ({"whole": True, "text": "", "flag": None}, Outer(), ["whole"]),
        ({"several": [{"size": 1}, 3, None]}, Outer(several=(Inner(1),)), ["several[1]"]),
        (
            {"inner": {"size": 1e301, "names": ["a", 3]}},
            Outer(inner=Inner(None, ("a",))),
            ["inner.size", "inner.names[1]"],
        ),
        ({"named": {"a": 1, "b": "2", "c": None}}, Outer(named={"a": 1}), ["named.b"]),
        ({"of tomorrow": 1}, Outer(), []),
    ],
)
def test_what_is_of_another_kind_is_not_known_and_named(said, read, damaged) -> None:
    paths: list[str] = []
    assert read_struct(Outer, said, paths) == read
    assert paths == damaged


def test_of_many_damaged_values_some_are_named() -> None:
    paths: list[str] = []
    read = read_struct(Outer, {"samples": ["x"] * 1000}, paths)
    assert len(read.samples) == 1000
    assert paths == [f"samples[{place}]" for place in range(100)]


def test_samples_that_are_no_numbers_are_counted() -> None:
    samples = read_struct(Outer, {"samples": [1.0, None, "x", 2.0]}).samples
    assert [s for s in samples if s == s] == [1.0, 2.0]
    assert len(samples) == 4
    assert make_json_safe(Outer(samples=(nan,)))["samples"] == [None]


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_key_is_read_and_recorded_by_its_own_line(key: str) -> None:
    header = parse_header(f"// Title\n// {key}: word\n", "x.cu")
    assert getattr(header, key.replace("-", "_")) in ("word", ("word",), ["word"])
    record = Record(variant="v", case="B", header=header)
    kept = read_struct(Record, record.to_json()).header
    written = key in record.to_json()["header"]
    assert (kept.keys == header.keys) == written
    assert not written or key in SPEAKS, "what a record keeps may be mended without going stale"


def test_no_header_is_written_as_none() -> None:
    assert Record(variant="sdpa", case="B").to_json()["header"] is None
    assert VariantHeader.from_record({"title": 3, "fixes": [1, "a"], "after": ["b"]}).fixes == (
        "a",
    )


def test_the_schema_and_the_keys_stand_in_one_file() -> None:
    texts = {p: p.read_text("utf-8") for p in find_files(ROOT / "profkit", "**/*.py")}
    assert [p.name for p, text in texts.items() if f'"{SCHEMA}"' in text] == ["record.py"]
    for key in ("caught-by", "declares", "relieves"):
        assert [p.name for p, text in texts.items() if f'"{key}"' in text] == []
