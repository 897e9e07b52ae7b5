"""Signals at any moment of a verb: no traceback, no process left, no half file."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.collect import process
from tests.sweeps import take_part

from .conftest import Machine

pytestmark = pytest.mark.slow

MOMENTS = 6  # of each signal; profkit's own time to start is 0.2 s


def left(found: Callable[[], list[int]]) -> list[int]:
    """Processes that are there, once those that are just ending have ended."""
    until = time.monotonic() + 300
    while (pids := found()) and time.monotonic() < until:
        time.sleep(0.1)
    return pids


def of_machine(machine: Machine) -> list[int]:
    """Processes whose environment names the machine: workers name nothing else of it."""
    mark, pids = f"PROFKIT_KERNELS={machine.kernels}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
                running = b"Z" not in (entry / "stat").read_bytes().rpartition(b")")[2].split()[:1]
            except OSError:
                continue
            if mark in environment.split(b"\0") and running:
                pids.append(int(entry.name))
    return pids


@pytest.mark.parametrize(
    "number", take_part([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], one_of=2)
)
def test_a_check_ends_at_any_moment(machine: Machine, number: signal.Signals) -> None:
    machine.write("v1_x.cu", inside="usleep(20000);")  # the kernel, not who launches it
    subprocess.run(
        [sys.executable, "-m", "profkit", "check", "--build-only", "--all", "--arch", "90"],
        check=True,
    )
    draw = random.Random(int(number))
    for _ in range(MOMENTS):
        command = [sys.executable, "-m", "profkit", "check", "--variant", "v1"]
        running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        time.sleep(0.06 + 1.2 * draw.random())
        running.send_signal(number)
        said = running.communicate(timeout=120)[1].decode()
        # Before the first line of ours runs, the interpreter prints its own.
        assert "Traceback" not in said or "profkit/" not in said, said
        assert left(lambda: of_machine(machine)) == []
    # A worker that is killed while it writes leaves a folder with a part, which the next who writes
    # there sweeps once it is no longer young.
    for part in machine.root.rglob("*.part"):
        os.utime(part.parent, (0, 0))
    for path in machine.root.rglob("build/data/**/*"):
        if path.is_file() and not path.name.endswith((".part", ".lock")):
            path.unlink()
    subprocess.run([sys.executable, "-m", "profkit", "check", "--variant", "v1"], check=True)
    assert not list(machine.root.rglob("*.part*"))


def test_a_parent_killed_before_it_knew_what_it_ran_leaves_nothing(
    tmp_path: Path, processes: Callable[[str], list[int]]
) -> None:
    """Between the start of a command and the word to its guard, which makes no difference."""
    code = """
import os, signal, sys
from profkit.collect import process
def die(guard, session):
    while not (words := open(f"/proc/{session}/cmdline").read()):
        pass  # it is being replaced by the command
    print(words, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
process._SessionGuard.watch = die
process.run_command(['sleep', sys.argv[1]])
"""
    mark = f"4321.{os.getpid()}"
    command = [sys.executable, "-c", code, mark]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (-9, f"sleep\0{mark}\0\n")
    assert left(lambda: processes(mark)) == []


def test_a_killed_parent_takes_what_it_ran_with_it(
    tmp_path: Path, processes: Callable[[str], list[int]]
) -> None:
    code = (
        "import sys; from profkit.collect import process; "
        "process.run_command(['sleep', sys.argv[1]])"
    )
    mark = f"1234.{os.getpid()}"
    running = subprocess.Popen([sys.executable, "-c", code, mark])
    until = time.monotonic() + 300
    while len(processes(mark)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(processes(mark)) == 2
    running.kill()
    running.wait()
    assert left(lambda: processes(mark)) == []


RANKS = """
import subprocess, sys
for _ in range(2):  # as torchrun does: each rank leads a session
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(words, start_new_session=True)
    print(child.pid, flush=True)
child.wait()
"""


def still_there(pids: list[int]) -> list[int]:
    """Those that are no zombies."""
    return [p for p in pids if process.is_alive(p)]


def test_ranks_in_sessions_of_their_own_end_with_what_started_them() -> None:
    for timeout in (2, 10, 60):  # a busy machine may not have come to the second by then
        done = process.run_command([sys.executable, "-c", RANKS], timeout_s=timeout)
        pids = [int(word) for word in done.output.split()]
        if len(pids) == 2:
            break
    assert done.status is None
    assert len(pids) == 2
    assert left(lambda: still_there(pids)) == []


def test_ranks_end_where_we_are_killed() -> None:
    ours = f"""
import sys
from profkit.collect import process
process.run_command([sys.executable, "-c", {RANKS!r}], echo=sys.stdout.buffer)
"""
    running = subprocess.Popen([sys.executable, "-c", ours], stdout=subprocess.PIPE)
    assert running.stdout is not None
    pids = [int(running.stdout.readline()) for _ in range(2)]
    running.kill()
    running.communicate()
    assert left(lambda: still_there(pids)) == []


def test_nothing_watches_over_what_has_ended() -> None:
    before = {p for p in os.listdir("/proc") if p.isdigit()}
    done = process.run_command(["true"])
    assert done.status == 0
    mine = [p for p in os.listdir("/proc") if p.isdigit() and p not in before]
    guards = []
    for pid in mine:
        try:
            words, status = (
                Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "stat")
            )
        except OSError:
            continue
        ours = int(status.rpartition(b")")[2].split()[1]) == os.getpid()  # tests beside have theirs
        guards += [pid] if ours and b"guard" in words else []
    assert guards == []
