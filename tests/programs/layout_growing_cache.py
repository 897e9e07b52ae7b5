"""Planted: torch.cat makes keys and values longer by a token. Mend: a cache that is written into."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as f


def build(mended: bool) -> base.Step:
    """One more token of 16 sequences through 8 layers, 4096 tokens behind it, half precision."""
    width, heads, length = base.size(1024, 16), base.size(16, 2), base.size(4096, 8)
    blocks, batch = base.size(8, 1), base.size(16, 2)
    takes = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(blocks))
    gives = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(blocks))
    for modules in (takes, gives):
        modules.to(base.DEVICE, torch.bfloat16).requires_grad_(False)
    room = length + 1 if mended else length
    shape = (blocks, 2, batch, heads, room, width // heads)
    cache = torch.randn(shape, device=base.DEVICE, dtype=torch.bfloat16)
    at = torch.tensor([length], device=base.DEVICE)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        h = x
        for n in range(blocks):
            q, k, v = takes[n](f.rms_norm(h, (width,))).view(batch, 3, heads, 1, -1).unbind(1)
            if mended:
                keys, values = cache[n].unbind(0)
                keys.index_copy_(2, at, k)
                values.index_copy_(2, at, v)
            else:
                keys = torch.cat([cache[n, 0], k], 2)
                values = torch.cat([cache[n, 1], v], 2)
            y = f.scaled_dot_product_attention(q, keys, values)
            h = h + gives[n](y.reshape(batch, width))
        return h

    return step


if __name__ == "__main__":
    base.main(build)
