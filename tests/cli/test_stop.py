"""Ctrl-C and a polite kill are never lost."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.sweeps import take_part

pytestmark = pytest.mark.slow

CODE = """
import os, signal, sys, time
from profkit.cli.app import interrupt_on_end_signals

class Cleaned:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        for _ in range(1000):
            pass

interrupt_on_end_signals()
try:
    Cleaned()
    time.sleep(20)
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_a_destructor_still_stops(name: str) -> None:
    command = [sys.executable, "-c", CODE.replace("{name}", name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("stopped\n", "")


def writing(page: Path) -> list[str]:
    """The command that writes it."""
    report = ROOT / "artifacts/copy.1GiB.ncu-rep"
    return [sys.executable, "-m", "profkit", "report", str(report), "-o", str(page)]


@pytest.fixture(scope="module")
def whole_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """The page, and how many seconds it took."""
    page = tmp_path_factory.mktemp("whole") / "page.html"
    began = time.monotonic()
    subprocess.run(writing(page), check=True, capture_output=True)
    return page.read_text(), time.monotonic() - began


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_page_is_whole_or_the_old_one_at_any_moment(
    number: str, tmp_path: Path, whole_page: tuple[str, float]
) -> None:
    page = tmp_path / "page.html"
    command, (whole, took) = writing(page), whole_page
    draw = random.Random(number)
    for _ in take_part(range(3), one_of=3):
        page.write_text("old")
        running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        time.sleep(0.05 + took * draw.random())
        running.send_signal(signal.Signals[number])
        said = running.communicate(timeout=120)[1].decode()
        # Before the first line of ours runs, the interpreter prints its own.
        assert "Traceback" not in said or "profkit/" not in said, said
        assert page.read_text() in {"old", whole}
    if number == "SIGKILL":  # what it left is in nobody's way
        subprocess.run(command, check=True, capture_output=True)
        assert page.read_text() == whole


@pytest.mark.parametrize("verb", [["list"], ["doctor"], ["explain", "barrier-wait"], ["--help"]])
def test_a_full_disk_under_stdout_is_one_line(verb: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "profkit", *verb]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
        both = subprocess.run(command, stdout=full, stderr=full, check=False)
    said = b"profkit: the answer could not be written: No space left on device\n"
    assert (done.returncode, done.stderr, both.returncode) == (2, said, 2)


def test_a_closed_stdout_is_no_fault() -> None:
    command = f"{sys.executable} -m profkit list >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_goes_away_is_quiet() -> None:
    command = f"{sys.executable} -m profkit list --json | true"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert done.stderr == b""
