"""Planted: AdamW operation by operation over all tensors, PyTorch's default. Mend: fused=True."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """270 million parameters in half precision, a batch of 2,048 rows."""
    width, batch = base.size(4096, 16), base.size(2048, 4)
    layers: list[nn.Module] = []
    for _ in range(base.size(16, 2)):
        layers += [nn.Linear(width, width, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    fused = mended and not base.DRY
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused, foreach=not fused)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        model(x).float().square().mean().backward()
        adam.step()
        adam.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
