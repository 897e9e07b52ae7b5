"""Stand-ins for a native library that crashes: called in child processes by name."""

from __future__ import annotations

import os
import signal
from typing import Any

from profkit.errors import ProfkitError
from profkit.reports import reader


def pid(item: Any) -> tuple[Any, int]:
    return item, os.getpid()


_kept = []


def grows(megabytes: int) -> int:
    """As the native library does: what it took is never given back."""
    _kept.append(b"x" * (megabytes << 20))
    return os.getpid()


def dies(item: str) -> str:
    if item.startswith("exit"):
        os._exit(3)
    if item.startswith("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if item.startswith("mend"):
        raise ProfkitError(f"{item}: is wrong", "mend it")
    print("noise of the native library")
    os.write(1, b"and more of it")
    return item.upper()


def killed(item: tuple[str, int]) -> str:
    """Killed from outside, as often as it is said; each time leaves a byte in a file."""
    path, times = item
    with open(path, "ab") as mark:
        mark.write(b"x")
    if os.path.getsize(path) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "read"


def read_part(path: str) -> reader.Part:
    """The real one, but for files that are called culprit."""
    if "culprit" in path:
        os.kill(os.getpid(), signal.SIGSEGV)
    return reader.read_part(path)


def read_lines(item: Any) -> None:
    """Hot lines of a report whose machine code crashes the library."""
    os._exit(3)
