"""Runs made by hand: a frame row of chosen metrics, a record of chosen facts."""

from __future__ import annotations

from math import nan
from pathlib import Path

import numpy as np
import pandas as pd

from profkit.evidence.runs.runs import Run
from profkit.records.record import Machine, Record, Resources
from profkit.reports.metrics import CATALOGUE

# A launch that fills the machine and is near nothing.
PLAIN = {
    "time": 1e-4, "sm_clock": 1.9e9, "sm_count": 132.0, "grid_size": 13200.0, "waves": 25.0,
    "sm_busy": 0.3, "memory_busy": 0.3, "dram_busy": 0.1, "l2_busy": 0.1, "issue_busy": 0.2,
    "registers": 64.0, "shared_dynamic": 32768.0, "blocks_per_sm": 4.0, "occupancy_limit": 0.5,
}  # fmt: skip


def row(variant: str | None = "stage1", case: str | None = "B", **metrics: float) -> dict:
    """One row of the frame; metrics not named are not collected."""
    identity = {
        "report": "x.ncu-rep", "launch": 0, "kernel": f"{variant or 'some'}_kernel()",
        "device": "NVIDIA H200", "cc": "9.0", "grid": (132, 1, 1), "block": (128, 1, 1),
        "variant": variant, "case": case, "nvtx": None, "status": "ok", "ncu_version": "2025.3.1",
    }  # fmt: skip
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


def record(variant: str = "stage1", case: str = "B", **facts) -> Record:
    given = {
        "path": Path(f"{variant}.{case}.json"),
        "right": True,
        "sass": f"sass of {variant}",
        "source": f"source of {variant}",
        "resources": Resources(64, 0, 32768, 0, 0),
        "session": "one",
        "warm": samples(),
        "machine": Machine("NVIDIA H200", clock_control="none"),
    }
    return Record(variant=variant, case=case, **{**given, **facts})


def run(variant: str = "stage1", case: str = "B", launches=None, **facts) -> Run:
    rows = [row(variant, case)] if launches is None else launches
    return Run(variant, case, record(variant, case, **facts), frame(*rows))
