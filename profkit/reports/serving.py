"""What a server runs: it imports each function once and forks for each request of isolated.py.

Plain data in JSON comes in, a line an item; answers go out as isolated.sent() says.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError, explain_resource_limit, is_memory_limited
from profkit.files import make_write_error
from profkit.reports.isolated import (
    AT_ONCE,
    CANNOT_FORK,
    FULL,
    LENGTH,
    NO_FILES,
    encode_answer,
    find_result_types,
    import_function,
)

if TYPE_CHECKING:
    from profkit.units import FileDescriptor, ProcessId


# Bytes that a fork takes before a fresh one goes on: 3 reports of a full set, a piece of a large one.
_GROWN = 30e6
_AGAIN = 75  # its exit status then
Function = Callable[[Any], Any]  # answers an item
# What ends a reading and says nothing of the file: no room, no more open files, processes or memory.
_OF_THE_MACHINE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
    errno.ENOMEM,
}


def serve_requests(request_socket: FileDescriptor) -> None:
    """Fork a group of children for each request, with its open files, until the wire is closed.

    What the function's module does in its prepare_child() is done before, once for all.
    """
    # Where who started us ignores it, nobody would be told how a child has ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(2, 1)  # what the native library prints must not get into what the parent prints
    import msgspec  # noqa: F401 - once for all forks

    gc.freeze()  # what is imported stays: no fork looks at it again, and it stays shared
    asked = socket.socket(fileno=request_socket)
    while True:
        length, passed, flags, _ = socket.recv_fds(asked, LENGTH.size, 4 + 3 * AT_ONCE)
        if not length:
            break
        if flags & socket.MSG_CTRUNC:  # some did not come: so many files may not be open
            os._exit(NO_FILES)
        (size,) = LENGTH.unpack(length)
        request = bytearray(size)
        if asked.recv_into(request, size, socket.MSG_WAITALL) < size:  # who asked was killed
            break
        function, environment = json.loads(request)
        call = _import_function_for_forks(function)
        child = _fork_child()
        if child is None:
            _report_children_ended(passed[2:], CANNOT_FORK)
        if child == 0:
            asked.close()
            _run_as_group(call, find_result_types(function), passed, environment)
        for end in passed:
            os.close(end)
        with contextlib.suppress(ChildProcessError):  # those of the calls before
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)  # what the library holds goes with the process, not piece by piece


@cache
def _import_function_for_forks(function: str) -> Function:
    """Import a function, and do once what its forks need; what refuses where that cannot be done."""
    call = import_function(function)
    find_result_types(function)
    prepare = getattr(sys.modules[function.partition(":")[0]], "prepare_child", None)
    failure = None
    if prepare:
        failure = _prepare_module_once(prepare)
    if failure:
        return _make_function_that_raises(failure)
    return call


@cache
def _prepare_module_once(prepare: Callable[[], object]) -> ProfkitError | None:
    """Do what a module's forks need first, once for all modules; why it could not be done."""
    try:
        prepare()
    except ProfkitError as error:
        return error
    except OSError as error:
        return _convert_to_profkit_error(error)
    return None


def _make_function_that_raises(failure: ProfkitError) -> Function:
    def raise_failure(_item: Any) -> Any:
        raise failure

    return raise_failure


def _fork_child() -> ProcessId | None:
    """Fork as os.fork does; None where there may be no more processes."""
    try:
        return os.fork()
    except OSError:
        return None


def _report_children_ended(ends: list[FileDescriptor], code: int) -> None:
    """Tell whoever waits for these children that they have ended, or never began."""
    for ended in ends[2::3]:
        with contextlib.suppress(OSError):  # nobody waits any more, or it was told and closed
            os.write(ended, b"%d" % code)


def _run_as_group(
    call: Function,
    result_types: tuple[Any, ...],
    passed_files: list[FileDescriptor],
    environment: dict[str, str],
) -> None:
    """Serve a request in this fork, and end with it; whoever waits is told where there is no memory."""
    try:
        os.environ.clear()
        os.environ.update(environment)
        _serve_group(call, result_types, passed_files)
    except MemoryError:
        _report_children_ended(passed_files[2:], FULL)
        os._exit(FULL)


def _serve_group(
    call: Function, result_types: tuple[Any, ...], passed_files: list[FileDescriptor]
) -> None:
    """Serve as forks of this process, each with its ends: of items, answers, exit status.

    The native library never gives back what it took for a report. So a fork that has grown ends, and
    a fresh one goes on. Whose fork died is told how: its ends are closed.
    """
    os.setpgid(0, 0)
    here, alive, *ends = passed_files
    with contextlib.suppress(BrokenPipeError):
        os.write(alive, b"%d" % os.getpid())
    os.fchdir(here)
    os.close(here)
    waiting = [ends[i : i + 3] for i in range(0, len(ends), 3)]
    running: dict[int, list[int]] = {}
    while waiting or running:
        while waiting:
            own = waiting.pop()
            others = chain.from_iterable((*waiting, *running.values()))
            child = _start_child(call, result_types, own, others)
            if child is not None:
                running[child] = own
        if not running:
            break
        pid, status = os.wait()
        own = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == _AGAIN:
            waiting.append(own)
            continue
        _report_children_ended(own, code)
        _close_ends(own)
    os._exit(0)


def _start_child(
    call: Function,
    result_types: tuple[Any, ...],
    own_ends: list[FileDescriptor],
    ends_of_others: Iterable[FileDescriptor],
) -> ProcessId | None:
    """Fork a child that answers items with its own ends; None where there is no memory for it."""
    pid = _fork_child()
    if pid is None:
        _report_children_ended(own_ends, CANNOT_FORK)
        _close_ends(own_ends)
    elif pid == 0:
        _close_ends((own_ends[2], *ends_of_others))
        _run_as_child(call, result_types, own_ends)
    return pid


def _close_ends(ends: Iterable[FileDescriptor]) -> None:
    for end in ends:
        os.close(end)


def _run_as_child(
    call: Function, result_types: tuple[Any, ...], own_ends: list[FileDescriptor]
) -> None:
    """Answer items in this fork, and end with it."""
    try:
        has_grown = _answer_items(call, result_types, *own_ends[:2])
    except MemoryError:
        os._exit(FULL)
    os._exit(_AGAIN if has_grown else 0)


def _answer_items(
    call: Function,
    result_types: tuple[Any, ...],
    item_pipe: FileDescriptor,
    answer_pipe: FileDescriptor,
) -> bool:
    """Answer items until this process has grown; whether there may be more."""
    before = _measure_peak_memory()
    answers = os.fdopen(answer_pipe, "wb")
    for line in os.fdopen(item_pipe, "rb"):
        try:
            result = call(json.loads(line))
        except ProfkitError as error:
            result = error
        except MemoryError:
            os._exit(FULL)
        except OSError as error:
            if error.errno not in _OF_THE_MACHINE:
                raise
            if error.errno == errno.ENOMEM and is_memory_limited():
                os._exit(FULL)
            result = _convert_to_profkit_error(error)
        try:
            answers.write(encode_answer(result, result_types))
            answers.flush()
        except BrokenPipeError:  # the parent was killed
            return False
        if _measure_peak_memory() - before > _GROWN:
            return True
    return False


def _convert_to_profkit_error(error: OSError) -> ProfkitError:
    """Return what is said of a failure that is no fault of what was to be read."""
    return explain_resource_limit(error) or make_write_error(
        error.filename or "a temporary file", error
    )


def _measure_peak_memory() -> float:
    if sys.platform == "darwin":
        unit = 1
    else:
        unit = 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    serve_requests(int(sys.argv[1]))
