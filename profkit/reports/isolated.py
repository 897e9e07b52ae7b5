"""A function's dotted name and many items  ->  its results, each file read apart from the others.

The native library under ncu_report can crash on a damaged file and takes its process with it. So
files are handed one at a time to child processes: the file in a child that died is known exactly,
the others go on in a fresh child. A server imports once, lives as long as this process and forks
itself for the children of each call, whatever their function; it never reads a file. It is subprocess
and not multiprocessing because spawning re-imports the caller's __main__, and a five-line script
without a main guard has to work.

A child that hostile bytes have taken over must not take its parent too. So an answer is plain data
(msgpack) of the type that the function says it returns, of at most ANSWER_MOST bytes: anything else
counts as a child that died. Nothing here unpickles.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import chain, islice
from types import UnionType
from typing import TYPE_CHECKING, Any, BinaryIO, get_args, get_type_hints

from profkit.errors import OUT_OF_MEMORY, ProfkitError, explain_resource_limit, is_memory_limited

if TYPE_CHECKING:
    from profkit.units import ByteCount, Clause, FileDescriptor, Seconds, Sentence


_TUNED = "glibc.malloc.hugetlb=1"  # large pages: else a third of the time goes into small ones
FULL = 76  # the exit status of a child without memory
CANNOT_FORK = 77  # said of a child that could not be made: there may be no more processes
NO_FILES = 78  # the exit status of a server that may not have so many open files
# The signals of a native library that runs into something. Every other one came from outside: an
# operator's, the kernel's for memory. It says nothing of the file.
_CRASHES = {
    -number
    for number in (
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGABRT,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
    )
}
_AT_A_TIME = 1 << 20  # bytes of an answer that are read at once
ANSWER_MOST = 128 << 20  # bytes: 10,000 launches in a report of 3 MB give 18 MB
_HEAD = struct.Struct("<BBQ")  # what an answer begins with: its kind, its form, its bytes
_ERROR = 0  # the kind of a ProfkitError; the n-th type that the function may return is n + 1
_MSGPACK, _JSON = 0, 1  # forms
_MEMORY = (resource.RLIMIT_DATA, resource.RLIMIT_AS)  # of --max-memory; of ulimit -v
_NO_MEMORY = {FULL, 1, -signal.SIGABRT}  # Python at its start, and C++, end like this
# Of an item whose child ended without an answer, and why: the result in its place, or an error.
MakeResultOfDead = Callable[[Any, str], Any]


def run_in_child_processes(
    function_path: str,
    items: Iterable[Any],
    jobs: int,
    make_result_of_dead: MakeResultOfDead,
    on_result: Callable[[Any], object] = lambda _item: None,
) -> list[Any]:
    """Call a function of one item for many items, in `jobs` child processes; results in their order.

    `function_path`: "module:name"; it says what it returns: plain data, dataclasses, or a union of
    such. A ProfkitError that it raises is raised here too. A prepare_child() in its module is called
    first, once for every child. `items`: paths, or anything that JSON can hold; of what is no sequence
    only a few are taken ahead of the children. `make_result_of_dead`: (item, why) -> the result for an
    item whose child died; why is a clause, and is_fault_of_file tells whether it says something of the
    item. `on_result`: called with each item that has a result.
    """
    if isinstance(items, Sequence):
        most = min(jobs, len(items))
    else:
        most = jobs
    results = {}
    with contextlib.closing(
        iterate_results_of_child_processes(function_path, items, most, make_result_of_dead)
    ) as answers:
        for number, item, result in answers:
            results[number] = result
            on_result(item)
    return [results[number] for number in range(len(results))]


def import_function(function_path: str) -> Callable[..., Any]:
    """Return the function that `module:name` stands for."""
    module, name = function_path.split(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def iterate_results_of_child_processes(
    function_path: str, items: Iterable[Any], jobs: int, make_result_of_dead: MakeResultOfDead
) -> Generator[tuple[int, Any, Any], None, None]:
    """Yield the same, result by result as they are done: number of the item, item, result.

    The children live as long as this does; a few items are taken ahead of them, and no result is
    kept. Close it (contextlib.closing) where it is not read to its end.
    """
    children = [_Child(function_path) for _ in range(max(1, jobs))]
    try:
        # First of all, so that they have imported when the first item is made.
        _start_children(function_path, children)
        yield from _run_on_children(children, enumerate(items), make_result_of_dead)
    finally:  # also for Ctrl-C: what runs is finished (a file takes milliseconds), no more begun
        _end_children(children)


def _run_on_children(
    children: Sequence[_Child],
    numbered: Iterator[tuple[int, Any]],
    make_result_of_dead: MakeResultOfDead,
) -> Generator[tuple[int, Any, Any], None, None]:
    """Yield number, item and result as they are done; one item more than there are children is taken.

    In one thread: where memory is short, Python waits for ever for a thread that could not begin.
    """
    free = [*children]
    busy: list[_Child] = []
    ahead: deque[tuple[int, Any]] = deque()
    while True:
        room = len(children) + 1 - len(busy) - len(ahead)
        for task in islice(numbered, room):
            ahead.append(task)
            _hand_items_to_free_children(free, busy, ahead)
        if not busy:
            return
        for child in _wait_for_children(busy):
            number, item = child.task
            result = child.take_answer(make_result_of_dead)
            if result is not _NOT_YET:
                busy.remove(child)
                free.append(child)
                _hand_items_to_free_children(
                    free, busy, ahead
                )  # so that it works while this result is used
                yield number, item, result


def _hand_items_to_free_children(
    free: list[_Child], busy: list[_Child], ahead: deque[tuple[int, Any]]
) -> None:
    while free and ahead:
        child = free.pop()
        busy.append(child)
        child.hand_item(ahead.popleft())


def _wait_for_children(busy: Sequence[_Child]) -> list[_Child]:
    """Return the children of which something came, and those that have had all their time."""
    asked = select.poll()
    for child in busy:
        asked.register(child.answer_file, select.POLLIN)
    began = time.monotonic()
    least = min(child.seconds_left for child in busy)
    ready = {file for file, _ in asked.poll(1000 * max(0.0, least))}
    waited = time.monotonic() - began
    for child in busy:
        child.seconds_left -= waited
    return [child for child in busy if child.seconds_left <= 0 or child.answer_file in ready]


def count_processors_to_use() -> int:
    """Return how many processors this process may use (a container may have fewer than the machine)."""
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity:
        return len(affinity(0))
    return os.cpu_count() or 1


_NOT_YET = object()  # instead of a result


class _Child:
    """One child process, forked when first needed and again after it died."""

    def __init__(self, function: str) -> None:
        self._function = function
        self.groups: list[_ForkGroup] = []  # the last one's it is
        self.ends: tuple[BinaryIO, ...] = ()  # of items, answers, and of its exit status
        self.task: tuple[int, Any] = (0, None)  # number and item that it has in hand
        self.seconds_left = 0.0  # of those that it may take for it while it is waited for
        self._came = bytearray()  # of its answer
        self._is_second_try = False

    @property
    def answer_file(self) -> FileDescriptor:
        return self.ends[1].fileno()

    def hand_item(self, task: tuple[int, Any]) -> None:
        """Give it an item, with its number."""
        self.task = task
        self._is_second_try = False
        self._send_item()

    def _send_item(self) -> None:
        if not self.ends:
            _start_children(self._function, [self])
        self.seconds_left = ANSWER_PATIENCE
        self._came = bytearray()
        line = json.dumps(self.task[1]).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it has died: its answer ends before it begins
            self.ends[0].write(line)
            self.ends[0].flush()

    def take_answer(self, make_result_of_dead: MakeResultOfDead) -> Any:
        """Read what came of its answer; return the result once all of it came, else _NOT_YET."""
        item = self.task[1]
        try:
            if self.seconds_left <= 0:
                raise _NotAnAnswer(f"it had not answered after {ANSWER_PATIENCE:.0f} s")
            missing = _count_missing_bytes(self._came, self._function)
            some = self.ends[1].read(min(missing, _AT_A_TIME))
            if not some:
                raise EOFError
            self._came += some
            if _count_missing_bytes(self._came, self._function):
                return _NOT_YET
            result = _decode_answer(self._came, self._function)
        except _NotAnAnswer as error:
            self.groups[-1].kill_group()
            self.close()
            return make_result_of_dead(item, f"the process that read it gave no answer: {error}")
        except EOFError:
            return self._make_result_of_end(make_result_of_dead)
        if isinstance(result, ProfkitError):
            raise result
        return result

    def _make_result_of_end(self, make_result_of_dead: MakeResultOfDead) -> Any:
        """Return the result for its item now that it has ended; _NOT_YET where it is tried again."""
        item = self.task[1]
        again = not self._is_second_try
        ended = self.ends[2]
        # Nothing where those who would tell were killed too, or stopped.
        told = b""
        if _wait_until_ready(ended.fileno(), _PATIENCE):
            told = ended.read()
        if told:
            code = int(told)
        else:
            code = self.groups[-1].server.find_exit_status()
        self.close()
        is_of_the_file = bool(told) and (code >= 0 or code in _CRASHES)
        # Killed twice under a limit: by the kernel, for memory, or before it could say so.
        is_no_memory = code in _NO_MEMORY or not (is_of_the_file or again)
        if is_no_memory and is_memory_limited():
            return make_result_of_dead(item, OUT_OF_MEMORY)
        if code == CANNOT_FORK:
            raise _make_start_error("no more processes may be started") from None
        if is_of_the_file:
            return make_result_of_dead(item, _describe_exit_of_child(code))
        if again:
            self._is_second_try = True
            self._send_item()
            return _NOT_YET
        return make_result_of_dead(item, _explain_killed_child(code))

    def close(self) -> None:
        for end in self.ends:
            with contextlib.suppress(BrokenPipeError):
                end.close()
        self.ends = ()


class _ForkServer:
    """What has imported the library and forks at each request, until nobody can ask any more."""

    def __init__(self) -> None:
        from profkit.interpreter import make_module_command

        self.wire, theirs = socket.socketpair()
        # Ctrl-C is the parent's: a child inherits what is blocked, from its first moment on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                make_module_command("profkit.reports.serving", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                # Without memory, the library and Python say so each in its own words; we say it once.
                stderr=subprocess.DEVNULL if is_memory_limited() else None,
                env={"GLIBC_TUNABLES": _TUNED, **os.environ},
                pass_fds=[theirs.fileno()],
            )
        except OSError:
            self.wire.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def end_server(self) -> None:
        """End it and what it forked; it is killed where it does not end by itself."""
        self.wire.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def find_exit_status(self) -> int:
        """Return how it ended; as killed where it lives, and so only a fork of it was."""
        with _GUARD:
            # What ends closes its files one by one: a child's may be seen to close before the wire.
            has_ended = self.wire.fileno() < 0 or _wait_until_ready(self.wire.fileno(), _ENDING)
            if not has_ended:
                return -signal.SIGKILL
            try:
                return self.process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:  # it hangs where nobody can ask it any more
                self.process.kill()
                return self.process.wait()


@dataclass
class _ForkGroup:
    """The fork of a server that forks the children of one call and waits for them."""

    server: _ForkServer
    alive: int  # a pipe: its pid comes first, then nothing until it and all its children have ended
    leader: int = 0  # its pid, once it was read

    def kill_group(self) -> None:
        # Killed before, and one hides: then there is nothing to read, and no end either.
        if not self.leader and _wait_until_ready(self.alive, _PATIENCE):
            self.leader = int(os.read(self.alive, 20) or 0)
        if self.leader:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.leader, signal.SIGKILL)

    def wait_or_kill(self) -> None:
        """Wait until all of it has ended; what has not, though it has no more to do, is killed."""
        while _wait_until_ready(self.alive, _PATIENCE):
            came = os.read(self.alive, 20)
            if not came:
                break
            self.leader = int(came)
        else:
            self.kill_group()
        os.close(self.alive)


def _wait_until_ready(file: FileDescriptor, seconds: Seconds) -> bool:
    """Return whether there is something to read, or nobody left who could write."""
    asked = select.poll()
    asked.register(file, select.POLLIN)
    return bool(asked.poll(1000 * seconds))


def _start_children(function: str, children: Sequence[_Child]) -> None:
    """Let forks of the server become these children."""
    try:
        _start_in_groups(function, children)
    except OSError as error:
        limit = explain_resource_limit(error)
        raise limit or _make_start_error(error.strerror or str(error)) from error


def _start_in_groups(function: str, children: Sequence[_Child]) -> None:
    for first in range(0, len(children), AT_ONCE):
        some = children[first : first + AT_ONCE]
        pipes = [(os.pipe(), os.pipe(), os.pipe()) for _ in some]
        alive, theirs = os.pipe()
        here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))  # it may have no name any more
        passed = [here, theirs, *chain.from_iterable((i[0], a[1], e[1]) for i, a, e in pipes)]
        group = _ForkGroup(_ask_server_to_fork(function, passed), alive)
        for end in passed:
            os.close(end)
        for child, (items, answers, ended) in zip(some, pipes, strict=True):
            child.groups.append(group)
            # Not buffered: what is waited for has to be seen where it comes.
            answered = os.fdopen(answers[0], "rb", buffering=0)
            code = os.fdopen(ended[0], "rb")
            child.ends = os.fdopen(items[1], "wb"), answered, code


def _ask_server_to_fork(function: str, passed: list[FileDescriptor]) -> _ForkServer:
    """Return the server, asked to fork: started where there is none that is as this process is now."""
    from profkit.interpreter import encode_import_folders

    # A fork of this process has none. The rest of its environment each fork is told.
    key = os.getpid(), encode_import_folders(), *map(resource.getrlimit, _MEMORY)
    request = json.dumps([function, dict(os.environ)]).encode()
    with _GUARD:
        if key in _SERVERS and _wait_until_ready(
            _SERVERS[key].wire.fileno(), 0
        ):  # somebody killed it
            _SERVERS.pop(key).end_server()
        if key not in _SERVERS:
            _SERVERS[key] = _ForkServer()
        server = _SERVERS[key]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its status() says why
            socket.send_fds(server.wire, [LENGTH.pack(len(request))], passed)
            server.wire.sendall(request)
    return server


@atexit.register
def end_servers() -> None:
    """End the servers of this process: what they took of the processor is its children's from then."""
    with _GUARD:
        for key in tuple(_SERVERS):
            if key[0] == os.getpid():
                _SERVERS.pop(key).end_server()


def _end_children(children: Iterable[_Child]) -> None:
    groups: dict[int, _ForkGroup] = {}
    for child in children:
        groups |= {group.alive: group for group in child.groups}
        child.close()
    for group in groups.values():
        group.wait_or_kill()


_SERVERS: dict[tuple[Any, ...], _ForkServer] = {}  # by what they were started with
_GUARD = threading.Lock()
# A request: its length in bytes, with open files; then the function and the environment, as JSON.
LENGTH = struct.Struct("<Q")
AT_ONCE = 80  # children: Linux passes at most 253 open files in a message
_ENDING = 0.5  # seconds in which all files of a server that ends are seen to be closed
_PATIENCE = 5.0  # seconds until a child that was taken over and hides is left alone


# Seconds in which an item is read: the largest piece of a report takes one.
ANSWER_PATIENCE = 600.0


class _NotAnAnswer(Exception):
    """What a child wrote is not what its function returns."""


@cache
def find_result_types(function_path: str) -> tuple[Any, ...]:
    """Return the types that a function says it returns."""
    kind = get_type_hints(import_function(function_path)).get("return", Any)
    if isinstance(kind, UnionType):
        return get_args(kind)
    return (kind,)


def encode_answer(result: Any, result_types: tuple[Any, ...]) -> bytes:
    """Return the bytes of an answer: of a result, or of a ProfkitError."""
    import msgspec

    if isinstance(result, ProfkitError):
        kind = _ERROR
        result = (result.message, result.hint)
    else:
        kind = 1
        if len(result_types) > 1:
            kind += [isinstance(result, known) for known in result_types].index(True)
    try:
        form = _MSGPACK
        body = msgspec.msgpack.encode(result)
    except UnicodeEncodeError:  # a path that is not UTF-8 has surrogates in it
        form = _JSON
        body = json.dumps(msgspec.to_builtins(result)).encode()
    return _HEAD.pack(kind, form, len(body)) + body


def _count_missing_bytes(bytes_so_far: bytearray, function: str) -> int:
    """Return how many bytes an answer needs to go on: of its head, then of its body.

    _NotAnAnswer of what is too long, or of no type that the function returns.
    """
    if len(bytes_so_far) < _HEAD.size:
        return _HEAD.size - len(bytes_so_far)
    kind, _, size = _HEAD.unpack_from(bytes_so_far)
    if size > ANSWER_MOST or kind > len(find_result_types(function)):
        raise _NotAnAnswer(f"kind {kind}, {size} bytes")
    return int(_HEAD.size + size - len(bytes_so_far))


def _decode_answer(bytes_so_far: bytearray, function: str) -> Any:
    """Return what an answer says, checked; _NotAnAnswer of what is not of its type."""
    import msgspec

    kind, form, _ = _HEAD.unpack_from(bytes_so_far)
    kinds = tuple[str, str], *find_result_types(function)
    body = memoryview(bytes_so_far)[_HEAD.size :]
    try:
        if form == _JSON:
            result = msgspec.convert(json.loads(bytes(body)), kinds[kind])
        else:
            result = msgspec.msgpack.decode(body, type=kinds[kind])
    except (ValueError, RecursionError) as error:
        raise _NotAnAnswer(" ".join(str(error).split())) from None
    if kind == _ERROR:
        return ProfkitError(*result)
    return result


# ncu_report keeps about six times the bytes of each report that it opens, and never gives them back. So
# a process reads a few reports itself, as fast as can be, and lets forks read all others: their memory
# goes with them.
HERE_FILES = 16  # eight reports, each once for its metrics and once for its lines
HERE_BYTES = 16 << 20  # of these together, not compressed: 120 MB of memory


@dataclass
class InProcessReadBudget:
    """What the library may still take of this process."""

    files_left: int = HERE_FILES
    bytes_left: int = HERE_BYTES
    # Text of machine code is written by a thread of the library, which a fork of this process would not
    # have and would wait for.
    may_write_text: bool = False

    def allow_disassembly_here(self) -> None:
        """Let this process write machine code as text: for one that is over when it has answered."""
        self.may_write_text = True

    def forbid_reading_here(self) -> None:
        """Let forks read every report from now on: for a process that lives for long."""
        self.files_left = 0

    def may_read_here(self, report_bytes: ByteCount) -> bool:
        """Return whether a report of so many bytes may be read here."""
        return not report_bytes or (self.files_left > 0 and report_bytes <= self.bytes_left)

    def reserve_read_here(self, report_bytes: ByteCount) -> bool:
        """Return the same, and count the report where it is read here.

        Not where forks have opened the library, and this process has not: it would take as much again.
        """
        with _GUARD:
            if not self.may_read_here(report_bytes):
                return False
            if report_bytes:
                are_forks = any(key[0] == os.getpid() for key in _SERVERS)
                if are_forks and "ncu_report" not in sys.modules:
                    return False
                self.files_left -= 1
                self.bytes_left -= report_bytes
            return True


ROOM = InProcessReadBudget()  # of this process


def _explain_killed_child(code: int) -> Clause:
    """Return why an item has no result whose reading was ended twice, by something else.

    A ProfkitError where it was the server that ended, with an exit status: nothing can be read then.
    """
    if code == NO_FILES:
        raise _make_start_error("no more files may be open at a time")
    if code >= 0:
        raise _make_start_error(f"it ended with exit status {code}")
    return KILLED_TWICE.format(signal=signal.Signals(-code).name)


# Why an item has no result where something else ended two processes that had it in hand. As of
# OUT_OF_MEMORY, it says nothing of the file.
KILLED_TWICE = "not read: two processes that read it were killed ({signal}), not by what is in it"
_KILLED = KILLED_TWICE.partition("{")[0]


def is_fault_of_file(why_no_result: Clause) -> bool:
    """Return whether the clause why an item has no result says something of the file."""
    return not why_no_result.startswith((OUT_OF_MEMORY, _KILLED))


def choose_hint(why: Clause, hint_about_file: str) -> Sentence:
    """Return what to do about an item without a result; `hint_about_file`: about its file."""
    if why.startswith(OUT_OF_MEMORY):
        return "allow more of it"
    if why.startswith(_KILLED):
        return "read it again; check whether memory ran out, or whether the processes were killed"
    return hint_about_file


def _make_start_error(why: Clause) -> ProfkitError:
    return ProfkitError(
        f"no process that reads reports can be started: {why}",
        "allow more of what is limited here: ulimit -a",
    )


def _describe_exit_of_child(returncode: int) -> Clause:
    if returncode < 0:
        return f"Nsight Compute's library crashed on it: {signal.Signals(-returncode).name}"
    return f"the process that read it ended with exit status {returncode}"
