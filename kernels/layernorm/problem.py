"""Residual and norm at once: h = x + r and y = norm(h) w + b, fp16 or bf16, (rows, width).

What stands between two blocks of a transformer: the residual stream goes on as h, and the next block
is given y. LayerNorm takes mean and variance of a row, RMSNorm the mean of its squares (and has no
b). h is rounded first and y is the norm of what was stored, as F.layer_norm(x + r) has it.

Each row has a mean and a spread of its own (normal times 3, 0.5 to 2): statistics of another row, or
none at all, are wrong everywhere. The check "offset" has rows whose mean is 250 times their spread: the
variance as mean of squares minus square of mean has no digits left there.

Tolerance: y is rounded once (fp16: 4.9e-4 of its value, bf16: 2e-3), and h may be rounded to its
other neighbour where x + r lies between two. 1e-3 and 1e-3 of the value leave twice that in fp16;
bf16 has eight times less precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

ATOL = RTOL = 1e-3
EPS = 1e-5
SEEDS = (0, 1)
# copy: the right answer, copied: the same bytes and no arithmetic.
REFERENCES = ("separate", "compile", "copy")


@dataclass(frozen=True)
class Case:
    """Rows and their width; rms: RMSNorm; bf16 instead of fp16; offset: means far from zero."""

    rows: int
    width: int
    rms: bool = False
    bf16: bool = False
    offset: bool = False


CASES = {
    "LN768": Case(32768, 768),
    "LN4096": Case(6144, 4096),
    "LN16384": Case(1536, 16384, bf16=True),
    "RMS4096": Case(6144, 4096, rms=True, bf16=True),
}
_SIZES = ((1, 1), (3, 7), (5, 770), (65, 768), (3, 1000), (2, 4104), (2, 16384))
CHECKS = {
    f"{'RMS' if rms else 'LN'}{n}x{m}-{'bf16' if bf16 else 'fp16'}": Case(n, m, rms, bf16)
    for (n, m), rms, bf16 in product(_SIZES, (False, True), (False, True))
} | {"LN33x4096-offset": Case(33, 4096, offset=True)}


def tolerance(case: Case) -> tuple[float, float]:
    """Absolute and relative; see above."""
    return (8 * ATOL, 8 * RTOL) if case.bf16 else (ATOL, RTOL)


def arguments(case: Case) -> dict[str, Any]:
    """The sizes are rows, width, 1 for RMSNorm, 1 for bf16; the scale is the epsilon."""
    return {"size": (case.rows, case.width, int(case.rms), int(case.bf16)), "scale": EPS}


def input_types(case: Case) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shapes and types of x, r, w and b; numpy has no bfloat16: its bits are held as uint16."""
    rows = ((case.rows, case.width), (case.rows, case.width))
    shapes = (*rows, *((case.width,),) * (1 if case.rms else 2))
    return tuple((shape, "bfloat16" if case.bf16 else "float16") for shape in shapes)


def inputs(case: Case, seed: int, grid: str | None = None) -> tuple[Array, ...]:
    """Arrays x and r, (rows, width), w and, for LayerNorm, b, (width,); there is no grid."""
    if grid is not None:
        raise ValueError(f"no grid {grid!r}: there is none")
    rng = np.random.default_rng((seed, case.rows, case.width, case.rms, case.bf16, case.offset))
    shape = (case.rows, case.width)
    x, r = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
    spread = rng.uniform(0.5, 2, (case.rows, 1)).astype(np.float32)
    x *= 16 if case.offset else spread
    x += 4000 if case.offset else 3 * rng.standard_normal((case.rows, 1), dtype=np.float32)
    w, b = (0.2 * rng.standard_normal(case.width, dtype=np.float32) for _ in range(2))
    given = (x, r, w + 1) if case.rms else (x, r, w + 1, b)
    return tuple(_stored(a, case) for a in given)


def outputs(case: Case) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Outputs y and h, (rows, width)."""
    return (((case.rows, case.width), "bfloat16" if case.bf16 else "float16"),) * 2


def reference(case: Case, given: Sequence[Array]) -> tuple[NDArray[np.float64], ...]:
    """Outputs y and h in fp64; h as it is stored."""
    x, r, *affine = (_values(a, case) for a in given)
    y, h = np.empty(x.shape), np.empty(x.shape)
    step = max(1, 2**20 // case.width)  # rows at a time: fp64 copies stay in the cache
    for i in range(0, case.rows, step):
        at = slice(i, i + step)
        h[at] = _values(_stored(x[at] + r[at], case), case)
        centred = h[at] if case.rms else h[at] - h[at].mean(axis=1, keepdims=True)
        y[at] = centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + EPS) * affine[0]
        if not case.rms:
            y[at] += affine[1]
    return y, h


def _stored(x: NDArray[Any], case: Case) -> Array:
    """Rounded to the case's type, to nearest even."""
    if not case.bf16:
        return x.astype(np.float16)
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    bits += 0x7FFF + (bits >> 16 & 1)
    return (bits >> 16).astype(np.uint16)


def _values(stored: Array, case: Case) -> NDArray[np.floating[Any]]:
    """What stored bits stand for; fp32 holds every one exactly, and the sum of most two."""
    if not case.bf16:
        return stored.astype(np.float32)
    return (stored.astype(np.uint32) << 16).view(np.float32)


def operations(case: Case) -> float:
    """Additions and multiplications: sum, mean, square, scale; none of them a matrix product's."""
    return (5.0 if case.rms else 8.0) * case.rows * case.width


def compulsory_bytes(case: Case) -> float:
    """Read x and r, written y and h; w and b once."""
    return 2.0 * (4 * case.rows + (1 if case.rms else 2)) * case.width


def reference_call(name: str, case: Case, tensors: Sequence[Any]) -> Callable[[], Any]:
    """PyTorch's addition and norm: separate, compiled; copy is only the bytes."""
    import torch
    from torch.nn import functional as f

    x, r, w, *b = tensors
    width = (case.width,)

    def norm(x: Any, r: Any, w: Any, *b: Any) -> tuple[Any, Any]:
        h = x + r
        return (f.layer_norm(h, width, w, b[0], EPS) if b else f.rms_norm(h, width, w, EPS)), h

    if name == "compile":
        # Fused into one kernel, h would reach the norm as it was before it was rounded.
        as_stored = {"emulate_precision_casts": True}
        compiled = torch.compile(norm, dynamic=False, options=as_stored)
        return lambda: compiled(x, r, w, *b)
    if name == "copy":
        right = torch.stack(norm(x, r, w, *b))
        copied = torch.empty_like(right)
        return lambda: tuple(copied.copy_(right))
    return lambda: norm(x, r, w, *b)
