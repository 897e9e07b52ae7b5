"""A command  ->  the files of its timeline, and how it ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.measure import process
from profkit.measure.timeline import library

TIMEOUT = 600.0  # seconds; --timeout changes it


@dataclass(frozen=True)
class Recorded:
    """A command that was watched."""

    # with a file of each kind for each process; profkit.program.readers.injected reads it
    folder: Path
    seconds: float  # how long it ran
    note: str  # how it ended, if not well


def record_timeline(
    command: Sequence[str],
    folder: Path,
    timeout: float = TIMEOUT,
    echo: process.Sink | None = None,
) -> Recorded:
    """Run a command with the injection library in each of its processes that starts CUDA.

    The folder is empty. After `timeout` seconds it is stopped; what it did until then is kept.

    Raises:
        ProfkitError: It cannot be started, or there is no CUPTI.
    """
    injection = library.build_injection()
    env = {**os.environ, "CUDA_INJECTION64_PATH": str(injection), "PROFKIT_TIMELINE": str(folder)}
    done = process.run_command(command, timeout, env, echo)
    if done.status is None:
        note = f"{command[0]} was stopped after {timeout:.0f} s: its timeline ends there"
    elif done.status:
        note = f"{command[0]} ended with status {done.status}: its timeline ends there"
        if not any(folder.glob("*.kernels")):
            last = (done.output.strip().splitlines() or [""])[-1]
            raise ProfkitError(
                f"{command[0]} ended with status {done.status} before any kernel: {last}",
                "run it once without profkit triage",
            )
    else:
        note = ""
    return Recorded(folder, done.seconds, note)
