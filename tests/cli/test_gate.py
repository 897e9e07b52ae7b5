"""profkit gate as a user and a CI job type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.evidence.test_gate import changed, folder, made


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """A base and a head in which v1 is twice as slow and v2 is as it was."""
    before, same = made("v1", 1e-5, 1), made("v2", 2e-5, 2)
    base = folder(tmp_path / "base", before, same)
    return base, folder(tmp_path / "head", changed(before, 2e-5, 3), same)


def test_the_summary_comes_first_and_every_reason_is_named(run, sides) -> None:
    result = run("gate", *sides)
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    assert first == "Gate closed: 1 slower, 0 faster, 1 the same, 0 cannot tell"
    assert "exit status 1: v1.B: 2x slower" in result.stderr
    assert "would have been seen" in result.stdout


def test_an_identical_side_is_open_and_silent(run, sides) -> None:
    result = run("gate", sides[0], sides[0], "--strict")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Gate open: 0 slower, 0 faster, 2 the same, 0 cannot tell")


def test_as_json_and_for_a_job_summary(run, sides) -> None:
    document = json.loads(run("gate", *sides, "--json").stdout)
    assert (document["status"], len(document["subjects"])) == (1, 2)
    text = run("gate", *sides, "--markdown").stdout
    assert text.startswith("## Gate closed: 1 slower")
    assert "| v1.B |" in text


def test_one_case_and_a_folder_that_is_not_there(run, sides, tmp_path: Path) -> None:
    assert run("gate", *sides, "--case", "Z").exit_code == 2
    lost = run("gate", tmp_path / "nowhere", sides[1])
    assert lost.exit_code == 2
    assert "nowhere: no such folder" in lost.stderr
