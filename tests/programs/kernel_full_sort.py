"""Planted: all words are sorted where the best fifty are wanted. Mend: topk."""

from __future__ import annotations

import base
import torch


def build(mended: bool) -> base.Step:
    """One step of sampling for 1,024 sequences over 32,000 words, after the product of the head."""
    width, words, batch = base.size(4096, 16), base.size(32000, 64), base.size(1024, 4)
    head = torch.randn(width, words, device=base.DEVICE, dtype=torch.bfloat16) / width**0.5
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        logits = x @ head
        if mended:
            best, at = logits.topk(50, dim=-1)
        else:
            best, at = logits.sort(dim=-1, descending=True)
            best, at = best[:, :50], at[:, :50]
        chosen = torch.multinomial(best.float().softmax(-1), 1)
        return at.gather(1, chosen)

    return step


if __name__ == "__main__":
    base.main(build)
