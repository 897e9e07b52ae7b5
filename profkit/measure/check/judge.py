"""An output and its fp64 reference  ->  right or wrong, by how much, and where."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_PIECE = 1 << 18  # elements: 2 MB a temporary


@dataclass(frozen=True)
class Accuracy:
    """How an output compares with its reference."""

    ok: bool  # abs(out - ref) <= atol + rtol * abs(ref) everywhere; NaN and infinity fail
    max_abs: float  # largest absolute error of the finite elements
    max_rel: float  # largest error relative to the reference, where that is not below atol
    bias: float  # mean signed error of the finite elements
    # index of the element that is furthest outside, or nearest to it; NaN is furthest
    worst: tuple[int, ...]
    worst_finite: tuple[int, ...]  # the same among the finite elements
    wrong: int  # how many elements are outside
    nans: int  # how many are NaN or infinite


def judge_output(out: Array, ref: Array, atol: float, rtol: float) -> Accuracy:
    """Compare an output with its reference, element by element, in fp64."""
    if out.shape != ref.shape:
        raise ValueError(f"shapes differ: {out.shape} and {ref.shape}")
    if out.size == 0:
        return Accuracy(True, 0.0, 0.0, 0.0, (), (), 0, 0)
    # In pieces that stay in a cache, several at once: numpy lets threads run beside each other.
    flat, flat_ref = out.reshape(-1), ref.reshape(-1)
    starts = range(0, out.size, _PIECE)
    with ThreadPoolExecutor() as pool:
        pieces = list(
            pool.map(
                lambda i: _piece(flat[i : i + _PIECE], flat_ref[i : i + _PIECE], atol, rtol), starts
            )
        )
    finite = sum(p.finite for p in pieces)
    worst, worst_finite = (
        max(range(len(pieces)), key=lambda i: values[i])
        for values in ([p.over for p in pieces], [p.over_finite for p in pieces])
    )
    wrong = sum(p.wrong for p in pieces)
    return Accuracy(
        ok=wrong == 0,
        max_abs=max(p.max_abs for p in pieces),
        max_rel=max(p.max_rel for p in pieces),
        bias=sum(p.error for p in pieces) / finite if finite else 0.0,
        worst=_index(starts[worst] + pieces[worst].worst, out.shape),
        worst_finite=_index(starts[worst_finite] + pieces[worst_finite].worst_finite, out.shape),
        wrong=wrong,
        nans=int(out.size - finite),
    )


@dataclass(frozen=True)
class _Piece:
    """A part of an output: sums and extremes; `over` is an error over what is tolerated there."""

    finite: int
    wrong: int
    error: float
    max_abs: float
    max_rel: float
    over: float
    worst: int
    over_finite: float
    worst_finite: int


def _piece(out: Array, ref: Array, atol: float, rtol: float) -> _Piece:
    import numpy as np

    expected = ref.astype(np.float64)
    error = out.astype(np.float64) - expected
    size = np.abs(expected)
    finite = np.isfinite(error)
    off = np.where(finite, np.abs(error), np.inf)
    with np.errstate(invalid="ignore"):  # 0 / 0: exactly right at no tolerance
        over = np.nan_to_num(off / (atol + rtol * size), nan=0.0, posinf=np.inf)
    large = finite & (size >= max(atol, np.finfo(np.float64).tiny))
    known = np.where(finite, over, -1.0)
    worst, worst_finite = int(np.argmax(over)), int(np.argmax(known))
    return _Piece(
        finite=int(finite.sum()),
        wrong=int((over > 1).sum()),
        error=float(error[finite].sum()),
        max_abs=float(off[finite].max(initial=0.0)),
        max_rel=float((off[large] / size[large]).max(initial=0.0)),
        over=float(over[worst]),
        worst=worst,
        over_finite=float(known[worst_finite]),
        worst_finite=worst_finite,
    )


def _index(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Where the element of this number is."""
    import numpy as np

    return tuple(int(i) for i in np.unravel_index(at, shape))
