"""A command  ->  its exit status and the end of its output, never an orphan.

Each command leads a session of its own. Whatever ends the wait (exit, timeout, Ctrl-C, an error
here), everything that is left in that session is ended too, and with a command that still runs what
it started in other sessions: torchrun gives each rank one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from profkit.errors import ProfkitError, is_memory_limited

if TYPE_CHECKING:
    from profkit.units import ProcessId, Seconds


KEEP = 256 * 1024  # bytes of output kept, the last ones: a program may print gigabytes
_GRACE = 2.0  # seconds between asking and killing
_WATCH = 0.5  # seconds between two looks at the parent
_BEGIN = 60.0  # seconds in which a thread begins, however busy the machine is
_POOL_MOST = 32  # threads of a pool that is not told how many


@dataclass(frozen=True)
class Tool:
    """A program that profkit starts, found; version is None if it did not say."""

    path: Path
    version: str | None


class Sink(Protocol):
    """Where a command's output is copied to as it comes."""

    def write(self, content: bytes, /) -> object: ...

    def flush(self) -> object: ...


@dataclass(frozen=True)
class FinishedCommand:
    """A command that has ended."""

    # exit status; negative is the signal that ended it; None if it was stopped here
    status: int | None
    output: str  # the end of what it printed, stdout and stderr together
    seconds: float


def count_usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def make_thread_pool(
    most_threads: int | None = None, thread_name_prefix: str = ""
) -> ThreadPoolExecutor:
    """Return a pool of threads; a ProfkitError where memory is limited, and they cannot begin.

    A thread without memory ends before it has begun, and CPython waits for it for ever. So as many are
    begun here first, without that wait.
    """
    most = most_threads or min(_POOL_MOST, count_usable_cores() + 4)
    if is_memory_limited():
        require_threads_can_start(most)
    return ThreadPoolExecutor(most, thread_name_prefix)


def require_threads_can_start(thread_count: int) -> None:
    """Begin so many threads at a time; a ProfkitError where one does not begin."""
    begun = threading.Semaphore(0)
    may_end = threading.Event()

    def begin() -> None:
        begun.release()
        may_end.wait(_BEGIN)

    try:
        for _ in range(thread_count):
            start_new_thread(begin, ())
        have_begun = all(begun.acquire(timeout=_BEGIN) for _ in range(thread_count))
    except (RuntimeError, MemoryError):  # the system gives no more
        have_begun = False
    finally:
        may_end.set()
    if not have_begun:
        raise ProfkitError(
            f"{thread_count} threads cannot begin: no memory is left for them",
            "allow more: --max-memory, ulimit -v or ulimit -u",
        )


def exit_when_parent_ends() -> None:
    """End this process when the one that started it is gone, however that ended.

    A thread looks twice a second: the kernel's own signal for this comes when the parent's thread
    ends, and workers outlive the threads that started them.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def start_process(command: Sequence[str | Path], **options: object) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; a ProfkitError where it cannot be started."""
    try:
        return subprocess.Popen([str(c) for c in command], start_new_session=True, **options)  # type: ignore[call-overload,no-any-return]
    except FileNotFoundError as error:
        raise ProfkitError(f"{command[0]}: command not found") from error
    except OSError as error:
        raise ProfkitError(f"cannot start {command[0]}: {error.strerror}") from error


def run_command(
    command: Sequence[str | Path],
    timeout_s: Seconds | None = None,
    env: Mapping[str, str] | None = None,
    echo: Sink | None = None,
    folder: Path | None = None,
) -> FinishedCommand:
    """Run a command, at most `timeout_s` seconds; its output is copied to `echo` as it comes.

    `folder`: where it runs, if not here.
    """
    began = time.monotonic()
    guard = _SessionGuard()
    marked = {**(os.environ if env is None else env), _MARK: guard.mark}
    try:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = start_process(command, stdin=subprocess.DEVNULL, env=marked, cwd=folder, **pipes)
    except ProfkitError:
        guard.dismiss()
        raise
    guard.watch(process.pid)
    kept: deque[bytes] = deque()
    reader = threading.Thread(
        target=_keep_end_and_echo_output, args=(process.stdout, kept, echo), daemon=True
    )
    reader.start()
    status: int | None = None
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(timeout_s)
    finally:
        end_session(process)
        guard.dismiss()
        reader.join(_GRACE)
        if process.stdout and not reader.is_alive():
            process.stdout.close()
    text = b"".join(kept)[-KEEP:].decode("utf-8", "replace")
    return FinishedCommand(status, text, time.monotonic() - began)


class _SessionGuard:
    """A small process that ends a session when we are killed and can no longer do it ourselves.

    It reads a pipe whose other end only we hold: the end of it is our end. It is there before the
    command is, and where we were killed before we could say which that is, it looks for our mark.
    """

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        command = ["/bin/sh", "-c", _GUARD, "guard", f"{_MARK}={self.mark}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with contextlib.suppress(ProfkitError):  # no /bin/sh: then nobody watches
            self._process = start_process(command, stdin=subprocess.PIPE, **quiet)

    def watch(self, session: ProcessId) -> None:
        """Tell the guard which session to end when this process is gone."""
        self._write_to_guard(b"%d\n" % session)

    def dismiss(self) -> None:
        """Note that the session has ended, or that none began."""
        self._write_to_guard(b"done\ndone\n")
        if self._process and self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _write_to_guard(self, line: bytes) -> None:
        """Write a line to the guard, if there is one."""
        if self._process and self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.write(line)
                self._process.stdin.flush()


_MARK = "PROFKIT_COMMAND"  # in a command's environment: which guard it is watched by
# The end of the pipe without a word: we were killed. What descends from the command goes, from the
# leaves up; kill -s KILL -- -GROUP then reaches those of its first group whose parent is gone.
# Without a session either, the command may be just about to begin, and carries its mark then.
_GUARD = """
tree() {
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do tree "$child"; done
  kill -s KILL "$1" 2>/dev/null
}
end() { tree "$1"; kill -s KILL -- -"$1"; }
if read session; then
  read word || end "$session"
else
  sleep 1
  for found in $(grep -al "$1" /proc/[0-9]*/environ | cut -d / -f 3); do end "$found"; done
fi
"""


def _keep_end_and_echo_output(
    source: IO[bytes], kept_pieces: deque[bytes], echo: Sink | None
) -> None:
    size = 0
    while chunk := source.read1(65536):  # type: ignore[attr-defined]
        kept_pieces.append(chunk)
        size += len(chunk)
        while size - len(kept_pieces[0]) > KEEP:
            size -= len(kept_pieces.popleft())
        if echo is not None:
            with contextlib.suppress(OSError, ValueError):
                echo.write(chunk)
                echo.flush()


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a command and everything it left behind in its session, or still has in others."""
    if process.poll() is None:
        elsewhere = _list_descendants(process.pid)
    else:
        elsewhere = set()
    until = time.monotonic() + _GRACE
    for number in (signal.SIGTERM, signal.SIGKILL):
        while _send_signal(process, number, elsewhere):
            if time.monotonic() > until:
                break
            process.poll()
            time.sleep(0.01)
        until = time.monotonic() + _GRACE
    with contextlib.suppress(subprocess.TimeoutExpired):  # a leader waits for its last thread
        process.wait(_GRACE)


def _send_signal(
    process: subprocess.Popen[bytes], number: signal.Signals, pids_elsewhere: Set[ProcessId]
) -> bool:
    """Send a signal to all that is left of a session, and elsewhere; whether anything was."""
    process.poll()  # a zombie leader is not something left
    members = set(pids_elsewhere)
    for pid in _list_pids():
        if _get_session_of_process(pid) == process.pid:
            members.add(pid)
    if process.returncode is not None:
        members.discard(process.pid)
    # getsid is a system call; only of a member the file is read, which costs ten times that.
    left = [pid for pid in members if is_alive(pid)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(left)


def _list_pids() -> list[ProcessId]:
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            pids.append(int(name))
    return pids


def _get_session_of_process(pid: ProcessId) -> ProcessId | None:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None


def _list_descendants(pid: ProcessId) -> set[ProcessId]:
    children: dict[int, list[int]] = {}
    for child in _list_pids():
        with contextlib.suppress(OSError, IndexError, ValueError):
            children.setdefault(int(_read_proc_stat_fields(child)[1]), []).append(child)
    descendants: set[int] = set()
    ahead = [pid]
    while ahead:
        own = children.get(ahead.pop(), [])
        descendants.update(own)
        ahead += own
    return descendants


def is_alive(pid: ProcessId) -> bool:
    """Return whether it is there, and no zombie."""
    with contextlib.suppress(OSError, IndexError):
        return _read_proc_stat_fields(pid)[0] != "Z"
    return False


def _read_proc_stat_fields(pid: ProcessId) -> list[str]:
    """Return state, parent, ... out of `pid (name, which may hold anything) state parent ...`."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
