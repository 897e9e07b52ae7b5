"""What the injection library records, over a CUPTI that needs no GPU."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profkit.collect import timeline
from profkit.program.readers import injected
from tests.measure.timeline.standin_cupti import build_over_standin, is_cupti_here

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.slow,
    pytest.mark.skipif(not is_cupti_here(), reason="no CUPTI here"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_over_standin(tmp_path_factory.mktemp("standin"))


def run_program(library: Path, folder: Path, code: str, **env: str) -> list[str]:
    """Run Python code with the library loaded as `lib`; what CUPTI was asked, in order."""
    folder.mkdir(exist_ok=True)
    log = folder.parent / f"{folder.name}.log"
    start = (
        "import ctypes, time\n"
        f"standin = ctypes.CDLL({str(library.with_name('libcupti.so'))!r})\n"
        f"lib = ctypes.CDLL({str(library)!r})\n"
        "lib.InitializeInjection()\n"
        "def launch(number): standin.standin_launch(number, ctypes.c_uint64(0))\n"
    )
    own = {"PROFKIT_TIMELINE": str(folder), "STANDIN_LOG": str(log), **env}
    subprocess.run(
        [sys.executable, "-c", start + code],
        env={**os.environ, **own},
        check=True,
        capture_output=True,
        text=True,
    )
    return log.read_text().split("\n")


def test_the_subscription_comes_before_the_records(library: Path, tmp_path: Path) -> None:
    asked = run_program(library, tmp_path / "out", "launch(1)")
    assert asked.index("subscribe") < asked.index("register")
    (process,) = injected.read_injected_recording(tmp_path / "out").processes
    assert [a.name for a in process.activities] == ["tiny"]


def test_another_tool_s_subscription_is_said(library: Path, tmp_path: Path) -> None:
    run_program(library, tmp_path / "out", "launch(1)", STANDIN_BUSY="1")
    of = injected.read_injected_recording(tmp_path / "out")
    assert len(of.processes[0].activities) == 1  # what CUPTI gives is kept all the same
    assert any("holds CUPTI's one subscription" in note for note in of.notes)


def test_what_is_before_the_window_is_not_kept(library: Path, tmp_path: Path) -> None:
    code = (
        "import os\n"
        "begin = int(os.environ['PROFKIT_AFTER'])\n"
        "for number in range(1, 4): launch(number)\n"
        "if time.monotonic_ns() >= begin: os._exit(3)\n"
        "while time.monotonic_ns() < begin: time.sleep(0.01)\n"
        "for number in range(4, 6): launch(number)\n"
    )
    for seconds in (3, 20, 120):  # a busy machine may not have begun within three
        begin = time.monotonic_ns() + seconds * 1_000_000_000
        with contextlib.suppress(subprocess.CalledProcessError):
            run_program(library, tmp_path / "out", code, PROFKIT_AFTER=str(begin))
            break
        shutil.rmtree(tmp_path / "out")
    (process,) = injected.read_injected_recording(tmp_path / "out").processes
    assert [a.correlation for a in process.activities] == [4, 5]
    assert [c.correlation for c in process.calls] == [4, 5]


FAKE_TORCH = """
class profile:
    use_device = {device!r}
    def _start_trace(self): return "started"
"""


@pytest.mark.parametrize("device", ["cuda", None])
def test_a_program_s_own_profiler_is_seen_by_its_import(tmp_path: Path, device: str | None) -> None:
    """A torch that is a folder of ours: only what is wrapped is there."""
    package = tmp_path / "torch" / "autograd"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "profiler.py").write_text(FAKE_TORCH.format(device=device))
    out = tmp_path / "out"
    out.mkdir()
    code = "from torch.autograd.profiler import profile; print(profile()._start_trace())"
    path = os.pathsep.join([str(timeline.INJECTED), str(tmp_path)])
    env = {**os.environ, "PROFKIT_TIMELINE": str(out), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
    )
    assert done.stdout == "started\n"
    said = [file.read_text() for file in out.glob("*.hook")]
    assert said == (["profiler\t\n"] if device else [])


def test_that_its_own_profile_is_empty_is_a_note(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[2] / "program" / "data" / "strided.timeline"
    for file in recorded.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "549.hook").write_text("profiler\t\nprofiler\t\n")
    notes = injected.read_injected_recording(tmp_path).notes
    assert sum("its own profile has no GPU events" in note for note in notes) == 1
    json.dumps(notes)
