"""Planted: cross entropy in float32 as single operations. Mend: torch's own, one kernel a side."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as f


def build(mended: bool) -> base.Step:
    """The head of a language model of 32,000 words on 8,192 tokens, forward and backward."""
    width, words, tokens = base.size(2048, 16), base.size(32000, 64), base.size(8192, 8)
    head = nn.Linear(width, words, bias=False).to(base.DEVICE, torch.bfloat16)
    x = torch.randn(tokens, width, device=base.DEVICE, dtype=torch.bfloat16)
    target = torch.randint(words, (tokens,), device=base.DEVICE)

    def by_hand(logits: torch.Tensor) -> torch.Tensor:
        wide = logits.float()
        shifted = wide - wide.amax(-1, keepdim=True).detach()
        logs = shifted - shifted.exp().sum(-1, keepdim=True).log()
        return -logs.gather(1, target[:, None]).mean()

    def step() -> None:
        logits = head(x)
        (f.cross_entropy(logits, target) if mended else by_hand(logits)).backward()
        head.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
