"""The injection library: built once, found again, and silent where it is not asked."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.collect import timeline
from profkit.errors import ProfkitError


def _there() -> bool:
    try:
        timeline.find_cupti()
    except ProfkitError:
        return False
    return True


needs_cupti = pytest.mark.skipif(not _there(), reason="no CUPTI here")


@pytest.mark.nvcc
@needs_cupti
def test_it_is_built_once_and_exports_its_entry(tmp_path: Path) -> None:
    first = timeline.build_injection_library(tmp_path)
    stamp = first.stat().st_mtime_ns
    assert timeline.build_injection_library(tmp_path) == first
    assert first.stat().st_mtime_ns == stamp
    assert [p.name for p in tmp_path.iterdir()] == [first.name]
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", first], capture_output=True, text=True, check=True
    ).stdout
    assert "InitializeInjection" in symbols.split()


@pytest.mark.nvcc
@needs_cupti
def test_loaded_without_being_asked_it_does_nothing(tmp_path: Path) -> None:
    built = timeline.build_injection_library(tmp_path / "lib")
    out = tmp_path / "out"
    out.mkdir()
    code = f"import ctypes; print(ctypes.CDLL({str(built)!r}).InitializeInjection())"
    env = {k: v for k, v in os.environ.items() if k != "PROFKIT_TIMELINE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
    assert list(out.iterdir()) == []


@pytest.mark.nvcc
@needs_cupti
def test_loaded_without_a_gpu_it_says_so_and_leaves_the_program_alone(tmp_path: Path) -> None:
    if ctypes.util.find_library("cuda"):
        pytest.skip("there is a driver here")
    built = timeline.build_injection_library(tmp_path / "lib")
    out = tmp_path / "out"
    out.mkdir()
    code = f"import ctypes; ctypes.CDLL({str(built)!r}).InitializeInjection(); print('on')"
    env = {**os.environ, "PROFKIT_TIMELINE": str(out), "RANK": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "on\n"
    (meta,) = out.glob("*.meta")
    assert "rank\t3" in meta.read_text()


def test_without_cupti_it_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "_list_cuda_folders", lambda: iter(()))
    with pytest.raises(ProfkitError, match=r"cupti\.h was not found") as caught:
        timeline.find_cupti()
    assert "torch.profiler or nsys" in caught.value.hint


SLEEPS = "import time; time.sleep(60)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "words"),
    [
        (timeline.RecordingWindow(timeout=1.0), "was ended after 1 s, at --timeout"),
        (
            timeline.RecordingWindow(after=0.5, seconds=0.5),
            "was ended after 1 s, as --seconds asks",
        ),
        (timeline.RecordingWindow(after=0.5, seconds=30.0, timeout=1.0), "after 1 s, at --timeout"),
    ],
)
def test_a_program_that_does_not_end_is_ended_and_said(
    window: timeline.RecordingWindow, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "build_injection_library", lambda: tmp_path / "none.so")
    done = timeline.record_timeline([sys.executable, "-c", SLEEPS], tmp_path, window)
    assert words in done.note
    assert not done.by_itself


def test_a_signal_ends_the_recording_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "build_injection_library", lambda: tmp_path / "none.so")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(timeline.process, "run_command", stopped)
    done = timeline.record_timeline(["serve"], tmp_path)
    assert "serve was ended by a signal to profkit" in done.note
    assert not done.by_itself


@pytest.mark.parametrize(
    "code",
    ["import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "raise SystemExit(128 + 11)"],
)
def test_a_crash_names_its_signal_and_how_to_record_less(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "build_injection_library", lambda: tmp_path / "none.so")
    with pytest.raises(ProfkitError, match="was ended by SIGSEGV before any kernel") as caught:
        timeline.record_timeline([sys.executable, "-c", code], tmp_path)
    assert "torch.profiler or nsys" in caught.value.hint
    (tmp_path / "1.kernels").touch()
    done = timeline.record_timeline([sys.executable, "-c", code], tmp_path)
    assert "was ended by SIGSEGV: its timeline ends there" in done.note
    assert done.by_itself


def test_a_program_s_environment_names_library_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "build_injection_library", lambda: tmp_path / "lib.so")
    code = "import os; print(os.environ['CUDA_INJECTION64_PATH'], os.environ['PROFKIT_TIMELINE'])"
    echo = (tmp_path / "echo").open("wb")
    timeline.record_timeline([sys.executable, "-c", code], tmp_path, None, echo)
    echo.close()
    assert (tmp_path / "echo").read_text() == f"{tmp_path / 'lib.so'} {tmp_path}\n"


def test_ncu_is_asked_for_one_launch_of_each_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def wrap(program: object, report: object, ncu: object, options: object, echo: object) -> str:
        seen.update(program=program, options=options)
        return "collected"

    monkeypatch.setattr(timeline.tools, "require_tool", lambda name: Path("/opt") / name)
    monkeypatch.setattr(timeline.profiler, "profile_program", wrap)
    timeline.profile_second_of_each_shape(
        ["./train"], ["mm", "f.g[x]", "mm"], tmp_path / "c.ncu-rep", 60.0
    )
    options = seen["options"]
    assert options.timeout == 60.0
    assert options.filters[:6] == (
        "--filter-mode",
        "per-launch-config",
        "--launch-skip",
        "1",
        "--launch-count",
        "1",
    )
    assert options.filters[-1] == r"regex:^(f\.g\[x\]|mm)$"
