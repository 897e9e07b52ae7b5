"""What belongs to somebody else's report: two of them compared, no roofline, no source lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT

ARTIFACTS = ROOT / "artifacts"
RAW = '"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","copy","{}"\n'


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    """Two raw pages of ncu: a duration and nothing else."""
    paths = [tmp_path / "before.csv", tmp_path / "after.csv"]
    for path, time in zip(paths, (105_000, 55_100), strict=True):
        path.write_text(RAW.format(time))
    return paths


def test_two_reports_begin_with_why_they_give_no_verdict(run, tmp_path: Path) -> None:
    copies = []
    for name in ("stage1", "stage2"):
        copy = tmp_path / f"{name}-mine.ncu-rep"
        copy.write_bytes((ARTIFACTS / f"{name}.B.ncu-rep").read_bytes())
        copies.append(copy)
    said = " ".join(run("compare", *copies).stdout.split())
    name = "Cannot tell whether stage2.B is faster than stage1.B"
    assert said.startswith(f"{name}: neither side was timed without a profiler")
    assert "under ncu: 105 µs -> 55.1 µs (one launch each; not a timing)" in said
    recorded = run("compare", ARTIFACTS / "stage1.B.ncu-rep", ARTIFACTS / "stage2.B.ncu-rep")
    assert "Cannot tell" not in recorded.stdout, "what was timed has a verdict"


def test_a_roofline_of_nothing_is_an_error(run, tables: list[Path], tmp_path: Path) -> None:
    picture = tmp_path / "roof.png"
    result = run("roofline", tables[0], "-o", picture)
    assert result.exit_code == 2
    assert "no launch has a point on a roofline" in result.stderr
    assert "ncu --set full" in result.stderr
    assert not picture.exists()


def test_lines_of_a_report_without_source_say_why(run) -> None:
    result = run("diagnose", ARTIFACTS / "matmul.4096.ncu-rep", "--lines", "5")
    assert "no source lines: compile with nvcc -lineinfo" in result.stderr
    assert "--import-source yes" in result.stderr
    sourced = run("diagnose", ARTIFACTS / "stage2.B.ncu-rep", "--lines", "5")
    assert "no source lines" not in sourced.stderr


def test_explain_takes_a_part_of_one_rule_only(run) -> None:
    assert run("explain", "bank").stdout.startswith("shared-bank-conflicts\n")
    several = run("explain", "cache")
    assert several.exit_code == 2
    assert "did you mean cache-resident or instruction-cache?" in several.stderr
