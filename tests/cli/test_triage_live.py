"""profkit triage -- COMMAND, of programs that only pretend to use a GPU: what is said and kept when."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profkit.collect import timeline
from profkit.errors import ProfkitError
from profkit.program.readers import injected
from tests.conftest import ROOT

RECORDED = ROOT / "tests" / "program" / "data" / "strided.timeline"
STANDINS = ROOT / "tests" / "measure" / "standin"
# What a recorded program leaves; it says so, and serves for ever if it is told to.
PROGRAM = """
import os, pathlib, shutil, sys, time
folder = os.environ.get("PROFKIT_TIMELINE")
if folder is not None:
    for file in pathlib.Path({recorded!r}).iterdir():
        shutil.copy(file, pathlib.Path(folder) / f"{{os.getpid()}}{{file.suffix}}")
pathlib.Path({up!r}).touch()
if {serves!r}:
    time.sleep(600)
"""
# ncu that says it has begun, and never comes to an end.
ENDLESS = """#!/bin/sh
touch {begun}
sleep 600
"""
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The library is compiled once, and none of the user's."""
    try:
        timeline.find_cupti()
    except ProfkitError:
        pytest.skip("no CUPTI here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


class Running:
    """A profkit triage that was started, and the files by which it is followed."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        serves: bool,
        ncu: str = "",
        recorded: Path = RECORDED,
        **env: str,
    ) -> None:
        self.up = folder / "up"
        self.begun = folder / "begun"
        self.kept = folder / "kept.triage"
        program = folder / "program.py"
        about = {"recorded": str(recorded), "up": str(self.up), "serves": serves}
        program.write_text(PROGRAM.format(**about))
        tools = folder / "tools"
        tools.mkdir()
        if ncu:
            (tools / "ncu").write_text(ncu.format(begun=self.begun))
        else:
            shutil.copy(STANDINS / "ncu", tools / "ncu")
        (tools / "ncu").chmod(0o755)
        command = [sys.executable, "-m", "profkit", "triage", "-o", str(self.kept), *flags]
        command += ["--", sys.executable, str(program)]
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "FAKE_NCU_LOG": str(folder / "ncu.log"), "PATH": path, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, file: Path) -> None:
        """Wait until a file is there; a minute at most on any machine."""
        until = time.monotonic() + 300
        while not file.exists():
            assert time.monotonic() < until, f"{file} never came"
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.05)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err

    def read_answer(self) -> dict[str, Any]:
        return json.loads((self.kept / "triage.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_recording_of_a_server(number: int, tmp_path: Path) -> None:
    running = Running(tmp_path, serves=True)
    running.wait_for(running.up)
    running.process.send_signal(number)
    status, out, err = running.end()
    assert status == 130, err
    assert "What to do first" in out
    notes = running.read_answer()["notes"]
    assert any("was ended by a signal to profkit" in note for note in notes)
    assert any("a run that ends by itself" in note for note in notes)


def test_seconds_end_the_recording_of_a_server(tmp_path: Path) -> None:
    running = Running(tmp_path, "--seconds", "5", "--json", serves=True)
    status, out, err = running.end()
    assert status == 0, err
    document = json.loads(out)
    assert any("was ended after 5 s, as --seconds asks" in note for note in document["notes"])
    assert running.read_answer()["first"] == document["first"]


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_counting_that_is_interrupted_loses_nothing(form: list[str], tmp_path: Path) -> None:
    running = Running(tmp_path, *form, serves=False, ncu=ENDLESS)
    running.wait_for(running.begun)
    assert running.read_answer()["first"]["category"]  # kept before anything is counted
    running.process.send_signal(signal.SIGINT)
    status, out, err = running.end()
    assert status == 130, err
    if "--json" in form:
        assert json.loads(out)["first"]["category"]
    else:
        assert out.count("What to do first") == 1


def test_a_killed_triage_has_said_and_kept_the_timeline_s_answer(tmp_path: Path) -> None:
    running = Running(tmp_path, serves=False, ncu=ENDLESS)
    running.wait_for(running.begun)
    running.process.kill()
    _, out, _ = running.end()
    assert out.count("What to do first") == 1
    assert running.read_answer()["first"]["category"]
    assert (running.kept / "timeline.json").is_file()


def test_counting_that_fails_is_a_note_behind_the_answer(tmp_path: Path) -> None:
    running = Running(tmp_path, serves=False, FAKE_NCU="permission")
    status, out, err = running.end()
    assert status == 0, err
    assert out.count("What to do first") == 1
    assert "no counters were collected: this user may not read" in " ".join(out.split())
    assert any("no counters were collected" in note for note in running.read_answer()["notes"])


def _record_launches(report: Path, folder: Path) -> Path:
    """What the library would have left of a program that launches a report's kernel again and again."""
    import numpy as np

    from profkit.reports.reader import load_reports

    launch = load_reports([str(report)]).iloc[0]
    folder.mkdir()
    kernels = np.zeros(20, injected.make_row_type("kernels"))
    calls = np.zeros(20, injected.make_row_type("calls"))
    for number in range(20):
        start = 1_000_000 * (number + 1)
        calls[number] = start, start + 5_000, number + 1, 1, 1
        kernels[number]["start"] = start + 10_000
        kernels[number]["end"] = start + 900_000
        kernels[number]["correlation"] = number + 1
        kernels[number]["grid"] = launch["grid"]
        kernels[number]["block"] = launch["block"]
    (folder / "1.kernels").write_bytes(kernels.tobytes())
    (folder / "1.calls").write_bytes(calls.tobytes())
    (folder / "1.names").write_text(f"{launch['kernel']}\ncudaLaunchKernel_v7000\n")
    (folder / "1.meta").write_text("whole\t1\n")
    return folder


def test_counters_bring_a_second_sharper_answer_and_are_kept(tmp_path: Path) -> None:
    report = ROOT / "artifacts" / "scalar.B.ncu-rep"
    recorded = _record_launches(report, tmp_path / "recorded")
    running = Running(tmp_path, serves=False, recorded=recorded, FAKE_REPORT=str(report))
    status, out, err = running.end()
    assert status == 0, err
    first, second = re.split("[Aa] step takes ", out)[1:]
    assert "profkit diagnose" not in first
    assert "details of k1: profkit diagnose" in " ".join(second.split())
    (row,) = running.read_answer()["kernels"]
    assert row["counted"]
    assert str(running.kept / "counters.ncu-repz") in row["next"]
    assert (running.kept / "counters.ncu-repz").is_file()
