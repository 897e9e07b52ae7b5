"""Planted: `.item()` of each of 24 micro-batches' losses. Mend: summed on the GPU, read once."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """Gradients of 24 small batches are summed; the host could be far ahead."""
    width, batch, parts = base.size(3072, 16), base.size(1024, 4), base.size(24, 2)
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-4, fused=not base.DRY)
    batches = torch.randn(parts, batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> float:
        sgd.zero_grad()
        total, on_gpu = 0.0, torch.zeros((), device=base.DEVICE)
        for x in batches:
            loss = model(x).float().square().mean() / parts
            loss.backward()
            if mended:
                on_gpu += loss.detach()
            else:
                total += loss.item()
        sgd.step()
        return float(on_gpu) if mended else total

    return step


if __name__ == "__main__":
    base.main(build)
