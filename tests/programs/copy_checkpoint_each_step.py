"""Planted: each step ends with all weights copied to the host. Mend: pinned, behind the next step."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """270 MB of weights, a step of some ten milliseconds."""
    width, batch = base.size(4096, 16), base.size(8192, 4)
    layers: list[nn.Module] = []
    for _ in range(base.size(8, 2)):
        layers += [nn.Linear(width, width), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-4, fused=not base.DRY)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def train() -> None:
        model(x).square().mean().backward()
        sgd.step()
        sgd.zero_grad()

    def plain() -> dict[str, torch.Tensor]:
        train()
        return {name: value.cpu() for name, value in model.state_dict().items()}

    if not mended or base.DRY:
        return plain
    side = torch.cuda.Stream()
    state = model.state_dict()
    copies = {n: torch.empty_like(v) for n, v in state.items()}
    kept = {n: torch.empty(v.shape, dtype=v.dtype, pin_memory=True) for n, v in state.items()}

    def overlapped() -> dict[str, torch.Tensor]:
        train()
        torch.cuda.current_stream().wait_stream(side)
        for name, value in copies.items():
            value.copy_(state[name])
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for name, value in kept.items():
                value.copy_(copies[name], non_blocking=True)
        return kept

    return overlapped


if __name__ == "__main__":
    base.main(build)
