"""Planted: products in float32 off the tensor cores. Mend: TF32."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """An MLP of width 4096, forward and backward, and a fused optimiser."""
    torch.set_float32_matmul_precision("high" if mended else "highest")
    width, batch = base.size(4096), base.size(4096)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(base.size(6, 2))]
    model = nn.Sequential(*blocks).to(base.DEVICE)
    adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=not base.DRY)
    x = torch.randn(batch, width, device=base.DEVICE)

    def step() -> None:
        model(x).square().mean().backward()
        adam.step()
        adam.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
