"""A ranking service (DCN): batches of candidates stream in from the host, scores stream out.

Planted: nothing. There are 100 MB of copies in each step and the host waits on an event most of the
time, but the copies run beside the products of the batch before, and the host waits for the scores
of the previous batch while the present one is queued: the GPU never idles.
Mend: none.
"""

from __future__ import annotations

import base
import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self, dense: int, slots: int, rows: int, dim: int, hidden: int):
        super().__init__()
        width = dense + slots * dim
        self.table = nn.Embedding(rows, dim)
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.deep = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True))  # fmt: skip
        self.head = nn.Linear(hidden, 1)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x0 = x = torch.cat([dense, self.table(ids).flatten(1)], dim=1)
        for layer in self.cross:
            x = torch.addcmul(x, x0, layer(x))
        return self.head(self.deep(x)).squeeze(1).float().sigmoid_()


def build(mended: bool) -> base.Step:
    """49152 candidates a batch, 1024 dense features and 16 ids each, hidden layers of 8192."""
    batch, dense, slots = base.size(49152, 8), base.size(1024, 16), base.size(16, 2)
    rows, dim, hidden = base.size(8_000_000, 100), base.size(64, 8), base.size(8192, 32)
    kind = {"device": base.DEVICE, "dtype": torch.bfloat16}
    with torch.device(base.DEVICE):
        model = Ranker(dense, slots, rows, dim, hidden).to(torch.bfloat16).eval()
    came, held, scores = [], [], []
    for _ in range(2):
        features = torch.randn(batch, dense, **kind).cpu()
        ids = torch.randint(rows, (batch, slots), device=base.DEVICE, dtype=torch.int32).cpu()
        out = torch.zeros(batch)
        if not base.DRY:
            features, ids, out = features.pin_memory(), ids.pin_memory(), out.pin_memory()
        came.append((features, ids))
        held.append((features.to(base.DEVICE), ids.to(base.DEVICE)))
        scores.append(out)
    if base.DRY:
        return torch.inference_mode()(lambda: scores[0].copy_(model(*held[0])))

    incoming, turn = torch.cuda.Stream(), [0]
    ready, used, done = ([torch.cuda.Event() for _ in range(2)] for _ in range(3))

    @torch.inference_mode()
    def step() -> torch.Tensor:
        now, after = turn[0], 1 - turn[0]
        main = torch.cuda.current_stream()
        with torch.cuda.stream(incoming):  # the next batch, once its buffers are free
            incoming.wait_event(used[after])
            for to, source in zip(held[after], came[after], strict=True):
                to.copy_(source, non_blocking=True)
            ready[after].record(incoming)
        main.wait_event(ready[now])
        result = model(*held[now])
        used[now].record(main)
        scores[now].copy_(result, non_blocking=True)
        done[now].record(main)
        turn[0] = after
        done[after].synchronize()  # the previous batch has been answered
        return scores[after]

    return step


if __name__ == "__main__":
    base.main(build)
