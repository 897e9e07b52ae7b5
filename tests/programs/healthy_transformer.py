"""Healthy: large half-precision products, fused attention and optimiser, no waiting."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as f


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.take, self.give = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = self.take(self.norms[0](x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.give(y.transpose(1, 2).reshape(b, s, w))
        return x + self.down(f.gelu(self.up(self.norms[1](x))))


def build(mended: bool) -> base.Step:
    """Four blocks of width 4096, forward, backward, fused AdamW."""
    width, batch, length = base.size(4096, 16), base.size(4, 2), base.size(2048, 8)
    blocks = [Block(width, base.size(32, 2)) for _ in range(base.size(4, 1))]
    model = nn.Sequential(*blocks).to(base.DEVICE, torch.bfloat16)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=not base.DRY)
    x = torch.randn(batch, length, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        model(x).square().mean().backward()
        adam.step()
        adam.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
