"""The measuring verbs as a user starts them, on a stand-in machine."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Machine

pytestmark = pytest.mark.slow

pytest.importorskip("profkit.cli.options")


def profkit(*words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "profkit", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_list_shows_the_ladder_and_what_is_stale(machine: Machine) -> None:
    machine.write("v1_x.cu")
    path = machine.write("v2_x.cu", keys="after: v1")
    profkit("profile", "--variant", "v2", "--case", "B")
    rows = json.loads(profkit("list", "--json").stdout)["variants"]
    assert [(r["variant"], r["built"], r["recorded"]) for r in rows] == [
        ("v1", False, {}),
        ("v2", True, {"B": "ok"}),
    ]
    path.write_text(path.read_text() + "// a last word\n")
    assert "B (stale)" not in profkit("list").stdout
    path.write_text(path.read_text() + "int more;\n")
    assert "B (stale)" in profkit("list").stdout


def test_list_keeps_problems_apart(machine: Machine) -> None:
    machine.write("v1_x.cu")
    name = json.loads(profkit("list", "--json").stdout)["variants"][0]["problem"]
    assert profkit("list").stdout.splitlines()[0] == name
    rows = json.loads(profkit("list", "--problem", name, "--json").stdout)["variants"]
    assert [r["variant"] for r in rows] == ["v1"]
    done = profkit("list", "--problem", "nothing", status=2)
    assert "has no problem 'nothing'" in done.stderr
    assert f"there are: {name}" in done.stderr


def test_check_says_what_is_wrong_and_fails(machine: Machine) -> None:
    machine.write("good_x.cu")
    machine.write("bad_x.cu", inside="out[0] = 0x7fff;")
    done = profkit("check", "--variant", "good", "--variant", "bad", status=1)
    assert "bad n1 seed 0: output 0: 1 elements are NaN" in done.stderr
    said = json.loads(profkit("check", "--variant", "good", "--json").stdout)
    assert [c["status"] for c in said["checks"]] == ["right"]
    assert {c["case"] for c in said["checks"][0]["cases"]} == {"n1", "n17", "B", "C"}


def test_a_compile_error_is_shown_whole(machine: Machine) -> None:
    machine.write("bad_x.cu", inside="no_such_thing(); nor_this();")
    done = profkit("check", "--variant", "bad", status=2)
    assert "bad_x.cu does not compile" in done.stderr
    assert "no_such_thing" in done.stderr
    assert "nor_this" in done.stderr


def test_bench_times_identical_code_against_itself(machine: Machine, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    machine.write("v1_x.cu")
    machine.write("bad_x.cu", inside="out[0] = 0x7fff;")
    kept = tmp_path / "h"
    words = "bench", "--aa", "3", "--rounds", "8", "--case", "B", "--history", kept
    document = json.loads(profkit(*words, "--variant", "v1", "--json").stdout)
    (found,) = document["machines"]
    assert (found["processes"], found["pairs"], found["rounds"]) == (3, 3, 8)
    assert found["between"] is None, "this driver names no uuid: nobody would know the GPU again"
    from profkit.evidence.history import History

    twins, problems = History(kept).list_aa_runs()
    assert (len(twins), problems) == (3, [])
    assert {(t.variant, t.case, len(t.samples), len(t.again)) for t in twins} == {("v1", "B", 8, 8)}
    assert len({t.session for t in twins}) == 3, "each in a process of its own"
    assert "bad is wrong" in profkit(*words, "--variant", "bad", status=2).stderr
    assert len(History(kept).list_aa_runs()[0]) == 3


def test_bench_is_a_table_and_json(machine: Machine) -> None:
    machine.write("v1_x.cu")
    out = profkit("bench", "--variant", "v1", "--case", "B").stdout
    assert "Stand-in GPU" in out
    assert "warm L2" in out
    said = json.loads(profkit("bench", "--variant", "v1", "--case", "C", "--json").stdout)
    (row,) = said["cases"]["C"]
    assert row["timing"]["l2"]["warm"]["median"] > 0


def test_profile_diagnoses(machine: Machine) -> None:
    machine.write("v1_x.cu")
    done = profkit("profile", "--variant", "v1", "--case", "B")
    assert "attention_scalar" in done.stdout
    assert (machine.recorded("B") / "v1.ncu-rep").is_file()


def test_profile_without_permission_still_answers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "permission")
    machine.write("v1_x.cu")
    done = profkit("profile", "--variant", "v1", "--case", "B", status=2)
    assert "may not read the GPU's performance counters" in done.stderr
    assert "NVreg_RestrictProfilingToAdminUsers" in done.stderr
    assert "s measured; the work itself needs" in done.stdout
    assert "4 blocks, 16 fit on an SM" in done.stdout


def test_one_bad_variant_does_not_stop_the_others(machine: Machine) -> None:
    machine.write("v1_bad.cu", inside="out[0] = 0x7fff;")
    machine.write("v2_good.cu")
    done = profkit("profile", "--all", "--case", "B", status=1)
    assert "v1 B: v1 is wrong" in done.stderr
    assert (machine.recorded("B") / "v2.json").is_file()
    assert not (machine.recorded("B") / "v1.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["profile"], "which variants?"),
        (["profile", "--variant", "v1", "--all"], "cannot be combined"),
        (["profile", "--variant", "nope"], "no such variant"),
        (["profile", "--variant", "v1", "--case", "Z"], "--case Z"),
        (["profile", "--variant", "v1", "--kernel", "x"], "of a COMMAND"),
        (["profile", "--variant", "v1", "--", "ls"], "cannot be combined"),
        (["profile", "-o", "x.txt", "--", "ls"], "must end in .ncu-rep"),
        (["bench", "--kernels", "/nowhere", "--all"], "--kernels /nowhere"),
    ],
)
def test_mistakes_are_a_line_and_a_hint(machine: Machine, words: list[str], says: str) -> None:
    machine.write("v1_x.cu")
    done = profkit(*words, status=2)
    assert says in done.stderr
    assert done.stdout == ""


def test_no_gpu_is_a_line_and_a_hint(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NO_GPU", "1")
    machine.write("v1_x.cu")
    for verb in ("check", "bench", "profile"):
        done = profkit(verb, "--variant", "v1", status=2)
        assert "no usable GPU: cuInit says CUDA_ERROR_NO_DEVICE" in done.stderr
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    assert "libcuda.so.1 was not found" in profkit("check", "--variant", "v1", status=2).stderr
    assert profkit("doctor", status=1).stdout


def test_out_of_memory_is_a_line_and_a_hint(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MEMORY", "200000")
    machine.write("v1_x.cu")
    problem = machine.kernels / "doubling/problem.py"
    problem.write_text(problem.read_text().replace('"C": 600', '"C": 600_000'))
    done = profkit("check", "--variant", "v1", "--case", "C", status=2)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stderr
    assert "nvidia-smi" in done.stderr


def test_wrapping_a_command(machine: Machine, tmp_path: Path) -> None:
    report = tmp_path / "mine.ncu-rep"
    program = [sys.executable, "-c", "print('hello')"]
    done = profkit("profile", "--count", "3", "-o", report, "--", *program)
    assert "hello" in done.stderr
    assert "attention_scalar" in done.stdout
    assert report.is_file()


def test_ctrl_c_keeps_what_is_finished(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    processes: Callable[[str], list[int]],
) -> None:
    machine.write("v1_x.cu")
    machine.write("v2_x.cu")
    profkit("profile", "--variant", "v1", "--case", "B")
    (tmp_path / "ncu.log").unlink()
    monkeypatch.setenv("FAKE_NCU", "hang")
    command = [sys.executable, "-m", "profkit", "profile", "--variant", "v2", "--case", "B"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE)
    until = time.monotonic() + 300
    while not (tmp_path / "ncu.log").exists() and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130
    assert b"Traceback" not in said
    assert processes(str(machine.artifacts)) == []
    left = [p.relative_to(machine.artifacts) for p in machine.artifacts.rglob("*") if p.is_file()]
    assert sorted(map(str, left)) == [
        "doubling/B/v1.json",
        "doubling/B/v1.ncu-rep",
    ]


def test_the_sanitizer_counts_and_is_recorded(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write("v1_x.cu")
    said = json.loads(profkit("check", "--variant", "v1", "--sanitize", "--json").stdout)
    clean = dict.fromkeys(("memcheck", "racecheck", "initcheck", "synccheck"), "clean")
    assert said["checks"][0]["sanitizer"] == clean
    profkit("profile", "--variant", "v1", "--case", "B")
    recorded = json.loads((machine.recorded("B") / "v1.json").read_text())
    assert recorded["check"]["sanitizer"] == clean
    monkeypatch.setenv("FAKE_RACE", "1")
    done = profkit("check", "--variant", "v1", "--sanitize", status=1)
    assert "racecheck: 1 errors: Error: Race reported" in done.stderr


def test_an_id_of_another_problem_does_not_stand_in_the_way(machine: Machine) -> None:
    machine.write("v1_x.cu")
    other = machine.kernels / "loose"
    other.mkdir()
    for name in ("v1_y.cu", "only_y.cu"):
        (other / name).write_text((machine.kernels / "doubling/v1_x.cu").read_text())
    profkit("check", "--variant", "v1", "--case", "B")
    assert "has no problem.py" in profkit("check", "--variant", "only", status=2).stderr
    done = profkit("check", "--build-only", "--variant", "loose/v1", "--arch", "90")
    assert "attention_scalar" in done.stdout
    assert (
        "two problems"
        in profkit("check", "--build-only", "--variant", "v1", "--arch", "90", status=2).stderr
    )


def test_build_holds_budgets(machine: Machine) -> None:
    machine.write("v1_x.cu", keys="budget: regs=16")
    done = profkit("check", "--build-only", "--all", "--arch", "90", status=1)
    assert "regs=32, budget 16" in done.stderr
