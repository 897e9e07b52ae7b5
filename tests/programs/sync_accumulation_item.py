"""Planted: each of 24 micro-batches' losses is looked at on the host. Mend: on the GPU, once."""

from __future__ import annotations

import math

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """Gradients of 24 batches are summed; the host is far ahead where it does not look.

    A batch is half again as long on the GPU as on the host: the wait between its forward and its
    backward pass empties the queue, and nothing else keeps the GPU waiting.
    """
    width, batch, parts = base.size(4096, 16), base.size(1280, 4), base.size(24, 2)
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(width, width, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-4, fused=not base.DRY)
    batches = torch.randn(parts, batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> float:
        sgd.zero_grad()
        total = torch.zeros((), device=base.DEVICE)
        for x in batches:
            loss = model(x).square().mean() / parts
            if not mended and not math.isfinite(loss.item()):
                raise ValueError("the loss explodes")
            loss.backward()
            total += loss.detach()
        sgd.step()
        return total.item()

    return step


if __name__ == "__main__":
    base.main(build)
