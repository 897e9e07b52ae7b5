"""Fused attention in Triton, after its tutorial: a reference for those who would write it there.

One program a block of rows: keys in tiles, softmax kept in registers, exp2, tiles of keys that the mask
does not touch without it. Sizes of tiles, warps and stages are tried at the first call of a shape.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634
_CONFIGS = [  # rows, keys, warps, stages
    triton.Config({"M": m, "N": n}, num_warps=w, num_stages=s)
    for m, n, w, s in (
        *((128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2)),
        *((64, 64, 4, 3), (64, 32, 4, 4)),
    )
]


@triton.jit
def _tiles(  # type: ignore  # noqa: PLR0913, PLR0917
    acc,
    total,
    top,
    q,
    k_base,
    v_base,
    rows,
    factor,
    first,
    last,
    length,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
):
    """Keys first to last; MASKED: some are not seen by all rows."""
    d = tl.arange(0, D)
    for start in tl.range(first, last, N):
        keys = start + tl.arange(0, N)
        at = keys[:, None] * D + d[None, :]
        if MASKED:
            k = tl.load(k_base + at, mask=keys[:, None] < length, other=0.0)
        else:
            k = tl.load(k_base + at)
        scores = tl.dot(q, k.T) * factor
        if MASKED:
            seen = keys[None, :] < length
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, -1.0e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - higher[:, None])
        correction = tl.math.exp2(top - higher)
        total = total * correction + tl.sum(p, 1)
        if MASKED:
            v = tl.load(v_base + at, mask=keys[:, None] < length, other=0.0)
        else:
            v = tl.load(v_base + at)
        acc = tl.dot(p.to(tl.float16), v, acc * correction[:, None])
        top = higher
    return acc, total, top


@triton.autotune(configs=_CONFIGS, key=["length", "heads", "CAUSAL", "D"])
@triton.jit
def _attend(  # type: ignore  # noqa: PLR0913, PLR0917
    q_all,
    k_all,
    v_all,
    o_all,
    factor,
    heads,  # noqa: ARG001 (tried for each number)
    length,
    CAUSAL: tl.constexpr,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    """A block of M rows of one head; q, k, v and o are (heads, length, D), contiguous."""
    head = tl.program_id(1).to(tl.int64) * length * D
    block = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    rows = block * M + tl.arange(0, M)
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    inside = rows[:, None] < length
    q = tl.load(q_all + head + at, mask=inside, other=0.0)
    acc = tl.zeros([M, D], tl.float32)
    total = tl.zeros([M], tl.float32)
    top = tl.full([M], -1.0e30, tl.float32)
    end = tl.minimum((block + 1) * M, length) if CAUSAL else length
    whole = (tl.minimum(block * M + 1, length) if CAUSAL else length) // N * N
    acc, total, top = _tiles(
        acc,
        total,
        top,
        q,
        k_all + head,
        v_all + head,
        rows,
        factor,
        0,
        whole,
        length,
        False,
        CAUSAL,
        N,
        D,
    )
    acc, total, top = _tiles(
        acc,
        total,
        top,
        q,
        k_all + head,
        v_all + head,
        rows,
        factor,
        whole,
        end,
        length,
        True,
        CAUSAL,
        N,
        D,
    )
    tl.store(o_all + head + at, (acc / total[:, None]).to(tl.float16), mask=inside)


def attend(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
    """softmax(q k^T / sqrt D) v of (B, H, S, D) fp16, contiguous; D a power of two."""
    b, h, s, d = q.shape
    out = torch.empty_like(q)

    def grid(meta: Any) -> tuple[int, int]:
        return triton.cdiv(s, meta["M"]), b * h

    _attend[grid](q, k, v, out, LOG2E / sqrt(d), b * h, s, CAUSAL=is_causal, D=d)
    return out
