"""Planted: `.item()` of every parameter's gradient norm. Mend: the norms stay on the GPU."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """A training step that clips by hand."""
    width, batch = base.size(2048), base.size(4096)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(base.size(12, 2))]
    model = nn.Sequential(*blocks).to(base.DEVICE, torch.bfloat16)
    parameters = list(model.parameters())
    optimiser = torch.optim.SGD(parameters, lr=1e-4, fused=not base.DRY)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        h = x
        for block in model:
            h = block(h)
            if not mended and h.abs().max().item() > 1e6:  # a check that waits for the GPU
                raise ValueError("activations explode")
            if mended:
                h.abs().max()
        h.square().mean().backward()
        if mended:
            norms = torch.stack([p.grad.norm() for p in parameters])
            scale = (1.0 / (norms.norm() + 1e-6)).clamp(max=1.0)
        else:
            total = sum(p.grad.norm().item() ** 2 for p in parameters) ** 0.5
            scale = min(1.0, 1.0 / (total + 1e-6))
        torch._foreach_mul_([p.grad for p in parameters], scale)
        optimiser.step()
        optimiser.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
