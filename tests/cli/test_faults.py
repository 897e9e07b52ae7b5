"""Every place on the command line that takes a path, and everything that may be wrong with a path.

Each case is answered within its time: with exit status 0, 1 or 2, never with a traceback, and what
cannot be read or written is said in words. Permissions hold for root too here: the process that tries
them gives up the capabilities that pass them by.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from profkit.cli.app import app
from tests.conftest import ROOT
from tests.sweeps import take_part

SECONDS = 60.0  # of a processor, of one case
WAITED = 600.0  # by the clock: what hangs never ends, and a busy machine is slow
ARTIFACTS = ROOT / "artifacts"
GOOD = str(ARTIFACTS / "stage2.B.ncu-rep")
TRACE = str(ROOT / "tests" / "program" / "data" / "copy_pageable.planted.json.gz")
CLAIMS = "from profkit.evidence.claims import *\n"
NO_CLAIM = CLAIMS + "g = 1\n"
# A verb with a place for a path (@), and what is good there.
REPORT, RECORD, RECORDING, PAGE = "x.ncu-rep", "x.json", "x.json.gz", "x.html"
PLACES: dict[str, tuple[str, ...]] = {
    "diagnose @": (REPORT, "diagnose", "@"),
    "diagnose @ beside a good one": (REPORT, "diagnose", GOOD, "@"),
    "diagnose --lines": (REPORT, "diagnose", "@", "--lines", "2"),
    "diagnose @.csv": ("x.csv", "diagnose", "@"),
    "diagnose --csv": ("x.csv", "diagnose", GOOD, "--csv", "@"),
    "diagnose --parquet": ("x.parquet", "diagnose", GOOD, "--parquet", "@"),
    "diagnose --history": ("x", "diagnose", GOOD, "--history", "@"),
    "diagnose --artifacts": ("x", "diagnose", "stage2", "--with", "blocks*2", "--artifacts", "@"),
    "report @": (REPORT, "report", "@", "-o", "out.html"),
    "report -o": (PAGE, "report", GOOD, "-o", "@"),
    "roofline @": (REPORT, "roofline", "@", "-o", "out.png"),
    "roofline @.jsonl": ("x.jsonl", "roofline", "@", "-o", "out.png"),
    "roofline -o": ("x.png", "roofline", GOOD, "-o", "@"),
    "compare @ B": (REPORT, "compare", "@", GOOD),
    "compare A @": (RECORD, "compare", GOOD, "@"),
    "compare --artifacts": ("x", "compare", "stage1", "stage2", "--artifacts", "@"),
    "compare --history": ("x", "compare", "stage1", "stage2", "--case", "B", "--history", "@"),
    "gate @ B": ("x", "gate", "@", str(ARTIFACTS / "attention")),
    "gate A @": ("x", "gate", str(ARTIFACTS / "attention"), "@"),
    "gate --history": ("x", "gate", "few", "few", "--history", "@"),
    "history --history": ("x", "history", "--history", "@"),
    "history --artifacts": ("x", "history", "--add", "--history", "kept", "--artifacts", "@"),
    "claims @": ("x.py", "claims", "@"),
    "claims --artifacts": ("x", "claims", "good.py", "--artifacts", "@"),
    "triage @": (RECORDING, "triage", "@"),
    "triage @ and another": (RECORDING, "triage", TRACE, "@"),
    "triage @.triage": ("x.triage", "triage", "@"),
    "triage -o": ("x.triage", "triage", TRACE, "-o", "@"),
    "triage --page": (PAGE, "triage", TRACE, "--page", "@"),
    "list --kernels": ("x", "list", "--kernels", "@"),
    "list --artifacts": ("x", "list", "--artifacts", "@"),
    "list --build-dir": ("x", "list", "--build-dir", "@"),
    "check --kernels": ("x", "check", "--variant", "v1", "--kernels", "@"),
    "bench --build-dir": ("x", "bench", "--variant", "stage2", "--build-dir", "@"),
    "profile -o": (REPORT, "profile", "-o", "@", "--", "true"),
    "new --kernels": ("x", "new", "row-sum", "--kernels", "@"),
    "a report for a verb": (REPORT, "@"),
}
# In the folder of a case: what is at a path. The name, then what makes it.
Fault = Callable[[Path, str], str]


def close(folder: Path, mode: int = 0) -> None:
    folder.chmod(mode)


def make_good(path: Path) -> None:
    """Something that could be read there, by the ending of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".ncu-rep":
        shutil.copy(GOOD, path)
    elif path.suffix == ".json":
        shutil.copy(ARTIFACTS / "stage2.B.json", path)
    elif path.suffix == ".gz":
        shutil.copy(TRACE, path)
    elif path.suffix:
        path.write_text(NO_CLAIM if path.suffix == ".py" else "")
    else:
        path.mkdir(exist_ok=True)
        for suffix in (".json", ".ncu-rep"):
            shutil.copy(ARTIFACTS / f"stage2.B{suffix}", path)


def in_a_closed_folder(place: Path, name: str) -> str:
    make_good(place / "closed" / name)
    close(place / "closed")
    return f"closed/{name}"


def in_a_folder_that_can_be_listed(place: Path, name: str) -> str:
    make_good(place / "listed" / name)
    close(place / "listed", 0o444)
    return f"listed/{name}"


def the_closed_folder(place: Path, name: str) -> str:
    make_good(place / "closed" / name)
    close(place / "closed")
    return "closed"


def a_folder_with_a_closed_one(place: Path, name: str) -> str:
    make_good(place / "f" / name)
    make_good(place / "f" / "closed" / name)
    close(place / "f" / "closed")
    return "f"


def closed_itself(place: Path, name: str) -> str:
    make_good(place / name)
    close(place / name)
    return name


def a_link_into_a_closed_folder(place: Path, name: str) -> str:
    make_good(place / "closed" / name)
    (place / name).symlink_to(f"closed/{name}")
    close(place / "closed")
    return name


def a_home_of_nobody(_: Path, name: str) -> str:
    return f"~nosuchuser/{name}"


def a_name_with_a_tilde(place: Path, name: str) -> str:
    make_good(place / f"~{name}")
    return f"~{name}"


def a_backup(_: Path, name: str) -> str:
    return f"~${name}"


def a_pipe(place: Path, name: str) -> str:
    os.mkfifo(place / name)
    return name


def a_folder_with_pipes(place: Path, name: str) -> str:
    (place / "f" / "p").mkdir(parents=True)
    for suffix in (".json", ".ncu-rep", ".py", ".cu", ".parquet"):
        os.mkfifo(place / "f" / f"v.B{suffix}")
        os.mkfifo(place / "f" / "p" / f"v{suffix}")
    (place / "f" / "runs").mkdir()
    os.mkfifo(place / "f" / "runs" / "x.parquet")
    os.mkfifo(place / "f" / "triage.json")
    os.mkfifo(place / "f" / "timeline.json")
    return "f"


def a_socket(place: Path, name: str) -> str:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(place)
        server.bind(name)
        os.chdir(here)
    return name


def a_device(place: Path, name: str) -> str:
    (place / name).symlink_to("/dev/zero")
    return name


def a_full_device(place: Path, name: str) -> str:
    (place / name).symlink_to("/dev/full")
    return name


def a_link_in_a_circle(place: Path, name: str) -> str:
    (place / name).symlink_to(name)
    return name


def a_folder_with_circles(place: Path, name: str) -> str:
    make_good(place / "f" / name)
    for link in ("l0", "l1", f"{name}.l"):
        (place / "f" / link).symlink_to(".")
    for suffix in (".json", ".ncu-rep", ".py", ".cu", ".parquet"):
        (place / "f" / f"c{suffix}").symlink_to(f"c{suffix}")
    return "f"


def a_link_to_nothing(place: Path, name: str) -> str:
    (place / name).symlink_to("nothing/there")
    return name


def nothing(_: Path, name: str) -> str:
    return f"no/such/{name}"


def below_a_file(place: Path, name: str) -> str:
    make_good(place / name)
    return f"{name}/{name}"


def another_kind(place: Path, name: str) -> str:
    """A folder where a file is asked for, and the other way round."""
    if "." in name:
        (place / name).mkdir()
    else:
        (place / name).write_text("a file")
    return name


def empty(place: Path, name: str) -> str:
    (place / name).write_bytes(b"")
    return name


def a_long_name(_: Path, name: str) -> str:
    return "x" * 5000 + name


def a_long_path(_: Path, name: str) -> str:
    return "x/" * 3000 + name


def a_name_that_no_disk_takes(_: Path, name: str) -> str:
    return "x" * 300 + name


def a_name_that_is_no_text(place: Path, name: str) -> str:
    make_good(place / f"\udcff{name}")
    return f"\udcff{name}"


def a_name_with_controls(place: Path, name: str) -> str:
    make_good(place / f"\x1b[31m\r\n{name}")
    return f"\x1b[31m\r\n{name}"


def a_pattern_without_end(place: Path, name: str) -> str:
    make_good(place / "f" / name)
    for link in ("l0", "l1"):
        (place / "f" / link).symlink_to(".")
    return f"f/**/{'*/' * 30}**/*{Path(name).suffix}"


def no_name(_: Path, __: str) -> str:
    return ""


def the_systems_own(_: Path, __: str) -> str:
    return "/proc/self/mem"


def a_disk_error(number: int) -> Fault:
    def fault(place: Path, name: str) -> str:
        make_good(place / "faulty" / name)
        break_system(number)
        return f"faulty/{name}"

    return fault


def break_system(number: int) -> None:
    """From now on in this process, the system refuses what is called faulty."""
    for call in ("stat", "lstat", "open", "listdir", "scandir", "readlink", "access", "mkdir"):
        real = getattr(os, call)

        def refuse(path: Any = ".", *more: Any, real: Any = real, **named: Any) -> Any:
            if "faulty" in str(path):
                raise OSError(number, os.strerror(number), path)
            return real(path, *more, **named)

        setattr(os, call, refuse)


def a_folder_that_goes(place: Path, name: str) -> str:
    """What is listed is not there any more when it is looked at."""
    make_good(place / "f" / name)
    real = os.listdir

    def list_and_remove(path: Any = ".") -> Any:
        names = real(path)
        if Path(str(path)).name == "f":
            shutil.rmtree(place / "f", ignore_errors=True)
        return names

    os.listdir = list_and_remove
    return "f"


def no_current_folder(place: Path, name: str) -> str:
    (place / "gone").mkdir()
    os.chdir(place / "gone")
    (place / "gone").rmdir()
    return name


FAULTS: tuple[Fault, ...] = (
    in_a_closed_folder,
    in_a_folder_that_can_be_listed,
    the_closed_folder,
    a_folder_with_a_closed_one,
    closed_itself,
    a_link_into_a_closed_folder,
    a_home_of_nobody,
    a_name_with_a_tilde,
    a_backup,
    a_pipe,
    a_folder_with_pipes,
    a_socket,
    a_device,
    a_full_device,
    a_link_in_a_circle,
    a_folder_with_circles,
    a_link_to_nothing,
    nothing,
    below_a_file,
    another_kind,
    empty,
    a_long_name,
    a_long_path,
    a_name_that_no_disk_takes,
    a_name_that_is_no_text,
    a_name_with_controls,
    a_pattern_without_end,
    no_name,
    the_systems_own,
    a_folder_that_goes,
    no_current_folder,
)
ERRORS = ("EIO", "ESTALE", "EACCES", "ELOOP", "ENAMETOOLONG", "ENOTCONN", "EMFILE", "ETIMEDOUT")
CASES: dict[str, Fault] = {
    **{fault.__name__: fault for fault in FAULTS},
    **{f"the system says {name}": a_disk_error(getattr(errno, name)) for name in ERRORS},
}


def drop_privileges() -> None:
    """Root without the capabilities by which no permission holds for it."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    sets = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.capget(header, sets)
    bypass = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    for at in range(3):
        sets[at] &= ~bypass
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def try_place(words: tuple[str, ...], name: str, fault: Fault, place: Path) -> str:
    """What is wrong with the answer; "" where nothing is."""
    os.chdir(place)
    (place / "good.py").write_text(NO_CLAIM)
    (place / "few").mkdir()
    for suffix in (".json", ".ncu-rep"):
        shutil.copy(ARTIFACTS / f"stage2.B{suffix}", place / "few")
    drop_privileges()
    given = fault(place, name)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITED)
    asked = [given if word == "@" else word for word in words]
    result = CliRunner().invoke(app, asked, input=b"")
    if not isinstance(result.exception, SystemExit | None):
        return f"{type(result.exception).__name__}: {result.exception}"
    if result.exit_code not in (0, 1, 2):
        return f"exit status {result.exit_code}: {result.stderr}"
    if result.exit_code == 2 and not (result.stderr + result.stdout).strip():
        return "exit status 2 without a word"
    shown = result.stdout + result.stderr
    return "a traceback is shown" if "Traceback (most recent" in shown else ""


def in_a_child(work: Callable[[], str]) -> str:
    """The answer of a function in a process of its own, which may break whatever it likes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "it ended"
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - it is what is looked for
            answer = f"out of the command line: {type(error).__name__}: {error}"
        finally:
            os.write(writing, answer.encode("utf-8", "backslashreplace")[:2000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        answer = said.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}: hangs"
    return answer


@pytest.fixture
def folders() -> Iterator[Callable[[], Path]]:
    """Folders that nobody may enter any more are removed all the same."""
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="faults-")))
        return made[-1]

    yield make
    for folder in made:
        for path, _, _ in os.walk(folder):
            for entry in os.scandir(path):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def warm() -> None:
    """Modules that each child would import anew."""
    from typer.main import get_command

    group: Any = get_command(app)
    for verb in group.list_commands(None):
        group.get_command(None, verb)
    for module in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


MODULES = (
    "matplotlib.pyplot matplotlib.backends.backend_agg pandas pyarrow.parquet pyarrow.dataset "
    "rich.table rich.console rich.progress jinja2 zstandard msgspec ncu_report scipy.stats mcp "
    "profkit.show.page profkit.show.plots.roofline profkit.show.views.diagnosis "
    "profkit.evidence.history profkit.show.views.triage profkit.show.views.comparison "
    "profkit.evidence.compare "
    "profkit.evidence.claims profkit.evidence.gate profkit.program.triage "
    "profkit.program.readers.torch_trace profkit.program.readers.store profkit.reports.hotlines "
    "profkit.lab.measure.variants.build profkit.lab.measure.languages.triton "
    "profkit.lab.measure.languages.cuda"
).split()


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("place", PLACES)
def test_every_fault_of_a_path_is_answered(
    place: str, folders: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """39 places x 39 faults: 1,521 cases with PROFKIT_SWEEP_ALL, else an eighteenth at each place."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    name, *words = PLACES[place]
    fallen = {}
    for case, fault in take_part(CASES.items(), one_of=18, first=list(PLACES).index(place)):
        folder = folders()
        wrong = in_a_child(lambda: try_place(tuple(words), name, fault, folder))  # noqa: B023
        if wrong:
            fallen[case] = wrong
    assert not fallen, json.dumps(fallen, indent=1)
