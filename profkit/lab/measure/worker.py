"""Requests to one GPU  ->  what its worker process answered; a new process after one that was lost.

One request is a line of JSON; a worker (server.py) answers with any number of events and one Ready. What
an event holds is the dataclass that the worker made: nothing is a dict on either side of the border.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from profkit.collect import process
from profkit.errors import ProfkitError
from profkit.lab.measure.bench import Times
from profkit.lab.measure.check import Check
from profkit.lab.measure.cuda import device
from profkit.lab.measure.cuda.library import GraphLaunch

if TYPE_CHECKING:
    from profkit.units import CaseName, FirstAndMostRounds, Seconds


TIMEOUT = 120.0  # seconds without a word: no check of one variant takes that long
FIRST_TIMEOUT = 180.0  # of what is done once: importing torch, computing fp64 references


class WorkerMessage(msgspec.Struct, frozen=True, tag=True):
    """What goes over the border; its class is its tag."""


class Entry(msgspec.Struct, frozen=True):
    """A variant, or a reference of the problem."""

    name: str  # the variant's id or the reference's name
    library: Path | None = None  # the variant's library; None of a reference
    grid: str | None = None  # the variant's `inputs:` key


class Setup(WorkerMessage, frozen=True):
    """The first request: take the GPU, load the problem and the tools, compute inputs and references."""

    problem: Path  # its folder
    build: Path  # the build folder
    support: Path  # the library of support.cu
    checks: tuple[tuple[str, int], ...]  # (case, seed)
    grid: str | None = None  # a variant's `inputs:` key
    case: str | None = None  # `reference` is loaded at this case, if there is one
    reference: str | None = None


class Judge(WorkerMessage, frozen=True):
    """Check a variant on (case, seed) pairs; if it is correct at `case`, list its launches there."""

    entry: Entry
    checks: tuple[tuple[str, int], ...]
    case: str | None = None


class Measure(WorkerMessage, frozen=True):
    """Load entries at a case and list their launches; time them in turns where `rounds` is given."""

    entries: tuple[Entry, ...]
    case: str
    cold: bool = False  # whether to time with a cold L2 too
    rounds: tuple[int, int] | None = None  # how many at first, and at most; None times nothing


class Opened(WorkerMessage, frozen=True):
    """The worker has opened its GPU."""

    gpu: device.Gpu


class Begun(WorkerMessage, frozen=True):
    """What is being done now; whoever holds a name when the worker is lost is to blame."""

    what: str
    name: str = ""
    case: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.what, self.name, self.case)))


class Reply(WorkerMessage, frozen=True):
    """What came of a request, part by part: variant or reference -> ..."""

    checks: dict[str, Check] = msgspec.field(default_factory=dict)  # of a reference, at one case
    launches: dict[str, tuple[GraphLaunch, ...]] = msgspec.field(default_factory=dict)
    times: dict[str, Times] = msgspec.field(default_factory=dict)
    # why it cannot run at this case; the others go on
    refused: dict[str, str] = msgspec.field(default_factory=dict)


class Failed(WorkerMessage, frozen=True):
    """The request came to nothing. With `lost` the worker ends: its CUDA context is gone."""

    message: str
    hint: str = ""
    lost: bool = False


class Ready(WorkerMessage, frozen=True):
    """The request is done."""


Request = Setup | Judge | Measure
Event = Opened | Begun | Reply | Failed | Ready
_PATHS: dict[str, Any] = {"dec_hook": lambda kind, text: kind(text)}  # what msgspec does not know
read_request: Callable[[bytes], Request] = msgspec.json.Decoder(Request, **_PATHS).decode  # a line
read_event: Callable[[bytes], Event] = msgspec.json.Decoder(Event, **_PATHS).decode


def encode_message_as_json_line(message: Request | Event) -> bytes:
    """Return a message as a line of JSON."""
    return msgspec.json.encode(message, enc_hook=str) + b"\n"


class WorkerLost(ProfkitError):
    """The worker hung, crashed or lost its context; the next request starts another."""

    def __init__(self, message: str, hint: str = "", at: Begun | None = None) -> None:
        super().__init__(message, hint)
        self.at = at or Begun("start")  # what it was doing


class WorkerClosed(WorkerLost):
    """The worker was closed from outside: nobody is to blame."""

    def __init__(self) -> None:
        super().__init__("the measurement was stopped")


class Worker:
    """One GPU, and the process that holds it. Used by one thread; close() by any."""

    def __init__(
        self,
        setup: Setup,
        timeout: float = TIMEOUT,
        visible: str | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Set up a worker; nothing is started yet.

        `timeout`: seconds without a word after which a process is stopped. `visible`: its
        CUDA_VISIBLE_DEVICES; None leaves that as it is.
        """
        self.setup = setup
        self.timeout = timeout
        self.visible = visible
        self.gpu: device.Gpu | None = None
        self.restarts = -1
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._closed = False

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the process: its GPU, and one thread for BLAS."""
        # The reference runs many blocks side by side: a BLAS with threads of its own per block
        # makes it twenty times slower.
        own = {"OPENBLAS_NUM_THREADS": "1"}
        if self.visible is not None:
            own["CUDA_VISIBLE_DEVICES"] = self.visible
        return {**os.environ, **own}

    def start_process(self) -> None:
        """Start the process and let it prepare inputs, if it is not there."""
        from profkit.interpreter import make_module_command

        if self._closed:
            raise WorkerClosed
        if self._process is not None and self._process.poll() is None:
            return
        self._end_process()
        self._log.seek(0)
        self._log.truncate()
        self._lines = queue.Queue()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        command = make_module_command("profkit.lab.measure.server")
        self._process = process.start_process(command, env=self.environment, **pipes)
        reading = self._process, self._lines
        threading.Thread(target=_put_output_lines_into_queue, args=reading, daemon=True).start()
        self.restarts += 1
        try:
            self._ask_process(self.setup, max(FIRST_TIMEOUT, self.timeout))
        except ProfkitError:
            self._end_process()
            raise

    def check_variant_and_list_launches(
        self, entry: Entry, checks: Sequence[tuple[CaseName, int]], case: CaseName | None = None
    ) -> Reply:
        """Check a variant on (case, seed) pairs, and list its launches at a case."""
        self.start_process()
        return self._ask_process(Judge(entry, tuple(checks), case), self.timeout)

    def time_entries(
        self,
        entries: Sequence[Entry],
        case: CaseName,
        first_and_most_rounds: FirstAndMostRounds | None,
        cold: bool = False,
    ) -> Reply:
        """Time entries in turns; without `first_and_most_rounds` their launches are only listed."""
        self.start_process()
        return self._ask_process(
            Measure(tuple(entries), case, cold, first_and_most_rounds), self.timeout
        )

    def close(self) -> None:
        """End the process, also while another thread waits for it; it will not start again."""
        self._closed = True
        self._end_process()
        self._log.close()

    def _end_process(self) -> None:
        worker = self._process
        if worker is None:
            return
        process.end_session(worker)
        if worker.stdin:
            with contextlib.suppress(OSError):
                worker.stdin.close()

    def _ask_process(self, request: Request, timeout_s: Seconds) -> Reply:
        worker = self._process
        if worker is None or worker.stdin is None:
            raise WorkerClosed
        with contextlib.suppress(OSError, ValueError):  # it is gone: the end of its output says so
            worker.stdin.write(encode_message_as_json_line(request))
            worker.stdin.flush()
        reply = Reply()
        at = Begun("start")
        failed: ProfkitError | None = None
        while True:
            match self._wait_for_event(timeout_s, at):
                case Ready():
                    if failed:
                        raise failed
                    return reply
                case Begun() as at:
                    self._progress(str(at))
                case Failed(message, hint, lost):
                    if lost:
                        self._end_process()
                        raise WorkerLost(f"{message} ({at})", hint, at)
                    failed = ProfkitError(message, hint)
                case Opened(gpu):
                    self.gpu = gpu
                case Reply() as part:
                    reply.checks.update(part.checks)
                    reply.launches.update(part.launches)
                    reply.times.update(part.times)
                    reply.refused.update(part.refused)

    def _wait_for_event(self, timeout_s: Seconds, last_begun: Begun) -> Event:
        """Return what the worker says next; it was last `last_begun` this."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            self._end_process()
            message = f"it hung: nothing came back for {timeout_s:.0f} s ({last_begun})"
            raise WorkerLost(message, at=last_begun) from None
        if line is not None:
            return read_event(line)
        if self._closed:
            raise WorkerClosed
        self._end_process()
        self._log.seek(0)
        text = self._log.read()[-process.KEEP :].decode("utf-8", "replace").strip()
        if "Traceback (most recent call last)" in text:
            raise RuntimeError(f"the measuring process failed ({last_begun}):\n{text}")
        last = text.splitlines()[-1:]
        raise WorkerLost(
            f"the process crashed ({last_begun}): {last[0] if last else 'silent'}", at=last_begun
        )


def _put_output_lines_into_queue(
    worker: subprocess.Popen[bytes], lines: queue.Queue[bytes | None]
) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in worker.stdout or ():
            lines.put(line)
    lines.put(None)
    if worker.stdout:
        worker.stdout.close()


def list_visible_devices_of_workers(wanted_gpus: str | None) -> Sequence[str | None]:
    """Return what CUDA_VISIBLE_DEVICES each worker gets.

    `wanted_gpus` is --gpus: `all`, a number, or a list of indices (0,1); None takes one. The only GPU
    of a machine needs no choice.
    """
    if wanted_gpus is None or wanted_gpus == "1":
        return [None]
    count = device.count_gpus()
    listed = list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
    names = listed[:count] or list(map(str, range(count)))
    picked: Sequence[int]
    if "," in wanted_gpus:
        picked = list(map(_parse_gpu_number, wanted_gpus.split(",")))
    elif wanted_gpus == "all":
        picked = range(len(names))
    else:
        picked = range(_parse_gpu_number(wanted_gpus))
    if not picked:
        raise ProfkitError(
            f"--gpus {wanted_gpus}: on no GPU nothing is measured",
            "say all, how many, or a list from 0: 0,1; GPU 0 alone is CUDA_VISIBLE_DEVICES=0",
        )
    if len(set(picked)) < len(picked) or max(picked) >= len(names):
        raise ProfkitError(
            f"--gpus {wanted_gpus}: there are {count} GPUs",
            "say all, how many, or a list from 0: 0,1",
        )
    if len(names) == 1:
        return [None]
    return [names[index] for index in picked]


def _parse_gpu_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise ProfkitError(f"--gpus {text}: not understood", "say all, how many, or a list: 0,1")
    return int(text)
