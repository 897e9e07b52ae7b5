"""Attention: o = softmax(scale q k^T) v, causal or not, fp16, (B, H, S, D) contiguous.

Inputs are standard normal with q doubled, so that scores have a standard deviation of 2. A row
then attends to about S / exp(4) of its keys: 9 of 512. A kernel that ignores q and k (the mean of
v) is wrong by more than 1, and fails on every row; with inputs of 0.1 times normal it would pass.
The first element of every q is 7 and of every k is -7: all scores are about 6 lower (4 with D of
128), which softmax does not see, but a key of zeros that pads a tile and is not masked outweighs
hundreds of real ones.

Tolerance: the output is rounded to fp16 (half a unit in the last place: 4.9e-4 of its value), and
so may be the probabilities (the same, averaged over the keys that count); outputs are about 0.3,
at most 4. 1e-3 absolute plus 1e-3 relative is twice what those two leave.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Half = NDArray[np.float16]

ATOL = RTOL = 1e-3
SEEDS = (0, 1)
REFERENCES = (
    "sdpa",
    "sdpa-cudnn",
    "sdpa-flash",
    "sdpa-efficient",
    "sdpa-math",
    "flex",
    "triton",
)


@dataclass(frozen=True)
class Case:
    """Batch, heads, queries and keys, head dimension; causal: row i sees keys 0 to i."""

    B: int
    H: int
    S: int
    D: int
    causal: bool = False


def _both(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Each case as it is and causal."""
    both: dict[str, Case] = {}
    for name, case in cases.items():
        both |= {name: case, f"{name}-causal": replace(case, causal=True)}
    return both


CASES = _both(
    {
        "A": Case(2, 8, 256, 64),
        "B": Case(1, 8, 512, 64),
        "V": Case(2, 8, 512, 64),
        "L": Case(1, 8, 2048, 64),
        "C": Case(4, 16, 2048, 64),
        "D": Case(4, 16, 2048, 128),
    }
)
# Sizes that no tile divides, one row, one head, and every head dimension.
CHECKS = _both(
    {f"S{s}": Case(2, 3, s, 64) for s in (1, 17, 128, 255, 300)}
    | {f"S{s}-D128": Case(1, 2, s, 128) for s in (1, 17, 128, 255, 300)}
    | {f"S{s}-one-head": Case(1, 1, s, 64) for s in (17, 255)}
)


def arguments(case: Case) -> dict[str, Any]:
    """What ProfkitArgs carries beside the pointers; strides in elements."""
    c = case
    return {
        "size": (c.B, c.H, c.S, c.D),
        "stride": (c.H * c.S * c.D, c.S * c.D, c.D, 1),
        "scale": 1 / sqrt(c.D),
        "causal": c.causal,
    }


def inputs(case: Case, seed: int, grid: str | None = None) -> tuple[Half, ...]:
    """q, k and v, each (B, H, S, D) fp16.

    Args:
        case: The sizes.
        seed: Of numpy's generator.
        grid: `e4m3` rounds each head to what an fp8 kernel can represent without loss, so that
            what remains of its error is its own: see to_e4m3.
    """
    shape = (case.B, case.H, case.S, case.D)
    rng = np.random.default_rng((seed, *shape, case.causal))
    drawn = [rng.standard_normal(shape, dtype=np.float32) for _ in range(3)]
    drawn[0] *= 2
    drawn[0][..., 0], drawn[1][..., 0] = 7, -7
    if grid not in (None, "e4m3"):
        raise ValueError(f"no grid {grid!r}: there is e4m3")
    return tuple((to_e4m3(x) if grid else x).astype(np.float16) for x in drawn)


def to_e4m3(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round each head (last two axes) to e4m3 codes times a power of two.

    The largest magnitude of a head becomes the largest code, 448, times that power: scaling by
    amax / 448 is then exact, and so is a matched encode and decode.
    """
    flat = x.reshape(*x.shape[:-2], -1)
    top = np.argmax(np.abs(flat), axis=-1)[..., None]
    amax = np.take_along_axis(np.abs(flat), top, -1)
    scale = np.exp2(np.ceil(np.log2(amax / 448)))
    code = flat / scale
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(code), 2.0**-20))), -6)
    step = np.exp2(exponent - 3)  # three bits of mantissa; subnormals below 2**-6
    code = np.clip(np.round(code / step) * step, -448, 448)
    np.put_along_axis(code, top, np.copysign(448, np.take_along_axis(flat, top, -1)), -1)
    rounded: NDArray[np.float32] = (code * scale).reshape(x.shape).astype(np.float32)
    return rounded


def outputs(case: Case) -> tuple[tuple[tuple[int, ...], str], ...]:
    """The output o: (B, H, S, D) fp16."""
    return (((case.B, case.H, case.S, case.D), "float16"),)


def reference(case: Case, given: Sequence[Half]) -> tuple[NDArray[np.float64], ...]:
    """The output in fp64: heads side by side, rows in blocks so that the scores stay small."""
    q, k, v = (x.reshape(-1, case.S, case.D) for x in given)
    out = np.empty(q.shape)
    rows = 256

    def block(head: int, first: int) -> None:
        end = min(first + rows, case.S)
        keys = end if case.causal else case.S
        scores = q[head, first:end].astype(np.float64) @ k[head, :keys].T.astype(np.float64)
        scores /= sqrt(case.D)
        if case.causal:
            scores[np.arange(keys) > np.arange(first, end)[:, None]] = -np.inf
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        out[head, first:end] = scores @ v[head, :keys].astype(np.float64)
        out[head, first:end] /= scores.sum(axis=1, keepdims=True)

    work = [(h, f) for h in range(len(q)) for f in range(0, case.S, rows)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda w: block(*w), work))
    return (out.reshape(case.B, case.H, case.S, case.D),)


def operations(case: Case) -> float:
    """Multiplications and additions of both products; the causal half counts half."""
    return 4.0 * case.B * case.H * case.S**2 * case.D / (2 if case.causal else 1)


def exponentials(case: Case) -> float:
    """One per score."""
    return 1.0 * case.B * case.H * case.S**2 / (2 if case.causal else 1)


def compulsory_bytes(case: Case) -> float:
    """q, k and v read once, o written once."""
    return 4.0 * case.B * case.H * case.S * case.D * 2


def reference_call(name: str, case: Case, tensors: Sequence[Any]) -> Callable[[], Any]:
    """One call of a library.

    `sdpa`: PyTorch's scaled_dot_product_attention, left to choose; with a backend: pinned to it;
    `flex`: its flex_attention, compiled for this very shape; `triton`: common/triton_fused.py.
    """
    if name == "flex":
        return _flex(case, tensors)
    if name == "triton":
        return _triton(case, tensors)
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backends = {
        "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
        "sdpa-flash": SDPBackend.FLASH_ATTENTION,
        "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "sdpa-math": SDPBackend.MATH,
    }
    q, k, v = tensors

    def attend() -> Any:
        return scaled_dot_product_attention(q, k, v, is_causal=case.causal)

    def pinned() -> Any:
        with sdpa_kernel(backends[name]):
            return attend()

    return pinned if name in backends else attend


def _flex(case: Case, tensors: Sequence[Any]) -> Callable[[], Any]:
    """flex_attention through torch.compile; under a causal mask blocks of keys are left out."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    # Each shape is compiled for itself, and torch takes more than a few for a mistake.
    torch._dynamo.config.recompile_limit = 1000
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = None
    if case.causal:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, case.S, case.S)  # noqa: ARG005
    return lambda: compiled(*tensors, block_mask=mask)


def _triton(case: Case, tensors: Sequence[Any]) -> Callable[[], Any]:
    """triton_fused.attend; kernels/common is no package, so by its path."""
    import importlib.util

    path = Path(__file__).parents[1] / "common" / "triton_fused.py"
    spec = importlib.util.spec_from_file_location("triton_fused", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    if spec.name not in sys.modules:
        sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    attend = sys.modules[spec.name].attend
    return lambda: attend(*tensors, case.causal)


def backend_of(kernels: Sequence[str]) -> str:
    """Which SDPA backend kernels of these names are; `unknown` if none says."""
    text = " ".join(kernels).lower()
    marks = {
        "cudnn": ("cudnn",),
        "flash": ("flash_fwd", "pytorch_flash"),
        "efficient": ("fmha_cutlass", "attentionkernel", "mem_eff"),
        "triton": ("_attend",),
        "flex": ("flex_attention",),
        "math": ("softmax",),
    }
    return next((b for b, words in marks.items() if any(w in text for w in words)), "unknown")
