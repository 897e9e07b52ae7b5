"""Every problem but attention on the CPU: its variants are right and without races; its traps bite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from profkit.errors import ProfkitError
from profkit.lab.measure import data
from profkit.lab.measure.check import judge_output_values
from profkit.lab.measure.targets import LabFolders, find_target_by_options
from profkit.lab.measure.variants import problem
from tests.found import find_files
from tests.kernels import passed
from tests.kernels.emulated import KERNELS, SCHEDULES, emulate

Floats = NDArray[np.float32]
# Small cases that reach every path of a launcher: an emulated thread costs thousands of real ones.
SMALL = {
    "blocksparse": ("S1-w0-g0-D64", "S128-w1-g2-D64", "S300-w1-g2-D64", "S300-w0-g1-D128"),
    "gqa": ("S1-8to1-D64", "S17-8to1-D64-full", "S128-8to1-D64", "S17-8to1-D128"),
    "decode": (
        "S1-3to3-D64",
        "S17-8to1-D128",
        "S300-16to2-D64-page16",
        "S300-4to4-D128-page32",
        "S1000-6to2-D64-page64",
        "S70-page8",
        "S5000-8to1",
    ),
    "fp8": ("S1", "S17-causal", "S255-causal"),
    "layernorm": (
        "LN1x1-fp16",
        "LN3x7-bf16",
        "RMS65x768-bf16",
        "LN3x1000-fp16",
        "LN2x4104-fp16",
        "LN2x16384-bf16",
        "LN33x4096-offset",
    ),
}
FILES = [file for name in SMALL for file in find_files(KERNELS / name, "**/*.cu")]


@pytest.mark.nvcc
@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}-{f.stem.split('_')[0]}")
def test_right_and_without_races(file: Path, tmp_path: Path) -> None:
    name = file.relative_to(KERNELS).parts[0]
    schedules = SCHEDULES["late"], SCHEDULES["early"]
    run, source = f"{name}/{file.stem.split('_')[0]}", file.read_text()
    made_of = passed.hash_run(source, passed.describe_problem(file), SMALL[name], schedules)
    if passed.is_kept(run, made_of):
        return
    done = emulate(file, SMALL[name], tmp_path, "races", schedules)
    assert done.findings == [], done.text[:4000]
    assert done.faults == [], done.faults[:5]
    assert len(done.ran) >= 4, done.text[:2000]
    assert done.ran[: len(done.ran) // 2] * 2 == done.ran, "the same at either schedule"
    passed.keep_pass(run, made_of)


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
    at = data.load_or_compute_case_data(asked, case, 0, tmp_path)
    x, r, w, b = (a.astype(np.float32) for a in at.load_inputs())
    assert (judge_output_values(asked, at, _norms(x, r, w, b, wrong)).status == "right") == (
        not wrong
    )


def test_bfloat16_is_rounded_to_nearest_even_and_read_back() -> None:
    module = problem.load_problem(KERNELS / "layernorm").module
    case = module.CASES["RMS4096"]
    given = np.array([1.0, 1.00390625, 1.01171875, -3.0e38, 1e-20], np.float32)
    stored = module._stored(given, case)
    assert stored.tolist() == [0x3F80, 0x3F80, 0x3F82, 0xFF62, 0x1E3D]
    assert (
        data.decode_stored_values(stored, "bfloat16").tolist()
        == module._values(stored, case).tolist()
    )
    assert module.tolerance(case) == asked_tolerance("RMS4096") != asked_tolerance("LN768")


def asked_tolerance(case: str) -> tuple[float, float]:
    """What acceptance at a case is."""
    return problem.load_problem(KERNELS / "layernorm").get_tolerance(case)


@pytest.mark.parametrize(
    ("case", "of"),
    [("16k-8", "decode"), ("2k-8to1", "gqa"), ("sparse89", "blocksparse"), ("B", "attention")],
)
def test_a_case_says_of_which_problem_a_reference_is(case: str, of: str) -> None:
    name = "flex" if of != "attention" else "sdpa"
    target = find_target_by_options(LabFolders(KERNELS), [name], False, [case], False)
    assert (target.problem.name, target.references) == (of, (name,))
    assert find_target_by_options(LabFolders(KERNELS), [], True, [case], False).problem.name == of


def test_a_reference_of_several_problems_needs_a_case() -> None:
    with pytest.raises(ProfkitError, match="problems: attention, decode, fp8, gqa"):
        find_target_by_options(LabFolders(KERNELS), ["sdpa"], False, [], False)


@pytest.mark.parametrize("name", ["decode", "gqa", "blocksparse"])
def test_work_is_that_of_the_problem(name: str) -> None:
    """Against attention's own figures where a case is one of attention's, and by hand elsewhere."""
    module = problem.load_problem(KERNELS / name).module
    if name == "decode":
        case = module.CASES["16k-8"]
        assert module.operations(case) == 4 * 8 * 32 * 16384 * 128
        assert module.compulsory_bytes(case) - 2 * 8 * 4 * 16384 * 128 * 2 < 2e5
    if name == "gqa":
        case = module.CASES["2k-8to1"]
        assert module.compulsory_bytes(case) == 2 * 2 * (2 * 32 + 2 * 4) * 2048 * 128
    if name == "blocksparse":
        full = module.Case(1, 2, 300, 64, 2, 0)
        assert full.share() == 1.0
        assert module.operations(full) == 4 * 2 * 300**2 * 64
        assert 1 - module.CASES["sparse96"].share() == pytest.approx(0.9613, abs=1e-4)
        assert module.CASES["sparse53"].share() == module.CASES["sparse53"].seen().mean()


WRONG_DECODING = {
    "": lambda s, v: (s, v),
    "a key too many": lambda s, v: (np.append(s, 0.0), np.vstack([v, v[:1]])),
    "the last key forgotten": lambda s, v: (s[:-1], v[:-1]),
    "no scale": lambda s, v: (8 * s, v),
    "the mean": lambda s, v: (0 * s, v),
}


@pytest.mark.parametrize("wrong", WRONG_DECODING)
def test_the_gate_stops_what_is_not_decoding(wrong: str, tmp_path: Path) -> None:
    asked = problem.load_problem(KERNELS / "decode")
    at = data.load_or_compute_case_data(asked, "S17-3to3-D64", 0, tmp_path)
    q, k, v, table = at.load_inputs()
    out = np.empty(q.shape)
    for b, head in np.ndindex(2, 3):
        length, page = table[b]
        keys, values = (x[page, head, :length].astype(np.float64) for x in (k, v))
        scores, values = WRONG_DECODING[wrong](keys @ q[b, head].astype(np.float64) / 8, values)
        weights = np.exp(scores - scores.max())
        out[b, head] = weights @ values / weights.sum()
    assert (judge_output_values(asked, at, [out]).status == "right") == (not wrong)


def test_slots_that_no_sequence_uses_hold_nan() -> None:
    module = problem.load_problem(KERNELS / "decode").module
    case = module.CHECKS["S300-16to2-D64-page16"]
    q, k, _, table = module.inputs(case, 0)
    used = np.zeros(k.shape[0] * 16, bool)
    for length, *pages in table:
        for i, page in enumerate(pages):
            used[16 * page : 16 * page + np.clip(length - 16 * i, 0, 16)] = True
    rows = k.transpose(0, 2, 1, 3).reshape(len(used), -1)
    assert np.isfinite(rows[used]).all()
    assert np.isnan(rows[~used]).all()
    assert np.isfinite(q).all()
    assert (~used).sum() > 100
