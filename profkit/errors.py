"""A mistake the user can mend  ->  one line that says what, one that says how."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profkit.units import CommandText, Sentence


# A package, as it is imported  ->  the extra of pyproject.toml that brings it.
EXTRAS = {
    "distributed": "cluster",
    "duckdb": "history",
    "fsspec": "history",
    "matplotlib": "plots",
    "mcp": "mcp",
    "ninja": "gpu",
    "optuna": "tune",
    "pyarrow": "parquet",
    "pynvml": "gpu",
    "scipy": "evidence",
    "torch": "gpu",
}


# Said of a report, too, that could not be read for it: nothing is known of the file then.
OUT_OF_MEMORY = "out of memory"


class ProfkitError(Exception):
    """Something a user can mend. Every verb prints it as two lines and exits with status 2.

    Args:
        message: What is wrong, naming the file or the flag.
        hint: What to do about it; empty when the message says it already.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.add_note(hint)  # a traceback shows it, too
        self.message = message
        self.hint = hint


NEAR = 0.85  # likeness from which on one name is meant, and others are no help


def suggest_nearest_names(
    name: str, known: Iterable[str], hint_without_near_name: str = ""
) -> Sentence:
    """Return a hint for a name that is not known: the nearest ones, else all of a few.

    `hint_without_near_name`: what to do where nothing is near and there is too much to list.
    """
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, 1, NEAR) or get_close_matches(name, names, 3, 0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    many = hint_without_near_name and len(names) > 12
    if many:
        return hint_without_near_name
    return f"there are: {', '.join(names) or 'none'}"


def suggest_install_command(package: str) -> CommandText:
    """Return the command that brings a package which is not part of the plain installation."""
    return f"pip install 'profkit[{EXTRAS[package]}]'"


@contextmanager
def require_package(package: str, what_needs_it: str) -> Iterator[None]:
    """Explain that an import needs a package of an extra; `what_needs_it` begins the sentence.

    Raises:
        ProfkitError: It is not installed; the hint names the extra.
    """
    try:
        yield
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != package:
            raise  # it is there, and something that it needs is not: no extra mends that
        if explain_resource_limit(error) is not None:
            raise  # it is there, and there is no memory for it
        message = (
            f"{what_needs_it} needs {package} (profkit[{EXTRAS[package]}]), which is not installed"
        )
        raise ProfkitError(message, suggest_install_command(package)) from error


def summarize_error_in_one_line(error: BaseException) -> str:
    """Return the first line of what an error says, or else what kind of error it is."""
    return str(error).partition("\n")[0] or type(error).__name__


def explain_resource_limit(error: BaseException) -> ProfkitError | None:
    """Return what a user is told of an error that comes of a limit of this process; None of another.

    Files, processes, threads and memory are limited by whoever starts us (ulimit, a scheduler): that
    says nothing of what was being read. Where memory is short the interpreter itself can lose its
    MemoryError: "SystemError: error return without exception set", out of an import, is that.
    """
    number = None
    if isinstance(error, OSError):
        number = error.errno
    text = str(error)
    if number in (errno.EMFILE, errno.ENFILE) or "Too many open files" in text:
        return ProfkitError("no more files may be open at a time", "raise the limit: ulimit -n 256")
    if number == errno.EAGAIN or "can't start new thread" in text:
        return ProfkitError(
            "no more processes or threads may be started", "raise the limit: ulimit -u, or -v"
        )
    no_memory = (
        "Cannot allocate memory",
        "failed to map segment",
        "cannot allocate memory",
        "cannot map zero-fill pages",
    )
    if (
        number == errno.ENOMEM
        or isinstance(error, MemoryError)
        or (isinstance(error, SystemError) and is_memory_limited())
        or any(x in text for x in no_memory)
    ):
        return ProfkitError(OUT_OF_MEMORY, "read fewer reports at a time, or allow more")
    return None


def is_memory_limited() -> bool:
    """Return whether the memory of this process is limited: by --max-memory, or `ulimit -v` or `-d`."""
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return any(limit != resource.RLIM_INFINITY for limit in limits)
