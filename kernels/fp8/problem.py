"""FP8 prefill: o = softmax(scale q k^T) v of e4m3 codes with a scale a tensor, head size 128, fp16 out.

q, k and v are (B, H, S, 128) codes, held as uint8; a value is its code times its tensor's scale, the
largest magnitude over 448. The scales (q, k, v) are three floats on the device. What is quantised is
drawn as the problem attention does: scores have a standard deviation of 2, and all are about 4 lower
than those of a padding key of zeros.

Tolerance: the reference is given the codes, so what is judged is the kernel's own error, and that is
mostly the probabilities': rounded to three bits of mantissa, each is up to 6 % off, and an output is a
sum over the keys that count. FlashAttention-3's test for FP8 (hopper/test_flash_attn.py) allows twice
the largest error of a PyTorch attention whose normalised probabilities are rounded to e4m3, and bf16's
rounding: 0.17 to 0.29 for 17 keys and more here. 0.08 absolute plus 0.02 relative is below that, and
so is a twentieth of it where one key is all there is; a test holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.lab.measure.variants.problem import load_problem

Array = NDArray[np.generic]
Codes = NDArray[np.uint8]
_ATTENTION = load_problem(Path(__file__).parents[1] / "attention").module

ATOL, RTOL = 0.08, 0.02
SEEDS = (0, 1)
D, LARGEST = 128, 448.0
# PyTorch has none for FP8: sdpa is on the same values as halves. cuDNN's is in tools/protocols.py.
REFERENCES = ("sdpa",)


@dataclass(frozen=True)
class Case:
    """Batch, heads, queries and keys; causal: row i sees keys 0 to i."""

    B: int
    H: int
    S: int
    causal: bool = False

    @property
    def halves(self) -> Any:
        """The case of the problem attention with these sizes."""
        return _ATTENTION.Case(self.B, self.H, self.S, D, self.causal)


def _both(cases: dict[str, tuple[int, int, int]]) -> dict[str, Case]:
    sides = ("", False), ("-causal", True)
    return {f"{n}{end}": Case(*size, causal) for n, size in cases.items() for end, causal in sides}


CASES = _both({"2k": (4, 16, 2048), "4k": (2, 16, 4096)})
CHECKS = _both(
    {f"S{s}": (1, 2, s) for s in (1, 17, 64, 128, 255, 300, 1000)} | {"S257-of-70": (2, 35, 257)}
)


def tolerance(case: Case) -> tuple[float, float]:
    """Absolute and relative; see above."""
    return (ATOL, RTOL) if case.S > 1 else (ATOL / 20, RTOL / 20)


def arguments(case: Case) -> dict[str, Any]:
    """The sizes are B, H, S and D; the scale is that of the softmax, without the tensors' own."""
    return {"size": (case.B, case.H, case.S, D), "scale": 1 / sqrt(D), "causal": case.causal}


def _values() -> NDArray[np.float32]:
    """What each of the 256 codes stands for: sign, four bits of exponent, three of mantissa."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, (code & 7) / 8.0
    size = np.where(exponent, (1 + mantissa) * 2.0 ** (exponent - 7), mantissa * 2.0**-6)
    size[code & 127 == 127] = np.nan
    return np.where(code & 128, -size, size).astype(np.float32)


VALUES = _values()


def encode(x: NDArray[np.float32]) -> Codes:
    """The nearest codes, ties to the even one; what is beyond 448 becomes 448."""
    size = np.minimum(np.abs(x), LARGEST)
    exponent = np.maximum(np.floor(np.log2(np.maximum(size, 2.0**-9))), -6)
    steps = np.round(size * np.exp2(3 - exponent)).astype(np.int64)  # 8 … 16, below that subnormal
    return (
        steps + (exponent.astype(np.int64) + 6) * 8 | np.signbit(x).astype(np.int64) << 7
    ).astype(np.uint8)


def inputs(case: Case, seed: int, grid: str | None = None) -> tuple[Array, ...]:
    """Codes q, k and v, (B, H, S, 128), and their scales, (3,) fp32; there is no grid."""
    if grid is not None:
        raise ValueError(f"no grid {grid!r}: there is none")
    drawn = [x.astype(np.float32) for x in _ATTENTION.inputs(case.halves, seed)]
    scales = np.array([np.abs(x).max() / LARGEST for x in drawn], np.float32)
    return (*(encode(x / scale) for x, scale in zip(drawn, scales, strict=True)), scales)


def outputs(case: Case) -> tuple[tuple[tuple[int, ...], str], ...]:
    """The output o: (B, H, S, 128) fp16."""
    return (((case.B, case.H, case.S, D), "float16"),)


def reference(case: Case, given: Sequence[Array]) -> tuple[NDArray[np.float64], ...]:
    """The output in fp64, of what the codes stand for."""
    *codes, scales = given
    values = tuple(VALUES[code] * scale for code, scale in zip(codes, scales, strict=True))
    out: tuple[NDArray[np.float64], ...] = _ATTENTION.reference(case.halves, values)
    return out


def operations(case: Case) -> float:
    """Multiplications and additions of both products; the causal half counts half."""
    return float(_ATTENTION.operations(case.halves))


def exponentials(case: Case) -> float:
    """One per score."""
    return float(_ATTENTION.exponentials(case.halves))


def compulsory_bytes(case: Case) -> float:
    """q, k and v read once, a byte each; o written once, two."""
    return 5.0 * case.B * case.H * case.S * D


def reference_call(_name: str, case: Case, tensors: Sequence[Any]) -> Callable[[], Any]:
    """PyTorch's attention on halves that were made before: that is no part of the call."""
    import torch

    *bits, scales = tensors
    codes = [x.view(torch.float8_e4m3fn) for x in bits]
    q, k, v = ((x.float() * scale).half() for x, scale in zip(codes, scales, strict=True))
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, is_causal=case.causal)
