"""What recording the operators of some steps costs a program: the times of its steps, as JSON.

    CUDA_INJECTION64_PATH=... PROFKIT_TIMELINE=... PROFKIT_OPERATORS=1 python operators_cost.py

PYTHONPATH has the recorder's hook. It begins to look for steps late, so that one process tells what a
step takes before and after: processes differ by a tenth.
"""

from __future__ import annotations

import json
import statistics
import time

import profkit_recorder_operators as hook

LOOKS_AFTER = 8.0  # seconds from the import of torch on; CUDA and warm steps take some of them
OVER_AFTER = 3.0  # seconds that the look, the recording and the writing take at most
SECONDS = 15.0
WARM = 20  # steps

hook.PAUSE = hook.LONGEST_PAUSE = LOOKS_AFTER

from cost import SIZES, make_step  # noqa: E402  # imports torch: the hook begins to wait

began = time.monotonic()


def time_steps() -> list[tuple[float, float]]:
    """Take a launch-bound step again and again; when each began, and its seconds as the host saw it."""
    import torch

    step = make_step(*SIZES["launch-bound step"])
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    times = []
    last = time.monotonic()
    while last < began + SECONDS:
        step()
        now = time.monotonic()
        times.append((last - began, now - last))
        last = now
    torch.cuda.synchronize()
    return times


def main() -> None:
    """Print what a step took before and after, and what the pauses between came to."""
    times = time_steps()
    before = [took for at, took in times if at < LOOKS_AFTER - 0.5]
    after = [took for at, took in times if at > LOOKS_AFTER + OVER_AFTER]
    usual = statistics.median(before)
    pauses = sum(took - usual for _, took in times if took > 3 * usual)
    told = {
        "before_ms": usual * 1e3,
        "after_ms": statistics.median(after) * 1e3,
        "pauses_ms": pauses * 1e3,
        "longest_ms": max(took for _, took in times) * 1e3,
        "ended": time.time(),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
