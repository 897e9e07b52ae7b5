"""Planted: numpy's float64 is taken over, and the model made double to match. Mend: float32, TF32."""

from __future__ import annotations

import base
import numpy as np
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """A field from coordinates: width 2048, six layers with tanh, forward and backward."""
    torch.set_float32_matmul_precision("high" if mended else "highest")
    width, points = base.size(2048, 16), base.size(16384, 8)
    layers: list[nn.Module] = [nn.Linear(3, width)]
    for _ in range(base.size(6, 1)):
        layers += [nn.Tanh(), nn.Linear(width, width)]
    model = nn.Sequential(*layers, nn.Tanh(), nn.Linear(width, 1)).to(base.DEVICE)
    made = torch.from_numpy(np.random.default_rng(0).random((points, 3)))  # numpy's default
    x = made.to(base.DEVICE)
    if mended:
        x = x.float()
    else:
        model = model.double()
    adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=not base.DRY)

    def step() -> None:
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        adam.step()
        adam.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
