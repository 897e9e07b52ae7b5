"""Masked language modelling of DNA (six-mers) with a deep narrow transformer and LAMB.

Planted: LAMB as often found: a Python loop over 290 parameters, some twelve small kernels for each.
Mend: the same update with torch._foreach functions over all parameters at once.
"""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as F

LR, B1, B2, EPS, DECAY = 2e-3, 0.9, 0.999, 1e-6, 0.01


class Lamb:
    def __init__(self, params: list[torch.Tensor], foreach: bool):
        self.params, self.foreach = params, foreach
        self.m = [torch.zeros_like(p) for p in params]
        self.v = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self) -> None:
        if self.foreach:
            self.step_all([p.grad for p in self.params])
            return
        for p, m, v in zip(self.params, self.m, self.v, strict=True):
            m.mul_(B1).add_(p.grad, alpha=1 - B1)
            v.mul_(B2).addcmul_(p.grad, p.grad, value=1 - B2)
            update = (m / v.sqrt().add_(EPS)).add_(p, alpha=DECAY)
            weight, size = p.norm(), update.norm()
            trust = torch.where(weight > 0, weight / size, torch.ones_like(size))
            p.sub_(update.mul_(trust), alpha=LR)

    def step_all(self, grads: list[torch.Tensor]) -> None:
        torch._foreach_lerp_(self.m, grads, 1 - B1)
        torch._foreach_mul_(self.v, B2)
        torch._foreach_addcmul_(self.v, grads, grads, 1 - B2)
        below = torch._foreach_sqrt(self.v)
        torch._foreach_add_(below, EPS)
        update = torch._foreach_div(self.m, below)
        torch._foreach_add_(update, self.params, alpha=DECAY)
        weight = torch.stack(torch._foreach_norm(self.params))
        trust = torch.where(weight > 0, weight / torch.stack(torch._foreach_norm(update)), 1.0)
        torch._foreach_mul_(update, list(trust.unbind()))
        torch._foreach_sub_(self.params, update, alpha=LR)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).transpose(1, 3).unbind(2)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def build(mended: bool) -> base.Step:
    """24 layers of width 512, twelve sequences of 1024 six-mers."""
    width, heads, vocab = base.size(512, 16), base.size(8, 2), base.size(4104, 24)
    batch, length = base.size(12, 2), base.size(1024, 8)
    blocks = [Block(width, heads) for _ in range(base.size(24, 2))]
    net = nn.Sequential(nn.Embedding(vocab, width), *blocks, nn.Linear(width, vocab)).to(
        base.DEVICE
    )
    optimizer = Lamb(list(net.parameters()), mended)
    genome = torch.randint(vocab, (batch, length), device=base.DEVICE)

    def step() -> torch.Tensor:
        hidden = torch.rand(batch, length, device=base.DEVICE) < 0.15
        with torch.autocast(base.DEVICE, torch.bfloat16):
            logits = net(genome.masked_fill(hidden, vocab - 1))
        labels = genome.masked_fill(~hidden, -100).flatten()
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels)
        loss.backward()
        optimizer.step()
        net.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    base.main(build)
