"""Planted: each layer is timed with torch.cuda.synchronize() on both sides. Mend: not timed."""

from __future__ import annotations

import time

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """An MLP of 24 layers in half precision, forward timed layer by layer, then backward."""
    width, batch = base.size(3072, 16), base.size(3072, 4)
    layers = nn.ModuleList(
        nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(base.size(24, 2))
    ).to(base.DEVICE, torch.bfloat16)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)
    times: list[float] = [0.0] * len(layers)

    def step() -> None:
        h = x
        for n, layer in enumerate(layers):
            if mended:
                h = layer(h)
                continue
            base.wait()
            began = time.perf_counter()
            h = layer(h)
            base.wait()
            times[n] += time.perf_counter() - began
        h.float().square().mean().backward()
        layers.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
