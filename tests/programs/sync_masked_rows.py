"""Planted: rows are chosen with a mask in every layer: the host waits for their number.

Mend: the mask is the same all along, its rows are looked up once.
"""

from __future__ import annotations

import base
import torch


def build(mended: bool) -> base.Step:
    """Thirty layers in half precision, inference, a probe of half of the rows after each."""
    width, batch = base.size(4096, 16), base.size(4096, 8)
    layers = [torch.randn(width, width, device=base.DEVICE) / width**0.5
              for _ in range(base.size(30, 2))]  # fmt: skip
    layers = [layer.to(torch.bfloat16) for layer in layers]
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)
    mask = torch.arange(batch, device=base.DEVICE) % 2 == 0
    rows = mask.nonzero().squeeze(1)

    def step() -> torch.Tensor:
        h = x
        probes = torch.zeros(width, device=base.DEVICE, dtype=torch.bfloat16)
        for layer in layers:
            h = torch.relu(h @ layer)
            probes += h[rows if mended else mask].mean(0)
        return probes

    return step


if __name__ == "__main__":
    base.main(build)
