"""Block-sparse attention: queries see whole blocks of 128 keys, near ones and a few global ones; fp16.

q, k, v and o are (B, H, S, D), inputs and tolerance those of the problem attention. A row of blocks
sees the blocks at most `window` away, the first `globals` columns, and everything if it is one of the
first `globals` rows: those are many times longer than the others. Blocks are seen whole.

The fourth input says so, once for all heads: int32 (rows of blocks, 2 + columns of blocks). A row holds
the number of the row that comes at its place when the longest go first, how many blocks it sees itself,
and which, in rising order; -1 behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.lab.measure.variants.problem import load_problem

Array = NDArray[np.generic]
_ATTENTION = load_problem(Path(__file__).parents[1] / "attention").module

ATOL, RTOL = _ATTENTION.ATOL, _ATTENTION.RTOL
SEEDS = (0, 1)
BLOCK = 128
REFERENCES = ("flex", "sdpa-masked")


@dataclass(frozen=True)
class Case:
    """Batch, heads, queries and keys, head dimension; blocks seen to each side; global blocks."""

    B: int
    H: int
    S: int
    D: int
    window: int
    globals: int

    @property
    def blocks(self) -> int:
        """Rows, and columns, of blocks."""
        return -(-self.S // BLOCK)

    @property
    def dense(self) -> Any:
        """The case of the problem attention that sees everything."""
        return _ATTENTION.Case(self.B, self.H, self.S, self.D)

    def seen(self) -> NDArray[np.bool_]:
        """Which blocks are seen: rows, columns."""
        row, column = np.indices((self.blocks, self.blocks))
        far = np.abs(row - column) > self.window
        return ~far | (column < self.globals) | (row < self.globals)

    def share(self) -> float:
        """Of all pairs of a query and a key, the part that is seen."""
        sizes = np.minimum(BLOCK, self.S - BLOCK * np.arange(self.blocks))
        return float(sizes @ self.seen() @ sizes) / self.S**2


CASES = {
    "sparse89": Case(2, 16, 8192, 128, 1, 2),
    "sparse75": Case(1, 16, 8192, 128, 6, 2),
    "sparse53": Case(1, 8, 8192, 128, 15, 2),
    "sparse96": Case(1, 32, 16384, 128, 1, 1),
    "sparse89-D64": Case(2, 16, 8192, 64, 1, 2),
}
CHECKS = {
    f"S{s}-w{window}-g{globals_}-D{d}": Case(1, 2, s, d, window, globals_)
    for s in (1, 128, 300, 700)
    for window, globals_, d in ((0, 0, 64), (0, 1, 128), (1, 2, 64), (1, 0, 128))
}


def arguments(case: Case) -> dict[str, Any]:
    """What the problem attention says; the fifth size is the columns of blocks."""
    told: dict[str, Any] = _ATTENTION.arguments(case.dense)
    return {**told, "size": (*told["size"], case.blocks)}


def inputs(case: Case, seed: int, grid: str | None = None) -> tuple[Array, ...]:
    """Arrays q, k, v (B, H, S, D) and the lists of blocks."""
    seen = case.seen()
    lists = np.full((case.blocks, 2 + case.blocks), -1, np.int32)
    lists[:, 0] = np.argsort(-seen.sum(axis=1), kind="stable")
    lists[:, 1] = seen.sum(axis=1)
    for row, columns in zip(lists, seen, strict=True):
        row[2 : 2 + row[1]] = np.flatnonzero(columns)
    return (*_ATTENTION.inputs(case.dense, seed, grid), lists)


def outputs(case: Case) -> tuple[tuple[tuple[int, ...], str], ...]:
    """The output o: (B, H, S, D) fp16."""
    return (((case.B, case.H, case.S, case.D), "float16"),)


def reference(case: Case, given: Sequence[Array]) -> tuple[NDArray[np.float64], ...]:
    """The output in fp64, block row by block row, from what is seen alone."""
    q, k, v = (x.reshape(-1, case.S, case.D) for x in given[:3])
    out, seen = np.empty(q.shape), case.seen()

    def rows(head: int, row: int) -> None:
        keys = np.flatnonzero(np.repeat(seen[row], BLOCK)[: case.S])
        mine = slice(row * BLOCK, (row + 1) * BLOCK)
        scores = q[head, mine].astype(np.float64) @ k[head, keys].T.astype(np.float64)
        scores /= sqrt(case.D)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        out[head, mine] = scores @ v[head, keys].astype(np.float64)
        out[head, mine] /= scores.sum(axis=1, keepdims=True)

    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda at: rows(*at), np.ndindex(len(q), case.blocks)))
    return (out.reshape(case.B, case.H, case.S, case.D),)


def operations(case: Case) -> float:
    """Multiplications and additions of both products, where a query sees a key."""
    return float(_ATTENTION.operations(case.dense)) * case.share()


def exponentials(case: Case) -> float:
    """One per score that is seen."""
    return float(_ATTENTION.exponentials(case.dense)) * case.share()


def compulsory_bytes(case: Case) -> float:
    """Every block of k and v is seen by some row: q, k and v read once, o written once."""
    return float(_ATTENTION.compulsory_bytes(case.dense))


def reference_call(name: str, case: Case, tensors: Sequence[Any]) -> Callable[[], Any]:
    """Compiled flex_attention with its BlockMask, which leaves blocks out; SDPA with a dense mask."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = tensors[:3]
    seen = torch.from_numpy(case.seen()).to(q.device)

    def sees(_b: Any, _h: Any, i: Any, j: Any) -> Any:
        return seen[i // BLOCK, j // BLOCK]

    if name == "flex":
        mask = create_block_mask(sees, None, None, case.S, case.S, BLOCK_SIZE=BLOCK)
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda: compiled(q, k, v, block_mask=mask)
    wide = seen.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: case.S, : case.S]
    return lambda: scaled_dot_product_attention(q, k, v, attn_mask=wide)


backend_of = _ATTENTION.backend_of
