"""Every problem but attention on the CPU: its variants are right and without races; its traps bite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from profkit.measure.check import data, dtypes
from profkit.measure.check.check import judge_values
from profkit.measure.variants import problem
from tests.kernels.emulated import KERNELS, SCHEDULES, emulate

Floats = NDArray[np.float32]
# Small cases that reach every path of a launcher: an emulated thread costs thousands of real ones.
SMALL = {
    "blocksparse": ("S1-w0-g0-D64", "S128-w1-g2-D64", "S300-w1-g2-D64", "S300-w0-g1-D128"),
    "gqa": ("S1-8to1-D64", "S17-8to1-D64-full", "S128-8to1-D64", "S17-8to1-D128"),
    "decode": ("S1-3to3-D64", "S17-8to1-D128", "S300-16to2-D64-page16", "S300-4to4-D128-page32",
               "S1000-6to2-D64-page64", "S70-page8", "S5000-8to1"),
    "layernorm": ("LN1x1-fp16", "LN3x7-bf16", "RMS65x768-bf16", "LN2x4104-fp16", "LN2x16384-bf16",
                  "LN33x4096-offset"),
}  # fmt: skip
FILES = [file for name in SMALL for file in sorted((KERNELS / name).rglob("*.cu"))]


@pytest.mark.nvcc
@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}-{f.stem.split('_')[0]}")
def test_right_and_without_races(file: Path, tmp_path: Path) -> None:
    name = file.relative_to(KERNELS).parts[0]
    for schedule in ("late", "early"):
        done = emulate(file, SMALL[name], tmp_path, "races", **SCHEDULES[schedule])
        assert done.findings == [], f"{schedule}: {done.text[:4000]}"
        assert done.faults == [], f"{schedule}: {done.faults[:5]}"
        assert len(done.ran) >= 2, done.text[:2000]


def _norms(x: Floats, r: Floats, w: Floats, b: Floats, wrong: str) -> tuple[Floats, Floats]:
    """LayerNorm in fp32, with one mistake."""
    h = (x + r).astype(np.float16).astype(np.float32)
    width = h.shape[1]
    mean = h.sum(axis=1, keepdims=True, dtype=np.float32) / np.float32(width)
    squares = (h * h).sum(axis=1, keepdims=True, dtype=np.float32) / np.float32(width)
    variance = ((h - mean) ** 2).mean(axis=1, keepdims=True)
    if wrong == "mean of squares minus square of mean":
        variance = np.maximum(squares - mean * mean, 0)
    if wrong == "variance over width - 1":
        variance *= width / (width - 1)
    if wrong == "one row's statistics for all":
        mean, variance = mean[:1], variance[:1]
    if wrong == "no mean":
        mean = 0 * mean
    y = (h - mean) / np.sqrt(variance + np.float32(1e-5)) * w + (0 if wrong == "no b" else b)
    return y.astype(np.float16), (x if wrong == "no residual" else h).astype(np.float16)


@pytest.mark.parametrize(
    ("wrong", "case"),
    [
        ("mean of squares minus square of mean", "LN33x4096-offset"),
        ("one row's statistics for all", "LN65x768-fp16"),
        ("no mean", "LN65x768-fp16"),
        ("no b", "LN65x768-fp16"),
        ("no residual", "LN65x768-fp16"),
        ("variance over width - 1", "LN3x7-fp16"),
        ("", "LN33x4096-offset"),
        ("", "LN65x768-fp16"),
    ],
)
def test_the_gate_stops_what_is_not_layernorm(wrong: str, case: str, tmp_path: Path) -> None:
    asked = problem.load_problem(KERNELS / "layernorm")
    at = data.prepare_data(asked, case, 0, tmp_path)
    x, r, w, b = (a.astype(np.float32) for a in at.inputs())
    assert (judge_values(asked, at, _norms(x, r, w, b, wrong)).status == "right") == (not wrong)


def test_bfloat16_is_rounded_to_nearest_even_and_read_back() -> None:
    module = problem.load_problem(KERNELS / "layernorm").module
    case = module.CASES["RMS4096"]
    given = np.array([1.0, 1.00390625, 1.01171875, -3.0e38, 1e-20], np.float32)
    stored = module._stored(given, case)
    assert stored.tolist() == [0x3F80, 0x3F80, 0x3F82, 0xFF62, 0x1E3D]
    assert dtypes.values_of(stored, "bfloat16").tolist() == module._values(stored, case).tolist()
    assert module.tolerance(case) == asked_tolerance("RMS4096") != asked_tolerance("LN768")


def asked_tolerance(case: str) -> tuple[float, float]:
    """What acceptance at a case is."""
    return problem.load_problem(KERNELS / "layernorm").tolerance(case)
