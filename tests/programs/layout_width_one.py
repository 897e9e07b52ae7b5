"""Planted: a convolution of width one, round which tensors are turned. Mend: a linear layer."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A norm, the layer in question, and a linear one."""

    def __init__(self, width: int, mended: bool) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, width)
        self.inner = nn.Linear(width, width) if mended else nn.Conv1d(width, width, 1)
        self.mended = mended

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same numbers either way."""
        y = self.norm(x)
        if self.mended:
            y = self.inner(y)
        else:
            y = self.inner(y.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()
        return x + self.last(F.relu(y))


def build(mended: bool) -> base.Step:
    """Ten blocks in half precision, training, 16 sequences of 4,096 frames."""
    width = base.size(512, 8)
    blocks = [Block(width, mended) for _ in range(base.size(10, 2))]
    net = nn.Sequential(*blocks).to(base.DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=not base.DRY)
    frames = torch.randn(base.size(16, 2), base.size(4096, 8), width, device=base.DEVICE,
                         dtype=torch.bfloat16)  # fmt: skip

    def step() -> None:
        net(frames).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    base.main(build)
