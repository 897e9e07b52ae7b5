"""Requests to one GPU  ->  what its worker process said; a new process after one that was lost."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure import process
from profkit.measure.variants.problem import Problem

COMMAND: tuple[str, ...] = (sys.executable, "-m", "profkit.measure.workers.tune_worker")
TIMEOUT = 30.0  # seconds without a word: a trial takes about one
FIRST_TIMEOUT = 180.0  # of what is done once: importing torch, computing fp64 references


class Lost(ProfkitError):
    """The worker hung, crashed or lost its context; the next request starts another."""


class Closed(Lost):
    """The lane was closed from outside: nobody is to blame."""


@dataclass(frozen=True)
class Setup:
    """What every worker of a search is told first.

    Attributes:
        problem: The problem.
        build: The build folder.
        support: The library of support.cu.
        grid: The header's `inputs:` key.
        checks: (case, seed) that every configuration is judged on.
        case: The case that is timed.
        anchor: The reference that is loaded at once, or None.
        timeout: Seconds without a word after which a worker is stopped.
    """

    problem: Problem
    build: Path
    support: Path
    grid: str | None
    checks: tuple[tuple[str, int], ...]
    case: str
    anchor: str | None
    timeout: float = TIMEOUT


@dataclass
class Said:
    """What came back for one request.

    Attributes:
        check: check.Check as JSON.
        launches: Kernel launches of one call.
        times: Subject -> bench.Times as JSON.
    """

    check: dict[str, Any] | None = None
    launches: list[dict[str, Any]] | None = None
    times: dict[str, dict[str, Any]] = field(default_factory=dict)


class Lane:
    """One GPU, and the worker process that holds it. Used by one thread; close() by any."""

    def __init__(self, setup: Setup, visible: str | None) -> None:
        """Nothing is started yet.

        Args:
            setup: What the worker is told first.
            visible: CUDA_VISIBLE_DEVICES for it; None leaves it as it is.
        """
        self.setup = setup
        self.visible = visible
        self.gpu: dict[str, Any] = {}
        self.restarts = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the lane
        self._closed = False

    @property
    def env(self) -> dict[str, str]:
        """What to start programs for this GPU with."""
        own = {"OPENBLAS_NUM_THREADS": "1"}  # the reference runs many blocks side by side
        if self.visible is not None:
            own["CUDA_VISIBLE_DEVICES"] = self.visible
        return {**os.environ, **own}

    def check(self, name: str, library: Path, case: str) -> Said:
        """Judge a variant on every case, and list its launches at one."""
        self._start()
        asked = {"do": "check", "name": name, "library": str(library), "case": case}
        return self._ask({**asked, "checks": list(self.setup.checks)}, self.setup.timeout)

    def time(
        self,
        subjects: Mapping[str, Path | None],
        case: str,
        rounds: tuple[int, int],
        cold: bool = False,
    ) -> Said:
        """Time subjects in turns.

        Args:
            subjects: Name -> library, or None for a reference.
            case: The case.
            rounds: How many at first, and at most.
            cold: Whether to time with a cold L2 too.
        """
        self._start()
        named = [{"name": n, "library": p and str(p)} for n, p in subjects.items()]
        asked = {"do": "time", "subjects": named, "case": case, "cold": cold}
        asked |= {"rounds": rounds[0], "most": rounds[1]}
        return self._ask(asked, self.setup.timeout)

    def close(self) -> None:
        """End the worker, also while another thread waits for it; it will not start again."""
        self._closed = True
        self._end()
        self._log.close()

    def start(self) -> None:
        """Start the worker and let it prepare inputs, if it is not there."""
        self._start()

    def _start(self) -> None:
        if self._closed:
            raise Closed("the search was stopped")
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        self._log.seek(0)
        self._log.truncate()
        self._lines = queue.Queue()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        self._process = process.start(COMMAND, env=self.env, **pipes)
        args = self._process, self._lines
        threading.Thread(target=_read, args=args, daemon=True).start()
        self.restarts += 1
        said = self.setup
        first = {"problem": str(said.problem.path.parent), "build": str(said.build)}
        try:
            self._ask({**first, "support": str(said.support), "grid": said.grid}, FIRST_TIMEOUT)
            second = {"do": "prepare", "checks": list(said.checks), "case": said.case}
            self._ask({**second, "anchor": said.anchor}, FIRST_TIMEOUT)
        except ProfkitError:
            self._end()
            raise

    def _end(self) -> None:
        held = self._process
        if held is None:
            return
        process.end_session(held)
        if held.stdin:
            with contextlib.suppress(OSError):
                held.stdin.close()

    def _ask(self, request: Mapping[str, Any], timeout: float) -> Said:
        held = self._process
        if held is None or held.stdin is None:
            raise Closed("the search was stopped")
        with contextlib.suppress(OSError):  # it is gone: the empty answer says so
            held.stdin.write(json.dumps(request).encode() + b"\n")
            held.stdin.flush()
        said, at = Said(), "start"
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                self._end()
                raise Lost(f"it hung: nothing came back for {timeout:.0f} s ({at})") from None
            if line is None:
                raise self._gone(at)
            event = json.loads(line)
            kind = event.pop("event")
            if kind == "ready":
                return said
            if kind == "start":
                at = " ".join(w for w in (event["what"], event["name"], event["case"]) if w)
            else:
                self._take(kind, event, said, at)

    def _take(self, kind: str, event: dict[str, Any], said: Said, at: str) -> None:
        match kind:
            case "gpu":
                self.gpu = event
            case "check":
                said.check = event
            case "launches":
                said.launches = event["launches"]
            case "times":
                said.times[event["name"]] = event
            case "lost":
                self._end()
                raise Lost(f"{event['message']} ({at})", event["hint"])
            case "error":
                self._lines.get(timeout=self.setup.timeout)  # the "ready" behind it
                raise ProfkitError(event["message"], event["hint"])

    def _gone(self, at: str) -> ProfkitError:
        if self._closed:
            return Closed("the search was stopped")
        self._end()
        self._log.seek(0)
        text = self._log.read()[-process.KEEP :].decode("utf-8", "replace").strip()
        if "Traceback (most recent call last)" in text:
            raise RuntimeError(f"the measuring process failed ({at}):\n{text}")
        last = text.splitlines()[-1:]
        return Lost(f"the process crashed ({at}): {last[0] if last else 'silent'}")


def _read(held: subprocess.Popen[bytes], lines: queue.Queue[bytes | None]) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in held.stdout or ():
            lines.put(line)
    lines.put(None)
    if held.stdout:
        held.stdout.close()


def visible_devices(wanted: str | None, count: int) -> Sequence[str | None]:
    """What CUDA_VISIBLE_DEVICES each lane gets.

    Args:
        wanted: --gpus: `all`, a number of GPUs, or a list of indices: 0,1; None takes one.
        count: How many GPUs CUDA shows to this process.
    """
    if wanted is None or wanted == "1":
        return [None]
    listed = [w for w in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if w]
    names = listed[:count] if listed else [str(i) for i in range(count)]
    if wanted == "all":
        return names
    picked = wanted.split(",") if "," in wanted else [str(i) for i in range(_number(wanted))]
    if len(set(picked)) < len(picked) or not all(_number(p) < len(names) for p in picked):
        raise ProfkitError(
            f"--gpus {wanted}: there are {count} GPUs", "say all, how many, or a list from 0: 0,1"
        )
    return [names[int(p)] for p in picked]


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise ProfkitError(f"--gpus {text}: not understood", "say all, how many, or a list: 0,1")
    return int(text)
