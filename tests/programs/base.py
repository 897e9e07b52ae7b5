"""A step, planted or mended  ->  a small program: run it, time it plainly, or trace it.

Each file beside this one plants one problem: `build(mended)` returns a step. A file is a program of
its own (`python host_sync_item.py`), which is what `profkit triage` wraps. `--seconds` prints the
plain time of a step, without any profiler: the truth that savings are held against.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

DRY = os.environ.get("PROGRAMS_DRY") == "1"  # tiny and on the CPU: does it run at all?
DEVICE = "cpu" if DRY else "cuda"
Step = Callable[[], Any]


def size(full: int, tiny: int = 8) -> int:
    """A size, or a tiny one in a dry run."""
    return tiny if DRY else full


WAITS: list[Callable[[], Any]] = []  # of programs that launch from threads of their own


def wait() -> None:
    """Wait for the GPU, where there is one."""
    for other in WAITS:
        other()
    if not DRY:
        torch.cuda.synchronize()


def join_ranks() -> None:
    """Join the other processes that torchrun has started, on a GPU of one's own."""
    if not DRY:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("gloo" if DRY else "nccl")


def captured(step: Step) -> Step:
    """A step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds_per_step(
    step: Step, warm: int = 10, runs: int = 7, length: int = 10, most: float = 0.3
) -> list[float]:
    """Plain times of a step in seconds: each the mean of `length` steps between two waits.

    Steps so long that a run would take more than `most` seconds are fewer, three at least.
    """
    for _ in range(warm // 2):
        step()
    wait()
    began = time.perf_counter()
    for _ in range(warm - warm // 2):
        step()
    wait()
    one = (time.perf_counter() - began) / max(1, warm - warm // 2)
    length = max(min(3, length), min(length, round(most / one)))
    times = []
    for _ in range(runs):
        wait()
        began = time.perf_counter()
        for _ in range(length):
            step()
        wait()
        times.append((time.perf_counter() - began) / length)
    return times


def trace(
    step: Step, path: str, steps: int, stack: bool, over: Callable[[], None] = lambda: None
) -> None:
    """torch.profiler's Chrome trace of a few steps, as its users write it.

    Args:
        step: What is traced.
        path: Where the trace goes.
        steps: How many of them.
        stack: Whether with Python's stacks.
        over: Called when the GPU is no longer needed.
    """
    from torch.profiler import ProfilerActivity, profile, schedule

    kinds = [ProfilerActivity.CPU] if DRY else [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    plan = schedule(wait=1, warmup=2, active=steps)
    with profile(activities=kinds, schedule=plan, record_shapes=True, with_stack=stack) as p:
        for _ in range(steps + 3):
            step()
            p.step()
    over()
    p.export_chrome_trace(path)


def main(build: Callable[[bool], Step]) -> None:
    """Run, time or trace one program, as its arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--trace")
    parser.add_argument("--traced-steps", type=int, default=3)
    parser.add_argument("--stack", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    step = build(given.mended)
    ranked = torch.distributed.is_initialized()
    if given.seconds:
        # Ranks have to take the same number of steps.
        most = 1e9 if ranked else 0.3
        times = seconds_per_step(step, most=most) if not DRY else seconds_per_step(step, 1, 2, 1)
        print(json.dumps({"seconds": statistics.median(times), "of": times}))
    elif not given.trace:
        for _ in range(given.steps):
            step()
        wait()
    if given.trace:
        path = given.trace.format(rank=os.environ.get("RANK", "0"))
        trace(step, path, given.traced_steps, given.stack)
    if ranked:
        torch.distributed.destroy_process_group()
