"""Planted: Adam takes its parameters one by one. Mend: `fused=True`."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """A transformer encoder in bfloat16, large enough that its layers keep the GPU busy."""
    width, batch, length = base.size(1024, 16), base.size(16, 2), base.size(512, 8)
    layer = nn.TransformerEncoderLayer(
        width, base.size(16, 2), 4 * width, dropout=0.0, batch_first=True, activation="gelu"
    )
    model = nn.TransformerEncoder(layer, base.size(12, 2), enable_nested_tensor=False)
    model = model.to(base.DEVICE, torch.bfloat16)
    kind = {"fused": True} if mended and not base.DRY else {"foreach": False}
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, **kind)
    x = torch.randn(batch, length, width, device=base.DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        model(x).square().mean().backward()
        adam.step()
        adam.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
