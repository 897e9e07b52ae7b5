"""Planted: a table of positions is indexed for every pair; its gradient adds into 127 rows.

Mend: the same lookup as a product with ones and zeros.
"""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as f


def build(mended: bool) -> base.Step:
    """Attention over 512 places with a learned bias by distance, forward and backward."""
    heads, length, batch = base.size(16, 2), base.size(512, 16), base.size(4, 1)
    reach = base.size(63, 4)
    table = nn.Parameter(torch.randn(2 * reach + 1, heads, device=base.DEVICE))
    places = torch.arange(length, device=base.DEVICE)
    index = (places[:, None] - places).clamp(-reach, reach) + reach
    ones = f.one_hot(index.view(-1), 2 * reach + 1).to(torch.bfloat16)
    take = nn.Linear(64 * heads, 192 * heads).to(base.DEVICE, torch.bfloat16)
    x = torch.randn(batch, length, 64 * heads, device=base.DEVICE, dtype=torch.bfloat16)

    def bias() -> torch.Tensor:
        if mended:
            return (ones @ table.to(torch.bfloat16)).view(length, length, heads)
        return table[index].to(torch.bfloat16)

    def step() -> None:
        q, k, v = take(x).view(batch, length, 3, heads, 64).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / 8.0 + bias().permute(2, 0, 1)
        (scores.softmax(-1) @ v).square().mean().backward()
        take.zero_grad()
        table.grad = None

    return step


if __name__ == "__main__":
    base.main(build)
