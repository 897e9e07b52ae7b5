"""What holds the clock at a large case, power or the pipe: times, clocks and power, sampled together.

    python tools/power.py artifacts/attention/power.json [--case D] [--seconds 2]

Needs a GPU, torch and NVML. Each subject runs without a pause, on random inputs, then on inputs of
zeros: the same instructions, but operands that do not toggle, so less power. And alone, after a rest:
the clock is high then, and power has had no time to count.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from attention_grid import FOLDER, Machine, Stage, header, picks

from profkit.lab.measure.cuda import device
from profkit.lab.measure.variants.problem import load_problem
from profkit.records.parts import GpuState

VARIANTS = ("latev", "qregisters")
SUBJECTS = (*VARIANTS, "sdpa-cudnn")
_EVERY = 0.01  # seconds between two looks
_REST, _TIMES = 0.15, 12
_SETTLED = 0.3  # of a run: clocks have come down by then


class Sampler(threading.Thread):
    """NVML's answers while something runs: (seconds, state) pairs."""

    def __init__(self, pci: str) -> None:
        super().__init__(daemon=True)
        self.pci, self.seen, self.ended = pci, list[tuple[float, GpuState]](), threading.Event()

    def run(self) -> None:
        """Look until told to end."""
        while not self.ended.is_set():
            self.seen.append((time.monotonic(), device.read_gpu_state(self.pci)))
            self.ended.wait(_EVERY)


def sustained(call: Any, stream: int, pci: str, seconds: float) -> dict[str, Any]:
    """Run without a pause; medians of what was seen once clocks had settled."""
    start, stop, n = device.create_event(), device.create_event(), 20
    sampler = Sampler(pci)
    times: list[tuple[float, float]] = []
    sampler.start()
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        device.record_event(start, stream)
        for _ in range(n):
            call(stream)
        device.record_event(stop, stream)
        device.wait_for_gpu_or_stream(stream)
        times.append((time.monotonic(), device.measure_seconds_between_events(start, stop) / n))
    sampler.ended.set()
    sampler.join()
    since = began + _SETTLED * seconds
    seen = [s for t, s in sampler.seen if t > since]
    took = median(t for at, t in times if at > since)
    clock = median(s.sm_clock for s in seen if s.sm_clock)
    reasons = sorted({r for s in seen for r in s.throttle or ()})
    return {
        "seconds": took,
        "sm_clock": clock,
        "cycles": took * clock,
        "looks": len(seen),
        "power": median(s.power for s in seen if s.power),
        "temperature": median(s.temperature for s in seen if s.temperature),
        "throttle": {r: sum(r in (s.throttle or ()) for s in seen) / len(seen) for r in reasons},
    }


def alone(call: Any, stream: int) -> float:
    """Seconds of one call after a rest, the median."""
    start, stop, took = device.create_event(), device.create_event(), []
    for _ in range(_TIMES):
        time.sleep(_REST)
        call(stream)  # its first blocks find what they need in L2 as in a row
        device.record_event(start, stream)
        call(stream)
        device.record_event(stop, stream)
        device.wait_for_gpu_or_stream(stream)
        took.append(device.measure_seconds_between_events(start, stop))
    return median(took)


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--case", default="D")
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    machine = Machine(VARIANTS)
    c = load_problem(FOLDER).module.CASES[given.case]
    stage = Stage(machine, picks.Shape(c.S, c.B * c.H, c.D, c.causal))
    stream, pci = device.create_non_blocking_stream(), machine.gpu.pci
    rows = []
    for inputs in ("random", "zeros"):
        if inputs == "zeros":
            for x in stage.tensors:
                x.zero_()
        for name in SUBJECTS:
            make = stage.rung if name in VARIANTS else stage.call
            subject, _ = make(name)
            row = {
                "name": name,
                "inputs": inputs,
                **sustained(subject.call, stream, pci, given.seconds),
            }
            rows.append({**row, "alone": alone(subject.call, stream)})
            print(rows[-1], flush=True)
    kept = {**header(machine, SUBJECTS[-1:]), "schema": "profkit.power/1", "case": given.case}
    kept |= {"power_limit": device.read_gpu_state(pci).power_limit, "rows": rows}
    given.file.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
