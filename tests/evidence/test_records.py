"""Run records as profkit.measure writes them, and documents that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.evidence.runs import Evidence, MissingEvidence
from profkit.records.parts import Resources
from profkit.records.record import SCHEMA, Record, parse_record, read_record

WRITTEN = {
    "schema": SCHEMA,
    "variant": "stage2",
    "problem": "attention",
    "case": "B",
    "header": {"title": "WMMA for PV", "after": "stage1", "fixes": ["tensor-idle"],
               "fixes-not": ["barrier-wait"]},
    "source": {"file": "attention/stage2_wmma.cu", "sha256": "ab" * 32, "sass": "cd" * 32,
               "arch": "90", "flags": ["-O3"]},
    "resources": [{"name": "k", "regs": 80, "smem": 0, "spills": 8, "stack": 32}],
    "launches": [{"kernel": "k", "grid": [16, 8, 1], "block": [128, 1, 1], "dynamic_smem": 37120,
                  "static_smem": 0, "regs": 84, "blocks_per_sm": 5}],
    "check": {"status": "right", "cases": [{"case": "B", "max_abs": 1e-4, "max_rel": 2e-3},
                                            {"case": "A", "max_abs": 3e-4, "max_rel": 1e-3}],
              "sanitizer": {"memcheck": "clean", "racecheck": "2 errors: Race reported"}},
    "timing": {"session": "w1", "l2": {"warm": {"samples": [1e-5, 1.1e-5]}, "cold": None},
               "after": {"sm_clock": 1.98e9}},
    "gpu": {"name": "NVIDIA H200", "uuid": "GPU-1", "driver": "580"},
    "ncu": {"clock_control": "none"},
    "work": {"operations": 5.4e8, "compulsory_bytes": 2.1e6, "floors": {}},
}  # fmt: skip


def test_what_a_record_says():
    record = parse_record(WRITTEN, Path("stage2.B.json"))
    header = record.header
    assert (record.variant, record.case, header.title) == ("stage2", "B", "WMMA for PV")
    assert (header.after, header.fixes, header.fixes_not) == (
        "stage1", ("tensor-idle",), ("barrier-wait",),
    )  # fmt: skip
    assert record.most == Resources(84, 0, 37120, 8, 32)
    assert record.correct is True
    assert (record.max_abs, record.max_rel) == (3e-4, 2e-3)
    assert record.sanitizer_errors == ("racecheck",)
    assert (record.session, record.warm, record.cold) == ("w1", (1e-5, 1.1e-5), ())
    assert (record.gpu.name, record.gpu.uuid, record.gpu.driver) == ("NVIDIA H200", "GPU-1", "580")
    assert (record.sm_clock, record.clock_control) == (1.98e9, "none")
    assert (record.work.operations, record.work.compulsory_bytes) == (5.4e8, 2.1e6)
    assert not record.reference


def test_what_a_record_does_not_say_is_not_known():
    bare = parse_record({"variant": "sdpa", "case": "B"}, Path("x.json"))
    assert bare == Record("sdpa", "B", path=Path("x.json"))
    assert bare.reference
    assert bare.correct is None
    assert bare.most.spills is None


@pytest.mark.parametrize(
    ("status", "right"),
    [("right", True), ("wrong", False), ("failed", False), ("not supported", None)],
)
def test_right_or_wrong(status, right):
    given = {"variant": "x", "case": "B", "check": {"status": status}}
    assert parse_record(given).correct is right


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(WRITTEN)), JSON))
def test_any_document_is_a_record_or_a_clear_error(document):
    try:
        named = parse_record({**WRITTEN, **document}, Path("x.json")).path.name
    except ProfkitError as error:
        named = error.message
    assert "x.json" in named


def test_a_number_too_large_for_a_float_is_not_one():
    given = {"variant": "x", "case": "B", "work": {"operations": 10**400, "compulsory_bytes": 1}}
    work = parse_record(given).work
    assert (work.operations, work.compulsory_bytes) == (None, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a run record"),
        ('{"schema": "profkit.run/9"}', "profkit.run/9"),
    ],
)
def test_what_is_no_record_is_said(tmp_path, text, said):
    file = tmp_path / "v2.B.json"
    file.write_text(text)
    with pytest.raises(ProfkitError, match=said):
        read_record(file)
    with pytest.raises(ProfkitError, match=r"none\.json"):
        read_record(tmp_path / "none.json")


def test_evidence_is_read_once_and_says_what_is_missing(tmp_path):
    (tmp_path / "stage2.B.json").write_text(json.dumps(WRITTEN))
    evidence = Evidence(tmp_path)
    assert evidence.names() == [("stage2", "B")]
    run = evidence.load("stage2", "B")
    assert run is evidence.load("stage2", "B")
    assert run.samples == (1e-5, 1.1e-5)
    assert run.column("device") is None
    with pytest.raises(MissingEvidence) as raised:
        _ = run.launch
    assert raised.value.hint == "profkit profile --variant stage2 --case B"
    assert evidence.missing("stage2.B") is None
    assert "no run of v9 at case C" in evidence.missing("v9.C").message
    with pytest.raises(ProfkitError, match="not a variant and a case"):
        evidence.load("../etc/passwd", "B")
