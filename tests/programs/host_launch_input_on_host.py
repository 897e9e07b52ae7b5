"""Planted: the host makes each batch with numpy, the GPU waits. Mend: a thread makes them ahead."""

from __future__ import annotations

import queue
import threading

import base
import numpy as np
import torch
from torch import nn


def build(mended: bool) -> base.Step:
    """Normalise and crop a batch on the CPU, then one training step of a wide MLP."""
    width, batch = base.size(4096), base.size(2048)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    model = model.to(base.DEVICE, torch.bfloat16)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4, fused=not base.DRY)
    rng = np.random.default_rng(0)
    stored = rng.integers(0, 255, (batch, 1024), dtype=np.uint8)
    wide = torch.randn(1024, width, device=base.DEVICE, dtype=torch.bfloat16)

    def batch_on_host() -> torch.Tensor:
        picked = stored[rng.permutation(batch)].astype(np.float32)
        return torch.from_numpy((picked - picked.mean()) / (picked.std() + 1e-5))

    ready: queue.Queue[torch.Tensor] = queue.Queue(maxsize=8)
    if mended:

        def work() -> None:
            while True:
                ready.put(batch_on_host())

        for _ in range(4):  # numpy lets go of the lock while it works
            threading.Thread(target=work, daemon=True).start()

    def step() -> None:
        images = ready.get() if mended else batch_on_host()
        x = images.to(base.DEVICE).to(torch.bfloat16) @ wide
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


if __name__ == "__main__":
    base.main(build)
