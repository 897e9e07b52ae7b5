"""Planted: weights live on the host, pageable, and come layer by layer. Mend: pinned, one ahead."""

from __future__ import annotations

import base
import torch


def build(mended: bool) -> base.Step:
    """Sixteen layers of 4096 x 4096 in half precision on 32,768 tokens, inference."""
    width, tokens = base.size(4096, 16), base.size(32768, 8)
    weights = [torch.randn(width, width, dtype=torch.bfloat16) / width**0.5
               for _ in range(base.size(16, 2))]  # fmt: skip
    x = torch.randn(tokens, width, device=base.DEVICE, dtype=torch.bfloat16)

    def plain() -> torch.Tensor:
        h = x
        for weight in weights:
            h = torch.relu(h @ weight.to(base.DEVICE))
        return h

    if not mended or base.DRY:
        return plain
    pinned = [w.pin_memory() for w in weights]
    side = torch.cuda.Stream()

    def fetch(n: int) -> torch.Tensor:
        with torch.cuda.stream(side):
            return pinned[n % len(pinned)].to("cuda", non_blocking=True)

    state = {"next": fetch(0)}

    def overlapped() -> torch.Tensor:
        h = x
        main = torch.cuda.current_stream()
        for n in range(len(pinned)):
            main.wait_stream(side)
            weight = state["next"]
            side.wait_stream(main)
            state["next"] = fetch(n + 1)
            h = torch.relu(h @ weight)
            weight.record_stream(main)
        return h

    return overlapped


if __name__ == "__main__":
    base.main(build)
