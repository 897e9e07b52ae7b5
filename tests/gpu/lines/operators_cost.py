"""What recording the operators of some steps costs a program: the times of its steps, as JSON.

    CUDA_INJECTION64_PATH=... PROFKIT_TIMELINE=... PROFKIT_OPERATORS=1 python operators_cost.py [SECONDS]

`without-memory` as the second argument: tensors are not told, as they were not until they were recorded.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from cost import SIZES, make_step

WARM = 20  # steps


def time_steps(seconds: float) -> list[float]:
    """Take a launch-bound step again and again; the seconds of each, as the host saw it."""
    import torch

    step = make_step(*SIZES["launch-bound step"])
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    times = []
    until = time.perf_counter() + seconds
    last = time.perf_counter()
    while last < until:
        step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
    torch.cuda.synchronize()
    return times


def leave_memory_out() -> None:
    """Have the recorder's hook start torch's profiler without memory."""
    import profkit_recorder_operators as hook

    make_profile = hook.OperatorRecorder.make_profile
    hook.OperatorRecorder.make_profile = lambda self, **_: make_profile(self)


def main() -> None:
    """Print what a step took, what all steps together took over that, and the longest of them."""
    if sys.argv[2:] == ["without-memory"]:
        leave_memory_out()
    times = time_steps(float(sys.argv[1]) if len(sys.argv) > 1 else 6)
    usual = statistics.median(times[len(times) // 2 :])
    more = sum(took - usual for took in times if took > 2 * usual)
    told = {"steps": len(times), "usual_ms": usual * 1e3, "more_ms": more * 1e3}
    print(json.dumps({**told, "longest_ms": max(times) * 1e3, "ended": time.time()}), flush=True)


if __name__ == "__main__":
    main()
