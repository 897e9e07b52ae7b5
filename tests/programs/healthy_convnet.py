"""Healthy: half-precision convolutions in channels_last, a fused optimiser, input on the GPU."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """Twelve wide convolutions with a loss, forward, backward, fused SGD."""
    torch.backends.cudnn.benchmark = not base.DRY
    width, batch, side = base.size(512, 8), base.size(64, 2), base.size(32, 8)
    layers: list[nn.Module] = []
    for _ in range(base.size(12, 2)):
        layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    model = model.to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=not base.DRY)
    x = torch.randn(batch, width, side, side, device=base.DEVICE, dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last)

    def step() -> None:
        model(x).float().square().mean().backward()
        sgd.step()
        sgd.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
