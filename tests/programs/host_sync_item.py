"""Planted: a look at every layer's largest value. Mend: it is gathered on the GPU."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """Thirty layers, inference; the host could be far ahead, if it did not look."""
    width, batch = base.size(4096), base.size(2048)
    layers = [nn.Linear(width, width, bias=False) for _ in range(base.size(30, 2))]
    for layer in layers:
        layer.to(base.DEVICE, torch.bfloat16).requires_grad_(False)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)
    seen = torch.zeros((), device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        h = x
        for layer in layers:
            h = torch.nn.functional.relu(layer(h))
            if mended:
                torch.maximum(seen, h.amax(), out=seen)
            elif h.amax().item() > 1e6:
                raise ValueError("activations explode")
        return h

    return step


if __name__ == "__main__":
    base.main(build)
