"""How tests/gpu shares a machine, seen on stand-ins: what runs in one worker, and what runs alone."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Each test notes its worker, when it began to have the machine, and when it ended.
HEAD = """
import json, os, time, pytest
LOG = os.environ["SUITE_LOG"]
FAILED = []
def note(name, seconds):
    began = time.time()
    time.sleep(seconds)
    row = [name, os.environ["PYTEST_XDIST_WORKER"], began, time.time()]
    with open(LOG, "a") as log:
        log.write(json.dumps(row) + "\\n")
"""
BAD_KERNELS = """
pytestmark = pytest.mark.long
@pytest.fixture(scope="module")
def measured():
    note("measured", 0.2)
@pytest.mark.parametrize("name", range(4))
def test_kernel(measured, name):
    note("kernel", 0.02)
"""
OTHERS = """
@pytest.fixture(scope="module")
def place():
    note("place", 0.2)
@pytest.mark.parametrize("name", range(6))
def test_shares(place, name):
    note("shares", 0.1)
@pytest.mark.alone
def test_alone():
    note("alone", 0.2)
def test_again(machine):
    def check():
        note("again" if FAILED else "first try", 0.2)
        FAILED.append(1)
        assert len(FAILED) == 2
    machine.repeat_alone_if_wrong(check)
"""


@pytest.mark.slow
def test_workers_share_a_machine(tmp_path: Path) -> None:
    conftest = (ROOT / "tests" / "gpu" / "conftest.py").read_text("utf-8")
    begin = conftest.index("@pytest.fixture(autouse=True")  # asks for a GPU
    end = conftest.index("class SharedMachine")
    (tmp_path / "conftest.py").write_text(conftest[:begin] + conftest[end:])
    (tmp_path / "test_bad_kernels.py").write_text(HEAD + BAD_KERNELS)
    (tmp_path / "test_others.py").write_text(HEAD + OTHERS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  alone: x\n  long: x\n")
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadgroup", "."],
        cwd=tmp_path,
        env={**os.environ, "SUITE_LOG": str(log), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [name for name, *_ in rows].count("measured") == 1
    assert len({worker for name, worker, *_ in rows if name in {"measured", "kernel"}}) == 1
    assert len({worker for name, worker, *_ in rows if name == "shares"}) > 1
    alone = [row for row in rows if row[0] in {"alone", "again"}]
    assert len(alone) == 2
    for own, other in itertools.product(alone, rows):
        assert other is own or other[3] <= own[2] or own[3] <= other[2], (own, other)
