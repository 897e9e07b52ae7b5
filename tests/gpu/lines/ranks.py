"""Ranks of one program: gradients that DDP reduces, a reduction of the program's own, a forked child.

torchrun --nproc_per_node 2 ranks.py [nccl|gloo]
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise

import torch
from torch import distributed, nn

WIDTHS = 512, 768, 1024, 512
STEPS = 30


def main(backend: str) -> None:
    """Train, each rank on its own GPU where there are any."""
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    distributed.init_process_group(backend)
    layers: list[nn.Module] = []
    for width, after in pairwise(WIDTHS):
        layers += [nn.Linear(width, after), nn.GELU()]
    net = nn.Sequential(*layers).to(device)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    given = torch.randn(256, WIDTHS[0], device=device)
    child = os.fork()  # which computes nothing, and ends at once
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    for _ in range(STEPS):
        loss = model(given).square().mean()  # forward
        loss.backward()  # backward
        optimizer.step()  # step
        optimizer.zero_grad()
        total = loss.detach().clone()
        distributed.all_reduce(total)  # reduce
    if backend == "nccl":
        torch.cuda.synchronize()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nccl")
