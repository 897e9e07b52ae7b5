"""Online softmax in Triton: a block of queries stays, keys and values come in a pipelined loop.

What FlashAttention-2 does, in the words of Triton: scores of BLOCK_M queries against BLOCK_N keys, a
running maximum and sum, the output rescaled when the maximum rises. Triton chooses wgmma, lays out
shared memory and, with STAGES, keeps so many tiles of K and V on their way. Under the diagonal no key
is masked, and that loop has no comparison.

tune: BLOCK_M=128,64 BLOCK_N=64,128,32 WARPS=8,4 STAGES=3,2,4
steer: grid-too-small=BLOCK_M- long-scoreboard=STAGES+
budget: spills=0   arch: 90+
"""

import triton
import triton.language as tl

BLOCK_M = 128  # queries of a block
BLOCK_N = 64  # keys of a tile
WARPS = 8
STAGES = 3


@triton.jit
def _tiles(
    acc, total, top, q, k, v, first, last, rows, S, scale,
    D: tl.constexpr, N: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Go over the keys from first to last; scale is in units of log2."""
    columns, depth = tl.arange(0, N), tl.arange(0, D)
    for start in tl.range(first, last, N):
        keys = start + columns
        inside = keys[:, None] < S
        if MASKED:
            kt = tl.load(k + keys[:, None] * D + depth, mask=inside, other=0.0)
        else:
            kt = tl.load(k + keys[:, None] * D + depth)
        scores = tl.dot(q, kt.T) * scale
        if MASKED:
            seen = keys[None, :] < S
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(p, 1)
        top = higher
        if MASKED:
            vt = tl.load(v + keys[:, None] * D + depth, mask=inside, other=0.0)
        else:
            vt = tl.load(v + keys[:, None] * D + depth)
        acc = tl.dot(p.to(tl.float16), vt, acc * fade[:, None])
    return acc, total, top


@triton.jit(do_not_specialize=["S"])
def flash(
    q, k, v, o, S, scale,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """A block of M queries of one head."""
    head = tl.program_id(1).to(tl.int64) * S * D
    first = tl.program_id(0) * M
    rows = first + tl.arange(0, M)
    place = rows[:, None] * D + tl.arange(0, D)
    qt = tl.load(q + head + place, mask=rows[:, None] < S, other=0.0)
    acc = tl.zeros([M, D], tl.float32)
    total = tl.zeros([M], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)
    end = tl.minimum(first + M, S) if CAUSAL else S
    free = (first if CAUSAL else S) // N * N  # keys that every row of the block sees
    k += head
    v += head
    acc, total, top = _tiles(
        acc, total, top, qt, k, v, 0, free, rows, S, scale, D, N, False, CAUSAL
    )
    acc, total, top = _tiles(
        acc, total, top, qt, k, v, free, end, rows, S, scale, D, N, True, CAUSAL
    )
    out = (acc / total[:, None]).to(tl.float16)
    tl.store(o + head + place, out, mask=rows[:, None] < S)


def launch(q, k, v, o, args):
    """(B, H, S, D) fp16, contiguous."""
    B, H, S, D = args.size
    grid = (triton.cdiv(S, BLOCK_M), B * H)
    flash[grid](
        q, k, v, o, S, args.scale * 1.4426950408889634, D, BLOCK_M, BLOCK_N, args.causal,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
