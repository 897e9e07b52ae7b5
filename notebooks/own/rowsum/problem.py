"""Row sums of an fp16 matrix: the smallest problem that a kernel can be written for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Case:
    """Rows and columns of the matrix."""

    rows: int
    columns: int


CASES = {"wide": Case(4096, 4096), "few": Case(16, 8192)}
CHECKS = {f"{r}x{c}": Case(r, c) for r, c in ((1, 1), (3, 31), (17, 1000), (300, 4097))}
SEEDS = (0, 1)
# Of 8,192 halves between 0 and 1, added in fp32 in any order; one that is missing is 0.5.
ATOL, RTOL = 1e-3, 1e-5


def arguments(case: Case) -> dict[str, Any]:
    """What ProfkitArgs carries beside the pointers."""
    return {"size": (case.rows, case.columns), "stride": (case.columns, 1), "causal": 0}


def inputs(case: Case, seed: int, grid: str | None = None) -> tuple[NDArray[np.float16], ...]:
    """The matrix, (rows, columns) fp16 between 0 and 1; `grid` is for narrower formats."""
    drawn = np.random.default_rng(seed).random((case.rows, case.columns), dtype=np.float32)
    return (drawn.astype(np.float16),)


def outputs(case: Case) -> tuple[tuple[tuple[int, ...], str], ...]:
    """One sum a row, fp32."""
    return (((case.rows,), "float32"),)


def reference(case: Case, given: Sequence[NDArray[np.float16]]) -> tuple[NDArray[np.float64], ...]:
    """The sums in fp64."""
    return (given[0].astype(np.float64).sum(axis=1),)


def operations(case: Case) -> float:
    """One addition an element."""
    return 1.0 * case.rows * case.columns


def compulsory_bytes(case: Case) -> float:
    """The matrix read once, the sums written once."""
    return 2.0 * case.rows * case.columns + 4.0 * case.rows
