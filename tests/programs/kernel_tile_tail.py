"""Nothing is wrong, though it looks so: parts of a batch whose tiles would fill the GPU 1.09 times.

Meant as planted, with the whole batch at once as its mend; on an H200 that saved nothing, for cuBLAS
takes other tiles. So it is there for what must not be claimed.
"""

from __future__ import annotations

import base
import torch


def build(mended: bool) -> base.Step:
    """24 parts of 1,536 rows through two products to width 3,072, half precision, inference."""
    rows, width, parts = base.size(1536, 4), base.size(3072, 8), base.size(24, 2)
    first, second = (torch.randn(width, width, device=base.DEVICE) / width**0.5 for _ in range(2))
    first, second = first.to(torch.bfloat16), second.to(torch.bfloat16)
    x = torch.randn(parts * rows, width, device=base.DEVICE, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    many = [(x, out)] if mended else list(zip(x.split(rows), out.split(rows), strict=True))

    def step() -> torch.Tensor:
        for part, target in many:
            torch.mm(part @ first, second, out=target)
        return out

    return step


if __name__ == "__main__":
    base.main(build)
