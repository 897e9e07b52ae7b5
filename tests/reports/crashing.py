"""Stand-ins for a native library that crashes: called in child processes by name."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from profkit.errors import ProfkitError
from profkit.reports import reader
from profkit.reports.container import ContainerVerdict
from profkit.reports.metrics import CATALOGUE
from profkit.reports.reader import prepare_child

__all__ = ["prepare_child"]  # what children do first


def first_metric(path: str) -> int:
    """Pages that the process got while the library gave its first metric."""
    (action,) = reader.iterate_actions(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    action.metric_by_name("gpu__time_duration.sum")
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def pid(item: Any) -> tuple[Any, int]:
    return item, os.getpid()


def server(item: float) -> tuple[int, int]:
    """Itself and who forked it, after so many seconds."""
    time.sleep(item)
    return os.getpid(), os.getppid()


def surroundings(_item: int) -> list[Any]:
    """Who forked what forked it, a variable of the environment, the folder."""
    of = Path(f"/proc/{os.getppid()}/stat").read_text()
    return [int(of.rpartition(")")[2].split()[1]), os.environ.get("COLUMNS"), os.getcwd()]


def kills_server(item: str) -> str:
    """Where the item is a file that is not there yet: what forks is killed, and then this."""
    if item and not os.path.exists(item):
        Path(item).touch()
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return "read"


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


def ends(item: Any) -> str:
    """As the first of the texts in the item says: without memory, by a signal, with a status."""
    how = item if isinstance(item, str) else item[0]
    if how == "memory":
        raise MemoryError
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])
    os._exit(int(how))


def killed(item: tuple[str, int]) -> str:
    """Killed from outside, as often as it is said; each time leaves a byte in a file."""
    path, times = item
    with open(path, "ab") as mark:
        mark.write(b"x")
    if os.path.getsize(path) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "read"


def read_report_unless_large(path: str) -> reader.ReportLaunches | ContainerVerdict:
    """The real one, but for files that are called culprit or hungry."""
    if "culprit" in path:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "hungry" in path:
        raise MemoryError
    return reader.read_report_unless_large(path)


def read_launch_batch(item: Any) -> reader.ReadBatch:
    """The real one, but for copies of a report that is called hungry."""
    if "hungry" in item[1]:
        raise MemoryError
    return reader.read_launch_batch(item)


def answer_requests_of_report(item: Any) -> None:
    """Hot lines of a report whose machine code crashes the library."""
    os._exit(3)


class _Bomb:
    """Unpickled, it leaves a mark where it is told to."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.mark,)


def _enveloped(body: bytes, kind: int = 1, form: int = 0) -> bytes:
    return struct.pack("<BBQ", kind, form, len(body)) + body


def _hostile(how: str, mark: str) -> bytes:
    """What a child writes that hostile bytes have taken over."""
    pack = msgspec.msgpack.encode
    file = {
        "path": "x",
        "sha256": None,
        "status": "ok",
        "message": "",
        "launches": 1,
        "ncu_version": None,
    }
    row = ["x", 0, "k", "kernel", *[None] * 7, "ok", None]
    part = {"identity": [row], "values": bytes(8 * len(CATALOGUE)), "rules": [], "file": file}
    bomb = pickle.dumps(_Bomb(mark))
    return {
        "a pickle": bomb,
        "an enveloped pickle": _enveloped(bomb),
        "a pickle where bytes may be": _enveloped(pack(part | {"values": bomb})),
        "garbage": bytes(range(256)) * 64,
        "nothing": b"",
        "half": _enveloped(pack(part))[:-9],
        "no such kind": _enveloped(pack(part), kind=3),
        "another type": _enveloped(pack([1, 2, 3])),
        "another field": _enveloped(pack(part | {"file": file | {"status": "sure"}})),
        "deep": _enveloped(b"\x91" * 100_000 + b"\xc0"),
        "deep JSON": _enveloped(b"[" * 100_000, form=1),
        "a long number": _enveloped(b"[" + b"9" * 100_000 + b"]", form=1),
        "half a part": _enveloped(json.dumps({"identity": [row]}).encode(), form=1),
        "fewer values": _enveloped(pack(part | {"values": b""})),
        "a huge launch": _enveloped(pack(part | {"identity": [["x", 1 << 63, *row[2:]]]})),
        "too much": struct.pack("<BBQ", 1, 0, 1 << 40) + bytes(1 << 20),
        "far too much": struct.pack("<BBQ", 1, 0, 1 << 63) + bytes(1 << 20),
    }[how]


def hangs(item: str) -> str:
    """Stop for ever: before an answer, or in the midst of it, where items say so."""
    if item == "silent":
        time.sleep(1000)
    if item == "half":
        answers = sys._getframe(1).f_locals["answers"]
        answers.write(struct.pack("<BBQ", 1, 0, 100) + b"half")
        answers.flush()
        time.sleep(1000)
    return item


def hostile_part(path: str) -> reader.ReportLaunches | ContainerVerdict:
    """The real one, but files that are called hostile have taken the child."""
    name = os.path.basename(path)
    if not name.startswith("hostile "):
        return reader.read_report_unless_large(path)
    answers = sys._getframe(1).f_locals["answers"]
    how = name.removeprefix("hostile ").removesuffix(".ncu-rep")
    answers.write(_hostile(how, os.path.join(os.path.dirname(path), "mark")))
    answers.flush()
    os._exit(0)
