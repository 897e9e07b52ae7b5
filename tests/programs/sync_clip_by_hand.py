"""Planted: gradients are clipped by hand: the host reads the norm of each. Mend: clip_grad_norm_."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """Attention and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // base.size(64, 4)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.before, self.after = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer of a transformer."""
        batch, time, width = x.shape
        heads = self.before(self.first(x)).view(batch, time, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.after(mixed.reshape(batch, time, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


def clip_by_hand(parameters: list[nn.Parameter]) -> None:
    """Scale all gradients to a norm of one at most."""
    total = 0.0
    for parameter in parameters:
        total += parameter.grad.norm().item() ** 2
    scale = min(1.0, 1.0 / (total**0.5 + 1e-6))
    for parameter in parameters:
        parameter.grad.mul_(scale)


def build(mended: bool) -> base.Step:
    """Twelve layers in half precision, training, 8 sequences of 512 tokens."""
    width = base.size(768, 8)
    layers = [Layer(width) for _ in range(base.size(12, 2))]
    net = nn.Sequential(*layers).to(base.DEVICE, torch.bfloat16)
    parameters = list(net.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=not base.DRY)
    x = torch.randn(base.size(8, 2), base.size(512, 8), width, device=base.DEVICE,
                    dtype=torch.bfloat16)  # fmt: skip

    def step() -> None:
        net(x).square().mean().backward()
        if mended:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        else:
            clip_by_hand(parameters)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    base.main(build)
