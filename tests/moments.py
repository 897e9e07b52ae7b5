"""A command and a signal at any moment of it  ->  what it did wrong: used by tests, and alone on a GPU.

python -m tests.moments SECONDS MOMENTS SEED -- COMMAND...
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
_MARK = "PROFKIT_MOMENT"  # an environment variable that everything started inherits
_ENDING = 300.0  # seconds for what is just ending


def running_with(mark: str) -> list[int]:
    """Processes that are alive and inherited a mark."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if f"{_MARK}={mark}".encode() in environment and state != b"Z":
            pids.append(int(entry.name))
    return pids


def left_of(mark: str) -> list[str]:
    """What still runs after its time to end: command lines."""
    until = time.monotonic() + _ENDING
    while (pids := running_with(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    lines = []
    for pid in pids:
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return lines


def _as_in_a_terminal() -> None:
    """A shell lets what it runs in the background ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stopped(
    command: Sequence[str],
    number: signal.Signals,
    after: float,
    env: Mapping[str, str] | None = None,
) -> tuple[int, list[str]]:
    """Run a command, send it a signal after so many seconds.

    Returns:
        Its status, and what it did wrong: a traceback of ours, a process that goes on.
    """
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    with tempfile.TemporaryFile() as said:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            preexec_fn=_as_in_a_terminal,  # noqa: PLW1509 - it has no threads
            env={**os.environ, **(env or {}), _MARK: mark},
        )
        time.sleep(after)
        running.send_signal(number)
        try:
            running.wait(_ENDING)
            wrong = []
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            wrong = [f"did not end within {_ENDING:.0f} s"]
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    if running.stdin:
        running.stdin.close()
    if "Traceback" in text:
        # Before the first line of ours runs, the interpreter prints its own.
        wrong.append(
            ("a traceback:\n" if "profkit/" in text else "the interpreter's traceback: ")
            + text[-1500:]
        )
    wrong += [f"still runs: {line}" for line in left_of(mark)]
    return running.returncode, wrong


def main(words: Sequence[str]) -> int:
    """Try moments of one command and print a line each that was wrong."""
    seconds, moments, seed = float(words[0]), int(words[1]), words[2]
    command, draw, wrong = words[words.index("--") + 1 :], random.Random(seed), 0
    statuses: dict[str, int] = {}
    for _ in range(moments):
        number, after = draw.choice(SIGNALS), draw.random() * seconds
        status, faults = stopped(command, number, after)
        statuses[f"{number.name}:{status}"] = statuses.get(f"{number.name}:{status}", 0) + 1
        wrong += bool(faults)
        for fault in faults:
            print(f"{number.name} after {after:.2f} s: {fault}", flush=True)
    print(f"{moments} moments, {wrong} wrong, {statuses}: {' '.join(command)}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
