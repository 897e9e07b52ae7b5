"""Source detection in astronomical frames of five bands: background, stretch, a small CNN, peaks.

Planted: the wide Gaussian of the background is a 41 x 41 depthwise convolution.
Mend: a Gaussian is separable: a 41 x 1 convolution and then a 1 x 41 one.
"""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as F


def build(mended: bool) -> base.Step:
    """Four fields of 1024 x 1024 pixels, fp32 until they are stretched, then bf16."""
    fields, side, bands = base.size(4, 1), base.size(1024, 16), 5
    taps = base.size(41, 5)
    width, best = base.size(64, 8), base.size(500, 4)
    half = taps // 2
    line = torch.exp(-0.5 * (torch.arange(taps, device=base.DEVICE) - half) ** 2 / (taps / 5) ** 2)
    line = line / line.sum()
    square = torch.outer(line, line).expand(bands, 1, taps, taps).contiguous()
    column = line.view(1, 1, taps, 1).repeat(bands, 1, 1, 1)
    row = line.view(1, 1, 1, taps).repeat(bands, 1, 1, 1)
    sky = torch.rand(fields, bands, side, side, device=base.DEVICE) * 100
    convolutions = [nn.Conv2d(bands, width, 3, padding=1), nn.ReLU(inplace=True)]
    for _ in range(4):
        convolutions += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)]
    convolutions += [nn.Conv2d(width, 1, 1)]
    net = nn.Sequential(*convolutions).to(
        base.DEVICE, torch.bfloat16, memory_format=torch.channels_last
    )

    def background(x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, (half, half, half, half), mode="reflect")
        if mended:
            return F.conv2d(F.conv2d(x, column, groups=bands), row, groups=bands)
        return F.conv2d(x, square, groups=bands)

    @torch.inference_mode()
    def step() -> tuple[torch.Tensor, torch.Tensor]:
        flat = (sky - background(sky)).mul_(0.1).asinh_()
        x = flat.to(torch.bfloat16, memory_format=torch.channels_last)
        score = net(x).sigmoid()
        peaks = torch.where(F.max_pool2d(score, 3, 1, 1) == score, score, 0)
        return peaks.flatten(1).float().topk(best, dim=1)

    return step


if __name__ == "__main__":
    base.main(build)
