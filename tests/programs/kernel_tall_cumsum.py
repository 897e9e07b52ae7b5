"""Planted: a running sum down a tall, narrow matrix, few threads. Mend: along its rows."""

from __future__ import annotations

import base
import torch


def build(mended: bool) -> base.Step:
    """A scan over 262,144 places of 8 channels, then a product in half precision."""
    long, narrow, width = base.size(1 << 18, 64), 8, base.size(8192, 16)
    x = torch.randn(long, narrow, device=base.DEVICE)
    w = torch.randn(width, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        summed = x.T.contiguous().cumsum(1).T if mended else x.cumsum(0)
        return (w @ w)[:narrow, :narrow] * summed[-1]

    return step


if __name__ == "__main__":
    base.main(build)
