"""Where runs lie in a folder of artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.evidence.runs import Evidence
from profkit.records.paths import (
    find_all_run_files,
    find_run_files,
    make_run_paths,
    require_single_run,
)
from tests.conftest import ROOT
from tests.found import find_files

RECORD = '{"schema": "profkit.run/1", "variant": "v1", "case": "B"}'


def put(root: Path, *names: str, text: str = RECORD) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_by_folders_flat_and_in_one_folder_below(tmp_path: Path) -> None:
    put(
        tmp_path,
        "p/B/v1.json",
        "p/B/v1.ncu-repz",
        "p/B/v2.ncu-rep",
        "v3.A.json",
        "lib/v4.C.ncu-rep",
    )
    found = find_all_run_files(tmp_path)
    assert list(found) == [("v1", "B"), ("v2", "B"), ("v3", "A"), ("v4", "C")]
    (v1,) = found["v1", "B"]
    assert (v1.record, v1.report) == (tmp_path / "p/B/v1.json", tmp_path / "p/B/v1.ncu-repz")
    (v2,) = found["v2", "B"]
    assert (v2.record, v2.report) == (None, tmp_path / "p/B/v2.ncu-rep")


def test_a_problem_or_a_case_is_a_folder_of_artifacts_too(tmp_path: Path) -> None:
    put(tmp_path, "p/B/v1.json", "p/C/v1.json")
    assert list(find_all_run_files(tmp_path / "p")) == [("v1", "B"), ("v1", "C")]
    assert list(find_all_run_files(tmp_path / "p" / "B")) == [("v1", "B")]


def test_what_is_no_run_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path, "l4.json", "probes/times.json", "probes/probes-0.ncu-repz", text="{}")
    put(tmp_path, "tune/v3.B/v3-tuned.B.json", ".v1.B.json", "p/B/.v1.json", "p/B/v1.txt")
    assert find_all_run_files(tmp_path) == {}


def test_a_damaged_record_is_a_run_and_said_so(tmp_path: Path) -> None:
    put(tmp_path, "p/B/v1.json", text="{")
    runs, (problem,) = Evidence(tmp_path).load_all_usable_runs()
    assert runs == []
    assert "p/B/v1.json: not JSON" in problem.message


def test_one_name_in_two_folders_is_asked_about(tmp_path: Path) -> None:
    put(tmp_path, "p/B/v1.json", "q/B/v1.json")
    evidence = Evidence(tmp_path)
    with pytest.raises(ProfkitError, match=r"v1 at case B exists twice: .*p/B/v1 and .*q/B/v1"):
        evidence.load("v1", "B")
    assert len(evidence.load_all_usable_runs()[1]) == 1
    assert len(evidence.load_all_usable_runs(are_counters_needed=False)[1]) == 1
    assert Evidence(tmp_path / "q").find_files_of_run("v1", "B") == find_run_files(
        tmp_path / "q/B/v1"
    )


def test_profile_writes_by_folders_or_again_where_the_run_stands(tmp_path: Path) -> None:
    new = tmp_path / "p/B/v1.ncu-rep", tmp_path / "p/B/v1.json"
    assert make_run_paths(tmp_path, "p", "v1", "B") == new
    put(tmp_path, "v1.B.json")
    assert make_run_paths(tmp_path, "p", "v1", "B") == (
        tmp_path / "v1.B.ncu-rep",
        tmp_path / "v1.B.json",
    )
    put(tmp_path, "p/B/v1.json")
    with pytest.raises(ProfkitError, match="exists twice"):
        make_run_paths(tmp_path, "p", "v1", "B")


def test_a_run_recorded_since_is_found(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    assert evidence.find_files_of_run("v1", "B") is None
    put(tmp_path, "p/B/v1.json")
    assert evidence.find_files_of_run("v1", "B") is not None
    assert evidence.list_cases_with_record() == ["B"]


def test_the_committed_ones() -> None:
    found = find_all_run_files(ROOT / "artifacts")
    assert len(found) >= 101
    top = {p.name for p in find_files(ROOT / "artifacts", "*.ncu-rep")}
    assert {"copy.1GiB.ncu-rep", "stage2.B.ncu-rep", "sdpa-cudnn.B.ncu-rep"} < top
    for name, several in found.items():
        files = require_single_run(several, name)
        # Of the other problems only times of the library's calls were kept, and of layernorm's rungs.
        times_only = files.record and files.record.parts[-3] in {
            "layernorm",
            "decode",
            "gqa",
            "blocksparse",
        }
        assert files.report or times_only, name
