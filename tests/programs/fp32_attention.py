"""Planted: queries, keys and values are made float32 for the attention. Mend: half precision."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as f


def build(mended: bool) -> base.Step:
    """Six blocks of attention and one product, forward and backward, 8 x 2048 tokens."""
    heads, dim, batch, length = base.size(16, 2), 64, base.size(8, 1), base.size(2048, 8)
    width = heads * dim
    takes = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(base.size(6, 1)))
    gives = nn.ModuleList(nn.Linear(width, width) for _ in takes)
    for modules in (takes, gives):
        modules.to(base.DEVICE, torch.bfloat16)
    x = torch.randn(batch, length, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        h = x
        for take, give in zip(takes, gives, strict=True):
            parts = take(h).view(batch, length, 3, heads, dim).permute(2, 0, 3, 1, 4)
            q, k, v = parts if mended else parts.float()
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + give(y.transpose(1, 2).reshape(batch, length, width).to(h.dtype))
        h.float().square().mean().backward()
        takes.zero_grad()
        gives.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
