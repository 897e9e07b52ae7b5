"""Planted: RMS norm, rotation and gate as single operations, trained. Mend: torch.compile."""

from __future__ import annotations

import base
import torch
from torch import nn


def gated(h: torch.Tensor, gate: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A norm in float32, then a gate that is squashed, then a residual."""
    wide = h.float()
    normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(h.dtype) * scale
    return h + normed * torch.sigmoid(gate) * gate


def build(mended: bool) -> base.Step:
    """Six blocks of two products, forward and backward, 32,768 tokens."""
    width, tokens = base.size(1024, 16), base.size(32768, 8)
    pairs = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(base.size(6, 1)))
    pairs = pairs.to(base.DEVICE, torch.bfloat16)
    scale = nn.Parameter(torch.ones(width, device=base.DEVICE, dtype=torch.bfloat16))
    x = torch.randn(tokens, width, device=base.DEVICE, dtype=torch.bfloat16)
    between = torch.compile(gated) if mended and not base.DRY else gated

    def step() -> None:
        h = x
        for pair in pairs:
            value, gate = pair(h).chunk(2, -1)
            h = between(value, gate, scale)
        h.float().square().mean().backward()
        pairs.zero_grad()
        scale.grad = None

    return step


if __name__ == "__main__":
    base.main(build)
