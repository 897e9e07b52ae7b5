"""What a server runs: it imports a function once and forks for each request of isolated.py.

Plain data in JSON comes in, a line an item; answers go out as isolated.sent() says.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

from profkit.errors import ProfkitError
from profkit.reports.isolated import AT_ONCE, FULL, LENGTH, kinds_of, named, sent

# Bytes that a fork takes before a fresh one goes on: 6 reports of a full set.
_GROWN = 65e6
_AGAIN = 75  # its exit status then


def serve(function: str, wire: int) -> None:
    """Fork a group of children for each request, with its open files, until the wire is closed.

    What the function's module does in its prepare_child() is done before, once for all.
    """
    os.dup2(2, 1)  # what the native library prints must not get into what the parent prints
    call = named(function)
    getattr(sys.modules[function.partition(":")[0]], "prepare_child", int)()
    kinds = kinds_of(function)
    import msgspec  # noqa: F401 - once for all forks

    asked = socket.socket(fileno=wire)
    while True:
        length, passed, *_ = socket.recv_fds(asked, LENGTH.size, 4 + 3 * AT_ONCE)
        if not length:
            break
        (size,) = LENGTH.unpack(length)
        environment = bytearray(size)
        if asked.recv_into(environment, size, socket.MSG_WAITALL) < size:  # who asked was killed
            break
        if os.fork() == 0:
            asked.close()
            os.environ.clear()
            os.environ.update(json.loads(environment))
            _serve_group(call, kinds, passed)
        for end in passed:
            os.close(end)
        with contextlib.suppress(ChildProcessError):  # those of the calls before
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)  # what the library holds goes with the process, not piece by piece


def _serve_group(call: Callable[[Any], Any], kinds: tuple[Any, ...], passed: list[int]) -> None:
    """Serve as forks of this process, each with its ends: of items, answers, exit status.

    The native library never gives back what it took for a report. So a fork that has grown ends, and
    a fresh one goes on. Whose fork died is told how: its ends are closed.
    """
    os.setpgid(0, 0)
    here, alive, *ends = passed
    with contextlib.suppress(BrokenPipeError):
        os.write(alive, b"%d" % os.getpid())
    os.fchdir(here)
    os.close(here)
    waiting = [ends[i : i + 3] for i in range(0, len(ends), 3)]
    running: dict[int, list[int]] = {}
    while waiting or running:
        while waiting:
            own = waiting.pop()
            if (pid := os.fork()) == 0:
                for end in (own[2], *chain.from_iterable((*waiting, *running.values()))):
                    os.close(end)
                os._exit(_AGAIN if _answer(call, kinds, *own[:2]) else 0)
            running[pid] = own
        pid, status = os.wait()
        own, code = running.pop(pid), os.waitstatus_to_exitcode(status)
        if code == _AGAIN:
            waiting.append(own)
            continue
        with contextlib.suppress(BrokenPipeError):  # closed: it had no more to do
            os.write(own[2], b"%d" % code)
        for end in own:
            os.close(end)
    os._exit(0)


def _answer(call: Callable[[Any], Any], kinds: tuple[Any, ...], source: int, target: int) -> bool:
    """Answer items until this process has grown; whether there may be more."""
    before = _taken()
    answers = os.fdopen(target, "wb")
    for line in os.fdopen(source, "rb"):
        try:
            result = call(json.loads(line))
        except ProfkitError as error:
            result = error
        except MemoryError:
            os._exit(FULL)
        try:
            answers.write(sent(result, kinds))
            answers.flush()
        except BrokenPipeError:  # the parent was killed
            return False
        if _taken() - before > _GROWN:
            return True
    return False


def _taken() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
