"""Planted: AdamW written out over the parameters, gradients clipped one by one. Mend: fused."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """An MLP mixer of 40 layers in half precision, whose products keep the GPU busy."""
    width, batch = base.size(2048, 16), base.size(2048, 4)
    layers: list[nn.Module] = []
    for _ in range(base.size(40, 2)):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)
    params = list(model.parameters())
    first, second = ([torch.zeros_like(p) for p in params] for _ in range(2))
    fused = torch.optim.AdamW(params, lr=1e-5, fused=not base.DRY)

    @torch.no_grad()
    def by_hand() -> None:
        for p, m, v in zip(params, first, second, strict=True):
            if p.grad is None:
                continue
            m.mul_(0.9).add_(p.grad, alpha=0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            p.mul_(1 - 1e-7)
            p.sub_(1e-5 * m / (v.sqrt() + 1e-8))

    def step() -> None:
        model(x).square().mean().backward()
        if mended:
            fused.step()
        else:
            by_hand()
        model.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
