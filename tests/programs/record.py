"""Programs on a GPU  ->  their plain step times, torch traces and timelines, in one folder.

    python tests/programs/record.py OUT [--injection libprofkit_injection.so] [NAME ...]

Each job is a fork of this process, made before CUDA is started, so that torch is imported once.
One at a time has the GPU; the next begins while the last one writes its trace.
OUT gets truth.json (seconds a step: plain and under the injection library, planted and mended),
NAME.planted.json.gz and NAME.mended.json.gz (torch.profiler), and NAME.timeline/ (injection).
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import importlib
import json
import os
import shutil
import signal
import statistics
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import base
import torch

HERE = Path(__file__).parent
AHEAD = 3  # jobs that start while one has the GPU
LIMIT = 60  # seconds for one job that has the GPU: compiling is the longest
NAMES = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in {"base", "record", "overhead"})


class Job:
    """A fork that does one thing; what it returns is told when it has ended."""

    def __init__(self, job: Callable[[], Any], env: dict[str, str]) -> None:
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reader)
            _in_child(job, env, writer)
        os.close(writer)

    def result(self) -> Any:
        """What the job returned; None where it failed, its traceback is on stderr."""
        with os.fdopen(self.reader) as pipe:
            text = pipe.readline()  # not to its end: workers of a DataLoader may hold it open
        os.waitpid(self.pid, 0)
        return json.loads(text) if text else None


def _in_child(job: Callable[[], Any], env: dict[str, str], writer: int) -> None:
    status = 1
    try:
        os.environ.update(env)
        signal.alarm(4 * LIMIT)  # it may have to wait for the GPU
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps(job()) + "\n")
        status = 0
    except (Exception, SystemExit):  # noqa: BLE001 - said, and the next job goes on
        traceback.print_exc()
    sys.stdout.flush()
    if env:
        sys.exit(status)  # the injection library writes what is left when the process exits
    os._exit(status)


class Gpu:
    """The GPU, which one process at a time has."""

    def __init__(self) -> None:
        self.file = os.memfd_create("gpu")

    def take(self) -> None:
        """Start CUDA and its library, then wait until nobody has it."""
        if not base.DRY:
            for kind in (torch.bfloat16, torch.float32):
                x = torch.ones(64, 64, device=base.DEVICE, dtype=kind)
                (x @ x).sum().item()
        self.own = os.open(f"/proc/self/fd/{self.file}", os.O_RDWR)  # a lock is the open file's
        fcntl.flock(self.own, fcntl.LOCK_EX)
        signal.alarm(LIMIT)

    def give(self) -> None:
        """Let the next one have it."""
        base.wait()
        fcntl.flock(self.own, fcntl.LOCK_UN)


def plain(name: str, mended: bool, target: Path, gpu: Gpu, stack: bool = False) -> list[float]:
    """Plain seconds a step, then a trace of three steps into target."""
    gpu.take()
    torch.manual_seed(0)
    step = importlib.import_module(name).build(mended)
    times = base.seconds_per_step(step) if not base.DRY else base.seconds_per_step(step, 1, 2, 1)
    raw = target.with_suffix("")
    base.trace(step, str(raw), 3, stack, gpu.give)
    with raw.open("rb") as source, gzip.open(target, "wb", 6) as packed:
        shutil.copyfileobj(source, packed)
    raw.unlink()
    print(name, "mended" if mended else "planted", f"{statistics.median(times) * 1e3:.4f} ms",
          flush=True)  # fmt: skip
    return times


def injected(name: str, mended: bool, gpu: Gpu) -> list[float]:
    """Seconds a step while the injection library watches."""
    gpu.take()
    torch.manual_seed(0)
    return base.seconds_per_step(importlib.import_module(name).build(mended))


def jobs(name: str, out: Path, injection: str | None, gpu: Gpu) -> Iterator[tuple[str, Job]]:
    """Both sides of one program, each where it belongs in its row."""
    for side in ("planted", "mended"):
        if side == "mended" and name.startswith("healthy"):
            continue
        mended, target = side == "mended", out / f"{name}.{side}.json.gz"
        yield side, Job(lambda m=mended, t=target: plain(name, m, t, gpu), {})
        if injection:
            folder = out / f"{name}.{side}.timeline"
            folder.mkdir()
            env = {"CUDA_INJECTION64_PATH": injection, "PROFKIT_TIMELINE": str(folder)}
            yield f"{side} watched", Job(lambda m=mended: injected(name, m, gpu), env)


def main() -> None:
    """Record the named programs, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--injection")
    parser.add_argument("--stacks", nargs="*", default=[])
    given = parser.parse_intermixed_args()  # names may stand behind an option
    given.out.mkdir(parents=True, exist_ok=True)
    gpu, rows = Gpu(), {}
    running: deque[tuple[str, str, Job]] = deque()

    def ended() -> None:
        name, side, job = running.popleft()
        times = job.result()
        row = {"seconds": times and statistics.median(times), "of": times}
        rows.setdefault(name, {})[side] = row
        (given.out / "truth.json").write_text(json.dumps(rows, indent=1))

    for name in given.names or NAMES:
        for side, job in jobs(name, given.out, given.injection, gpu):
            running.append((name, side, job))
            if len(running) > AHEAD:
                ended()
    while running:
        ended()
    for name in given.stacks:
        target = given.out / f"{name}.stack.json.gz"
        Job(lambda n=name, t=target: plain(n, False, t, gpu, stack=True), {}).result()


if __name__ == "__main__":
    main()
