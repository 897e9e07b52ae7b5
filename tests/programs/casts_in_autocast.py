"""Planted: autocast casts the shared float32 weights at every use. Mend: its cache is left on."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """One block applied 24 times (a looped transformer's MLP), forward and backward."""
    width, batch = base.size(4096, 16), base.size(2048, 4)
    up, down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
    up, down = up.to(base.DEVICE), down.to(base.DEVICE)
    x = torch.randn(batch, width, device=base.DEVICE)

    def step() -> None:
        kind = torch.bfloat16
        with torch.autocast(base.DEVICE, dtype=kind, cache_enabled=mended):
            h = x
            for _ in range(base.size(24, 2)):
                h = down(torch.relu(up(h)))
        h.float().square().mean().backward()
        up.zero_grad()
        down.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
