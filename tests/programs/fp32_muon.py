"""Training of a small language model of audio codec tokens with Muon (and AdamW for the rest).

Planted: Muon's Newton-Schulz iterations run in fp32, without tensor cores.
Mend: they run in bf16, which is what their coefficients were made for.
"""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as F


def orthogonal(g: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Five Newton-Schulz iterations (quintic)."""
    x = g.to(dtype)
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        poly = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, poly, x, beta=3.4445)
    return x.T if tall else x


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(F.rms_norm(x, (c,))).view(b, t, 3, self.heads, -1).unbind(2)
        a = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)  # fmt: skip
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(F.rms_norm(x, (c,)))))


def build(mended: bool) -> base.Step:
    """Six layers of width 1024, eight clips of 2048 tokens, 4096 codes."""
    width, heads, vocab = base.size(1024, 16), base.size(16, 2), base.size(4096, 32)
    batch, length = base.size(8, 2), base.size(2048, 8)
    embed = nn.Embedding(vocab, width).to(base.DEVICE)
    blocks = nn.ModuleList(Block(width, heads) for _ in range(base.size(6, 2))).to(base.DEVICE)
    head = nn.Linear(width, vocab, bias=False).to(base.DEVICE)
    adam = torch.optim.AdamW(
        [*embed.parameters(), *head.parameters()], lr=3e-4, fused=not base.DRY)  # fmt: skip
    matrices = list(blocks.parameters())
    momenta = [torch.zeros_like(m) for m in matrices]
    dtype = torch.bfloat16 if mended else torch.float32
    codes = torch.randint(vocab, (batch, length + 1), device=base.DEVICE)

    @torch.no_grad()
    def muon(lr: float = 0.01, beta: float = 0.95) -> None:
        grads = [m.grad for m in matrices]
        torch._foreach_lerp_(momenta, grads, 1 - beta)
        nesterov = torch._foreach_lerp(grads, momenta, beta)
        for m, g in zip(matrices, nesterov, strict=True):
            m.add_(orthogonal(g, dtype), alpha=-lr * max(1, m.size(0) / m.size(1)) ** 0.5)

    def step() -> torch.Tensor:
        with torch.autocast(base.DEVICE, torch.bfloat16):
            x = embed(codes[:, :-1]).to(torch.bfloat16)
            for block in blocks:
                x = block(x)
            logits = head(F.rms_norm(x, (width,)))
        loss = F.cross_entropy(logits.flatten(0, 1).float(), codes[:, 1:].flatten())
        loss.backward()
        muon()
        adam.step()
        for p in matrices:
            p.grad = None
        adam.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    base.main(build)
