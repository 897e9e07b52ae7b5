"""compare and claims as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from profkit.cli.output import print_errors
from profkit.errors import ProfkitError
from profkit.records.record import SCHEMA
from tests.conftest import ROOT, report_of
from tests.found import find_files

REPORTS = ROOT / "artifacts"


def write(folder: Path, variant: str, time: float = 1e-5, **facts) -> Path:
    """A run record with 60 samples round `time`."""
    rng = np.random.default_rng(sum(variant.encode()))
    samples = [float(x) for x in time * (1 + rng.exponential(0.005, 60))]
    record = {
        "schema": SCHEMA,
        "variant": variant,
        "case": "B",
        "header": {"title": f"The {variant}", "after": facts.pop("after", None)},
        "source": {
            "sha256": variant,
            "sass": facts.pop("sass", f"sass {variant}"),
            "host": facts.pop("host", "the launcher"),
        },
        "check": {"status": facts.pop("status", "right"), "cases": []},
        "timing": {"session": "one", "l2": {"warm": {"samples": samples}}},
        "gpu": {"name": "NVIDIA H200"},
        "launches": [{"regs": facts.pop("regs", 64)}],
        **facts,
    }
    path = folder / f"{variant}.B.json"
    path.write_text(json.dumps(record))
    return path


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    write(tmp_path, "stage1", 2e-5)
    write(tmp_path, "stage2", 1e-5, after="stage1", regs=80)
    write(tmp_path, "sdpa", 0.5e-5, source=None)
    return tmp_path


def test_compare_says_faster_and_exits_zero(run, ladder):
    found = run("compare", "stage1", "stage2", "--artifacts", ladder)
    assert found.exit_code == 0
    assert "stage2.B is faster than stage1.B: 2.00x (1.98 to 2.02)" in found.stdout
    assert "2.000x (1.998" in found.stdout  # in this session
    assert "registers" in found.stdout
    assert "no report: no counters" in found.stdout


@pytest.mark.parametrize(
    ("sides", "fail_on", "status"),
    [
        (("stage1", "stage2"), "slower", 0),
        (("stage2", "stage1"), "slower", 1),
        (("stage2", "stage1"), "resource", 0),
        (("stage1", "stage2"), "finding,resource", 1),
        (("stage1", "stage2"), "finding", 0),
    ],
)
def test_the_exit_status_is_what_was_asked(run, ladder, sides, fail_on, status):
    found = run("compare", *sides, "--artifacts", ladder, "--fail-on", fail_on)
    assert found.exit_code == status, found.output


def test_a_wrong_kernel_is_not_compared(run, ladder):
    write(ladder, "stage3", after="stage2", status="wrong")
    found = run("compare", "stage2", "stage3", "--artifacts", ladder)
    assert found.exit_code == 1
    assert "not compared: stage3.B gives wrong results" in found.stdout
    assert "faster than" not in found.stdout
    assert run("compare", "stage3", "stage2", "--artifacts", ladder).exit_code == 2


def test_one_binary_under_two_names_is_no_comparison(run, ladder):
    write(ladder, "flag", sass="sass stage2")
    found = run("compare", "stage2", "flag", "--artifacts", ladder)
    assert found.exit_code == 2
    assert "the same binary" in found.stdout
    for host in ("another launcher", None):
        write(ladder, "flag", sass="sass stage2", host=host)
        assert run("compare", "stage2", "flag", "--artifacts", ladder).exit_code == 0


def test_a_gate_on_time_without_timing_was_not_tried(run):
    reports = [report_of(f"sdpa-{backend}", "C") for backend in ("efficient", "cudnn")]
    assert run("compare", *reports).exit_code == 0
    found = run("compare", *reports, "--fail-on", "slower")
    assert found.exit_code == 2
    assert "exit status 2: sdpa-cudnn.C: " in found.stderr
    assert "not a timing)" in " ".join(found.stdout.split())
    assert run("compare", *reports, "--fail-on", "resource").exit_code in (0, 1)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A timed variant, one that was never timed, and a report without a record."""
    write(tmp_path, "stage1")
    write(tmp_path, "untimed", timing=None)
    report = report_of("sdpa-flash", "C")
    (tmp_path / report.name).write_bytes(report.read_bytes())
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("reads_in_forks")
@pytest.mark.parametrize("left", [{"stage1"}, {"untimed"}, {"sdpa-flash"}, set()])
def test_an_unchanged_tree_is_not_slower(run, mixed, left):
    """Whatever of it has a time; what has none is named."""
    for path in mixed.iterdir():
        if left and path.name.partition(".")[0] not in left:
            path.unlink()
    found = run("compare", mixed, mixed, "--fail-on", "slower")
    assert found.exit_code == 0, found.output
    untimed = {"untimed.B", "sdpa-flash.C"} & {f"{x}.{c}" for x in left for c in "BC"}
    named = re.findall(
        r"^not judged: ([\w.-]+): [\w.-]+ was never timed", found.stderr, re.MULTILINE
    )
    assert set(named) == (untimed if left else {"untimed.B", "sdpa-flash.C"})
    quiet = run("compare", mixed, mixed, "--fail-on", "slower", "--quiet")
    assert (quiet.exit_code, quiet.stderr) == (0, "")


@pytest.mark.parametrize("lost", ["stage1", "stage2"])
def test_a_time_that_one_side_lost_was_not_tried(run, ladder, lost):
    edited = json.loads((ladder / f"{lost}.B.json").read_text())
    (ladder / f"{lost}.B.json").write_text(json.dumps({**edited, "timing": None}))
    found = run("compare", "stage1", "stage2", "--artifacts", ladder, "--fail-on", "slower")
    assert found.exit_code == 2
    assert f"exit status 2: stage2.B: {lost}.B was never timed" in found.stderr


def test_changed_code_that_nobody_timed_is_named_beside_what_was(run, mixed, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write(other, "stage1")
    write(other, "untimed", timing=None, sass="another", source={"sha256": "x", "sass": "y"})
    found = run("compare", mixed, other, "--fail-on", "slower")
    assert found.exit_code == 0
    assert "not judged: untimed.B: untimed.B was never timed" in found.stderr
    alone = [folder / "untimed.B.json" for folder in (mixed, other)]
    assert run("compare", *alone, "--fail-on", "slower").exit_code == 2


def test_compare_as_json_and_markdown(run, ladder):
    document = json.loads(
        run("compare", "stage1", "stage2", "--artifacts", ladder, "--json").stdout
    )
    assert document["schema"] == "profkit.compare/1"
    assert document["changes"][0]["time"]["answer"] == "faster"
    text = run("compare", "stage1", "stage2", "--artifacts", ladder, "--markdown").stdout
    assert text.startswith("## stage2.B is faster than stage1.B: 2.00x (1.98 to 2.02)")
    assert "registers 64 -&gt; 80" in text


@pytest.mark.slow
def test_the_ladder(run, ladder):
    found = run("ladder", "--artifacts", ladder)
    assert found.exit_code == 0
    assert "  stage2" in found.stdout
    assert "not compared" not in found.stdout
    assert "2.00x  faster" in found.stdout
    document = json.loads(run("ladder", "--artifacts", ladder, "--json").stdout)
    step = document["ladders"][0]["steps"][1]
    assert step["parent"] == "stage1"
    assert step["references"]["sdpa"]["answer"] == "slower"
    write(ladder, "stage1", after="stage2")
    circle = run("ladder", "--artifacts", ladder)
    assert circle.exit_code == 2
    assert "cycle" in circle.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("compare",), "missing argument 'BEFORE'"),
        (("compare", "a", "b", "--ladder"), "too many arguments: "),
        (("compare", "stage1", "never"), "no run of never"),
        (("compare", "stage1", "stage2", "--fail-on", "worse"), "--fail-on worse: unknown"),
        (("compare", "stage1", "stage2", "--json", "--markdown"), "cannot be combined"),
        (("compare", "stage1", "stage2", "--case", "Z"), "no run of stage1 at case Z"),
        (("claims",), "no file of claims given"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(run, ladder, args, said):
    found = run(*args, "--artifacts", ladder)
    assert found.exit_code == 2
    assert said in found.stderr
    assert found.stdout == ""


def test_verify_the_analyses_without_records(run, tmp_path):
    files = find_files(ROOT / "analyses", "*.py")
    found = run("claims", *files, "--artifacts", tmp_path)
    assert found.exit_code == 1  # V3's gate is not met while nothing is recorded
    assert "to decide more claims: profkit profile --variant v3 --case B" in found.stdout
    arithmetic = run("claims", ROOT / "analyses" / "target_5us.py", "--artifacts", tmp_path)
    assert arithmetic.exit_code == 0
    assert "fails: The kernel can run in less than 5 us on an L4." in arithmetic.stdout
    gate = ROOT / "analyses" / "v3_gate.py"
    lost = run("claims", tmp_path / "none.py", gate, "--artifacts", tmp_path)
    assert lost.exit_code == 2
    assert "none.py: no such file" in lost.stderr
    assert "none.py" not in lost.stdout
    assert "V3's acceptance gate" in lost.stdout


@pytest.mark.slow
def test_the_ladder_is_drawn(run, ladder, tmp_path):
    picture = tmp_path / "ladder.png"
    found = run("ladder", "--artifacts", ladder, "-o", picture)
    assert found.exit_code == 0, found.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    wrong = run("compare", "stage1", "stage2", "--artifacts", ladder, "-o", picture)
    assert wrong.exit_code == 2
    assert "no such option -o" in wrong.stderr


def test_a_hint_that_problems_in_a_row_have_stands_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_errors([ProfkitError("a", "do"), ProfkitError("b", "do"), ProfkitError("c", "look")])
    said = capsys.readouterr().err.splitlines()
    assert said == ["profkit: a", "profkit: b", "  do", "profkit: c", "  look"]
    print_errors([ProfkitError("a", "do")], quiet=True)
    assert capsys.readouterr().err == ""
