"""Self-distillation of speech frames (data2vec): an EMA teacher, a student, fp32 master weights.

Planted: nothing. Weights appear three times and are copied with _foreach_copy_, and each layer
runs twice forward, but all of this is the method: the products in bf16 take most of the time.
Mend: none.
"""

from __future__ import annotations

import copy

import base
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).unbind(2)
        a = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))  # fmt: skip
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def build(mended: bool) -> base.Step:
    """Six layers of width 2048, twelve utterances of 1024 frames."""
    width, heads = base.size(2048, 16), base.size(16, 2)
    batch, length, top = base.size(12, 2), base.size(1024, 8), base.size(3, 1)
    kind = {"device": base.DEVICE, "dtype": torch.bfloat16}
    with torch.device(base.DEVICE):
        student = nn.ModuleList(Block(width, heads) for _ in range(base.size(6, 2)))
        predict = nn.Linear(width, width)
    student.append(predict)
    master = [p.detach().clone().requires_grad_() for p in student.parameters()]
    average = [p.detach().clone() for p in master]
    student.to(torch.bfloat16)
    teacher = copy.deepcopy(student).requires_grad_(False)
    weights, behind = list(student.parameters()), list(teacher.parameters())
    for p in master:
        p.grad = torch.zeros_like(p)
    optimizer = torch.optim.AdamW(master, lr=1e-4, fused=not base.DRY)
    frames = torch.randn(batch, length, width, **kind)
    blank = torch.randn(width, **kind)

    def step() -> torch.Tensor:
        hidden = torch.rand(batch, length, 1, device=base.DEVICE) < 0.5
        with torch.no_grad():
            y, target = frames, torch.zeros_like(frames)
            for i, block in enumerate(teacher[:-1]):
                y = block(y)
                if i >= len(teacher) - 1 - top:
                    target += F.layer_norm(y, (width,))
            target /= top
        x = torch.where(hidden, blank, frames)
        for block in student[:-1]:
            x = block(x)
        loss = (F.mse_loss(student[-1](x), target, reduction="none") * hidden).mean()
        loss.backward()
        with torch.no_grad():
            torch._foreach_copy_([p.grad for p in master], [p.grad for p in weights])
            optimizer.step()
            torch._foreach_copy_(weights, master)
            torch._foreach_lerp_(average, master, 1e-3)
            torch._foreach_copy_(behind, average)
        student.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    base.main(build)
