"""Planted: one token at a time through 16 layers, launch by launch. Mend: one captured graph."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as f


def build(mended: bool) -> base.Step:
    """Decoding with a full cache of keys and values, one sequence, half precision."""
    width, heads, length = base.size(1024, 16), base.size(16, 2), base.size(1024, 8)
    blocks = base.size(16, 1)
    takes = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(blocks))
    gives = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(blocks))
    ups = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(blocks))
    downs = nn.ModuleList(nn.Linear(4 * width, width, bias=False) for _ in range(blocks))
    for modules in (takes, gives, ups, downs):
        modules.to(base.DEVICE, torch.bfloat16).requires_grad_(False)
    cache = torch.randn(blocks, 2, 1, heads, length, width // heads, device=base.DEVICE)
    cache = cache.to(torch.bfloat16)
    x = torch.randn(1, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        h = x
        for n in range(blocks):
            y = f.rms_norm(h, (width,))
            q, k, v = takes[n](y).view(3, 1, heads, 1, -1)
            cache[n, 0, :, :, -1:], cache[n, 1, :, :, -1:] = k, v
            y = f.scaled_dot_product_attention(q, cache[n, 0], cache[n, 1])
            h = h + gives[n](y.reshape(1, width))
            h = h + downs[n](f.silu(ups[n](f.rms_norm(h, (width,)))))
        return h

    if not mended or base.DRY:
        return step
    return base.captured(step)


if __name__ == "__main__":
    base.main(build)
