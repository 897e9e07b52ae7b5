"""Planted: torch.cuda.empty_cache() in every step. Mend: left out."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """A wide MLP, forward, backward and a fused optimiser."""
    width, batch = base.size(4096, 16), base.size(4096, 4)
    layers: list[nn.Module] = []
    for _ in range(base.size(6, 1)):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=not base.DRY)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        model(x).square().mean().backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
        if not mended and not base.DRY:
            torch.cuda.empty_cache()

    return step


if __name__ == "__main__":
    base.main(build)
