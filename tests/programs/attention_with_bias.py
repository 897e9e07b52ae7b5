"""Planted: attention with a bias and dropout by hand, softmax in float32. Mend: one fused call."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as f


class Attention(nn.Module):
    """Attention of 16 heads over a padded batch."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = (
            m(x).view(b, s, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v)
        )
        if self.fused:
            y = f.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            scores = torch.matmul(q, k.transpose(-1, -2)) * (w // self.heads) ** -0.5 + bias
            share = f.dropout(torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype), 0.0)
            y = torch.matmul(share, v)
        return self.o(y.transpose(1, 2).reshape(b, s, w))


def build(mended: bool) -> base.Step:
    """Six layers, inference on padded batches."""
    width, batch, length = base.size(1024, 16), base.size(8, 2), base.size(1536, 8)
    layers = nn.ModuleList(
        Attention(width, base.size(16, 2), mended) for _ in range(base.size(6, 1))
    )
    layers = layers.to(base.DEVICE, torch.bfloat16).requires_grad_(False)
    x = torch.randn(batch, length, width, device=base.DEVICE, dtype=torch.bfloat16)
    lengths = torch.randint(length // 2, length, (batch, 1, 1, 1), device=base.DEVICE)
    padding = torch.arange(length, device=base.DEVICE) >= lengths
    bias = torch.zeros(batch, 1, length, length, device=base.DEVICE, dtype=torch.bfloat16)
    bias = bias.masked_fill(padding, -1e9)

    def step() -> torch.Tensor:
        h = x
        for layer in layers:
            h = h + layer(h, bias)
        return h

    return step


if __name__ == "__main__":
    base.main(build)
