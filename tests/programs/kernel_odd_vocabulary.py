"""Planted: a vocabulary of 50,257 words, no multiple of anything. Mend: padded to 50,304."""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as f


def build(mended: bool) -> base.Step:
    """The head of a small language model, forward and backward, half precision."""
    width, tokens = base.size(1024, 16), base.size(8192, 8)
    words = base.size(50304 if mended else 50257, 64)
    body = nn.Linear(width, width).to(base.DEVICE, torch.bfloat16)
    head = nn.Linear(width, words, bias=False).to(base.DEVICE, torch.bfloat16)
    x = torch.randn(tokens, width, device=base.DEVICE, dtype=torch.bfloat16)
    target = torch.randint(base.size(50257, 64), (tokens,), device=base.DEVICE)

    def step() -> None:
        f.cross_entropy(head(body(x)), target).backward()
        head.zero_grad()
        body.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
