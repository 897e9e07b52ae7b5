"""The gate itself: what passes it, what must not."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.lab.measure import data
from profkit.lab.measure.check import judge_output
from profkit.lab.measure.variants import problem
from tests.sweeps import take_part

ROOT = Path(__file__).parents[2]
ATTENTION = problem.load_problem(ROOT / "kernels/attention")
MODULE = ATTENTION.module
ATOL, RTOL = MODULE.ATOL, MODULE.RTOL


def test_what_is_within_tolerance_passes_and_what_is_not_fails() -> None:
    ref = np.array([0.0, 1.0, -2.0])
    assert judge_output(ref + 0.9e-3, ref, 1e-3, 0.0).wrong == 0
    assert judge_output(ref + np.array([0, 0, 1.1e-3]), ref, 1e-3, 0.0).wrong == 1
    assert judge_output(ref * 1.0009, ref, 0.0, 1e-3).wrong == 0
    found = judge_output(np.array([0.0, 1.5, -2.0]), ref, 1e-3, 1e-3)
    assert (found.wrong, found.worst) == (1, (1,))
    assert found.max_abs == found.max_rel == 0.5
    assert found.bias == pytest.approx(0.5 / 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_fail_wherever_they_are(bad: float) -> None:
    ref = np.ones((3, 5))
    out = ref.copy()
    out[2, 4] = bad
    found = judge_output(out, ref, 1e-3, 1e-3)
    assert (found.nans, found.wrong) == (1, 1)
    assert found.max_abs == 0.0


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=50), st.integers(0, 49))
def test_one_wrong_element_is_enough(values: list[float], where: int) -> None:
    ref = np.array(values)
    out = ref.copy()
    out[where % len(out)] += 0.01
    found = judge_output(out, ref, ATOL, RTOL)
    assert found.wrong == 1
    assert found.worst == (where % len(out),)


def test_nothing_is_right_when_there_is_nothing() -> None:
    assert judge_output(np.empty((0, 4)), np.empty((0, 4)), 0.0, 0.0).wrong == 0


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """Plain attention, written a second time, the easy way."""
    scores = np.einsum("bhid,bhjd->bhij", q, k) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", weights, v) / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", ["S17", "S255-one-head", "S300-D128", "S1"])
def test_the_reference_agrees_with_the_easy_way(name: str) -> None:
    case = ATTENTION.get_case(name)
    q, k, v = (x.astype(np.float64) for x in MODULE.inputs(case, 3))
    (ref,) = MODULE.reference(case, MODULE.inputs(case, 3))
    np.testing.assert_allclose(ref, attention(q, k, v, case.D**-0.5), atol=1e-12)


def test_the_causal_reference_is_one_row_at_a_time() -> None:
    case = ATTENTION.get_case("S300-causal")
    given = MODULE.inputs(case, 0)
    q, k, v = (x.astype(np.float64) for x in given)
    (ref,) = MODULE.reference(case, given)
    for row in (0, 1, 255, 256, 299):
        wanted = attention(q[:, :, row : row + 1], k[:, :, : row + 1], v[:, :, : row + 1], 0.125)
        np.testing.assert_allclose(ref[:, :, row : row + 1], wanted, atol=1e-12)


LAZY = {
    "mean of v": lambda q, k, v: np.broadcast_to(v.mean(2, keepdims=True), v.shape),
    "v itself": lambda q, k, v: v,
    "zero": lambda q, k, v: np.zeros_like(v),
    "no scale": lambda q, k, v: attention(q, k, v, 1.0),
    "last key forgotten": lambda q, k, v: attention(q, k[:, :, :-1], v[:, :, :-1], 0.125),
    "one padded key too many": lambda q, k, v: attention(
        q,
        np.pad(k, [(0, 0)] * 2 + [(0, 1), (0, 0)]),
        np.pad(v, [(0, 0)] * 2 + [(0, 1), (0, 0)]),
        0.125,
    ),
    "scores rounded to bf16": lambda q, k, v: attention(bf16(q), bf16(k), v, 0.125),
}


def bf16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32) + 0x8000
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("case", take_part(["S17", "S300", "A", "B"], one_of=2))
def test_the_gate_stops_what_is_not_attention(name: str, case: str) -> None:
    of = ATTENTION.get_case(case)
    given = MODULE.inputs(of, 0)
    (ref,) = MODULE.reference(of, given)
    out = LAZY[name](*(x.astype(np.float64) for x in given)).astype(np.float16)
    assert judge_output(out, ref, ATOL, RTOL).wrong


def test_mean_of_v_passes_the_gate_that_was_used_before() -> None:
    """Inputs of 0.1 normal and 5e-3, absolute or relative: why inputs are as they are."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 8, 512, 64)) * 0.1
    ref = attention(q, k, v, 0.125)
    assert np.abs(LAZY["mean of v"](q, k, v) - ref).max() <= 5e-3


@pytest.mark.parametrize("case", ["S300", "S255-causal", "B"])
def test_rounding_probabilities_and_output_to_fp16_passes(case: str) -> None:
    """What tensor-core kernels have to do must fit, with room."""
    of = ATTENTION.get_case(case)
    given = MODULE.inputs(of, 1)
    (ref,) = MODULE.reference(of, given)
    q, k, v = (x.astype(np.float64) for x in given)
    scores = np.einsum("bhid,bhjd->bhij", q, k) / 8
    if of.causal:
        scores[..., np.triu(np.ones((of.S, of.S), bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    out = np.einsum("bhij,bhjd->bhid", p.astype(np.float16).astype(np.float64), v)
    out = (out / p.sum(-1, keepdims=True)).astype(np.float16)
    assert judge_output(out, ref, ATOL / 2, RTOL / 2).wrong == 0


def test_e4m3_inputs_are_codes_times_a_power_of_two() -> None:
    case = ATTENTION.get_case("S17")
    for array in MODULE.inputs(case, 0, "e4m3"):
        for head in array.reshape(-1, case.S * case.D).astype(np.float64):
            scale = np.abs(head).max() / 448
            assert np.log2(scale) == round(np.log2(scale))
            code = np.abs(head / scale)
            step = np.exp2(np.maximum(np.floor(np.log2(np.maximum(code, 2.0**-9))), -6) - 3)
            assert (code / step == np.round(code / step)).all()


def test_work_is_counted() -> None:
    case = ATTENTION.get_case("B")
    assert MODULE.operations(case) == 4 * 8 * 512 * 512 * 64
    assert MODULE.operations(ATTENTION.get_case("B-causal")) == MODULE.operations(case) / 2
    assert MODULE.compulsory_bytes(case) == 4 * 8 * 512 * 64 * 2
    assert set(ATTENTION.cases) == {c + e for c in "ABVLCD" for e in ("", "-causal")}
    assert {c.S for c in ATTENTION.checks.values()} >= {1, 17, 128, 255, 300}
    assert any(c.B * c.H == 1 for c in ATTENTION.checks.values())


def test_backends_are_told_by_their_kernels() -> None:
    names = {
        "cudnn": ["cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7"],
        "flash": ["void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Params)"],
        "efficient": ["fmha_cutlassF_f16_aligned_64x64_rf_sm80(AttentionKernel::Params)"],
        "math": ["cutlass_80_gemm", "void at::softmax_warp_forward<float>(float*)"],
        "unknown": ["something"],
    }
    for backend, kernels in names.items():
        assert MODULE.backend_of(kernels) == backend


def test_data_is_computed_once(tmp_path: Path) -> None:
    first = data.load_or_compute_case_data(ATTENTION, "S17", 0, tmp_path)
    stamp = (first.folder / "ref0").stat().st_mtime_ns
    again = data.load_or_compute_case_data(ATTENTION, "S17", 0, tmp_path)
    assert again == first
    assert (again.folder / "ref0").stat().st_mtime_ns == stamp
    (ref,) = again.load_reference()
    given = MODULE.inputs(ATTENTION.get_case("S17"), 0)
    for kept, array in zip(again.load_inputs(), given, strict=True):
        np.testing.assert_array_equal(kept, array)
    np.testing.assert_allclose(
        ref, MODULE.reference(ATTENTION.get_case("S17"), given)[0], rtol=1e-6
    )
    assert again.list_output_sizes() == [2 * 3 * 17 * 64 * 2]
    assert data.load_or_compute_case_data(ATTENTION, "S17", 1, tmp_path).folder != first.folder
    assert (
        data.load_or_compute_case_data(ATTENTION, "S17", 0, tmp_path, "e4m3").folder != first.folder
    )


def test_a_problem_that_lacks_something_is_told_what(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match=r"has no problem\.py"):
        problem.load_problem(tmp_path)
    (tmp_path / "problem.py").write_text("CASES = {}\n")
    with pytest.raises(ProfkitError) as caught:
        problem.load_problem(tmp_path)
    assert "reference" in caught.value.message
    assert "ATOL" in caught.value.hint
    with pytest.raises(ProfkitError, match="--case Z"):
        ATTENTION.get_case("Z")


def test_a_problem_of_another_kind_is_not_complete(tmp_path: Path) -> None:
    assert problem.is_complete_problem_folder(ROOT / "kernels/attention")
    assert problem.is_complete_problem_folder(ROOT / "tests/bad_kernels")
    assert not problem.is_complete_problem_folder(tmp_path)
    for text in ("def arguments(): return {}", "CASES = [", "CASES: dict = {}\nATOL, RTOL = 1, 2"):
        (tmp_path / "problem.py").write_text(text)
        assert not problem.is_complete_problem_folder(tmp_path)
