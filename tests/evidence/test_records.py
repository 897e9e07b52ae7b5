"""Run records as profkit.lab.measure writes them, and documents that are none."""

from __future__ import annotations

import json
import shutil
from math import nan
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.evidence.runs import Evidence, MissingEvidence, Run, load_runs_of_side
from profkit.records.parts import Resources
from profkit.records.record import SCHEMA, Record, parse_record, read_record
from profkit.reports import reader
from tests.conftest import ROOT
from tests.copies import replace
from tests.evidence.made import frame, row, run

WRITTEN = {
    "schema": SCHEMA,
    "variant": "stage2",
    "problem": "attention",
    "case": "B",
    "header": {
        "title": "WMMA for PV",
        "after": "stage1",
        "fixes": ["tensor-idle"],
        "fixes-not": ["barrier-wait"],
    },
    "source": {
        "file": "attention/stage2_wmma.cu",
        "sha256": "ab" * 32,
        "sass": "cd" * 32,
        "arch": "90",
        "flags": ["-O3"],
    },
    "resources": [{"name": "k", "regs": 80, "smem": 0, "spills": 8, "stack": 32}],
    "launches": [
        {
            "kernel": "k",
            "grid": [16, 8, 1],
            "block": [128, 1, 1],
            "dynamic_smem": 37120,
            "static_smem": 0,
            "regs": 84,
            "blocks_per_sm": 5,
        }
    ],
    "check": {
        "status": "right",
        "cases": [
            {"case": "B", "max_abs": 1e-4, "max_rel": 2e-3},
            {"case": "A", "max_abs": 3e-4, "max_rel": 1e-3},
        ],
        "sanitizer": {"memcheck": "clean", "racecheck": "2 errors: Race reported"},
    },
    "timing": {
        "session": "w1",
        "l2": {"warm": {"samples": [1e-5, 1.1e-5]}, "cold": None},
        "after": {"sm_clock": 1.98e9},
    },
    "gpu": {"name": "NVIDIA H200", "uuid": "GPU-1", "driver": "580"},
    "ncu": {"clock_control": "none"},
    "work": {"operations": 5.4e8, "compulsory_bytes": 2.1e6, "floors": {}},
}


def test_what_a_record_says():
    record = parse_record(WRITTEN, Path("stage2.B.json"))
    header = record.header
    assert (record.variant, record.case, header.title) == ("stage2", "B", "WMMA for PV")
    assert (header.after, header.fixes, header.fixes_not) == (
        "stage1",
        ("tensor-idle",),
        ("barrier-wait",),
    )
    assert record.largest_resources == Resources(
        registers=84, shared_static=0, shared_dynamic=37120, spills=8, stack=32
    )
    assert record.correct is True
    assert (record.max_abs, record.max_rel) == (3e-4, 2e-3)
    assert record.sanitizer_errors == ("racecheck",)
    assert (record.timing_session, record.warm_samples, record.cold_samples) == (
        "w1",
        (1e-5, 1.1e-5),
        (),
    )
    assert (record.gpu.name, record.gpu.uuid, record.gpu.driver) == ("NVIDIA H200", "GPU-1", "580")
    assert (record.sm_clock, record.clock_control) == (1.98e9, "none")
    assert (record.work.operations, record.work.compulsory_bytes) == (5.4e8, 2.1e6)
    assert not record.is_reference


def test_what_a_record_does_not_say_is_not_known():
    bare = parse_record({"variant": "sdpa", "case": "B"}, Path("x.json"))
    assert bare == Record(variant="sdpa", case="B", path=Path("x.json"))
    assert bare.is_reference
    assert bare.correct is None
    assert bare.largest_resources.spills is None


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


@pytest.mark.slow
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
    assert evidence.list_names() == [("stage2", "B")]
    run = evidence.load("stage2", "B")
    assert run is evidence.load("stage2", "B")
    assert run.samples == (1e-5, 1.1e-5)
    assert run.get_value_of_longest_launch("device") is None
    with pytest.raises(MissingEvidence) as raised:
        _ = run.launch
    assert raised.value.hint == "profkit profile --variant stage2 --case B"
    assert evidence.missing("stage2.B") is None
    assert "no run of v9 at case C" in evidence.missing("v9.C").message
    with pytest.raises(ProfkitError, match="not a variant and a case"):
        evidence.load("../etc/passwd", "B")


def test_reports_of_many_runs_are_read_together(monkeypatch):
    """One by one, this process would read them itself, and keep six times their bytes."""
    calls = []
    real = reader.read_report_files

    def read_report_files(paths):
        calls.append(len(paths))
        return real(paths)

    monkeypatch.setattr(reader, "read_report_files", read_report_files)
    runs, problems = Evidence(ROOT / "artifacts").load_all_usable_runs(
        lambda name: name[0] in {"copy", "matmul"}
    )
    with_reports = [run for run in runs if run.report]
    assert [len(run.launches) for run in with_reports] == [1, 1]
    assert [number for number in calls if number] == [2]
    assert not problems


def test_a_run_is_its_longest_launch_and_sums_all():
    launches = [
        row(kernel="a", time=1e-5, instructions=1.0),
        row(kernel="b", time=nan),
        row(kernel="c", time=9e-5, instructions=2.0),
        row(status="failed", time=1.0),
    ]
    found = run(launches=launches)
    assert (found.row["kernel"], found.get_value_of_longest_launch("kernel"), len(found.rows)) == (
        "c",
        "c",
        3,
    )
    assert found.launch["instructions"] == 2.0
    assert run(launches=[launches[0], launches[2]]).total("instructions") == 3.0
    with pytest.raises(MissingEvidence, match=r"instructions of stage1\.B was not collected"):
        found.total("instructions")
    with pytest.raises(MissingEvidence) as raised:
        run(launches=[]).total("instructions")
    assert raised.value.hint == "profkit profile --variant stage1 --case B"
    assert run(launches=[launches[3]]).get_value_of_longest_launch("kernel") is None
    assert Run("x", None, None, frame()).sha256 == ""


def test_what_to_do_about_a_run_without_times():
    """A record says its variant; a report alone is named by its file, which nobody can profile."""
    with pytest.raises(MissingEvidence, match=r"stage1\.B was never timed") as raised:
        _ = run(warm=()).samples
    assert raised.value.hint == "profkit bench --variant stage1 --case B"
    foreign = "a report has no timing: time both without a profiler"
    for launches, hint in (
        ([row(None, None), row(None, None)], foreign),
        ([row("stage1"), row(None, None)], "profkit bench --variant some"),
        ([], "profkit bench --variant some"),
    ):
        alone = Run("some", None, None, frame(*launches))
        with pytest.raises(MissingEvidence, match=r"some.* was never timed") as raised:
            _ = alone.timed
        assert raised.value.hint == hint
    recorded = replace(run(warm=()), _launches=frame(row(None, None)))
    with pytest.raises(MissingEvidence) as raised:
        _ = recorded.timed
    assert raised.value.hint == "profkit bench --variant stage1 --case B"


def test_a_variant_that_may_have_been_meant_is_named_before_the_command(tmp_path):
    for name in ("stage2.B", "stage2.C", "sdpa.B"):
        variant, case = name.split(".")
        written = {**WRITTEN, "variant": variant, "case": case}
        (tmp_path / f"{name}.json").write_text(json.dumps(written))
    (tmp_path / "stage9.D.ncu-rep").write_bytes(b"")
    evidence = Evidence(tmp_path)
    assert evidence.list_cases_with_record() == ["B", "C"], "of a report alone nothing was recorded"
    again = "profkit profile --variant {} --case {}"
    for name, hint in (
        ("stage2.Z", f"recorded cases: B, C; otherwise: {again.format('stage2', 'Z')}"),
        ("stage22.B", f"did you mean stage2 or stage9? otherwise: {again.format('stage22', 'B')}"),
        ("other.B", again.format("other", "B")),
    ):
        assert evidence.missing(name).hint == hint
    (tmp_path / "later.B.json").write_text(json.dumps({**WRITTEN, "variant": "later"}))
    assert evidence.load("later", "B").variant == "later", "recorded since it was looked at"


def test_one_side_of_a_comparison_is_a_record_a_report_beside_it_or_a_folder(tmp_path):
    record, report = tmp_path / "stage2.B.json", tmp_path / "stage2.B.ncu-rep"
    record.write_text(json.dumps(WRITTEN))
    shutil.copy(ROOT / "artifacts" / "scalar.B.ncu-rep", report)
    evidence = Evidence(tmp_path / "elsewhere")
    for side in (record, report, str(report), tmp_path):
        (found,) = load_runs_of_side(side, evidence)
        assert (found.name, found.record.timing_session, len(found.launches)) == (
            "stage2.B",
            "w1",
            1,
        )
    alone = tmp_path / "some.ncu-rep"
    shutil.move(report, alone)
    (found,) = load_runs_of_side(alone, evidence)
    assert (found.record, found.report) == (None, alone)
    assert load_runs_of_side(found, evidence) == [found]
    with pytest.raises(ProfkitError, match="no run at case Z"):
        load_runs_of_side(record, evidence, "Z")
    with pytest.raises(ProfkitError, match="no run of stage2 in") as raised:
        load_runs_of_side("stage2", evidence)
    assert raised.value.hint == "profkit profile --variant stage2", "nothing is recorded at all"


def test_half_a_folder_is_used_where_somebody_takes_its_problems(tmp_path):
    (tmp_path / "stage2.B.json").write_text(json.dumps(WRITTEN))
    (tmp_path / "broken.B.json").write_text("{")
    with pytest.raises(ProfkitError, match=r"broken\.B\.json: not JSON"):
        load_runs_of_side(tmp_path, Evidence(tmp_path))
    problems: list[ProfkitError] = []
    assert [r.name for r in load_runs_of_side(tmp_path, Evidence(tmp_path), None, problems)] == [
        "stage2.B"
    ]
    assert len(problems) == 1
    (tmp_path / "stage2.B.json").unlink()
    with pytest.raises(ProfkitError, match="not JSON"):
        load_runs_of_side(tmp_path, Evidence(tmp_path), None, [])


def test_a_damaged_report_spoils_counters_and_not_the_record(tmp_path):
    (tmp_path / "stage2.B.json").write_text(json.dumps(WRITTEN))
    (tmp_path / "stage2.B.ncu-rep").write_bytes(b"no report")
    (recorded,), problems = Evidence(tmp_path).load_all_usable_runs(are_counters_needed=False)
    assert (recorded.samples, problems) == ((1e-5, 1.1e-5), [])
    runs, (problem,) = Evidence(tmp_path).load_all_usable_runs()
    assert runs == []
    assert "stage2.B.ncu-rep: unreadable: " in problem.message
    assert problem.hint == "record it again: profkit profile"
