"""Planted: each gradient is summed over the ranks after the backward pass. Mend: DDP, beside it.

torchrun --nproc-per-node 2 tests/programs/ranks/collective_after_backward.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import base
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build(mended: bool) -> base.Step:
    """Twelve products of width 4096, 400 MB of gradients, a step of some milliseconds."""
    base.join_ranks()
    width, batch = base.size(4096, 16), base.size(4096, 4)
    layers: list[nn.Module] = []
    for _ in range(base.size(12, 2)):
        layers += [nn.Linear(width, width, bias=False), nn.ReLU()]
    model: nn.Module = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    if mended:
        model = DistributedDataParallel(model)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        model(x).float().square().mean().backward()
        if not mended:
            for p in model.parameters():
                dist.all_reduce(p.grad)
        model.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
