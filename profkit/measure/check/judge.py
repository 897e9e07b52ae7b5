"""An output and its fp64 reference  ->  right or wrong, by how much, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


@dataclass(frozen=True)
class Accuracy:
    """How an output compares with its reference.

    Attributes:
        ok: abs(out - ref) <= atol + rtol * abs(ref) everywhere; NaN and infinity fail.
        max_abs: Largest absolute error of the finite elements.
        max_rel: Largest error relative to the reference, where that is not below atol.
        bias: Mean signed error of the finite elements.
        worst: Index of the element that is furthest outside, or nearest to it; NaN is furthest.
        worst_finite: The same among the finite elements.
        wrong: How many elements are outside.
        nans: How many are NaN or infinite.
    """

    ok: bool
    max_abs: float
    max_rel: float
    bias: float
    worst: tuple[int, ...]
    worst_finite: tuple[int, ...]
    wrong: int
    nans: int


def judge_output(out: Array, ref: Array, atol: float, rtol: float) -> Accuracy:
    """Compare an output with its reference, element by element, in fp64.

    Args:
        out: What the kernel gave; any float type.
        ref: The reference, of the same shape.
        atol: Absolute tolerance, in the unit of the output.
        rtol: Tolerance relative to the reference.
    """
    import numpy as np

    if out.shape != ref.shape:
        raise ValueError(f"shapes differ: {out.shape} and {ref.shape}")
    if out.size == 0:
        return Accuracy(True, 0.0, 0.0, 0.0, (), (), 0, 0)
    wanted = ref.astype(np.float64)
    error = out.astype(np.float64) - wanted
    size = np.abs(wanted)
    finite = np.isfinite(error)
    off = np.where(finite, np.abs(error), np.inf)
    with np.errstate(invalid="ignore"):  # 0 / 0: exactly right at no tolerance
        over = np.nan_to_num(off / (atol + rtol * size), nan=0.0, posinf=np.inf)
    wrong = int((over > 1).sum())
    known = off[finite]
    large = finite & (size >= max(atol, np.finfo(np.float64).tiny))
    return Accuracy(
        ok=wrong == 0,
        max_abs=float(known.max(initial=0.0)),
        max_rel=float((off[large] / size[large]).max(initial=0.0)),
        bias=float(error[finite].mean()) if known.size else 0.0,
        worst=_index(over),
        worst_finite=_index(np.where(finite, over, -1.0)),
        wrong=wrong,
        nans=int(out.size - finite.sum()),
    )


def _index(values: NDArray[np.float64]) -> tuple[int, ...]:
    """Where the largest element is."""
    import numpy as np

    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))
