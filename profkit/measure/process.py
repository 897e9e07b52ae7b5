"""A command  ->  its exit status and the end of its output, never an orphan.

Each command leads a session of its own. Whatever ends the wait (exit, timeout, Ctrl-C, an error
here), everything that is left in that session is ended too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from profkit.errors import ProfkitError

KEEP = 256 * 1024  # bytes of output kept, the last ones: a program may print gigabytes
_GRACE = 2.0  # seconds between asking and killing


@dataclass(frozen=True)
class Done:
    """How a command ended.

    Attributes:
        status: Exit status; negative is the signal that ended it; None if it was stopped here.
        output: The end of what it printed, stdout and stderr together.
        seconds: How long it ran.
    """

    status: int | None
    output: str
    seconds: float


def start(command: Sequence[str | Path], **options: object) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own."""
    try:
        return subprocess.Popen([str(c) for c in command], start_new_session=True, **options)  # type: ignore[call-overload,no-any-return]
    except FileNotFoundError as error:
        raise ProfkitError(f"{command[0]}: command not found") from error
    except OSError as error:
        raise ProfkitError(f"cannot start {command[0]}: {error.strerror}") from error


def run(
    command: Sequence[str | Path],
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    echo: BinaryIO | None = None,
) -> Done:
    """Run a command to its end.

    Args:
        command: Program and arguments.
        timeout: Seconds after which it is stopped.
        env: Its environment; None inherits.
        echo: Where its output is copied to as it comes.
    """
    began = time.monotonic()
    process = start(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    )
    kept: deque[bytes] = deque()
    reader = threading.Thread(target=_drain, args=(process.stdout, kept, echo), daemon=True)
    reader.start()
    status: int | None = None
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(timeout)
    finally:
        end_session(process)
        reader.join(_GRACE)
        if process.stdout and not reader.is_alive():
            process.stdout.close()
    text = b"".join(kept)[-KEEP:].decode("utf-8", "replace")
    return Done(status, text, time.monotonic() - began)


def _drain(source: IO[bytes], kept: deque[bytes], echo: BinaryIO | None) -> None:
    size = 0
    while chunk := source.read1(65536):  # type: ignore[attr-defined]
        kept.append(chunk)
        size += len(chunk)
        while size - len(kept[0]) > KEEP:
            size -= len(kept.popleft())
        if echo is not None:
            with contextlib.suppress(OSError, ValueError):
                echo.write(chunk)
                echo.flush()


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a command and everything it left behind in its session."""
    until = time.monotonic() + _GRACE
    for number in (signal.SIGTERM, signal.SIGKILL):
        while _signal(process, number):
            if time.monotonic() > until:
                break
            process.poll()
            time.sleep(0.01)
        until = time.monotonic() + _GRACE
    process.poll()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Send a signal to all that is left of a session; whether anything was."""
    process.poll()  # a zombie leader is not something left
    left = [
        pid for pid in _members(process.pid) if pid != process.pid or process.returncode is None
    ]
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(left)


def _members(session: int) -> list[int]:
    """Processes of a session, without zombies."""
    members = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError, IndexError):
            # getsid is a system call; only of a member the file is read, which costs ten times that.
            if os.getsid(pid) == session and _state(pid) != "Z":
                members.append(pid)
    return members


def _state(pid: int) -> str:
    """R, S, Z, ... of a process, from `pid (name, which may hold anything) state ...`."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
