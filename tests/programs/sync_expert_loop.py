"""Planted: experts one by one, each with nonzero(), which the host waits for. Mend: batched.

The mend gives every expert the same number of rows and multiplies all of them at once.
"""

from __future__ import annotations

import base
import torch


def build(mended: bool) -> base.Step:
    """32 experts of width 1024 on 16,384 tokens, one expert a token, four layers, inference."""
    experts, width, tokens = base.size(32, 4), base.size(1024, 16), base.size(16384, 32)
    layers = base.size(4, 1)
    weights = torch.randn(layers, experts, width, width, device=base.DEVICE) / width**0.5
    weights = weights.to(torch.bfloat16)
    x = torch.randn(tokens, width, device=base.DEVICE, dtype=torch.bfloat16)
    order = torch.randperm(tokens, device=base.DEVICE)
    owner = torch.empty(tokens, dtype=torch.long, device=base.DEVICE)
    owner[order] = torch.arange(tokens, device=base.DEVICE) % experts

    def one_by_one(h: torch.Tensor, layer: int) -> torch.Tensor:
        out = torch.zeros_like(h)
        for e in range(experts):
            rows = (owner == e).nonzero().squeeze(1)
            out[rows] = torch.relu(h[rows] @ weights[layer, e])
        return out

    def batched(h: torch.Tensor, layer: int) -> torch.Tensor:
        rows = torch.argsort(owner)
        grouped = h[rows].view(experts, tokens // experts, width)
        return torch.empty_like(h).index_copy_(
            0, rows, torch.relu(grouped @ weights[layer]).view(tokens, width)
        )

    def step() -> torch.Tensor:
        h = x
        for layer in range(layers):
            h = batched(h, layer) if mended else one_by_one(h, layer)
        return h

    return step


if __name__ == "__main__":
    base.main(build)
