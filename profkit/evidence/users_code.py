"""A file of Python that a user wrote  ->  run so that it cannot answer in profkit's name.

What it prints goes to stderr: stdout is the answer's, which another program may read. Ending the process
from inside of it (sys.exit, os._exit) is an error of the file and never an exit status of profkit's: 0
would mean that everything holds.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

from profkit.errors import ProfkitError

T = TypeVar("T")
_FILES: set[str] = set()  # that were run here


def try_users_code(
    path: str | Path, run: Callable[[], T], passes: type[Exception] = ProfkitError
) -> tuple[T | None, str]:
    """Return what a call of the user's code gave, and why it gave nothing: "" where it did.

    Raises:
        ProfkitError: What profkit told the code of itself; errors of the type `passes` likewise.
        KeyboardInterrupt: Somebody stops profkit.
    """
    try:
        with running_users_code(path):
            return run(), ""
    except (KeyboardInterrupt, ProfkitError, passes):
        raise
    except BaseException as error:  # noqa: BLE001 - a user's file may do anything
        return None, explain_failure(error, path)


@contextlib.contextmanager
def running_users_code(path: str | Path) -> Iterator[None]:
    """Round whatever runs code of this file: it prints to stderr, and os._exit raises SystemExit."""
    _FILES.add(os.fspath(path))
    streams = sys.stdout, sys.stderr
    end, leave = os._exit, sys.exit
    own = os.getpid()

    def refuse_end(status: int) -> NoReturn:
        if os.getpid() != own:  # a process that the file has forked
            end(status)
        raise SystemExit(status)

    os._exit = refuse_end
    try:
        with _stdout_to_stderr():
            sys.stdout = sys.stderr
            yield
    finally:
        if os.getpid() != own:  # a fork that the file has made answers nothing
            end(1)
        os._exit, sys.exit = end, leave
        sys.stdout, sys.stderr = streams
        # What the file has registered for the end prints there too: the last registered runs first.
        atexit.unregister(_end_answer)
        atexit.register(_end_answer)


def _end_answer() -> None:
    """Let what is printed from now on go to stderr: profkit has said what it had to say."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        os.dup2(2, 1)
        sys.stdout = sys.stderr


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Let what is written to the descriptor of stdout go to stderr: programs that are started, too."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no stdout at all
        yield
        return
    try:
        with contextlib.suppress(OSError):
            os.dup2(2, 1)
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def explain_failure(error: BaseException, path: str | Path) -> str:
    """Return `line 3: Type: message`, with the last line of the file that the error came through."""
    lines = []
    for f in traceback.extract_tb(error.__traceback__):
        if f.filename == str(path):
            lines.append(f.lineno)
    where = f"line {lines[-1]}: " if lines else ""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an error of the user's own, whose text may fail too
        text = "its text cannot be read"
    return f"{where}{type(error).__name__}: {text}"


def find_users_file(error: BaseException) -> str | None:
    """Return the user's file that an error came out of; None where it is profkit's own."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.filename for f in reversed(frames) if f.filename in _FILES), None)
