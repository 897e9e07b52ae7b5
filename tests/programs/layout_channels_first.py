"""Planted: half-precision convolutions in NCHW, converted round each. Mend: channels_last."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """A plain stack of 3 x 3 convolutions, forward and backward."""
    width, batch, side = base.size(128), base.size(64, 2), base.size(56, 8)
    layers: list[nn.Module] = []
    for _ in range(base.size(8, 2)):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.float16)
    x = torch.randn(batch, width, side, side, device=base.DEVICE, dtype=torch.float16)
    if mended:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    if not base.DRY:
        torch.backends.cudnn.benchmark = True

    def step() -> None:
        model(x).float().square().mean().backward()
        model.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
