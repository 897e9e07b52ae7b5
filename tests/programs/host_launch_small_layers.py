"""Planted: many layers so small that the GPU waits for each launch. Mend: one captured graph."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """Forward, backward and a fused optimiser over 24 blocks of width 256."""
    width, batch = base.size(256), base.size(64)
    blocks = [
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
        for _ in range(base.size(24, 2))
    ]
    model = nn.Sequential(*blocks).to(base.DEVICE)
    adam = torch.optim.Adam(model.parameters(), fused=not base.DRY, capturable=not base.DRY)
    x = torch.randn(batch, width, device=base.DEVICE)

    def step() -> None:
        loss = model(x).square().mean()
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=False)

    if not mended or base.DRY:
        return step
    return base.captured(step)


if __name__ == "__main__":
    base.main(build)
