"""Planted: a Triton softmax on 16 blocks of a 132-SM GPU. Mend: a block a row."""

from __future__ import annotations

import base
import torch

if not base.DRY:
    import triton
    import triton.language as tl

    @triton.jit
    def row_softmax(source, target, rows, columns, BLOCK: tl.constexpr):
        lanes = tl.arange(0, BLOCK)
        for row in range(tl.program_id(0), rows, tl.num_programs(0)):
            inside = lanes < columns
            x = tl.load(source + row * columns + lanes, mask=inside, other=-float("inf"))
            e = tl.exp(x - tl.max(x, 0))
            tl.store(target + row * columns + lanes, e / tl.sum(e, 0), mask=inside)


def build(mended: bool) -> base.Step:
    """A product and a softmax of its rows."""
    rows, columns = base.size(8192), base.size(4096)
    x = torch.randn(rows, columns, device=base.DEVICE, dtype=torch.bfloat16)
    w = torch.randn(columns, columns, device=base.DEVICE, dtype=torch.bfloat16)
    blocks = rows if mended else 16

    def step() -> torch.Tensor:
        y = ((x @ w) @ w).float()
        if base.DRY:
            return y.softmax(-1)
        out = torch.empty_like(y)
        row_softmax[(blocks,)](y, out, rows, columns, BLOCK=columns)
        return out

    return step


if __name__ == "__main__":
    base.main(build)
