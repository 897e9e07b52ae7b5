"""A monoT5-like reranker scores 64 query-document pairs with a T5 encoder (relative position bias).

Planted: attention is written out as in the old T5 code: scores, bias, softmax in fp32, product.
Mend: F.scaled_dot_product_attention with the bias as its mask and scale=1.
"""

from __future__ import annotations

import math

import base
import torch
from torch import nn
from torch.nn import functional as F


def bucket(distance: torch.Tensor, buckets: int = 32, far: int = 128) -> torch.Tensor:
    """T5's bidirectional buckets of relative positions."""
    half = buckets // 2
    exact = half // 2
    gap = distance.abs()
    big = (
        exact
        + (
            torch.log(gap.clamp(min=1).float() / exact) / math.log(far / exact) * (half - exact)
        ).long()
    )
    return (distance > 0) * half + torch.where(gap < exact, gap, big.clamp(max=half - 1))


class Block(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int, fused: bool):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.wi_0 = nn.Linear(width, hidden, bias=False)
        self.wi_1 = nn.Linear(width, hidden, bias=False)
        self.wo = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        if self.fused:
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        else:
            scores = torch.matmul(q, k.transpose(2, 3))
            scores += bias
            weights = F.softmax(scores.float(), dim=-1).type_as(scores)
            a = torch.matmul(weights, v)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.wo(F.gelu(self.wi_0(h), approximate="tanh") * self.wi_1(h))


def build(mended: bool) -> base.Step:
    """Twelve layers of width 1024, pairs of 512 tokens (sorted by length: no padding)."""
    width, hidden, heads = base.size(1024, 16), base.size(2816, 32), base.size(16, 2)
    pairs, length, vocab = base.size(64, 2), base.size(512, 8), base.size(32128, 50)
    kind = {"device": base.DEVICE, "dtype": torch.bfloat16}
    embed = nn.Embedding(vocab, width).to(**kind)
    relative = nn.Embedding(32, heads).to(**kind)
    blocks = nn.ModuleList(Block(width, hidden, heads, mended) for _ in range(base.size(12, 2))).to(
        **kind
    )
    head = nn.Linear(width, 2, bias=False).to(**kind)  # "true" and "false"
    tokens = torch.randint(vocab, (pairs, length), device=base.DEVICE)
    places = torch.arange(length, device=base.DEVICE)
    buckets = bucket(places[None, :] - places[:, None])

    @torch.inference_mode()
    def step() -> torch.Tensor:
        bias = relative(buckets).permute(2, 0, 1).unsqueeze(0).contiguous()
        x = embed(tokens)
        for block in blocks:
            x = block(x, bias)
        best = head(F.rms_norm(x[:, 0], (width,))).float().log_softmax(-1)[:, 0]
        return best.argsort(descending=True)

    return step


if __name__ == "__main__":
    base.main(build)
