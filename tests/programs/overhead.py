"""What profkit's timeline costs a launch-bound program: processes with and without it, in turns.

    python tests/programs/overhead.py libprofkit_injection.so NAME [--pairs 8] [--rounds 5]

Processes of one program differ by more than the timeline costs, and the machine drifts: so all
processes live side by side, one at a time runs, and each round asks every one of them again, with
and without turn about. Prints JSON: milliseconds a step of each process (its fastest run of each
round), the ratio of each pair, and the median of those ratios with the pairs' quartiles.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import base
import torch

LENGTH = 10  # steps between two waits
RUNS = 6  # of a process in a round


def process(name: str, env: dict[str, str], line: Connection) -> None:
    """One process of the program: it is ready, then runs whenever it is asked, then ends."""
    os.environ.update(env)
    torch.manual_seed(0)
    step = importlib.import_module(name).build(False)
    base.seconds_per_step(step, 40, 1, LENGTH)
    line.send(True)
    while line.recv():
        line.send(min(base.seconds_per_step(step, 4, RUNS, LENGTH)) * 1e3)
    line.close()


def measure(name: str, injection: Path, pairs: int, rounds: int) -> dict[str, object]:
    """All processes of both kinds, round after round."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        env = {"CUDA_INJECTION64_PATH": str(injection.resolve()), "PROFKIT_TIMELINE": folder}
        lines, children = [], []
        for n in range(2 * pairs):
            line, other = context.Pipe()
            child = context.Process(target=process, args=(name, env if n % 2 else {}, other))
            child.start()
            lines.append(line)
            children.append(child)
        for line in lines:
            line.recv()
        times: list[list[float]] = [[] for _ in lines]
        for turn in range(rounds):
            order = range(len(lines)) if turn % 2 == 0 else reversed(range(len(lines)))
            for n in order:
                lines[n].send(True)
                times[n].append(lines[n].recv())
        for line, child in zip(lines, children, strict=True):
            line.send(False)
            child.join()
        watched = len(list(Path(folder).glob("*.kernels")))
    return summary(name, times, watched)


def summary(name: str, times: list[list[float]], watched: int) -> dict[str, object]:
    """Each process' times, and what the watched ones of each pair take longer."""
    plain, seen = times[::2], times[1::2]
    ratios = [statistics.median(b / a for a, b in zip(p, w, strict=True))
              for p, w in zip(plain, seen, strict=True)]  # fmt: skip
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    return {
        "program": name, "timelines_written": watched,
        "plain_ms": {"min": min(map(min, plain)),
                     "median": statistics.median(map(statistics.median, plain))},
        "watched_ms": {"min": min(map(min, seen)),
                       "median": statistics.median(map(statistics.median, seen))},
        "ratio_of_pairs": {"median": quartiles[1], "low": quartiles[0], "high": quartiles[2]},
        "ratios": ratios, "times_ms": {"plain": plain, "watched": seen},
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("injection", type=Path)
    parser.add_argument("name")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(json.dumps(measure(given.name, given.injection, given.pairs, given.rounds)))


if __name__ == "__main__":
    main()
