"""Planted: attention as products, mask and softmax through DRAM. Mend: one fused call."""

from __future__ import annotations

import math

import base
import torch
from torch import nn
from torch.nn import functional as f


class Attention(nn.Module):
    """Causal self-attention over 16 heads."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.take, self.give = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = self.take(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            mask = torch.ones(s, s, dtype=torch.bool, device=x.device).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.give(y.transpose(1, 2).reshape(b, s, w))


def build(mended: bool) -> base.Step:
    """Four blocks of attention and an MLP, forward and backward."""
    width, batch, length = base.size(1024, 16), base.size(4, 2), base.size(2048, 8)
    parts: list[nn.Module] = []
    for _ in range(base.size(4, 1)):
        parts += [Attention(width, base.size(16, 2), mended)]
        parts += [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
    model = nn.Sequential(*parts).to(base.DEVICE, torch.bfloat16)
    x = torch.randn(batch, length, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        model(x).square().mean().backward()
        model.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
