"""Runs made by hand: a frame row of chosen metrics, a record of chosen facts."""

from __future__ import annotations

from math import nan
from pathlib import Path

import numpy as np
import pandas as pd

from profkit.evidence.runs import Run
from profkit.records.header import KEYS, VariantHeader
from profkit.records.parts import (
    BuiltKernel,
    CheckedCase,
    CheckResult,
    GpuState,
    NcuRun,
    RecordedGpu,
    RecordedLaunch,
    RecordedSource,
    Resources,
    TimedSide,
    TimedSides,
    Timing,
)
from profkit.records.record import Record
from profkit.reports.metrics import CATALOGUE

# A launch that fills the machine and is near nothing.
PLAIN = {
    "time": 1e-4,
    "sm_clock": 1.9e9,
    "sm_count": 132.0,
    "grid_size": 13200.0,
    "waves": 25.0,
    "sm_busy": 0.3,
    "memory_busy": 0.3,
    "dram_busy": 0.1,
    "l2_busy": 0.1,
    "issue_busy": 0.2,
    "registers": 64.0,
    "shared_dynamic": 32768.0,
    "blocks_per_sm": 4.0,
    "occupancy_limit": 0.5,
}


def row(variant: str | None = "stage1", case: str | None = "B", **metrics: float) -> dict:
    """One row of the frame; metrics not named are not collected."""
    identity = {
        "report": "x.ncu-rep",
        "launch": 0,
        "kernel": f"{variant or 'some'}_kernel()",
        "device": "NVIDIA H200",
        "cc": "9.0",
        "grid": (132, 1, 1),
        "block": (128, 1, 1),
        "variant": variant,
        "case": case,
        "nvtx": None,
        "status": "ok",
        "ncu_version": "2025.3.1",
    }
    values = dict.fromkeys(CATALOGUE, nan)
    known = {k: v for k, v in metrics.items() if k not in identity}
    return {
        **identity,
        **values,
        **PLAIN,
        **known,
        **{k: metrics[k] for k in identity if k in metrics},
    }


def frame(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(row()))


def samples(median: float = 1e-4, n: int = 60, seed: int = 0) -> tuple[float, ...]:
    rng = np.random.default_rng(seed)
    return tuple(float(x) for x in median * (1 + rng.exponential(0.005, n)))


def header(title: str = "", **keys: str | tuple[str, ...] | None) -> VariantHeader:
    """A header that says this: fixes=("rule",) is `fixes: rule`."""
    lists = {k.replace("_", "-"): [v] if isinstance(v, str) else v for k, v in keys.items()}
    said = {k: " ".join(words) for k, words in lists.items() if words}
    return VariantHeader(title, keys=said)


def record(variant: str = "stage1", case: str = "B", **facts) -> Record:
    """A record of chosen facts, by their short names."""
    known = {
        "correct": True,
        "sass": f"sass of {variant}",
        "host": "the launcher",
        "source": f"source of {variant}",
        "session": "one",
        "warm": samples(),
        "gpu": "NVIDIA H200",
        "clock_control": "none",
        "sm_clock": None,
        "sanitizers": {},
        "max_abs": None,
        "max_rel": None,
        "path": Path(f"{variant}.{case}.json"),
        "resources": Resources(
            registers=64, shared_static=0, shared_dynamic=32768, spills=0, stack=0
        ),
    } | facts
    names = ["title", *(key.replace("-", "_") for key in KEYS)]
    said = {name: known.pop(name) for name in names if name in known}
    if "said_of" in known:
        said["case"] = known.pop("said_of")
    status = {True: "right", False: "wrong"}.get(known.pop("correct"))
    errors = (CheckedCase(max_abs=known.pop("max_abs"), max_rel=known.pop("max_rel")),)
    check = CheckResult(status=status, cases=errors, sanitizer=known.pop("sanitizers"))
    source, sass, most = known.pop("source"), known.pop("sass"), known.pop("resources")
    host = known.pop("host")
    clock, control = known.pop("sm_clock"), known.pop("clock_control")
    timing = Timing(
        l2=TimedSides(warm=TimedSide(samples=known.pop("warm"))),
        session=known.pop("session"),
        after=GpuState(sm_clock=clock),
    )
    gpu = known.pop("gpu")
    return Record(
        variant=variant,
        case=case,
        header=header(**said),
        source=RecordedSource(sha256=source, sass=sass, host=host) if source else None,
        check=check,
        timing=timing,
        gpu=RecordedGpu(name=gpu) if gpu else None,
        ncu=NcuRun(clock_control=control),
        resources=(BuiltKernel(spills=most.spills, stack=most.stack),),
        launches=(
            RecordedLaunch(
                regs=most.registers,
                static_smem=most.shared_static,
                dynamic_smem=most.shared_dynamic,
            ),
        ),
        **known,
    )


def run(variant: str = "stage1", case: str = "B", launches=None, **facts) -> Run:
    rows = [row(variant, case)] if launches is None else launches
    return Run(variant, case, record(variant, case, **facts), frame(*rows))
