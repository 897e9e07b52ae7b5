"""Kernel names in a given width keep what tells them apart."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.show.text.escape import cut_middle, shorten_name

from .conftest import HOSTILE

CUDNN = (
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_kernel0_0"
)
FILL = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, "
    "std::array<char *, (unsigned long)1>>(int, T2, T3)"
)
COPY = (
    "void at::native::vectorized_elementwise_kernel<(int)8, at::native::float16_copy_kernel_cuda"
    "(at::TensorIteratorBase &)::[lambda(float) (instance 1)], "
    "std::array<char *, (unsigned long)2>>(int, T2, T3)"
)
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)64, (int)128, (int)128, "
    "(int)4, (bool)0>, (bool)0>(pytorch_flash::Flash_fwd_params)"
)


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("dram_copy(const float4 *, float4 *, unsigned long)", 40, "dram_copy"),
        ("void f<(int)64>(float *)", 40, "f<64>"),
        ("void ns::f<(bool)1, float>(T2 *)", 40, "ns::f<1, float>"),
        ("void <unnamed>::softmax<float, (int)11>(T2 *)", 40, "softmax<float, 11>"),
        ("void (anonymous namespace)::k(int)", 40, "k"),
        ("sm80_xmma_gemm_f32", 40, "sm80_xmma_gemm_f32"),
        ("a kernel with blanks", 40, "a kernel with blanks"),
        (FILL, 76, "vectorized_elementwise_kernel<4, FillFunctor<float>, array<char *, 1>>"),
        (FILL, 26, "vectorized_…<FillFunctor>"),
        ("", 20, "(no name)"),
    ],
)
def test_short(name: str, width: int, shown: str) -> None:
    assert shorten_name(name, width) == shown


def test_tile_shapes_stay() -> None:
    assert "64x128x64" in shorten_name(CUDNN, 28)
    assert shorten_name(CUDNN, 28).startswith("cudnn")
    assert "64, 128, 128, 4" in shorten_name(FLASH, 60)


def test_kernels_that_differ_in_their_arguments_only_stay_apart() -> None:
    assert shorten_name(FILL, 28) != shorten_name(COPY, 28)


@given(st.text() | st.sampled_from(HOSTILE), st.integers(10, 120))
def test_it_always_fits_and_never_acts(name: str, width: int) -> None:
    shown = shorten_name(name, width)
    assert 0 < len(shown) <= width
    assert "\x1b" not in shown
    assert "\n" not in shown


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_takes_long(name: str) -> None:
    before = time.process_time()
    shorten_name(name * 20, 28)
    assert time.process_time() - before < 0.5


def test_middle_keeps_both_ends() -> None:
    assert cut_middle("abcdefghij", 10) == "abcdefghij"
    assert cut_middle("abcdefghijk", 6) == "abc…jk"
