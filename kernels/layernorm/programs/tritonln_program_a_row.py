"""One pass in Triton: a program a row, the compiler does the rest.

The same idea as onepass in a tenth of its lines: a row is one block of the next power of two, masked at
its end; both sums are reductions over it. What is given away is the mask: 768 columns are three
quarters of a block of 1024, and 4104 little more than half of one of 8192.

after: threepass      moves: inst_global_load<0.2x instructions<0.6x
tune: WARPS=4,8,16
budget: spills=0
"""

import triton
import triton.language as tl

WARPS = 8


@triton.jit
def norm_rows(x, r, w, b, y, h, width, eps, RMS: tl.constexpr, BLOCK: tl.constexpr):
    """A program a row: h = x + r as it is stored, y = norm(h) w + b."""
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    at = tl.program_id(0).to(tl.int64) * width + columns
    both = tl.load(x + at, inside, 0.0).to(tl.float32) + tl.load(r + at, inside, 0.0).to(tl.float32)
    stored = both.to(h.dtype.element_ty)
    tl.store(h + at, stored, inside)
    row = stored.to(tl.float32)
    mean = 0.0 if RMS else tl.sum(row, 0) / width
    centred = tl.where(inside, row - mean, 0.0)
    factor = tl.rsqrt(tl.sum(centred * centred, 0) / width + eps)
    normed = centred * factor * tl.load(w + columns, inside, 0.0).to(tl.float32)
    if not RMS:
        normed += tl.load(b + columns, inside, 0.0).to(tl.float32)
    tl.store(y + at, normed.to(y.dtype.element_ty), inside)


def launch(x, r, w, *rest):
    """Inputs x, r, w and, for LayerNorm, b; outputs y and h; sizes are rows, width, RMSNorm, bf16."""
    *b, y, h, args = rest
    rows, width, rms, _ = args.size[:4]
    block = triton.next_power_of_2(width)
    norm_rows[(rows,)](
        x, r, w, b[0] if b else w, y, h, width, args.scale, bool(rms), block, num_warps=WARPS
    )
