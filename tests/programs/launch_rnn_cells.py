"""Planted: a recurrent net as a loop over cells, one token a turn. Mend: one captured graph."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """96 turns of a cell of width 512 on 64 sequences, forward and backward."""
    width, batch, turns = base.size(512, 16), base.size(64, 4), base.size(96, 3)
    cell = nn.LSTMCell(width, width).to(base.DEVICE)
    x = torch.randn(turns, batch, width, device=base.DEVICE)
    zero = torch.zeros(batch, width, device=base.DEVICE)

    def step() -> None:
        h, c = zero, zero
        for token in x:
            h, c = cell(token, (h, c))
        h.square().mean().backward()
        cell.zero_grad(set_to_none=False)

    return step if not mended or base.DRY else base.captured(step)


if __name__ == "__main__":
    base.main(build)
