"""Planted: tokens are mixed by a linear layer on a transposed copy. Mend: multiplied from the left."""

from __future__ import annotations

import base
import torch


def build(mended: bool) -> base.Step:
    """Ten blocks of a mixer, 64 sequences of 512 tokens, half precision, inference."""
    batch, tokens, width = base.size(64, 2), base.size(512, 8), base.size(1024, 8)
    kind, blocks = torch.bfloat16, range(base.size(10, 1))
    along = [torch.randn(tokens, tokens, device=base.DEVICE).to(kind) / tokens for _ in blocks]
    across = [torch.randn(width, width, device=base.DEVICE).to(kind) / width for _ in blocks]
    x = torch.randn(batch, tokens, width, device=base.DEVICE, dtype=kind)

    def step() -> torch.Tensor:
        h = x
        for mix, channels in zip(along, across, strict=True):
            if mended:
                h = torch.matmul(mix, h)
            else:
                columns = h.transpose(1, 2).contiguous() @ mix.T
                h = columns.transpose(1, 2).contiguous()
            h = h @ channels
        return h

    return step


if __name__ == "__main__":
    base.main(build)
