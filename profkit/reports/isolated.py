"""A function's dotted name and many items  ->  its results, each file read apart from the others.

The native library under ncu_report can crash on a damaged file and takes its process with it. So
files are handed one at a time to child processes: the file in a child that died is known exactly,
the others go on in a fresh child. A server imports once and then forks itself for each child; it
never reads a file. It is subprocess and not multiprocessing because spawning re-imports the caller's
__main__, and a five-line script without a main guard has to work.

A child that hostile bytes have taken over must not take its parent too. So an answer is plain data
(msgpack) of the type that the function says it returns, of at most ANSWER_MOST bytes: anything else
counts as a child that died. Nothing here unpickles.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from importlib import import_module
from itertools import chain, islice
from types import UnionType
from typing import TYPE_CHECKING, Any, BinaryIO, get_args, get_type_hints

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from concurrent.futures import Future

# What a server runs: our import path first, so that it sees the same packages as we do.
_CHILD = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "  # Ctrl-C is the parent's
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from profkit.reports.isolated import serve; serve(*sys.argv[2:])"
)

# Bytes that a fork takes before a fresh one goes on: 6 reports of a full set.
_GROWN = 65e6
_TUNED = "glibc.malloc.hugetlb=1"  # large pages: else a third of the time goes into small ones
_AGAIN = 75  # its exit status then
_FULL = 76  # and that of a child without memory
_KILLED = -9  # SIGKILL, which nothing sends itself: from outside, or the kernel's for memory
ANSWER_MOST = 128 << 20  # bytes: 10,000 launches in a report of 3 MB give 18 MB
_HEAD = struct.Struct("<BBQ")  # what an answer begins with: its kind, its form, its bytes
_ERROR = 0  # the kind of a ProfkitError; the n-th type that the function may return is n + 1
_MSGPACK, _JSON = 0, 1  # forms
_NO_MEMORY = {_FULL, 1, -signal.SIGABRT}  # Python at its start, and C++, end like this


def isolated(
    function: str,
    items: Iterable[Any],
    jobs: int,
    died: Callable[[Any, str], Any],
    done: Callable[[Any], object] = lambda _item: None,
) -> list[Any]:
    """Call a function of one item for many items, in `jobs` child processes; results in their order.

    `function`: "module:name"; it says what it returns: plain data, dataclasses, or a union of such. A
    ProfkitError that it raises is raised here too. A prepare_child() in its module is called first,
    once for every child. `items`: paths, or anything that JSON can hold; of what is no sequence only a
    few are taken ahead of the children. `died`: (item, why) -> the result for an item whose child died;
    why is a clause. `done`: called with each item that has a result.
    """
    most = min(jobs, len(items)) if isinstance(items, Sequence) else jobs
    results = {}
    with contextlib.closing(each_isolated(function, items, most, died)) as answers:
        for number, item, result in answers:
            results[number] = result
            done(item)
    return [results[number] for number in range(len(results))]


def named(function: str) -> Callable[..., Any]:
    module, name = function.split(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def each_isolated(
    function: str, items: Iterable[Any], jobs: int, died: Callable[[Any, str], Any]
) -> Generator[tuple[int, Any, Any], None, None]:
    """Yield the same, result by result as they are done: number of the item, item, result.

    The children live as long as this does; a few items are taken ahead of them, and no result is
    kept. Close it (contextlib.closing) where it is not read to its end.
    """
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    free: queue.SimpleQueue[_Child | None] = queue.SimpleQueue()
    children = [_Child(function) for _ in range(max(1, jobs))]
    _start(function, children)  # so that they have imported when the first item is made
    for child in children:
        free.put(child)

    def one(item: Any) -> Any:
        child = free.get()
        if child is None:  # too late: all of them have ended
            return None
        try:
            return child.call(item, died)
        finally:
            free.put(child)

    running: dict[Future[Any], tuple[int, Any]] = {}
    numbered = enumerate(items)
    with ThreadPoolExecutor(len(children)) as pool:
        try:
            while True:
                for number, item in islice(numbered, len(children) + 1 - len(running)):
                    running[pool.submit(one, item)] = number, item
                if not running:
                    return
                for call in wait(running, return_when=FIRST_COMPLETED).done:
                    yield *running.pop(call), call.result()
        finally:  # also for Ctrl-C: what runs is finished (a file takes milliseconds), no more begun
            pool.shutdown(cancel_futures=True)
            # Ctrl-C while a pool starts a thread hides it from the pool: wait for it too.
            _end([left for _ in children if (left := free.get())])
            for _ in children:
                free.put(None)


def each_kept(function: str, items: Iterable[Any], died: Callable[[Any, str], Any]) -> list[Any]:
    """Return the same, one after the other, in a child that waits a while for the next such call.

    For a worker that gets a few items at a time: starting a child takes as long as reading six
    reports. Each thread that calls has a child of its own; one that is left ends by itself.
    """
    key = os.getpid(), function  # a fork of this process has none
    with _LEFT_GUARD:
        child, leaving = _LEFT[key].popitem() if _LEFT.get(key) else (_Child(function), None)
    if leaving:
        leaving.cancel()
    try:
        return [child.call(item, died) for item in items]
    finally:
        leaving = threading.Timer(_IDLE, _leave, (key, child))
        leaving.daemon = True
        with _LEFT_GUARD:
            _LEFT.setdefault(key, {})[child] = leaving
        leaving.start()


def _leave(key: tuple[int, str], child: _Child) -> None:
    with _LEFT_GUARD:
        waited = _LEFT[key].pop(child, None)
    if waited:
        _end([child])


def processors() -> int:
    """Return how many processors this process may use (a container may have fewer than the machine)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class _Child:
    """One child process, started when first needed and again after it died."""

    def __init__(self, function: str) -> None:
        self._function = function
        self.servers: list[subprocess.Popen[bytes]] = []  # the first one's fork it is
        self.ends: tuple[BinaryIO, ...] = ()  # of items, answers, and of its exit status

    def call(self, item: Any, died: Callable[[Any, str], Any], again: bool = True) -> Any:
        if not self.ends:
            _start(self._function, [self])
        items, answers, ended = self.ends
        try:
            items.write(json.dumps(item).encode() + b"\n")
            items.flush()
            result = _received(answers, self._function)
        except _NotAnAnswer as error:
            self.servers[0].kill()
            self.close()
            return died(item, f"the process that read it gave no answer: {error}")
        except (EOFError, BrokenPipeError):
            code = int(ended.read() or self.servers[0].wait())  # nothing: the server died
            self.close()
            if code in _NO_MEMORY and is_limited():
                raise _too_little(item) from None
            if again and code == _KILLED:
                return self.call(item, died, again=False)
            return died(item, _how(code))
        if isinstance(result, ProfkitError):
            raise result
        return result

    def close(self) -> None:
        for end in self.ends:
            with contextlib.suppress(BrokenPipeError):
                end.close()
        self.ends = ()


def _start(function: str, children: Sequence[_Child]) -> None:
    """Start a server that becomes these children."""
    pipes = [(os.pipe(), os.pipe(), os.pipe()) for _ in children]
    theirs = [(items[0], answers[1], ended[1]) for items, answers, ended in pipes]
    passed = [*chain.from_iterable(theirs)]
    server = subprocess.Popen(
        [sys.executable, "-c", _CHILD, json.dumps(sys.path), function, json.dumps(theirs)],
        stdin=subprocess.DEVNULL,
        # Without memory, the library and Python say so each in its own words; we say it once.
        stderr=subprocess.DEVNULL if is_limited() else None,
        env={"GLIBC_TUNABLES": _TUNED, **os.environ},
        pass_fds=passed,
    )
    for end in passed:
        os.close(end)
    for child, (items, answers, ended) in zip(children, pipes, strict=True):
        child.servers = [server, *(old for old in child.servers if old.poll() is None)]
        child.ends = os.fdopen(items[1], "wb"), *(os.fdopen(x[0], "rb") for x in (answers, ended))


def _end(children: Sequence[_Child]) -> None:
    for child in children:
        child.close()
    for server in chain.from_iterable(child.servers for child in children):
        server.wait()


# Children that wait for the next call, by process and function, each with what will end it.
_LEFT: dict[tuple[int, str], dict[_Child, threading.Timer]] = {}
_LEFT_GUARD = threading.Lock()
_IDLE = 20.0  # seconds


class _NotAnAnswer(Exception):
    """What a child wrote is not what its function returns."""


@cache
def _kinds(function: str) -> tuple[Any, ...]:
    """Return the types that a function says it returns."""
    kind = get_type_hints(named(function)).get("return", Any)
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _sent(result: Any, kinds: tuple[Any, ...]) -> bytes:
    """Return the bytes of an answer: of a result, or of a ProfkitError."""
    import msgspec

    if isinstance(result, ProfkitError):
        kind, result = _ERROR, (result.message, result.hint)
    else:
        kind = 1 + (
            len(kinds) > 1 and next(n for n, k in enumerate(kinds) if isinstance(result, k))
        )
    try:
        form, body = _MSGPACK, msgspec.msgpack.encode(result)
    except UnicodeEncodeError:  # a path that is not UTF-8 has surrogates in it
        form, body = _JSON, json.dumps(msgspec.to_builtins(result)).encode()
    return _HEAD.pack(kind, form, len(body)) + body


def _received(stdout: BinaryIO, function: str) -> Any:
    """Return the next answer of a child, checked.

    EOFError where the child ended before its answer did; _NotAnAnswer of what is too long, or not of a
    type that the function returns.
    """
    import msgspec

    head = stdout.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    kind, form, size = _HEAD.unpack(head)
    kinds = tuple[str, str], *_kinds(function)
    if size > ANSWER_MOST or kind >= len(kinds):
        raise _NotAnAnswer(f"kind {kind}, {size} bytes")
    body = stdout.read(size)
    if len(body) < size:
        raise EOFError
    try:
        if form == _JSON:
            result = msgspec.convert(json.loads(body), kinds[kind])
        else:
            result = msgspec.msgpack.decode(body, type=kinds[kind])
    except (ValueError, RecursionError) as error:
        raise _NotAnAnswer(" ".join(str(error).split())) from None
    return ProfkitError(*result) if kind == _ERROR else result


def is_limited() -> bool:
    """Return whether the memory of this process is limited, by --max-memory or from outside."""
    return resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY


def _too_little(item: Any) -> ProfkitError:
    """Return what is said of an item whose child had too little memory: nothing is known of the file."""
    texts = [item] if isinstance(item, str) else [x for x in item if isinstance(x, str)]
    return ProfkitError(f"{texts[min(1, len(texts) - 1)]}: out of memory", "allow more of it")


def _how(returncode: int) -> str:
    if returncode == _KILLED:
        return "the process that read it was killed, twice"
    if returncode < 0:
        return f"Nsight Compute's library crashed on it: {signal.Signals(-returncode).name}"
    return f"the process that read it ended with exit status {returncode}"


def serve(function: str, children: str) -> None:
    """Serve as forks of this process, each with its (items, answers, exit status) in JSON.

    The native library never gives back what it took for a report. So a fork that has grown ends, and
    a fresh one goes on. What the function's module does in its prepare_child() is done before, once for
    all. Whose fork died is told how: its ends are closed.
    """
    os.dup2(2, 1)  # what the native library prints must not get into what the parent prints
    call = named(function)
    getattr(sys.modules[function.partition(":")[0]], "prepare_child", int)()
    kinds = _kinds(function)
    import msgspec  # noqa: F401 - once for all forks

    waiting: list[list[int]] = json.loads(children)
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
    os._exit(0)  # what the library holds goes with the process, not piece by piece


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
            os._exit(_FULL)
        try:
            answers.write(_sent(result, kinds))
            answers.flush()
        except BrokenPipeError:  # the parent was killed
            return False
        if _taken() - before > _GROWN:
            return True
    return False


def _taken() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
