"""What somebody types by mistake, and what is said then."""

from __future__ import annotations

import shutil

import pytest

import profkit as pk
from profkit.errors import suggest_nearest_names
from profkit.evidence.compare import compare_runs
from profkit.evidence.runs import Run
from profkit.lab.measure.variants import toolchain as doctor
from profkit.show.launch import list_memory_levels
from tests.conftest import ROOT
from tests.evidence.made import frame, row
from tests.found import find_files

from .conftest import REPORT


def test_a_report_where_a_verb_should_be_is_diagnosed(run) -> None:
    assert run(REPORT, "--top", "1").stdout == run("diagnose", REPORT, "--top", "1").stdout
    assert run("diagnos").exit_code == 2


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("stag2", ["stage1", "stage2", "wgmma"], "did you mean stage2?"),
        ("zzz", ["a", "b"], "there are: a, b"),
        ("zzz", [], "there are: none"),
        ("zzz", [f"variant{i}" for i in range(40)], "look"),
    ],
)
def test_did_you_mean(name: str, known: list[str], said: str) -> None:
    assert suggest_nearest_names(name, known, "look") == said


def test_a_file_that_is_not_there(run) -> None:
    near = run("diagnose", REPORT.with_name("copy.1GB.ncu-rep"))
    assert near.exit_code == 2
    assert f"did you mean {REPORT}" in near.stderr
    alone = run("diagnose", "/nowhere/x.ncu-rep")
    assert "ncu --set full --import-source yes -o full COMMAND" in alone.stderr


def test_a_variant_and_a_case_that_are_not_there(run, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    assert "did you mean stage2" in run("check", "--variant", "stage22").stderr
    assert "did you mean stage2" in run("decide", "stag2").stderr
    verb = run("diagnos", "x.ncu-rep")
    assert verb.exit_code == 2
    assert "neither a command nor a report\n  did you mean diagnose" in verb.stderr
    wrong = run("compare", "stage2", "stage2swizle", "--case", "B").stderr
    assert "did you mean stage2swizzle" in wrong
    assert "did you mean stage2" in run("compare", "stage1", "stage22").stderr
    assert len(run("check", "--variant", "qqq").stderr.splitlines()[1]) < 80


@pytest.mark.parametrize("arch", ["banana", "sm90", "9.0", ",", "90,banana"])
def test_an_architecture_that_is_none(run, arch: str) -> None:
    made = run("check", "--build-only", "--variant", "stage2", "--arch", arch)
    assert made.exit_code == 2
    assert "not an architecture" in made.stderr
    assert made.exception is None or isinstance(made.exception, SystemExit)


def test_no_arch_without_a_gpu_asks_for_one(run, monkeypatch) -> None:
    from profkit.errors import ProfkitError
    from profkit.lab.measure.cuda import device

    def none() -> None:
        raise ProfkitError("no NVIDIA driver", "find one")

    monkeypatch.setattr(device, "query_first_gpu", none)
    monkeypatch.setattr(device, "find_common_arch", lambda: None)
    made = run("check", "--build-only", "--variant", "stage2")
    assert made.exit_code == 2
    assert "--arch 90" in made.stderr
    assert "find one" not in made.stderr


def test_doctor_is_one_where_something_is_missing(run, monkeypatch) -> None:
    missing = [doctor.Inspection("nvcc", "missing", "not found", "install it")]
    warned = [doctor.Inspection("torch", "warning", "not installed", "pip install torch")]
    monkeypatch.setattr(doctor, "inspect_machine", lambda: missing)
    assert run("doctor").exit_code == 1
    assert run("doctor", "--json").exit_code == 1
    monkeypatch.setattr(doctor, "inspect_machine", lambda: warned)
    assert run("doctor").exit_code == 0


def test_two_foreign_reports_are_not_told_to_be_timed() -> None:
    """A file's name is no variant: there is nothing that profkit could bench."""
    foreign = Run("mine", None, None, frame(row(None, None)))
    change = compare_runs(foreign, Run("yours", None, None, frame(row(None, None))))
    assert "profkit bench" not in change.time_note
    assert "time both without a profiler" in change.time_note


def test_foreign_reports_with_different_kernels_are_not_paired() -> None:
    corpus = ROOT.parent / "shared" / "corpus"
    if not corpus.is_dir():
        pytest.skip("no corpus")
    full, part = (str(next(corpus.glob(f"cc89_RTX-4090*{kind}_Cuda*"))) for kind in KINDS)
    said = pk.compare(full, part)
    assert "no kernel has the same name on both sides" in str(said)
    assert "profkit bench" not in str(said)


KINDS = ("full", "partial")


@pytest.mark.slow
def test_a_kernel_without_a_launcher_does_not_build(run, tmp_path) -> None:
    if not shutil.which("nvcc"):
        pytest.skip("no nvcc")
    shutil.copytree(ROOT / "notebooks" / "own", tmp_path / "own")
    (tmp_path / "own" / "common").mkdir()
    shutil.copy(ROOT / "kernels" / "common" / "variant.cuh", tmp_path / "own" / "common")
    (tmp_path / "own" / "rowsum" / "mute_nothing.cu").write_text(
        "/* Mute. */\n__global__ void f(){}\n"
    )
    asked = ("--kernels", str(tmp_path / "own"), "--build-dir", str(tmp_path / "build"))
    made = run("check", "--build-only", "--variant", "mute", "--arch", "90", *asked)
    assert made.exit_code == 2
    assert "no profkit_launch" in made.stderr


def test_bytes_that_went_past_l1_are_no_rate_of_l1() -> None:
    copies = {
        "l1_busy": 0.3,
        "l1_rate": 0.0,
        "l2_rate": 1e12,
        "inst_async_copy": 9.0,
        "peak_l1": 4e13,
    }
    l1 = list_memory_levels(copies)[0]
    assert "0 B/s" not in [f["text"] for f in l1["facts"]]
    loads = list_memory_levels({**copies, "inst_async_copy": 0.0})[0]
    assert "0 B/s" in " ".join(f["text"] for f in loads["facts"])


def test_a_roof_that_is_named_has_its_line_in_the_frame() -> None:
    rows = pk.load(ROOT / "artifacts" / "stage2.B.ncu-rep")
    for given, named in (({}, {"DRAM", "L2", "L1"}), ({"l1": 1e18}, {"DRAM", "L2"})):
        axes = pk.plots.roofline(rows, ceilings=given)
        words = {text.get_text().split()[0] for text in axes.texts}
        assert words & {"DRAM", "L2", "L1"} == named
        left = axes.get_xlim()[0]
        slopes = [
            y[0] / x[0]
            for x, y in (line.get_data() for line in axes.lines)
            if len(x) == 2 and y[1] > y[0] and x[0] == left
        ]
        assert len(slopes) == len(named)


@pytest.mark.slow
def test_a_report_of_a_variant_shows_whole_columns_at_80(run, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("decide", "stage2", "--case", "B").stdout
    table = shown[shown.index("stage2 (variant)") : shown.index("verdict:")].splitlines()
    assert max(map(len, table)) <= 80
    assert "54.3 µs" in shown
    assert "sdpa-math (reference)" in shown


def test_what_a_record_says_of_champion_is_not_that_racecheck_fails() -> None:
    for record in find_files(ROOT / "artifacts", "**/champion.json"):
        assert "racecheck does not" not in record.read_text(), record
