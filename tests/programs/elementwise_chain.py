"""Planted: norm, gate and rotation written as single operations. Mend: torch.compile."""

from __future__ import annotations

import base
import torch
from torch import nn


def shape(x: torch.Tensor, gate: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """A gated, rotated, squashed tensor: a dozen operations, one element at a time."""
    y = x * gate + 0.1 * x
    y = 0.5 * y * (1.0 + torch.tanh(0.79788456 * (y + 0.044715 * y * y * y)))
    y = y * torch.cos(angle) + gate * torch.sin(angle)
    return torch.clamp(y, -10.0, 10.0)


def build(mended: bool) -> base.Step:
    """Two products with the chain between them, on 64 MB tensors, no gradients."""
    width, batch = base.size(4096), base.size(8192)
    first, second = (nn.Linear(width, width, dtype=torch.bfloat16) for _ in range(2))
    first, second = (m.to(base.DEVICE).requires_grad_(False) for m in (first, second))
    x, gate, angle = torch.randn(3, batch, width, device=base.DEVICE, dtype=torch.bfloat16)
    middle = torch.compile(shape) if mended and not base.DRY else shape

    def step() -> torch.Tensor:
        return second(middle(first(x), gate, angle))

    return step


if __name__ == "__main__":
    base.main(build)
