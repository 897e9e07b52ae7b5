"""Whatever is wrong with one file: a line that says so, exit status 2, the other files go on."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.reports import reader
from profkit.reports.frame import Reports
from profkit.reports.reader import read_report_unless_large
from tests.conftest import CORPUS

from .conftest import REPORT

pytestmark = pytest.mark.slow

GOOD = "is limited by DRAM bandwidth"


def _content(length: int | None = None) -> bytes:
    return REPORT.read_bytes()[:length]


BAD = {
    "missing.ncu-rep": (None, "no such file"),
    "empty.ncu-rep": (b"", "0 bytes"),
    "text.ncu-rep": (b"root:x:0:0:root\n" * 100, "not an Nsight Compute report"),
    "magic.ncu-rep": (b"NVR\0", ""),
    "truncated.ncu-rep": (_content(700_000), "damaged"),
    "first-bytes.ncu-rep": (_content(100), ""),
    "last-byte.ncu-rep": (_content(-1), "damaged"),
    "packed.ncu-repz": (b"\x28\xb5\x2f\xfd" + b"\0" * 40, ""),
}


@pytest.fixture
def bad(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    content, why = BAD[request.param]
    path = tmp_path / request.param
    if content is not None:
        path.write_bytes(content)
    return path, why


each_bad = pytest.mark.parametrize("bad", BAD, indirect=True, ids=str)


@each_bad
def test_it_is_said_and_the_status_is_two(run, bad) -> None:
    path, why = bad
    result = run("diagnose", path)
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert first.startswith(f"profkit: {path}: ")
    assert why in first.lower() or why in first
    assert second.startswith("  ")
    assert len(second) > 10


@each_bad
def test_nothing_is_lost_for_the_other_files(run, bad) -> None:
    path, _ = bad
    result = run("diagnose", path, REPORT)
    assert result.exit_code == 2
    assert GOOD in result.stdout
    assert str(path) in result.stderr


@each_bad
def test_json_says_it_too(run, bad) -> None:
    path, _ = bad
    result = run("diagnose", "--json", path, REPORT)
    found = json.loads(result.stdout)
    assert [Path(r["path"]).name for r in found["reports"]] == [path.name, REPORT.name]
    assert found["reports"][0]["status"] in {"empty", "damaged", "unreadable"}
    assert found["reports"][0]["message"]
    assert found["launches"][-1]["limiter"] == "dram"


@pytest.mark.parametrize("length", [4, 5, 1000, 30_000, 400_000, 1_000_000, 1_500_000])
def test_no_truncation_passes_for_whole(run, tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(_content(length))
    result = run("diagnose", "--json", path)
    assert result.exit_code == 2
    assert json.loads(result.stdout)["reports"][0]["status"] != "ok"


@pytest.mark.parametrize("length", [1000, 30_000, 400_000, 1_000_000, 1_500_000])
def test_a_damaged_report_says_whether_anything_of_it_is_shown(
    run, tmp_path: Path, length: int
) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(_content(length))
    result = run("diagnose", path)
    is_shown = "what could be read is shown" in result.stderr
    is_lost = "nothing in it could be read" in result.stderr
    assert (is_shown, is_lost) == (bool(result.stdout), not result.stdout)


def test_a_folder_without_reports(run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    result = run("diagnose", tmp_path, REPORT)
    assert result.exit_code == 2
    assert f"profkit: {tmp_path}: " in result.stderr
    assert GOOD in result.stdout


def test_a_folder_with_reports(run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    shutil.copy(REPORT, tmp_path / "sub")
    result = run("diagnose", tmp_path)
    assert result.exit_code == 0
    assert GOOD in result.stdout


def test_a_glob_that_matches_nothing(run, tmp_path: Path) -> None:
    result = run("diagnose", tmp_path / "*.ncu-rep", REPORT)
    assert result.exit_code == 2
    assert "*.ncu-rep: matches no file" in result.stderr
    assert GOOD in result.stdout
    assert run("diagnose", tmp_path / "*.ncu-rep").exit_code == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(run, tmp_path: Path) -> None:
    path = tmp_path / "secret.ncu-rep"
    shutil.copy(REPORT, path)
    path.chmod(0)
    result = run("diagnose", path, REPORT)
    assert result.exit_code == 2
    assert "permission" in result.stderr.lower()
    assert GOOD in result.stdout


def test_no_report_at_all(run) -> None:
    result = run("diagnose")
    assert result.exit_code == 2
    assert "REPORTS" in result.stderr


NAMES = (
    "[red]x[/red][link=http://a.b]",
    "\x1b[2J\x1b]0;owned\x07",
    "<script>alert(1)</script>",
    "two\nlines\r\x08",
    "`code` | **bold** ![x](y)",
    "\u202egnp.exe",
)


@pytest.mark.parametrize("flag", ["--json", "--markdown", "--all"])
def test_hostile_kernel_names(shell, hostile, flag: str) -> None:
    found = shell("diagnose", flag, *map(hostile, NAMES), FORCE_COLOR="1", TERM="xterm")
    assert (found.returncode, found.stderr) == (0, "")
    for name in NAMES:
        assert name not in found.stdout or name.isprintable()
    for escape in ("\x1b[2J", "\x1b]", "\x07", "\x08", "\r", "\u202e"):
        assert escape not in found.stdout
    if flag == "--json":
        kernels = [launch["kernel"] for launch in json.loads(found.stdout)["launches"]]
        for name in NAMES:
            assert any(kernel.startswith(name) for kernel in kernels), name
    if flag == "--markdown":
        assert "<script>" not in found.stdout.replace("`<script>alert`", "")


def test_a_report_whose_launches_all_failed(run) -> None:
    reports = [p for p in CORPUS.glob("*") if "misTIC".lower() in p.name.lower()]
    if not reports:
        pytest.skip("no reports of others beside the project (../shared/corpus)")
    result = run("diagnose", *reports)
    assert result.exit_code == 2
    assert "ncu gave up on every launch" in result.stderr
    assert "failed" in result.stdout
    assert run("diagnose", "--quiet", *reports, REPORT).exit_code == 0


def test_a_report_with_metrics_only(run) -> None:
    reports = [p for p in CORPUS.glob("*") if "metrics-only" in p.name]
    if not reports:
        pytest.skip("no reports of others beside the project (../shared/corpus)")
    result = run("diagnose", "--json", *reports)
    assert result.exit_code == 0
    (launch,) = json.loads(result.stdout)["launches"]
    assert launch["time_s"] is None
    assert any("collect" in f["cause"] for f in launch["findings"] if f["status"] == "unknown")


def test_a_launch_that_ncu_gave_up_on_is_shown_as_failed(run, monkeypatch) -> None:
    part = read_report_unless_large(REPORT)
    launch = [("failed" if x == "ok" else x) for x in part.identity[0]]
    failed = Reports((replace(part, identity=(tuple(launch),)),))
    monkeypatch.setattr(reader, "read_report_files", lambda *args, **kwargs: failed)
    result = run("diagnose", REPORT)
    assert result.exit_code == 2
    assert "gave up on every launch" in result.stderr
    assert "failed" in result.stdout


PRINTED = {
    "sections": "  scale(float *, int) (4096, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.0\n"
    "    Section: GPU Speed Of Light Throughput\n    DRAM Throughput   %   91.22\n",
    "raw": "  fill(int *) (64, 1, 1)x(128, 1, 1), Context 1, Stream 13, Device 0, CC 9.0\n"
    "    dram__bytes_read.sum   Mbyte   1.20\n",
}


@pytest.mark.parametrize("page", PRINTED)
@pytest.mark.parametrize("name", ["page.txt", "page.log"])
def test_a_page_that_ncu_printed_is_known(run, page: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(f"==PROF== Connected to process 7\n{PRINTED[page]}")
    result = run("diagnose", path)
    assert result.exit_code == 2
    assert "text printed by ncu" in result.stderr
    assert "--csv --page raw" in result.stderr
