"""A file of Python that a user wrote  ->  run so that it cannot answer in profkit's name.

What it prints goes to stderr: stdout is the answer's, which another program may read. Ending the process
from inside of it (sys.exit, os._exit) is an error of the file and never an exit status of profkit's: 0
would mean that everything holds.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.units import Clause, ClauseOrEmpty


T = TypeVar("T")
_FILES: set[str] = set()  # that were run here


def run_users_code(
    path: str | Path, run: Callable[[], T], passes_through: type[Exception] = ProfkitError
) -> tuple[T | None, ClauseOrEmpty]:
    """Return what a call of the user's code gave, and why it gave nothing: "" where it did.

    Raises:
        ProfkitError: What profkit told the code of itself; errors of the type `passes_through` likewise.
        KeyboardInterrupt: Somebody stops profkit.
    """
    try:
        with confine_users_code(path):
            return run(), ""
    except (KeyboardInterrupt, ProfkitError, passes_through):
        raise
    except BaseException as error:  # noqa: BLE001 - a user's file may do anything
        return None, explain_failure_of_users_code(error, path)


def import_python_file_as(path: Path, name: str) -> ModuleType:
    """Import a file of Python as a module of the given name; what its code raises passes through."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ProfkitError(f"{path}: not a Python file", "its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def confine_users_code(path: str | Path) -> Iterator[None]:
    """Run code of this file so that it prints to stderr, and os._exit raises SystemExit."""
    _FILES.add(os.fspath(path))
    own = os.getpid()
    _PROCESS.begin_file()
    try:
        yield
    finally:
        if os.getpid() != own:  # a fork that the file has made answers nothing
            _PROCESS.end(1)
        _PROCESS.end_users_code()
        # What the file has registered for the end prints there too: the last registered runs first.
        atexit.unregister(_send_later_prints_to_stderr)
        atexit.register(_send_later_prints_to_stderr)


class _ProtectedProcessState:
    """What a file may not change of this process, as long as any runs: threads run several at once.

    The first one that begins redirects, and the last one that ends puts back: in any other order a
    thread would take what another one has redirected for what was there before.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.running = 0
        self.end = os._exit  # the real one
        self.leave = sys.exit
        self.streams = sys.stdout, sys.stderr
        self.stdout: int | None = None  # a copy of its descriptor

    def begin_file(self) -> None:
        with self.guard:
            if not self.running:
                self._redirect_stdout_and_exit()
            self.running += 1

    def end_users_code(self) -> None:
        with self.guard:
            self.running -= 1
            if not self.running:
                self._restore_output_and_exit()

    def _redirect_stdout_and_exit(self) -> None:
        own = os.getpid()
        end = os._exit

        def refuse_end(status: int) -> NoReturn:
            if os.getpid() != own:  # a process that the file has forked
                end(status)
            raise SystemExit(status)

        self.end = end
        self.leave = sys.exit
        self.streams = sys.stdout, sys.stderr
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        self.stdout = None
        with contextlib.suppress(OSError):  # no stdout at all
            self.stdout = os.dup(1)
            os.dup2(2, 1)
        os._exit = refuse_end
        sys.stdout = sys.stderr

    def _restore_output_and_exit(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        if self.stdout is not None:
            os.dup2(self.stdout, 1)
            os.close(self.stdout)
        os._exit = self.end
        sys.exit = self.leave
        sys.stdout, sys.stderr = self.streams


_PROCESS = _ProtectedProcessState()


def _send_later_prints_to_stderr() -> None:
    """Let what is printed from now on go to stderr: profkit has said what it had to say."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        os.dup2(2, 1)
        sys.stdout = sys.stderr


def explain_failure_of_users_code(error: BaseException, path: str | Path) -> Clause:
    """Return `line 3: Type: message`, with the last line of the file that the error came through."""
    lines = []
    for f in traceback.extract_tb(error.__traceback__):
        if f.filename == str(path):
            lines.append(f.lineno)
    where = ""
    if lines:
        where = f"line {lines[-1]}: "
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an error of the user's own, whose text may fail too
        text = "its text cannot be read"
    return f"{where}{type(error).__name__}: {text}"


def find_users_file_of_error(error: BaseException) -> str | None:
    """Return the user's file that an error came out of; None where it is profkit's own."""
    frames = traceback.extract_tb(error.__traceback__)
    for f in reversed(frames):
        if f.filename in _FILES:
            return f.filename
    return None
