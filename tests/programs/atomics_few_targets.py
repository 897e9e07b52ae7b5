"""Planted: a million rows added into 64 sums by atomics. Mend: a product with who belongs where."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """Pooling of nodes into graphs, then a small head."""
    rows, width, groups = base.size(1 << 18, 64), base.size(256), base.size(64, 4)
    x = torch.randn(rows, width, device=base.DEVICE)
    owner = torch.randint(groups, (rows,), device=base.DEVICE)
    body = nn.Linear(width, width).to(base.DEVICE).requires_grad_(False)
    member = nn.functional.one_hot(owner, groups).to(torch.float32).T.contiguous()
    torch.set_float32_matmul_precision("high")

    def step() -> torch.Tensor:
        h = body(x)
        if mended:
            return member @ h
        return torch.zeros(groups, width, device=base.DEVICE).index_add_(0, owner, h)

    return step


if __name__ == "__main__":
    base.main(build)
