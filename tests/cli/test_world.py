"""What a process inherits from who started it changes no answer; what a user keeps is not replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.program.made import GEMM, ran
from tests.sweeps import take_part

REPORT = ROOT / "artifacts" / "stage2.B.ncu-rep"
CALL = "from profkit.cli import main; main()"


def start(*words: str, before: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{before}\n{CALL}", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=300
    )


INHERITED = {
    "children are ignored": f"import signal; signal.signal({signal.SIGCHLD:d}, signal.SIG_IGN)",
    "nothing may be opened by others": "import os; os.umask(0o777)",
    "no signal comes": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))",
}


@pytest.mark.parametrize("world", take_part(INHERITED, one_of=2))
def test_what_who_started_it_has_set_changes_no_answer(world: str, tmp_path: Path) -> None:
    damaged = tmp_path / "cut.ncu-rep"
    damaged.write_bytes(REPORT.read_bytes()[:-1000])
    done = start("diagnose", str(damaged), str(REPORT), "--brief", before=INHERITED[world])
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(f"profkit: {damaged}: damaged")
    assert "is limited by" in done.stdout


def test_a_library_s_user_who_ignores_children_is_answered(tmp_path: Path) -> None:
    code = f"""
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from profkit.reports.isolated import run_in_child_processes
from profkit.reports.reader import recover_metrics_after_crash
function = "profkit.reports.reader:read_report_unless_large"
read = run_in_child_processes(function, [{str(REPORT)!r}] * 3, 2, recover_metrics_after_crash)
print([part.file.status for part in read])
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("['ok', 'ok', 'ok']\n", "")


def test_a_picture_needs_no_backend_that_somebody_set(tmp_path: Path) -> None:
    picture = tmp_path / "r.png"
    done = start("roofline", str(REPORT), "-o", str(picture), MPLBACKEND="nonsense")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize("kind", ["file", "folder", "link", "hidden"])
def test_a_kept_folder_with_a_file_of_the_user_s_is_not_replaced(
    run, kind: str, tmp_path: Path
) -> None:
    trace = ran(lambda p: p.launch(GEMM, 100.0)).write(tmp_path / "t.json")
    kept = tmp_path / "x.triage"
    words = ("triage", trace, "-o", kept, "--quiet")
    assert run(*words).exit_code == 0
    assert run(*words).exit_code == 0  # its own is replaced
    mine = kept / (".notes" if kind == "hidden" else "thesis")
    if kind == "folder":
        mine.mkdir()
        (mine / "x").write_text("mine")
    elif kind == "link":
        mine.symlink_to(trace)
    else:
        mine.write_text("mine")
    done = run(*words)
    assert done.exit_code == 2
    assert f"{mine.name} in it is not profkit's" in done.stderr
    assert os.path.lexists(mine)
