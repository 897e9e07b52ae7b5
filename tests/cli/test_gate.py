"""profkit gate as a user and a CI job type it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
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
    assert "exit status 1: v1.B: 2.001x slower" in result.stderr
    assert "would have been detected" in result.stdout


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


def _git(at: Path, *words: str | Path) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    done = subprocess.run(["git", *who, *words], cwd=at, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.slow
@pytest.mark.slow
def test_git_bisect_finds_the_commit(tmp_path: Path) -> None:
    """Eight commits; the fifth made v1 slower, and of the sixth the record cannot be read."""
    repository, good = tmp_path / "r", tmp_path / "good"
    start = made("v1", 1e-5, 1)
    folder(good / "artifacts", start)
    repository.mkdir()
    _git(repository, "init", "-q")
    commits = []
    for number in range(8):
        after = changed(start, 1e-5 if number < 4 else 1.3e-5, 10 + number)
        folder(repository / "artifacts", start if number == 0 else after)
        (repository / "number").write_text(str(number))
        if number == 5:
            (repository / "artifacts" / "p" / "B" / "v1.json").write_text("{")
        _git(repository, "add", ".")
        _git(repository, "commit", "-qm", f"commit {number}")
        commits.append(_git(repository, "rev-parse", "HEAD").strip())
    _git(repository, "bisect", "start", commits[-1], commits[0])
    gate = (sys.executable, "-m", "profkit", "gate", good / "artifacts", "artifacts", "--bisect")
    told = _git(repository, "bisect", "run", *gate)
    assert f"{commits[4]} is the first bad commit" in told


def test_what_bisect_cannot_try_is_skipped(run, sides, tmp_path: Path) -> None:
    lost = run("gate", sides[0], tmp_path / "nowhere", "--bisect")
    assert (lost.exit_code, "nowhere: no such folder" in lost.stderr) == (125, True)
    assert run("gate", *sides, "--bisect").exit_code == 1
    (sides[1] / "p" / "B" / "v1.json").write_text("{")
    assert run("gate", *sides, "--bisect").exit_code == 125
    assert run("gate", *sides).exit_code == 2


def test_a_history_that_cannot_be_read_is_said(run, sides, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "h" / "twins").mkdir(parents=True)
    (tmp_path / "h" / "twins" / "x.parquet").write_bytes(b"PAR1")
    found = run("gate", sides[0], sides[0], "--history", tmp_path / "h")
    assert found.exit_code == 0
    assert "x.parquet: not readable" in found.stderr


def test_compare_takes_what_processes_differ_by_from_the_history(run, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from profkit.evidence.history import History
    from profkit.evidence.tables import HistoryTwin

    before = made("v1", 1e-5, 1)
    after = changed(before, 1.015e-5, 2, "another")
    names = [
        folder(tmp_path / side, r) / "p" / "B" / "v1.json"
        for side, r in (("base", before), ("head", after))
    ]
    words = ("compare", *names, "--history", tmp_path / "h")
    assert "processes differ by 1 %, assumed" in " ".join(run(*words).stdout.split())
    twin = HistoryTwin("", "v1", "B", sass="sass v1", gpu_uuid="GPU-1", made="2026-11-20T08:00:00")
    days = [
        replace(
            twin, session=str(n), made=f"2026-11-2{n % 3}T08:00:00", samples=(1e-5 + n * 1e-9,) * 3
        )
        for n in range(20)
    ]
    History(tmp_path / "h").append_rows(days)
    told = " ".join(run(*words).stdout.split())
    assert "v1.B is slower than before: 1.015x (" in told
    assert "processes differ by 0.063 %, measured" in told
