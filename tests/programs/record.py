"""Programs on a GPU  ->  their plain step times, torch traces and timelines, in one folder.

    python tests/programs/record.py OUT [--injection libprofkit_injection.so] [NAME ...]

Each job is a fork of this process, made before CUDA is started, so that torch is imported once.
OUT gets truth.json (seconds a step: plain and under the injection library, planted and mended),
NAME.planted.json.gz and NAME.mended.json.gz (torch.profiler), and NAME.timeline/ (injection).
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import shutil
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import base
import torch

HERE = Path(__file__).parent
LIMIT = 60  # seconds for one job: compiling is the longest
NAMES = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in {"base", "record", "__init__"})


def forked(job: Callable[[], Any], env: dict[str, str]) -> Any:
    """What a job returns, run in a child; None and its traceback on stderr when it fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            os.environ.update(env)
            signal.alarm(LIMIT)
            with os.fdopen(writer, "w") as pipe:
                json.dump(job(), pipe)
            status = 0
        except (Exception, SystemExit):  # noqa: BLE001 - said, and the next job goes on
            traceback.print_exc()
        if env:
            sys.exit(status)  # the injection library writes what is left when the process exits
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def plain(name: str, mended: bool, target: Path, stack: bool = False) -> list[float]:
    """Plain seconds a step, then a trace of three steps into target."""
    torch.manual_seed(0)
    step = importlib.import_module(name).build(mended)
    times = base.seconds_per_step(step)
    raw = target.with_suffix("")
    base.trace(step, str(raw), 3, stack)
    with raw.open("rb") as source, gzip.open(target, "wb", 6) as packed:
        shutil.copyfileobj(source, packed)
    raw.unlink()
    return times


def injected(name: str, mended: bool) -> list[float]:
    """Seconds a step while the injection library watches."""
    torch.manual_seed(0)
    return base.seconds_per_step(importlib.import_module(name).build(mended))


def record(name: str, out: Path, injection: str | None) -> dict[str, Any]:
    """Both sides of one program."""
    row: dict[str, Any] = {"name": name}
    for side in ("planted", "mended"):
        if side == "mended" and name.startswith("healthy"):
            continue
        mended = side == "mended"
        began = time.monotonic()
        times = forked(lambda m=mended, s=side: plain(name, m, out / f"{name}.{s}.json.gz"), {})
        row[side] = {"seconds": times and statistics.median(times), "of": times}
        if injection:
            folder = out / f"{name}.{side}.timeline"
            folder.mkdir()
            env = {"CUDA_INJECTION64_PATH": injection, "PROFKIT_TIMELINE": str(folder)}
            times = forked(lambda m=mended: injected(name, m), env)
            row[side]["injected"] = {"seconds": times and statistics.median(times), "of": times}
        print(side, name, row[side]["seconds"], f"{time.monotonic() - began:.1f} s", flush=True)
    return row


def main() -> None:
    """Record the named programs, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--injection")
    parser.add_argument(
        "--stacks", nargs="*", default=["host_sync_item", "host_launch_small_layers"]
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in given.names or NAMES:
        rows.append(record(name, given.out, given.injection))
        (given.out / "truth.json").write_text(json.dumps(rows, indent=1))
    for name in given.stacks:
        target = given.out / f"{name}.stack.json.gz"
        forked(lambda n=name, t=target: plain(n, False, t, stack=True), {})


if __name__ == "__main__":
    main()
