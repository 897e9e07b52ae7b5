"""Planted: a DataLoader without workers crops and flips every image itself. Mend: twelve workers."""

from __future__ import annotations

from collections.abc import Iterator

import base
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Noise, augmented as image pipelines do it: one picture at a time."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng(index)
        side = base.size(128, 16)
        image = rng.integers(0, 255, (3, side, side), dtype=np.uint8).astype(np.float32)
        if rng.random() < 0.5:
            image = image[:, :, ::-1]
        image = (image / 255.0 - 0.45) / 0.22
        return torch.from_numpy(np.ascontiguousarray(image)), index % 10


def build(mended: bool) -> base.Step:
    """64 images a step through a convolutional net in channels_last half precision."""
    width = base.size(256, 8)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3)]
    for _ in range(base.size(6, 1)):
        layers += [nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    model = model.to(base.DEVICE, torch.float16, memory_format=torch.channels_last)
    workers = 12 if mended and not base.DRY else 0
    loader = DataLoader(Images(), base.size(64, 4), num_workers=workers, pin_memory=not base.DRY)
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]] = iter(loader)

    def step() -> None:
        images, labels = next(batches)
        x = images.to(base.DEVICE, non_blocking=True).half()
        x = x.contiguous(memory_format=torch.channels_last)
        said = model(x).float()
        nn.functional.cross_entropy(said, labels.to(base.DEVICE, non_blocking=True)).backward()
        model.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    base.main(build)
