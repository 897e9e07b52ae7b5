"""Planted: convolutions in float32 with TF32 off. Mend: TF32 on."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """A residual net of 3 x 3 convolutions in channels_last, forward and backward."""
    torch.backends.cudnn.allow_tf32 = mended
    torch.backends.cudnn.benchmark = not base.DRY
    width, batch, side = base.size(256, 8), base.size(32, 2), base.size(32, 8)
    convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(base.size(10, 2)))
    convs = convs.to(base.DEVICE, memory_format=torch.channels_last)
    x = torch.randn(batch, width, side, side, device=base.DEVICE)
    x = x.to(memory_format=torch.channels_last)

    def step() -> None:
        h = x
        for conv in convs:
            h = h + torch.relu(conv(h))
        h.square().mean().backward()
        convs.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
