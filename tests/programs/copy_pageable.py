"""Planted: each batch is copied from pageable memory. Mend: pinned, copied ahead on a stream."""

from __future__ import annotations

import base
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """48 MB of input a step, and some milliseconds of half-precision products on it."""
    width, batch = base.size(4096), base.size(3072)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(base.size(8, 2))))
    model = model.to(base.DEVICE, torch.bfloat16)
    batches = [torch.randn(batch, width) for _ in range(4)]
    state = {"n": 0}

    def compute(x: torch.Tensor) -> None:
        model(x.to(torch.bfloat16)).square().mean().backward()
        model.zero_grad(set_to_none=True)

    def plain() -> None:
        state["n"] += 1
        compute(batches[state["n"] % 4].to(base.DEVICE))

    if not mended or base.DRY:
        return plain
    pinned = [b.pin_memory() for b in batches]
    side = torch.cuda.Stream()
    ahead: list[torch.Tensor] = []

    def fetch() -> None:
        state["n"] += 1
        with torch.cuda.stream(side):
            ahead.append(pinned[state["n"] % 4].to("cuda", non_blocking=True))

    fetch()

    def overlapped() -> None:
        torch.cuda.current_stream().wait_stream(side)
        x = ahead.pop()
        x.record_stream(torch.cuda.current_stream())
        fetch()
        compute(x)

    return overlapped


if __name__ == "__main__":
    base.main(build)
