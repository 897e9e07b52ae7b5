"""Somebody else's header cannot make nvcc run a program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure.languages.cuda import TRUST, refuse_unsafe_flags

from .conftest import Machine

HARMLESS = (
    "-DOVERLAP=0",
    "-D WARPS=4",
    "-UNDEBUG",
    "-I/usr/include/x",  # a source can include any file by its whole path anyway
    "-O2",
    "-maxrregcount=128",
    "--maxrregcount 64",
    "-use_fast_math",
    "--use_fast_math",
    "-std=c++20",
    "-Xptxas -O3,-dlcm=ca",
    "-Xptxas=-v",
    "--ftz=true",
    "-lineinfo",
    "--expt-relaxed-constexpr",
    "-DX=(1<<4)*2",
)
HARMFUL = (
    "-ccbin /tmp/x",
    "-ccbin=/tmp/x",
    "--compiler-bindir /tmp/x",
    "-Xcompiler -fplugin=/tmp/x.so",
    "-o /etc/x",
    "--run",
    "-run",
    "--options-file x",
    "-optf x",
    "@x",
    "-Xlinker -rpath=/tmp",
    "-L/tmp",
    "-lx",
    "-include /etc/passwd",
    "-D",
    "-Xptxas --options-file=x",
    "-Xptxas -v,--options-file=x",
    "--keep-dir=/tmp",
    "x.cu",
    "-DX=$(id)",
    "-DX=`id`",
    "-D X;id",
    "--dryrun",
    "-forward-unknown-to-host-compiler",
    "-maxrregcount x",
    "-std",
)


@pytest.mark.parametrize("flags", HARMLESS)
def test_what_only_changes_code_passes(flags: str) -> None:
    refuse_unsafe_flags(flags.split(), "x.cu")


@pytest.mark.parametrize("flags", HARMFUL)
def test_what_may_do_more_is_refused(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRUST, raising=False)
    with pytest.raises(ProfkitError, match=r"x\.cu: 'flags: ") as caught:
        refuse_unsafe_flags(flags.split(), "x.cu")
    assert "--trust" in caught.value.hint
    monkeypatch.setenv(TRUST, "1")
    refuse_unsafe_flags(flags.split(), "x.cu")


def profkit(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_compiler_of_the_header_is_not_run(machine: Machine, tmp_path: Path) -> None:
    path = machine.write("evil_x.cu")
    path.write_text(
        path.read_text().replace("/* evil_x.cu", f"/* evil\n\n   flags: -ccbin {tmp_path}/x\n", 1)
    )
    done = profkit("check", "--build-only", "--variant", "evil", "--arch", "90")
    assert done.returncode == 2
    assert "evil_x.cu: 'flags: -ccbin" in done.stderr
    assert "Traceback" not in done.stderr
    trusted = profkit("--trust", "check", "--build-only", "--variant", "evil", "--arch", "90")
    assert trusted.returncode == 0, trusted.stderr


@pytest.mark.slow
def test_listing_runs_nothing_of_a_folder(machine: Machine, tmp_path: Path) -> None:
    trap = machine.kernels / "doubling/problem.py"
    trap.write_text(trap.read_text() + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    machine.write("v1_x.cu")
    for words in (["list"], ["doctor"], ["list", "--json"]):
        assert profkit(*words).returncode == 0
    completing = {
        "_PROFKIT_COMPLETE": "complete_bash",
        "COMP_WORDS": "profkit check --variant ",
        "COMP_CWORD": "3",
    }
    subprocess.run(
        [sys.executable, "-m", "profkit"],
        env={**os.environ, **completing},
        check=False,
        timeout=300,
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_one_bad_header_does_not_stop_the_list_of_the_others(machine: Machine) -> None:
    machine.write("v1_x.cu")
    machine.write("v2_x.cu", keys="after: v1")
    (machine.kernels / "doubling/bad_x.cu").write_text("no header at all\n")
    machine.write("v3_x.cu", keys="budget: regs=many")
    os.mkfifo(machine.kernels / "doubling/pipe_x.cu")
    (machine.kernels / "doubling/zero_x.cu").symlink_to("/dev/zero")
    done = profkit("list")
    assert done.returncode == 2
    assert "v1" in done.stdout
    assert "v2" in done.stdout
    for name in ("bad_x.cu", "v3_x.cu", "pipe_x.cu", "zero_x.cu"):
        assert name in done.stderr
    assert "Traceback" not in done.stderr
