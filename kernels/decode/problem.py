"""Decoding: one query a sequence against its cache of keys and values, fp16, grouped heads.

The cache is pages of keys: k and v are (pages, key heads, page, D), and for each sequence the table
holds its length and then its pages, (B, 1 + pages of a sequence) int32. A contiguous cache is the same
with one page a sequence. Query heads h of a group share key head h // (H // K): 8:1 or 1:1 here. In a
paged case the pages of a sequence lie anywhere.

Inputs are standard normal with q scaled so that a row attends to about 16 keys, however many there
are: the mean of v is wrong by far. Slots of the cache that no sequence uses yet hold NaN, as memory
that was never written may: a key past the length is an error even where its probability is 0.

Tolerance as of attention: the output, at most about 3, and the probabilities are rounded to fp16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

ATOL = RTOL = 1e-3
SEEDS = (0, 1)
# copy: as many bytes as the cache, read and written half and half; then the right answer.
REFERENCES = ("sdpa", "flex", "copy")


@dataclass(frozen=True)
class Case:
    """Sequences B, query heads H, key heads K, keys S (at most), head dimension D.

    page: keys a page, 0 where a sequence is one. ragged: lengths from 1 to S.
    """

    B: int
    H: int
    K: int
    S: int
    D: int
    page: int = 0
    ragged: bool = False


CASES = {
    "1k-64": Case(64, 32, 4, 1024, 128),
    "4k-1": Case(1, 32, 4, 4096, 128),
    "16k-8": Case(8, 32, 4, 16384, 128),
    "16k-8-paged": Case(8, 32, 4, 16384, 128, page=16),
    "128k-1": Case(1, 64, 8, 131072, 64),
    "8k-8-mha": Case(8, 16, 16, 8192, 64),
    "32k-2-mha": Case(2, 8, 8, 32768, 128),
}
# Query heads, key heads, D, keys a page.
_KINDS = ((8, 1, 128, 0), (16, 2, 64, 16), (3, 3, 64, 0), (4, 4, 128, 32), (6, 2, 64, 64))
CHECKS = {
    f"S{s}-{h}to{k}-D{d}" + (f"-page{page}" if page else ""): Case(2, h, k, s, d, page, ragged=True)
    for s in (1, 17, 300, 1000)
    for h, k, d, page in _KINDS
} | {"S5000-8to1": Case(1, 8, 1, 5000, 64), "S70-page8": Case(3, 8, 1, 70, 64, 8, ragged=True)}


def _pages(case: Case) -> tuple[int, int]:
    """Keys a page, and pages of a sequence."""
    page = case.page or case.S
    return page, -(-case.S // page)


def arguments(case: Case) -> dict[str, Any]:
    """The sizes are B, H, K, the most keys of a sequence, D and the keys of a page."""
    page, pages = _pages(case)
    return {"size": (case.B, case.H, case.K, page * pages, case.D, page), "scale": 1 / sqrt(case.D)}


def inputs(case: Case, seed: int, grid: str | None = None) -> tuple[Array, ...]:
    """Arrays q (B, H, D), k and v (pages, K, page, D), table (B, 1 + pages of a sequence)."""
    if grid is not None:
        raise ValueError(f"no grid {grid!r}: there is none")
    rng = np.random.default_rng((seed, case.B, case.H, case.K, case.S, case.D, case.page))
    page, pages = _pages(case)
    q = rng.standard_normal((case.B, case.H, case.D), dtype=np.float32)
    q *= sqrt(max(1.0, log(case.S / 16)))  # S / exp(variance of the scores) keys count
    shape = (case.B * pages, case.K, page, case.D)
    k, v = (rng.standard_normal(shape, dtype=np.float32).astype(np.float16) for _ in range(2))
    lengths = rng.integers(1, case.S + 1, case.B) if case.ragged else np.full(case.B, case.S)
    lengths[0] = case.S
    order = rng.permutation(case.B * pages) if case.page else np.arange(case.B * pages)
    table = np.concatenate([lengths[:, None], order.reshape(case.B, pages)], axis=1)
    for row in table:
        for i, number in enumerate(row[1:]):
            for cache in (k, v):
                cache[number, :, max(0, row[0] - i * page) :] = np.nan
    return q.astype(np.float16), k, v, table.astype(np.int32)


def outputs(case: Case) -> tuple[tuple[tuple[int, ...], str], ...]:
    """The output o: (B, H, D) fp16."""
    return (((case.B, case.H, case.D), "float16"),)


def reference(case: Case, given: Sequence[Array]) -> tuple[NDArray[np.float64], ...]:
    """The output in fp64."""
    q, k, v, table = given
    group, out = case.H // case.K, np.empty(q.shape)

    def heads(b: int, head: int) -> None:
        length, *numbers = (int(n) for n in table[b])
        keys, values = (x[numbers, head].reshape(-1, case.D)[:length] for x in (k, v))
        mine = slice(head * group, (head + 1) * group)
        scores = q[b, mine].astype(np.float64) @ keys.T.astype(np.float64) / sqrt(case.D)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[b, mine] = weights @ values.astype(np.float64)

    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda at: heads(*at), np.ndindex(case.B, case.K)))
    return (out,)


def operations(case: Case) -> float:
    """Multiplications and additions of both products."""
    return 4.0 * case.B * case.H * case.S * case.D


def exponentials(case: Case) -> float:
    """One per score."""
    return 1.0 * case.B * case.H * case.S


def compulsory_bytes(case: Case) -> float:
    """Keys and values read once; q and o; the table."""
    cache = 2.0 * case.B * case.K * case.S * case.D * 2
    return cache + 2.0 * case.B * case.H * case.D * 2 + 4.0 * case.B * (1 + _pages(case)[1])


def reference_call(name: str, case: Case, tensors: Sequence[Any]) -> Callable[[], Any]:
    """PyTorch's sdpa and compiled flex_attention, each with enable_gqa; copy is only the bytes.

    Neither reads pages: where there are some, they are gathered first, and that is part of the call.
    """
    import torch
    from torch.nn.attention.flex_attention import flex_attention
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v, table = tensors
    query, numbers = q[:, :, None], table[:, 1:].long()

    def gathered(cache: Any) -> Any:  # (B, K, S, D)
        return cache[numbers].transpose(1, 2).reshape(case.B, case.K, -1, case.D)

    def contiguous(cache: Any) -> Any:
        return gathered(cache) if case.page else cache

    def sdpa() -> Any:
        o = scaled_dot_product_attention(
            query, contiguous(k), contiguous(v), enable_gqa=case.H != case.K
        )
        return o[:, :, 0]

    if name == "flex":
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda: compiled(query, contiguous(k), contiguous(v), enable_gqa=case.H != case.K)[
            :, :, 0
        ]
    if name == "copy":
        right, half = sdpa(), torch.empty_like(k)

        def copied() -> Any:
            half.copy_(k)
            return right

        return copied
    return sdpa


def backend_of(kernels: Sequence[str]) -> str:
    """Which backend kernels of these names are; `unknown` if none says."""
    text = " ".join(kernels).lower()
    marks = ("cudnn", "cudnn"), ("flash", "flash_fwd"), ("efficient", "fmha_cutlass")
    more = ("flex", "flex"), ("math", "softmax")
    return next((b for b, word in (*marks, *more) if word in text), "unknown")
