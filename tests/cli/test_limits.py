"""Limits of the machine and killed processes: a whole answer or two lines, and never "damaged".

Tried with a good report that is read in parts (6.5 MB; 20 with PROFKIT_SWEEP_ALL), with ten small ones
and with one that is cut: 36 sizes of `ulimit -v`, 27 numbers of open files, 8 sizes of written files,
14 numbers of processes (not as root), 7 folders for temporary files, and 20 kills of the server of the
reading children, of their group or of one of them, with four signals at moments drawn by lot. 245 runs
in all with PROFKIT_SWEEP_ALL, else a part of each kind.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from profkit.errors import explain_resource_limit
from tests.conftest import ROOT
from tests.reports import made
from tests.sweeps import take_part

TWO_LINES = re.compile(r"profkit: [^\n]+\n  [^\n]+\n")
pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "profkit", "diagnose"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


# More than reader.LARGE: it is read in parts, and each run takes as long as it has bytes.
BYTES = 20 << 20 if "PROFKIT_SWEEP_ALL" in os.environ else 13 << 19


class Reports(NamedTuple):
    large: Path
    many: Path
    cut: Path


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("limits")
    whole = (ROOT / "artifacts" / "stage2.B.ncu-rep").read_bytes()
    (folder / "large.ncu-rep").write_bytes(made.repeated(whole, BYTES))
    (folder / "cut.ncu-rep").write_bytes(whole[:-1000])
    (folder / "many").mkdir()
    for number in range(10):
        (folder / "many" / f"{number}.ncu-rep").write_bytes(made.report())
    return Reports(folder / "large.ncu-rep", folder / "many", folder / "cut.ncu-rep")


def diagnose(
    path: Path, limit: Callable[[], None] | None = None, **env: str
) -> tuple[int, str, str]:
    done = subprocess.run(
        [*COMMAND, str(path), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=path.parent,
        preexec_fn=limit,
        env={**ENVIRONMENT, **env},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def answers(reports: Reports) -> dict[Path, str]:
    """What is said of each report without a limit."""
    return {path: diagnose(path)[1] for path in reports}


def check_honest(
    reports: Reports, answers: dict[Path, str], path: Path, found: tuple[int, str, str]
) -> None:
    status, answer, said = found
    assert "Traceback" not in said
    # Without memory for its source lines, a report is diagnosed without them, and a line says so.
    notes = [line for line in said.splitlines(keepends=True) if _NO_LINES in line]
    for note in notes:
        said = said.replace(note, "")
    if path == reports.cut:
        # What is said of it may end with a limit, after what is true of it.
        assert status == 2
        assert re.fullmatch(rf"({TWO_LINES.pattern})+", said), said
        if "damaged" in said:
            assert "it needs at least" in said, said
        return
    assert "damaged" not in said
    if status == 0:
        if notes:
            assert list_findings(answer) == list_findings(answers[path])
        else:
            assert answer == answers[path]
        assert said == ""
    else:
        assert status == 2, said
        assert TWO_LINES.fullmatch(said), said


_NO_LINES = "without source lines: "


def list_findings(answer: str) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return what is said of each launch of a document, without where in its source."""
    launches = []
    for launch in json.loads(answer)["launches"]:
        findings = [(finding["rule"], finding["status"]) for finding in launch["findings"]]
        launches.append((launch["kernel"], launch["bound"], findings))
    return launches


def limit_to(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most))


MEMORY = [*range(26, 98, 8), *range(104, 304, 8), 400, 800]  # MB
FILES = [*range(5, 30), 64, 128]
WRITTEN = [1, 100, 4096, 65536, 1 << 20, 3 << 20, 12 << 20, 30 << 20]


@pytest.mark.parametrize(
    ("megabytes", "which"), take_part(product(MEMORY, ["large", "cut"]), one_of=17)
)
def test_address_space(
    reports: Reports, answers: dict[Path, str], megabytes: int, which: str
) -> None:
    """`ulimit -v`, which schedulers of clusters set: "0 of 11 launches can be read" was said."""
    path = getattr(reports, which)
    found = diagnose(path, limit_to(resource.RLIMIT_AS, megabytes << 20))
    check_honest(reports, answers, path, found)


@pytest.mark.parametrize("limited", [True, False])
def test_an_error_that_the_interpreter_lost(
    monkeypatch: pytest.MonkeyPatch, *, limited: bool
) -> None:
    """CPython's imports end with this instead of a MemoryError; without a limit it is a fault."""
    most = 30 << 20 if limited else resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, resource.RLIM_INFINITY))
    limit = explain_resource_limit(SystemError("error return without exception set"))
    assert (limit.message if limit else None) == ("out of memory" if limited else None)


@pytest.mark.parametrize(
    ("most", "which"), take_part(product(FILES, ["large", "many", "cut"]), one_of=16, first=3)
)
def test_open_files(reports: Reports, answers: dict[Path, str], most: int, which: str) -> None:
    path = getattr(reports, which)
    check_honest(reports, answers, path, diagnose(path, limit_to(resource.RLIMIT_NOFILE, most)))


@pytest.mark.parametrize(("most", "which"), take_part(product(WRITTEN, ["large", "cut"]), one_of=5))
def test_bytes_of_a_file_that_is_written(
    reports: Reports, answers: dict[Path, str], most: int, which: str
) -> None:
    path = getattr(reports, which)
    check_honest(reports, answers, path, diagnose(path, limit_to(resource.RLIMIT_FSIZE, most)))


@pytest.mark.skipif(os.getuid() == 0, reason="root may start as many processes as there can be")
@pytest.mark.parametrize("which", ["large", "many", "cut"])
@pytest.mark.parametrize("more", take_part(range(14), one_of=4))
def test_processes(reports: Reports, answers: dict[Path, str], more: int, which: str) -> None:
    path = getattr(reports, which)
    own = sum(
        entry.stat().st_uid == os.getuid() for entry in os.scandir("/proc") if entry.name.isdigit()
    )
    check_honest(
        reports, answers, path, diagnose(path, limit_to(resource.RLIMIT_NPROC, own + more))
    )


FOLDERS = {
    "not there": "TMPDIR=/nonexistent",
    "a file": "TMPDIR=/etc/passwd",
    "not to be written": "mount -t tmpfs -o ro none /tmp && TMPDIR=/tmp",
    "full at once": "mount -t tmpfs -o size=4k,mode=1777 none /tmp && TMPDIR=/tmp",
    "full soon": "mount -t tmpfs -o size=64k,mode=1777 none /tmp && TMPDIR=/tmp",
    "full later": "mount -t tmpfs -o size=3m,mode=1777 none /tmp && TMPDIR=/tmp",
    "none": "mount -t tmpfs -o ro none /tmp && mount -t tmpfs -o ro none /var/tmp && TMPDIR=",
}


@pytest.mark.parametrize(
    ("which", "folder"), take_part(product(["large", "cut"], FOLDERS), one_of=4, first=1)
)
def test_no_room_for_temporary_files(
    reports: Reports, answers: dict[Path, str], folder: str, which: str
) -> None:
    """The reports are read through an open folder: /tmp may be covered. In it nothing can be written."""
    path = getattr(reports, which)
    steps = FOLDERS[folder]
    if "mount" in steps:
        if any(ROOT.is_relative_to(folder) for folder in ("/tmp", "/var/tmp")):
            pytest.skip("what is mounted over /tmp covers this checkout")
        may = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], check=False)
        if may.returncode:
            pytest.skip("only root may mount")
    words = shlex.join([*COMMAND, path.name, "--json"])
    read_only = "mount --bind . /mnt && mount -o remount,ro,bind /mnt && cd /mnt && "
    script = (read_only if "mount" in steps else "") + f"{steps} {words}"
    done = subprocess.run(
        [*(["unshare", "-m"] if "mount" in steps else []), "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=path.parent,
        env=ENVIRONMENT,
    )
    answer = done.stdout.replace(f'"{path.name}"', f'"{path}"')
    check_honest(reports, answers, path, (done.returncode, answer, done.stderr))


def find_processes(parent: int) -> Iterator[int]:
    """Yield the server, the groups that it forked, and their children, from the top down."""
    below = [parent]
    while below:
        process = below.pop(0)
        try:
            text = Path(f"/proc/{process}/task/{process}/children").read_text()
        except OSError:
            continue
        children = [int(word) for word in text.split()]
        yield from children
        below += children


@pytest.mark.parametrize("seed", take_part(range(20), one_of=10, first=1))
def test_killed_from_outside(reports: Reports, answers: dict[Path, str], seed: int) -> None:
    """The system's, where memory is short, or an operator's: one of them, once or three times."""
    lot = random.Random(seed)
    path = lot.choice([reports.large, reports.many])
    number = lot.choice(
        [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU]
    )
    # Files, not pipes: nobody reads while processes are looked for, and a full pipe never empties.
    with tempfile.TemporaryFile("w+") as answer, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [*COMMAND, str(path), "--json"],
            stdout=answer,
            stderr=said,
            cwd=path.parent,
            env=ENVIRONMENT,
        )
        for _ in range(lot.choice([1, 3])):
            kill_one_below(process, lot, number)
        process.wait(timeout=300)
        answer.seek(0)
        said.seek(0)
        check_honest(reports, answers, path, (process.returncode, answer.read(), said.read()))


def kill_one_below(process: subprocess.Popen, lot: random.Random, number: signal.Signals) -> None:
    """Kill one of the processes below, as soon as so many are there, or none where it ends before."""
    deep = lot.choice([1, 2, 3, 4])
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        there = list(find_processes(process.pid))
        if len(there) >= deep:
            time.sleep(lot.uniform(0, 0.2))
            with contextlib.suppress(ProcessLookupError):
                os.kill(there[deep - 1], number)
            return
        time.sleep(0.005)
