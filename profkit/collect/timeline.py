"""A command  ->  the files of its timeline, and one report with an instance of each kernel that matters.

The timeline is recorded by injection.cpp, which the driver loads into each process that starts CUDA:
compiled with the CUPTI of this machine, built once and kept.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.collect import process, profiler, tools
from profkit.errors import ProfkitError
from profkit.files import (
    get_home_folder,
    is_file,
    open_new_log,
    open_regular_file,
    resolve_path,
    write_then_replace,
)

if TYPE_CHECKING:
    from profkit.units import Clause, CommandWords, KernelName, Seconds, Sentence


SOURCE = Path(__file__).parent / "injection.cpp"
_LIBRARIES = (
    *("lib/libcupti.so.13", "lib/libcupti.so.12", "extras/CUPTI/lib64/libcupti.so"),
    *("lib64/libcupti.so", "lib/libcupti.so", "targets/x86_64-linux/lib/libcupti.so"),
)
FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_INSTALL = (
    "it comes with the CUDA toolkit (extras/CUPTI) and as the package nvidia-cuda-cupti; "
    "without it: record with torch.profiler or nsys, and give profkit triage that file"
)


@dataclass(frozen=True)
class Cupti:
    """Where CUPTI is on this machine."""

    header: Path  # the folder of cupti.h
    cuda: Path  # the folder of cuda.h
    library: Path


def build_injection_library(cache_folder: Path | None = None) -> Path:
    """Return the library, compiled if this machine has none of this source and CUPTI.

    It is kept in the folder, or in the user's cache.
    """
    cupti = find_cupti()
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise ProfkitError("no C++ compiler was found", "install g++: the timeline needs it once")
    key = hashlib.sha256()
    headers = sorted(SOURCE.with_suffix("").glob("*.h"))
    for source in (SOURCE, *headers):
        key.update(source.read_bytes())
    key.update(f"{cupti} {compiler}".encode())
    target = (cache_folder or find_cache_folder()) / f"injection-{key.hexdigest()[:16]}.so"
    if not is_file(target):
        _compile_library(compiler, cupti, target)
    return target


def find_cache_folder() -> Path:
    """Return the folder of what is kept from one recording to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or get_home_folder() / ".cache") / "profkit"


def _compile_library(compiler: str, cupti: Cupti, target: Path) -> None:
    """Compile the library; a ProfkitError says why it does not compile."""
    command = [compiler, *FLAGS, str(SOURCE), f"-I{cupti.header}", f"-I{cupti.cuda}"]
    command += [str(cupti.library), "-ldl", f"-Wl,-rpath,{cupti.library.parent}", "-o"]
    with write_then_replace(target) as part:
        done = process.run_command([*command, part], timeout_s=300)
        if done.status is None:
            raise ProfkitError("the timeline's library took five minutes to compile")
        if done.status:
            first, *_ = done.output.strip().splitlines() or [""]
            raise ProfkitError(f"the timeline's library does not compile: {first}", _INSTALL)


def find_cupti() -> Cupti:
    """Return where CUPTI is: in the packages of the Python on PATH's neighbours, then in the toolkit.

    A program that brings its own CUPTI (torch does) must not meet a second one; libraries of one
    major version have one name, and the loader takes the one that is there already.
    """
    places = list(_list_cuda_folders())
    header = _find_first_file(
        "cupti.h", places, ("include/cupti.h", "extras/CUPTI/include/cupti.h")
    )
    cuda = _find_first_file("cuda.h", places, ("include/cuda.h",))
    library = _find_first_file("libcupti.so", places, _LIBRARIES)
    return Cupti(header.parent, cuda.parent, resolve_path(library))


def _list_cuda_folders() -> Iterator[Path]:
    """Yield folders that may hold include/ and lib/ of CUDA, the toolkit's first."""
    for key in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(key):
            yield Path(os.environ[key])
    if nvcc := tools.find_tool("nvcc"):
        yield resolve_path(nvcc).parent.parent
    yield Path("/usr/local/cuda")
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(folder).glob("cu1[0-9]"), reverse=True)
        yield Path(folder) / "cuda_cupti"
        yield Path(folder) / "cuda_runtime"


def _find_first_file(what_is_sought: str, folders: list[Path], names: tuple[str, ...]) -> Path:
    """Return the first of some files that is there; a ProfkitError where none is."""
    for path in starmap(Path, product(folders, names)):
        if is_file(path):
            return path
    raise ProfkitError(f"{what_is_sought} was not found: no timeline can be recorded", _INSTALL)


TIMEOUT = 600.0  # seconds; --timeout changes it
SIGNALLED = 128  # a shell's status of a command that a signal ended: this and its number
INJECTED = Path(__file__).with_name("inject")


@dataclass(frozen=True)
class RecordingWindow:
    """Which part of a program's run is recorded, in seconds from its start."""

    after: float = 0.0  # what is before it is not kept
    seconds: float | None = None  # then the program is ended; None: it ends by itself
    timeout: float = TIMEOUT  # then it is ended anyway
    lines: bool = True  # whether lines of Python are recorded; if not, less is done in the program
    operators: bool = True  # whether operators of a few steps are, too


@dataclass(frozen=True)
class RecordingResult:
    """How a recorded program ran."""

    seconds: float  # how long it ran
    note: str  # how it ended, if not well
    by_itself: bool = True  # whether it ended; if not, it was ended here


def record_timeline(
    command: CommandWords,
    folder: Path,
    window: RecordingWindow | None = None,
    echo: process.Sink | None = None,
) -> RecordingResult:
    """Run a command with the injection library in each of its processes that starts CUDA.

    The folder, empty, gets a file of each kind for each process (profkit.program.readers.injected
    reads them). The program is ended when the window is over, and at Ctrl-C or a polite kill; what it
    did until then is kept.

    Raises:
        ProfkitError: It ended badly before any kernel, or cannot be started.
    """
    window = window or RecordingWindow()
    env = _make_recording_environment(folder, window)
    limit = window.timeout
    if window.seconds is not None:
        limit = min(limit, window.after + window.seconds)
    began = time.monotonic()
    try:
        done = process.run_command(command, limit, env, echo)
    except KeyboardInterrupt:
        note = f"{command[0]} was ended by a signal to profkit: its timeline ends there"
        return RecordingResult(time.monotonic() - began, note, by_itself=False)
    if done.status is None:
        return RecordingResult(
            done.seconds, _describe_time_limit(command, window, limit), by_itself=False
        )
    if done.status == 0:
        return RecordingResult(done.seconds, "")
    how, hint = _explain_program_failure(command, done.status, window)
    if not any(folder.glob("*.kernels")):
        last = (done.output.strip().splitlines() or [""])[-1]
        raise ProfkitError(f"{how} before any kernel: {last}", hint)
    return RecordingResult(done.seconds, f"{how}: its timeline ends there; {hint}")


def _make_recording_environment(folder: Path, window: RecordingWindow) -> dict[str, str]:
    """Return the environment of a program that is recorded."""
    injection = build_injection_library()
    paths = [str(INJECTED)]
    if own := os.environ.get("PYTHONPATH"):
        paths.append(own)
    env = dict(os.environ)
    env["CUDA_INJECTION64_PATH"] = str(injection)
    env["PROFKIT_TIMELINE"] = str(folder)
    env["PYTHONPATH"] = os.pathsep.join(paths)
    env["PROFKIT_LINES"] = "0"
    if window.lines:
        env["PROFKIT_LINES"] = "1"
        # What torch.compile makes tells its lines only if it was asked when it was made: a cache of
        # other runs does not, and theirs is not filled with ours.
        env["INDUCTOR_PROVENANCE"] = "1"
        env["TORCHINDUCTOR_CACHE_DIR"] = str(find_cache_folder() / "inductor")
    if window.lines and window.operators:
        env["PROFKIT_OPERATORS"] = "1"
    if window.after:
        env["PROFKIT_AFTER"] = str(time.monotonic_ns() + round(window.after * 1e9))
    return env


def _describe_time_limit(
    command: CommandWords, window: RecordingWindow, limit_s: Seconds
) -> Sentence:
    """Return which limit ended a program."""
    asked = window.seconds is not None and limit_s < window.timeout
    if asked:
        why = "as --seconds asks"
    else:
        why = "at --timeout"
    return f"{command[0]} was ended after {limit_s:g} s, {why}: its timeline ends there"


def _explain_program_failure(
    command: CommandWords, status: int, window: RecordingWindow
) -> tuple[Clause, Sentence]:
    """Return how a program ended badly, and what to try."""
    hint = "check that the command runs on its own first"
    # a shell says it so
    if status < 0:
        number = -status
    else:
        number = status - SIGNALLED
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"{command[0]} ended with status {status}", hint
    less = "record it with torch.profiler or nsys and give profkit triage that file"
    if window.lines:
        less = f"record less: --no-lines; or {less}"
    hint += f"; if it is ended so only while it is recorded, {less}"
    return f"{command[0]} was ended by {name}", hint


BUDGET = 180.0  # seconds; --budget changes it
_SPECIAL = re.compile(r"([.^$*+?()\[\]{}|\\/])")


def profile_second_of_each_shape(
    command: CommandWords,
    function_names: Sequence[KernelName],
    report: Path,
    budget_s: Seconds = BUDGET,
    echo: process.Sink | None = None,
    device_number: int | None = None,
) -> profiler.CollectedReport:
    """Profile the second launch of each kernel in each grid and block, all counters.

    `function_names`: names of functions without template arguments; others run without a replay.
    `device_number`: the one GPU whose kernels are replayed, None takes all; ranks on others go on, and
    wait in their collectives for the one that is replayed.
    """
    names = "|".join(sorted({_SPECIAL.sub(r"\\\1", name) for name in function_names}))
    once = "--filter-mode", "per-launch-config", "--launch-skip", "1", "--launch-count", "1"
    named = "--kernel-name-base", "function", "--kernel-name", f"regex:^({names})$"
    there: tuple[str, ...] = ()
    if device_number is not None:
        there = ("--devices", str(device_number))
    options = profiler.CollectOptions("full", "all", budget_s, (*once, *named, *there))
    return profiler.profile_program(command, report, tools.require_tool("ncu"), options, echo)


def compress_report(report: Path) -> Path:
    """Compress a report to .ncu-repz: machine code that launches share is in it each time."""
    import zstandard

    target = report.with_suffix(".ncu-repz")
    with (
        open_regular_file(report) as raw,
        write_then_replace(target) as part,
        open_new_log(part) as out,
    ):
        zstandard.ZstdCompressor(level=6).copy_stream(raw, out)
    report.unlink()
    return target
