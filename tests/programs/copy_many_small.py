"""Planted: 600 small tensors of a batch go to the GPU one by one. Mend: packed, pinned, one copy."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """A table model: 600 features of 32 kB a step, then an MLP in half precision."""
    count, rows, width = base.size(600, 6), base.size(8192, 16), base.size(4096, 16)
    features = [torch.rand(rows) for _ in range(count)]
    packed = torch.stack(features)
    if not base.DRY:
        packed = packed.pin_memory()
    model = nn.Sequential(nn.Linear(count, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                          nn.Linear(width, 1)).to(base.DEVICE, torch.bfloat16)  # fmt: skip

    def step() -> None:
        if mended:
            table = packed.to(base.DEVICE, non_blocking=True)
        else:
            table = torch.stack([f.to(base.DEVICE) for f in features])
        model(table.T.to(torch.bfloat16)).square().mean().backward()
        model.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    base.main(build)
