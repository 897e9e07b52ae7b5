"""Planted: a channels_last net with a norm that asks for NCHW after each layer. Mend: it does not."""

from __future__ import annotations

import base
import torch
from torch import nn


class ScaledNorm(nn.Module):
    """Scale by each channel's largest value."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.mended = mended

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mended:
            return x / (x.amax((2, 3), keepdim=True) + 1.0)
        y = x.contiguous()
        y = y / (y.amax((2, 3), keepdim=True) + 1.0)
        return y.contiguous(memory_format=torch.channels_last)


def build(mended: bool) -> base.Step:
    """Twelve 3 x 3 convolutions, inference, half precision."""
    width, batch, side = base.size(256, 8), base.size(64, 2), base.size(56, 8)
    layers: list[nn.Module] = []
    for _ in range(base.size(12, 2)):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True), ScaledNorm(mended)]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.float16).requires_grad_(False)
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(batch, width, side, side, device=base.DEVICE, dtype=torch.float16)
    x = x.to(memory_format=torch.channels_last)

    return lambda: model(x)


if __name__ == "__main__":
    base.main(build)
