"""profkit diagnose on the committed reports."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from rich.cells import cell_len

from profkit.reports.metrics import CATALOGUE
from tests.conftest import ROOT, kinds, report_of
from tests.sweeps import take_part

from .conftest import REPORT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def few() -> list[Path]:
    """A copy, a matrix product and three of SDPA's backends: small files."""
    runs = [
        ("copy", "1GiB"),
        ("matmul", "4096"),
        ("sdpa-cudnn", "A"),
        ("sdpa-flash", "A"),
        ("sdpa-flash", "C"),
    ]
    return [report_of(*run) for run in runs]


def _prose(shown: str) -> list[str]:
    """The lines but for commands, which are never broken: whoever copies one gets it whole."""
    return [line for line in shown.splitlines() if not line.startswith(("  profkit ", "  ncu "))]


def test_the_demo_fits_80_columns_and_is_clean_in_a_pipe(shell) -> None:
    found = shell("diagnose", *take_part(kinds(), one_of=3), COLUMNS="", NO_COLOR="")
    assert (found.returncode, found.stderr) == (0, "")
    lines = _prose(found.stdout)
    assert max(map(cell_len, lines)) <= 80
    assert "\x1b" not in found.stdout
    assert not [line for line in lines if line != line.rstrip()]
    assert "grid-too-small" in found.stdout


@pytest.mark.parametrize("columns", take_part(["40", "72", "100", "200"], one_of=2))
def test_it_fits_any_width(shell, columns: str) -> None:
    found = shell("diagnose", REPORT, COLUMNS=columns)
    assert max(map(cell_len, _prose(found.stdout))) <= int(columns)


def test_colours_only_where_they_are_wanted(shell) -> None:
    assert re.search(
        r"\x1b\[(?:\d+;)*3\d", shell("diagnose", REPORT, FORCE_COLOR="1", TERM="xterm").stdout
    )
    plain = shell("diagnose", REPORT, FORCE_COLOR="1", TERM="xterm", NO_COLOR="1").stdout
    assert not re.search(r"\x1b\[(?:\d+;)*[349]\d", plain)


def test_json_has_every_launch_once_and_a_bound_for_each(run) -> None:
    result = run("diagnose", "--json", "--lines", "0", *kinds())
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert len(found["launches"]) == sum(r["launches"] for r in found["reports"])
    assert {x["bound"] for x in found["launches"]} <= {
        "memory",
        "compute",
        "latency",
        "launch",
        "balanced",
    }
    assert {r["status"] for r in found["reports"]} == {"ok"}
    some = kinds()[::9]
    assert run("diagnose", "--json", *some).stdout == run("diagnose", "--json", *some).stdout


def test_top_shows_the_worst_rows(run, few) -> None:
    worst = run("diagnose", *few, "--top", "1").stdout
    assert "\n1. " in worst
    assert "\n2. " not in worst
    launches = json.loads(run("diagnose", "--json", "--top", "2", *few).stdout)["launches"]
    assert 1 <= len({x["kernel"] for x in launches}) <= 2


def test_kernel_and_where_choose_launches(run, few) -> None:
    by_name = run("diagnose", "--json", "--kernel", "flash_fwd|dram_copy$", *few)
    kernels = {x["kernel"] for x in json.loads(by_name.stdout)["launches"]}
    assert kernels
    assert all("flash_fwd" in k for k in kernels)
    by_bound = run("diagnose", "--json", "--where", "bound == 'memory' and time > 1e-4", *few)
    found = json.loads(by_bound.stdout)["launches"]
    assert found
    assert {x["bound"] for x in found} == {"memory"}
    assert min(x["time_s"] for x in found) > 1e-4


def test_no_match_says_what_there_is(run) -> None:
    result = run("diagnose", REPORT, "--kernel", "nothing_like_it")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "profkit: no launch matches --kernel nothing_like_it",
        "  kernels here: dram_copy",
    ]


def test_each_lists_alike_launches_one_by_one(run) -> None:
    math = [report_of("sdpa-math", "C")]
    grouped, single = (
        run("diagnose", "--top", "3", *math).stdout,
        run("diagnose", "--top", "3", "--each", *math).stdout,
    )
    # On 80 columns the launches of a row give way to its other columns; in Markdown they do not.
    several = r"3 launches, median 24\.1 µs"
    shown = run("diagnose", "--markdown", "--top", "3", *math).stdout
    assert re.search(several, shown)
    each = run("diagnose", "--markdown", "--top", "3", "--each", *math).stdout
    assert not re.search(several, each)
    assert re.findall(r"^ *3\. ", grouped, re.M) == re.findall(r"^ *3\. ", single, re.M) != []


def test_markdown_is_a_table_with_folded_details(run, few) -> None:
    text = run("diagnose", "--markdown", "--top", "3", *few).stdout
    assert "\n| # | kernel | launch | time | share | bound |" in text
    assert text.count("<details") == text.count("</details>") == 3


def test_the_frame_as_csv(run, tmp_path: Path) -> None:
    path = tmp_path / "frame.csv"
    result = run("diagnose", REPORT, "--csv", path)
    assert (result.exit_code, result.stdout) == (0, "")
    frame = pd.read_csv(path)
    assert frame.loc[0, "bound"] == "memory"
    assert set(CATALOGUE) <= set(frame.columns)
    assert list(tmp_path.iterdir()) == [path]
    piped = run("diagnose", REPORT, "--csv", "-")
    assert pd.read_csv(io.StringIO(piped.stdout)).shape == frame.shape


def test_the_frame_as_parquet(run, tmp_path: Path) -> None:
    path = tmp_path / "frame.parquet"
    assert run("diagnose", REPORT, "--parquet", path, "--json").exit_code == 0
    frame = pd.read_parquet(path)
    assert frame.loc[0, "limiter"] == "dram"
    assert frame["time"].dtype == "float64"
    assert list(frame.loc[0, "grid"]) == [1056, 1, 1]


@pytest.mark.parametrize("flag", ["--csv", "--parquet"])
def test_a_folder_that_is_not_there(run, tmp_path: Path, flag: str) -> None:
    result = run("diagnose", REPORT, flag, tmp_path / "no" / "frame")
    assert result.exit_code == 2
    assert "its folder does not exist" in result.stderr


def test_two_answers_at_once_are_refused(run) -> None:
    result = run("diagnose", REPORT, "--json", "--markdown")
    assert result.exit_code == 2
    assert "--json and --markdown" in result.stderr


def test_lines_shows_where_warps_wait(run) -> None:
    scalar = REPORT.with_name("scalar.B.ncu-rep")
    shown = run("diagnose", scalar, "--lines", "3").stdout
    said = " ".join(shown.split())
    assert "at kernels.cu:25 (82.1 % of it long scoreboard) ks[i / D][i % D] =" in said
    assert re.search(r"[\d.]+ % (?:STS|LDG|PRMT|HADD)\S* ", said)  # what the line was compiled to
    assert "where: kernels.cu:25 (81.2 %, waits for LDG)" in shown
    assert (
        "where: kernels.cu:25 (81.2 %, waits for LDG), kernels.cu:26 (17.5 %, waits for LDG)"
        in " ".join(run("diagnose", scalar, "--top", "1").stdout.split())
    )
    assert "where:" not in run("diagnose", scalar, "--lines", "0").stdout
    (launch,) = json.loads(run("diagnose", scalar, "--lines", "3", "--json").stdout)["launches"]
    assert [x["line"] for x in launch["lines"]] == [25, 31, 34]
    where = {f["rule"]: f["where"] for f in launch["findings"]}
    assert [x["line"] for x in where["long-scoreboard"]] == [25, 26, 22]
    first = where["long-scoreboard"][0]
    assert first.keys() >= {"file", "line", "stall", "share"}
    assert (first["counter"], first["waits_for"]["opcode"]) == ("stall long_scoreboard", "LDG")
    assert where["grid-too-small"] == []  # no line makes a grid too small


def test_instructions_stand_in_where_there_is_no_source(run) -> None:
    copy = run("diagnose", report_of("sdpa-flash", "A"), "--lines", "2", "--json")
    lines = json.loads(copy.stdout)["launches"][0]["lines"]
    assert len(lines) == 2
    assert {x["file"] for x in lines} == {None}
    assert all(x["text"] and 0 < x["share"] < 1 for x in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stage2", "blocks*4", "--csv", "a.csv"), "no such option --csv"),
        (("stage1", "stage2", "blocks*4"), "too many arguments: "),
        (("never", "blocks*4"), "no run of never in artifacts"),
        (("stage2", "blocs*4"), "not a count in the cost model"),
        (("never", "header"), "no kernel file of never"),
        ((REPORT, "blocks*4", "--case", "B"), "--case: does not apply to a report"),
        ((REPORT,), "give the changes to estimate"),
        (("stage2", "blocks*4", "--kernel", "x"), "--kernel: does not apply to a variant"),
    ],
)
def test_a_question_with_other_counts_is_of_one_variant(run, monkeypatch, words, said) -> None:
    monkeypatch.chdir(ROOT)
    found = run("whatif", *words)
    assert (found.exit_code, found.stdout) == (2, "")
    assert said in found.stderr
