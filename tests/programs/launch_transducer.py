"""Greedy decoding of an RNN transducer, one symbol per frame at most, after a bf16 encoder.

Planted: the frame loop launches some fifteen tiny kernels per frame, the GPU waits for the host.
Mend: the loop of all frames (no branch in it depends on data) is captured as one CUDA graph.
"""

from __future__ import annotations

import base
import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int, depth: int, joint: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.joint = nn.Linear(width, joint)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        for qkv, out, up, down in zip(self.qkv, self.out, self.up, self.down, strict=True):
            q, k, v = qkv(F.layer_norm(x, (c,))).view(b, t, 3, self.heads, -1).unbind(2)
            a = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))  # fmt: skip
            x = x + out(a.transpose(1, 2).reshape(b, t, c))
            x = x + down(F.silu(up(F.layer_norm(x, (c,)))))
        return self.joint(x)


def build(mended: bool) -> base.Step:
    """64 utterances of 256 encoder frames, a prediction LSTM of 640, 1024 word pieces."""
    batch, frames = base.size(64, 2), base.size(256, 4)
    width, joint, vocab, blank = base.size(512, 16), base.size(640, 16), base.size(1024, 16), 0
    kind = {"device": base.DEVICE, "dtype": torch.bfloat16}
    encoder = Encoder(width, base.size(8, 2), base.size(12, 2), joint).to(**kind).eval()
    embed = nn.Embedding(vocab, joint).to(**kind)
    cell = nn.LSTMCell(joint, joint).to(**kind)
    project = nn.Linear(joint, joint).to(**kind)
    classify = nn.Linear(joint, vocab).to(**kind)
    audio = torch.randn(batch, frames, width, **kind)
    memory = torch.zeros(frames, batch, joint, **kind)
    tokens = torch.zeros(frames, batch, device=base.DEVICE, dtype=torch.long)
    start = torch.zeros(batch, joint, **kind)

    @torch.no_grad()
    def decode() -> None:
        h, c = cell(start, (start, start))
        predicted = project(h)
        for t in range(frames):
            token = classify(torch.tanh(memory[t] + predicted)).argmax(-1)
            emitted = (token != blank).unsqueeze(1)
            h_new, c_new = cell(embed(token), (h, c))
            h = torch.where(emitted, h_new, h)
            c = torch.where(emitted, c_new, c)
            predicted = project(h)
            tokens[t] = token

    loop = base.captured(decode) if mended and not base.DRY else decode

    @torch.no_grad()
    def step() -> torch.Tensor:
        memory.copy_(encoder(audio).transpose(0, 1))
        loop()
        return tokens

    return step


if __name__ == "__main__":
    base.main(build)
