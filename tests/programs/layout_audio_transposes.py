"""Planted: time comes first, attention wants it second, convolutions of width one want it last.

Mend: one order throughout; the convolutions are linear layers.
"""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as F


class Turning(nn.Module):
    """A layer on (time, batch, width), which it puts into the order of each part."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.heads = width // base.size(64, 4)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.before, self.after = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Conv1d(width, hidden, 1), nn.Conv1d(hidden, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then two convolutions."""
        time, batch, width = x.shape
        y = self.first(x).transpose(0, 1).contiguous()
        heads = self.before(y).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = heads.contiguous()
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).contiguous()
        x = x + self.after(mixed.view(batch, time, width)).transpose(0, 1).contiguous()
        y = self.second(x).permute(1, 2, 0).contiguous()
        y = self.down(F.relu(self.up(y), inplace=True))
        return x + y.permute(2, 0, 1).contiguous()


class Straight(nn.Module):
    """The same layer on (batch, time, width)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.heads = width // base.size(64, 4)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.before, self.after = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then two linear layers."""
        batch, time, width = x.shape
        heads = self.before(self.first(x)).view(batch, time, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.after(mixed.reshape(batch, time, width))
        return x + self.down(F.relu(self.up(self.second(x)), inplace=True))


def build(mended: bool) -> base.Step:
    """Sixteen layers in half precision, inference, 128 sequences of 512 frames."""
    batch, time, width = base.size(128, 2), base.size(512, 8), base.size(512, 8)
    layer = Straight if mended else Turning
    layers = [layer(width, 2 * width) for _ in range(base.size(16, 2))]
    net = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16).eval()
    front, norm = nn.Linear(base.size(320), width), nn.LayerNorm(width)
    front, norm = (m.to(base.DEVICE, torch.bfloat16) for m in (front, norm))
    frames = torch.randn(batch, time, base.size(320), dtype=torch.bfloat16, device=base.DEVICE)

    @torch.no_grad()
    def step() -> torch.Tensor:
        x = front(frames)
        if not mended:
            x = x.transpose(0, 1).contiguous()
        return norm(net(x)).mean(1 if mended else 0)

    return step


if __name__ == "__main__":
    base.main(build)
