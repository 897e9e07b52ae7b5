"""FP8 attention: its codes are e4m3, its tolerance is FlashAttention-3's or less, its traps bite."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from profkit.lab.measure import data
from profkit.lab.measure.check import judge_output_values
from profkit.lab.measure.variants import problem
from tests.kernels import passed
from tests.kernels.emulated import KERNELS
from tests.sweeps import take_part

Floats = NDArray[np.float64]
ASKED = problem.load_problem(KERNELS / "fp8")
MODULE = ASKED.module


def test_codes_are_the_nearest_e4m3() -> None:
    values = MODULE.VALUES
    known = np.flatnonzero(~np.isnan(values))
    assert known.size == 254
    assert values[known].max() == 448.0
    assert (values[MODULE.encode(values[known])] == values[known]).all()
    given = np.random.default_rng(0).standard_normal(3000).astype(np.float32) * 100
    nearest = np.abs(values[known][None] - given[:, None]).min(axis=1)
    assert (np.abs(values[MODULE.encode(given)] - given) == nearest).all()


def _attention(case: object, seed: int) -> tuple[Floats, Floats, Floats]:
    """Scores, values and the reference."""
    *codes, scales = MODULE.inputs(case, seed)
    q, k, v = (MODULE.VALUES[c].astype(np.float64) * s for c, s in zip(codes, scales, strict=True))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(MODULE.D)
    rows = np.arange(scores.shape[-1])
    if case.causal:  # type: ignore[attr-defined]
        scores[..., rows[None] > rows[:, None]] = -np.inf
    return scores, v, MODULE.reference(case, (*codes, scales))[0]


def _e4m3(x: Floats) -> Floats:
    rounded: Floats = MODULE.VALUES[MODULE.encode(x.astype(np.float32))].astype(np.float64)
    return rounded


def _bfloat16(x: NDArray[np.floating]) -> NDArray[np.float32]:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.slow
@pytest.mark.forks
@pytest.mark.parametrize("name", take_part(MODULE.CHECKS, one_of=2))
def test_the_tolerance_is_within_flash_attention_3s(name: str) -> None:
    """Theirs: twice the error of attention with probabilities in e4m3, and bf16's own rounding."""
    key = f"fp8/tolerance at {name}"
    asked = (
        passed.describe_problem(KERNELS / "fp8" / "problem.py"),
        Path(__file__).read_text("utf-8"),
    )
    made_of = hashlib.sha256(repr([name, asked, np.__version__]).encode()).hexdigest()[:16]
    if passed.is_kept(key, made_of):
        return
    case, seeds = MODULE.CHECKS[name], MODULE.SEEDS
    atol, rtol = MODULE.tolerance(case)
    for seed in seeds:
        scores, v, right = _attention(case, seed)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        rough = _e4m3(p / p.sum(axis=-1, keepdims=True)) @ v
        stored = _bfloat16(right)
        there = _bfloat16(_bfloat16(stored + np.float32(0.3)) - np.float32(0.3))
        theirs = 2 * np.abs(rough - right).max() + 2 * np.abs(there - stored).max()
        assert atol + rtol * np.abs(right).max() <= theirs
    passed.keep_pass(key, made_of)


WRONG = {
    "": lambda s, v: (s, v),
    "the mean": lambda s, v: (np.where(np.isfinite(s), 0, s), v),
    "keys of V in another order": lambda s, v: (s, v[..., ::-1, :]),
    "no scale": lambda s, v: (s * np.sqrt(128), v),
    "half of V's scale": lambda s, v: (s, v / 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_the_gate_stops_what_is_not_attention(wrong: str, tmp_path: Path) -> None:
    at = data.load_or_compute_case_data(ASKED, "S255-causal", 0, tmp_path)
    scores, v, _ = _attention(MODULE.CHECKS["S255-causal"], 0)
    scores, v = WRONG[wrong](scores, v)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = _e4m3(32 * p) @ v / (32 * p.sum(axis=-1, keepdims=True))
    assert (judge_output_values(ASKED, at, [out.astype(np.float16)]).status == "right") == (
        not wrong
    )
