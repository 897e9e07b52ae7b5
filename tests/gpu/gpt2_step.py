"""One training step of GPT-2 (12 layers, random weights), compiled: what `profkit capture` is tried on.

profkit capture --all -o captured -- python tests/gpu/gpt2_step.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as f

BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS = 2, 1024, 768, 12, 12, 50257
STEPS = 3


class Block(nn.Module):
    """Attention and two linear layers, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Of (batch, length, width)."""
        q, k, v = (
            part.unflatten(2, (HEADS, -1)).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, dim=2)
        )
        seen = f.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        x = x + f.dropout(self.out(seen.transpose(1, 2).flatten(2)), 0.1)
        wide = f.gelu(self.up(self.between(x)), approximate="tanh")
        return x + f.dropout(self.down(wide), 0.1)


class Model(nn.Module):
    """GPT-2 as it is written down without transformers; a batch of words to its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, words: Tensor) -> Tensor:
        """The loss of predicting each word from those before it."""
        at = torch.arange(words.shape[1], device=words.device)
        x = f.dropout(self.words(words) + self.places(at), 0.1)
        for block in self.blocks:
            x = block(x)
        scores = self.last(x) @ self.words.weight.T
        return f.cross_entropy(scores[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())


def built() -> tuple[nn.Module, bool]:
    """GPT-2 of transformers where that is installed, else Model; whether it is transformers'."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return Model(), False
    return GPT2LMHeadModel(GPT2Config()), True


def main() -> None:
    """Compile, and take a few steps."""
    torch.manual_seed(0)
    model, theirs = built()
    print("transformers" if theirs else "own", "GPT-2", flush=True)
    model = model.cuda().train()
    words = torch.randint(0, WORDS, (BATCH, LENGTH), device="cuda")
    step = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.bfloat16):
            loss = step(words, labels=words).loss if theirs else step(words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
