"""profkit report: a page in one file, and what it says on stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import REPORT
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

B = ROOT / "artifacts"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    from typer.testing import CliRunner

    from profkit.cli.app import app

    path = tmp_path_factory.mktemp("page") / "page.html"
    given = [B / "stage1.B.ncu-rep", B / "stage2.B.ncu-rep", B / "sdpa-cudnn.B.ncu-rep", REPORT]
    asked = ["report", *map(str, given), "-o", str(path), "--title", "A <title>"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    return path.read_text("utf-8"), done.stderr


def test_one_file_of_less_than_three_megabytes(page: tuple[str, str]) -> None:
    html, said = page
    assert len(html.encode()) < 2e6
    assert "4 rows" in said
    assert "<title>A &lt;title&gt;</title>" in html


@pytest.mark.parametrize(
    "part",
    [
        "shared-bank-conflicts",
        "dram at 82.7 % of peak",  # verdicts and findings
        "stage2.B.ncu-rep launch 0",
        "L1TEX",
        "blocks per SM",
        "estimated",
        "out[i] = in[i];",  # source beside its share
        "Case B: each step against its parent",
        "faster",
        "sdpa-cudnn",  # the ladder
    ],
)
def test_the_page_has(page: tuple[str, str], part: str) -> None:
    assert part in page[0].split('id="data"')[0]


def test_a_bad_report_is_named_and_the_others_shown(run: Callable, tmp_path: Path) -> None:
    bad, out = tmp_path / "bad.ncu-rep", tmp_path / "page.html"
    bad.write_bytes(REPORT.read_bytes()[:1000])
    done = run("report", bad, REPORT, "-o", out)
    assert done.exit_code == 2
    assert "bad.ncu-rep: " in done.stderr
    html = out.read_text("utf-8")
    assert html.count("bad.ncu-rep") == 2
    assert "dram_copy" in html


def test_only_bad_reports_are_said_and_make_no_page(run: Callable, tmp_path: Path) -> None:
    bad, out = tmp_path / "bad.ncu-rep", tmp_path / "page.html"
    bad.write_text("no report")
    done = run("report", bad, "-o", out)
    assert done.exit_code == 2
    assert f"{bad}: not an Nsight Compute report" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize("place", ["nowhere/page.html", "."])
def test_a_page_that_cannot_be_written_is_two_lines(
    run: Callable, tmp_path: Path, place: str
) -> None:
    done = run("report", REPORT, "-o", tmp_path / place, "-q")
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("profkit: ")
    assert not list(tmp_path.iterdir())


def test_hostile_names_of_a_real_report_stay_text(
    run: Callable, hostile: Callable[[str], Path], tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    done = run("report", hostile("<script>alert(1)</script>[red]\x1b[31m"), "-o", out, "-q")
    assert done.exit_code == 0
    html = out.read_text("utf-8")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;[red]\\x1b[31m" in html
    assert "\x1b" not in html


def test_a_page_needs_a_place(run: Callable) -> None:
    done = run("report", REPORT)
    assert done.exit_code == 2
    assert "copy.1GiB.ncu-rep: a page of reports needs an output file" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert done.stdout == ""
