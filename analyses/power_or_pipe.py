"""At D, what holds the kernels back: power, or the tensor pipe?

artifacts/attention/power.json (`tools/power.py`) has what NVML said while each ran without a pause, on
random inputs and on zeros: the same instructions, whose operands do not toggle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from arithmetic import CASES, L4

from profkit.evidence.claims import Answer, claim, decide
from profkit.evidence.runs import Evidence, MissingEvidence
from profkit.files import read_json

FILE = Path(__file__).resolve().parents[1] / "artifacts" / "attention" / "power.json"
OURS, THEIRS = "latev", "sdpa-cudnn"
FLAG = "software power cap"
NEAR = 0.9  # of the cap: NVML gives a mean over a second, and a run here is hardly longer
PER_CYCLE = 4096  # fp16 operations of an SM's tensor cores
SMS = 132


def _kept() -> dict[str, Any]:
    try:
        said: dict[str, Any] = read_json(FILE)
    except (OSError, json.JSONDecodeError) as error:
        raise MissingEvidence(f"cannot read {FILE}", "python tools/power.py") from error
    return said


def _row(kept: dict[str, Any], name: str, inputs: str) -> dict[str, Any]:
    rows = kept["rows"]
    found: dict[str, Any] = next(r for r in rows if (r["name"], r["inputs"]) == (name, inputs))
    return found


def _said(row: dict[str, Any]) -> str:
    return (
        f"{row['seconds'] * 1e6:.0f} us at {row['sm_clock'] / 1e9:.2f} GHz and {row['power']:.0f} W, "
        f"{row['cycles'] / 1e3:.0f}k cycles"
    )


@claim(who="ladder.md: both kernels run near 1.65 of 1.98 GHz", needs=[f"{OURS}.D"])
def the_clock_is_what_power_allows(_: Evidence) -> Answer:
    """At D the clock stands a tenth below the highest, with the power near its cap."""
    kept = _kept()
    highest, cap = kept["gpu"]["sm_clock"], kept["power_limit"]
    rows = [_row(kept, name, "random") for name in (OURS, THEIRS)]
    zeros = _row(kept, OURS, "zeros")
    clock, power = max(r["sm_clock"] for r in rows), min(r["power"] for r in rows)
    return decide(
        clock < 0.9 * highest and power > NEAR * cap,
        f"{OURS} {_said(rows[0])}; {THEIRS} {_said(rows[1])}; cap {cap:.0f} W. NVML's flag {FLAG!r} "
        f"alone says nothing: it stands on zeros, too, at {zeros['power']:.0f} W "
        f"({zeros['throttle'].get(FLAG, 0.0):.0%} of the looks)",
        clock=clock,
        power_share=power / cap,
    )


@claim(who="if power decides, less of it makes the same instructions faster", needs=[f"{OURS}.D"])
def zeros_run_faster(_: Evidence) -> Answer:
    """On zeros, which take less power, the same instructions take the same cycles and less time."""
    kept = _kept()
    random, zeros = (_row(kept, OURS, inputs) for inputs in ("random", "zeros"))
    time, cycles = random["seconds"] / zeros["seconds"], random["cycles"] / zeros["cycles"]
    return decide(
        time > 1.05 and abs(cycles - 1) < 0.05,
        f"random {_said(random)}; zeros {_said(zeros)}: {time:.2f}x faster in {1 / cycles:.2f} of the "
        "cycles",
        faster=time,
        cycles=cycles,
    )


@claim(who="if the pipe decided, it would be full", needs=[f"{OURS}.D"])
def the_pipe_is_full(evidence: Evidence) -> Answer:
    """At D the tensor pipe is busy for nine tenths of the cycles."""
    kept, launch = _kept(), evidence.load(OURS, "D").launch
    random = _row(kept, OURS, "random")
    floor = CASES["D"].operations / (SMS * PER_CYCLE)
    return decide(
        launch["tensor_busy"] > 0.9,
        f"busy {launch['tensor_busy']:.0%} of ncu's {launch['cycles'] / 1e3:.0f}k cycles; the products "
        f"alone are {floor / 1e3:.0f}k. At 1.98 GHz the {random['cycles'] / 1e3:.0f}k cycles of a call "
        f"would take {random['cycles'] / 1.98e3:.0f} us instead of {random['seconds'] * 1e6:.0f}",
        tensor_busy=launch["tensor_busy"],
        full_clock_us=random["cycles"] / 1.98e3,
    ).elsewhere(
        f"L4 (computed): the products alone take {L4.floor(CASES['D'])['tensor'] * 1e6:.0f} us there"
    )
