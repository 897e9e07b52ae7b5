"""Planted: the last rank has half again as many rows, the others wait for it. Mend: equal parts.

torchrun --nproc-per-node 2 tests/programs/ranks/collective_slow_rank.py
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
    """Eight products of width 4096 under DistributedDataParallel."""
    base.join_ranks()
    last = dist.get_rank() == dist.get_world_size() - 1
    width, batch = base.size(4096, 16), base.size(8192, 4)
    rows = batch if mended else batch * 5 // 4 if last else batch * 3 // 4
    layers: list[nn.Module] = []
    for _ in range(base.size(8, 2)):
        layers += [nn.Linear(width, width, bias=False), nn.ReLU()]
    model = DistributedDataParallel(nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16))
    x = torch.randn(rows, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        model(x).float().square().mean().backward()
        model.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
