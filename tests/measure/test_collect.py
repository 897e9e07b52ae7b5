"""Every way in which ncu fails: one line and a hint, nothing half-written, nothing left running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.collect import process, profiler
from profkit.collect.ncu_output import NoCounters
from profkit.collect.profiler import CollectOptions
from profkit.errors import ProfkitError

from .conftest import HERE, ROOT

NCU = HERE / "standin/ncu"
PROGRAM = [sys.executable, "-c", "print('hello from the program')"]


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU_LOG", str(tmp_path / "ncu.log"))
    monkeypatch.setenv("FAKE_REPORT", str(ROOT / "artifacts/scalar.B.ncu-rep"))


def wrap(tmp_path: Path, options: CollectOptions = CollectOptions()) -> profiler.CollectedReport:  # noqa: B008
    return profiler.profile_program(PROGRAM, tmp_path / "out/x.ncu-rep", NCU, options)


def left_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*")) if folder.exists() else []


def test_a_report_and_nothing_else_is_left(tmp_path: Path) -> None:
    got = wrap(tmp_path, CollectOptions(filters=profiler.make_launch_filter_options("attn", 2, 3)))
    assert left_in(tmp_path / "out") == ["x.ncu-rep"]
    assert got.kernels
    assert got.note == ""
    said = (tmp_path / "ncu.log").read_text().strip().split("\0")
    assert said[-len(PROGRAM) :] == PROGRAM
    for option, value in [
        ("--kernel-name", "regex:[aA][tT][tT][nN]"),
        ("--kernel-name-base", "demangled"),
        ("--launch-skip", "2"),
        ("--launch-count", "3"),
        ("--clock-control", "none"),
    ]:
        assert said[said.index(option) + 1] == value
    assert "--profile-from-start" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "message", "hint"),
    [
        ("permission", "may not read the GPU's performance counters", "NVreg_Restrict"),
        ("lock", "lock file", "delete the file"),
        ("driver", "does not go with this driver", "doctor"),
        ("library", "does not go with this driver", "doctor"),
        ("disk", "could not write its report", "--artifacts"),
        ("memory", "out of memory under ncu", "smaller case"),
        ("option", "does not know an option", "2022.1"),
        ("busy", "holds the GPU's profiling hardware", "dcgmi"),
        ("kernel", "ncu gave up on a kernel", "--sanitize"),
        ("none", "matched no kernel", "there are: vectorized_elementwise_kernel, gemm_kernel"),
        ("nokernel", "matched no kernel", "look at the names"),
        ("nogpu", "the command started no CUDA under ncu", "not those of a server"),
        ("partial", "failed under ncu", "without ncu"),
    ],
)
def test_each_fault_is_one_line_and_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, message: str, hint: str
) -> None:
    monkeypatch.setenv("FAKE_NCU", mode)
    old = tmp_path / "out/x.ncu-rep"
    old.parent.mkdir()
    old.write_bytes(b"the report of yesterday")
    with pytest.raises(ProfkitError) as caught:
        wrap(tmp_path)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in caught.value.hint
    assert isinstance(caught.value, NoCounters) == (mode == "permission")
    assert left_in(tmp_path / "out") == ["x.ncu-rep"]
    assert old.read_bytes() == b"the report of yesterday", "what was finished is kept"


def test_a_crash_says_what_the_program_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "crash")
    with pytest.raises(ProfkitError, match=r"failed under ncu.*Segmentation fault in the program"):
        wrap(tmp_path)
    assert left_in(tmp_path / "out") == []


def test_a_program_that_fails_late_keeps_its_report_and_says_so(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "raise SystemExit(3)"]
    got = profiler.profile_program(program, tmp_path / "x.ncu-rep", NCU, CollectOptions())
    assert got.path.is_file()
    assert got.note == "it returned 3"


def test_megabytes_of_output_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU", "megabytes")
    with (tmp_path / "echo").open("w+b") as echo:
        got = profiler.profile_program(PROGRAM, tmp_path / "x.ncu-rep", NCU, CollectOptions(), echo)
        assert echo.tell() > 29_000_000
    assert got.kernels
    done = process.run_command([sys.executable, "-c", "print('x' * 10_000_000 + 'end')"])
    assert len(done.output) <= process.KEEP
    assert done.output.endswith("end\n")


def test_a_hang_is_stopped_with_all_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Callable[[str], list[int]]
) -> None:
    monkeypatch.setenv("FAKE_NCU", "hang")
    mark = str(tmp_path / "out")
    started = time.monotonic()
    with pytest.raises(ProfkitError, match="stopped after 1 s"):
        wrap(tmp_path, CollectOptions(timeout=1))
    assert time.monotonic() - started < 300, "it would sleep for ten minutes"
    assert processes(mark) == []
    assert left_in(tmp_path / "out") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: Callable[[str], list[int]],
    number: signal.Signals,
) -> None:
    monkeypatch.setenv("FAKE_NCU", "hang")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    program = (
        "import signal, sys; from pathlib import Path\n"
        "from profkit.collect import profiler\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        f"ncu = Path({str(NCU)!r})\n"
        f"report = Path({str(tmp_path / 'out/x.ncu-rep')!r})\n"
        "profiler.profile_program(['true'], report, ncu, profiler.CollectOptions())"
    )
    running = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while not (tmp_path / "ncu.log").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert (tmp_path / "ncu.log").exists(), "ncu was never started"
    running.send_signal(number)
    running.wait(300)
    assert processes(str(tmp_path / "out")) == []
    assert left_in(tmp_path / "out") == []


def test_another_kernel_than_asked_for_is_refused(tmp_path: Path) -> None:
    profiler.verify_captured_kernels(["void a::kern<3>(int)"], ["kern"], "v1:B")
    with pytest.raises(ProfkitError, match=r"v1:B: ncu captured other, kern, asked for kern"):
        profiler.verify_captured_kernels(["kern(int)"], ["other", "void kern<3>(int)"], "v1:B")
    with pytest.raises(ProfkitError, match="captured nothing"):
        profiler.verify_captured_kernels(["kern(int)"], [], "v1:B")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfkitError, match="cannot write in"):
        profiler.profile_program(PROGRAM, tmp_path / "file/x.ncu-rep", NCU, CollectOptions())


def test_a_bad_expression_is_refused_before_anything_starts() -> None:
    with pytest.raises(ProfkitError, match=r"--kernel \("):
        profiler.make_launch_filter_options("(", 0, None)
    assert profiler.make_launch_filter_options(None, 0, None) == ()


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="no-such-ncu: command not found"):
        profiler.profile_program(
            PROGRAM,
            tmp_path / "x.ncu-rep",
            Path("no-such-ncu"),
            CollectOptions(),
        )
