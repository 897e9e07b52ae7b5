"""Inference of a video transformer with divided space-time attention (TimeSformer) on one clip.

Planted: einops style: tokens are rearranged into (n t c) and back, q, k, v into (b h l d), each
time with a contiguous copy.
Mend: the projections work on (t n c) as it lies; attention is given strided views.
"""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, views: bool):
        super().__init__()
        self.heads, self.views = heads, views
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def rearranging(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.heads, -1)
        q, k, v = (part.transpose(1, 2).contiguous() for part in qkv.unbind(2))
        a = F.scaled_dot_product_attention(q, k, v)
        return self.proj(a.transpose(1, 2).contiguous().view(b, t, c))

    def forward(self, x: torch.Tensor, temporal: bool) -> torch.Tensor:
        frames, patches, c = x.shape
        if not self.views:
            if not temporal:
                return self.rearranging(x)
            x = x.transpose(0, 1).contiguous()
            return self.rearranging(x).transpose(0, 1).contiguous()
        qkv = self.qkv(x).view(frames, patches, 3, self.heads, -1)
        order, back = ((1, 2, 0, 3), (2, 0, 1, 3)) if temporal else ((0, 2, 1, 3), (0, 2, 1, 3))
        q, k, v = (part.permute(order) for part in qkv.unbind(2))
        a = F.scaled_dot_product_attention(q, k, v).permute(back)
        return self.proj(a.reshape(frames, patches, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, views: bool):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.time, self.space = (Attention(width, heads, views) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.time(self.norms[0](x), temporal=True)
        x = x + self.space(self.norms[1](x), temporal=False)
        return x + self.down(F.gelu(self.up(self.norms[2](x)), approximate="tanh"))


def build(mended: bool) -> base.Step:
    """Twelve blocks of width 512, 64 frames of 1024 patches of 14 x 14 pixels."""
    width, heads, side = base.size(512, 16), base.size(8, 2), base.size(32, 2)
    frames, classes = base.size(64, 4), base.size(400, 5)
    kind = {"device": base.DEVICE, "dtype": torch.bfloat16}
    patch = nn.Linear(3 * 14 * 14, width).to(**kind)
    blocks = nn.Sequential(*(Block(width, heads, mended) for _ in range(base.size(12, 2)))).to(
        **kind
    )
    head = nn.Linear(width, classes).to(**kind)
    clip = torch.randn(frames, side * side, 3 * 14 * 14, **kind)

    @torch.inference_mode()
    def step() -> torch.Tensor:
        return head(blocks(patch(clip)).mean((0, 1))).float().softmax(-1)

    return step


if __name__ == "__main__":
    base.main(build)
