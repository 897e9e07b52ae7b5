"""Planted: every step's features are brought to the host at once. Mend: pinned, a step later."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """Inference that keeps 64 MB of features a step."""
    width, batch = base.size(4096), base.size(8192)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(base.size(10, 2))))
    model = model.to(base.DEVICE, torch.bfloat16).requires_grad_(False)
    x = torch.randn(batch, width, device=base.DEVICE, dtype=torch.bfloat16)

    def plain() -> torch.Tensor:
        return model(x).cpu()

    if not mended or base.DRY:
        return plain
    side = torch.cuda.Stream()
    room = [torch.empty(batch, width, dtype=torch.bfloat16, pin_memory=True) for _ in range(2)]
    done = [torch.cuda.Event() for _ in range(2)]
    state = {"n": 0}

    def overlapped() -> torch.Tensor:
        turn = state["n"] % 2
        state["n"] += 1
        out = model(x)
        side.wait_stream(torch.cuda.current_stream())
        done[turn].synchronize()  # of two steps ago: over long since
        with torch.cuda.stream(side):
            room[turn].copy_(out, non_blocking=True)
            out.record_stream(side)
            done[turn].record(side)
        return room[turn]

    return overlapped


if __name__ == "__main__":
    base.main(build)
