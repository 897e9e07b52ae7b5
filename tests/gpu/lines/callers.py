"""Kernels that no operator of torch launches: Triton, CuPy, JAX, numba, the driver by ctypes.

python callers.py NAME     # a comment at a line's end says which line it should be
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

try:
    from triton import language as tl  # a jit function looks for its names in the module
except ImportError:
    tl = None

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry plain_kernel() { ret; }
"""
STEPS = 20


def call_driver() -> None:
    """The driver itself, by ctypes."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    driver.cuModuleLoadData(ctypes.byref(module), PTX)
    driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"plain_kernel")
    for _ in range(STEPS):
        driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None)  # driver
        driver.cuCtxSynchronize()


def call_triton() -> None:
    """A kernel of one's own."""
    import torch
    import triton

    @triton.jit
    def plain_kernel(x, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < count)
        tl.store(x + at, value + 1.0, mask=at < count)

    x = torch.zeros(4096, device="cuda")
    for _ in range(STEPS):
        plain_kernel[(4,)](x, 4096, BLOCK=1024)  # triton
    torch.cuda.synchronize()


def call_cupy() -> None:
    """CuPy's own kernels."""
    import cupy

    x = cupy.arange(4096, dtype="float32")
    for _ in range(STEPS):
        x = cupy.tanh(x)  # cupy
    cupy.cuda.Device().synchronize()


def call_jax() -> None:
    """What XLA makes of a function."""
    import jax

    step = jax.jit(lambda x: jax.numpy.tanh(x) * 2)
    x = jax.numpy.ones(4096)
    for _ in range(STEPS):
        x = step(x)  # jax
    x.block_until_ready()


def call_numba() -> None:
    """A kernel that numba compiles."""
    import numpy

    if not hasattr(numpy, "row_stack"):  # numba-cuda may be older than this numpy
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def plain_kernel(x: Any) -> None:
        at = cuda.grid(1)
        if at < x.size:
            x[at] += 1

    x = cuda.device_array(4096)
    for _ in range(STEPS):
        plain_kernel[4, 1024](x)  # numba
    cuda.synchronize()


CALLERS = {
    "driver": call_driver,
    "triton": call_triton,
    "cupy": call_cupy,
    "jax": call_jax,
    "numba": call_numba,
}


if __name__ == "__main__":
    CALLERS[sys.argv[1]]()
