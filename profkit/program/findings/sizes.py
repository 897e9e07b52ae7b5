"""Products whose sizes do not fit: rows that no 16-byte load begins at, tiles that hold little."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from profkit.program.findings.case import BYTES, REACH, Case, Draft
from profkit.program.replay.scenario import Change, Reach
from profkit.program.steps.idle import launch_place
from profkit.program.timeline import Activity
from profkit.records.gpus import of_generation

ALIGNED = (
    16  # bytes: the tensor memory access unit and vector loads want rows to begin at multiples
)
LEAST = 5e8  # floating-point operations: smaller products are bound by other things
PART = 0.6  # of the rate of products that fit, from which on there is nothing to say
REACHED = 0.75  # of the fastest product that fits: what the padded one is expected to reach
# A block's tile in the names of cuBLAS (nvjet, xmma) and CUTLASS; parts of a sum need no rounds.
_TILE = re.compile(r"(?:nvjet_\w*?_|tilesize|gemm_(?:\w+?_)??)(\d{1,3})x(\d{1,3})(?=_|x\d)")
_PARTS = re.compile(r"(?i)split|streamk")
REGISTERS = 65_536  # of a multiprocessor, since compute capability 3.0
USED = 0.8  # of what tiles and rounds hold, from which on there is nothing to say
FILLED = 0.95  # what sizes that fit reach
# Half-precision kernels of CUTLASS for rows that begin at no multiple of 16 bytes, 8 values.
_UNALIGNED = re.compile(r"tensorop_\w*?b?f16\w*_(align[124])\b")
LONG = 20_000  # nanoseconds: shorter products are bound by other things
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}


@dataclass(frozen=True)
class Product:
    """One product of matrices."""

    rows: int  # of the left matrix
    inner: int  # columns of the left one, rows of the right one
    columns: int  # of the right matrix
    batch: int  # how many such products
    size: int  # bytes of an element
    seconds: float  # how long it took

    @property
    def operations(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.batch * self.rows * self.inner * self.columns

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds

    @property
    def misfits(self) -> list[int]:
        """Sizes that are rows in memory for one of the operands, and no multiple of 16 bytes."""
        unit = ALIGNED // self.size
        return [n for n in (self.inner, self.columns, self.rows) if n >= unit and n % unit]


@dataclass(frozen=True)
class Tiling:
    """How a product is cut into tiles, one a block."""

    tile: tuple[int, int]  # rows and columns, in the kernel's own order
    tiles: int  # how many
    rounds: int  # of one tile on each multiprocessor; 0 where several fit at once
    used: float  # the part of all that the tiles of these rounds could hold that is the product


def tiling(product: Product, activity: Activity, multiprocessors: int) -> Tiling | None:
    """A product's tiles; None where the kernel's name does not tell, or it adds parts of a sum.

    Args:
        product: Its sizes.
        activity: The kernel that computed it.
        multiprocessors: Of the GPU.
    """
    named = _TILE.search(activity.name)
    if not named or _PARTS.search(activity.name) or activity.block is None:
        return None
    tile = int(named[1]), int(named[2])
    # Libraries count columns first or last: the cut that wastes less is taken.
    cuts = [ceil(product.rows / a) * ceil(product.columns / b) for a, b in (tile, tile[::-1])]
    tiles = product.batch * min(cuts)
    held = tiles * prod(tile)
    alone = activity.registers * prod(activity.block) > REGISTERS // 2  # no second block fits
    rounds = ceil(tiles / multiprocessors) if alone else 0
    if rounds:
        held = rounds * multiprocessors * prod(tile)
    used = product.batch * product.rows * product.columns / held
    return Tiling(tile, tiles, rounds, used)


def tails(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Products whose tiles hold much more than the result, or leave their last round nearly empty."""
    sms = case.device.multiprocessors if case.device else None
    found: dict[int, tuple[Product, Tiling]] = {}
    for i, work in enumerate(case.works):
        product = matrix_product(case, i) if i not in taken else None
        cut = tiling(product, work.activity, sms) if product and sms else None
        if product and cut and cut.used < USED:
            found[i] = product, cut
    if not found:
        return
    # Full tiles in full rounds; never faster than its bytes, or than the fastest products.
    scale = {}
    for i, (product, cut) in found.items():
        best = max(cut.used / FILLED, _least(case, product) / product.seconds)
        scale[i] = Reach((1 + best) / 2, best, cut.used).times(1.0)
    worst = max(found, key=lambda i: found[i][0].seconds * (1 - found[i][1].used))
    product, cut = found[worst]
    yield Draft(
        "kernel",
        f"{len(found)} products, {case.time(sorted(found)):.3g} ms a step, use {cut.used:.0%} of "
        f"what their tiles hold: {product.rows} x {product.columns} is {cut.tiles} tiles of "
        f"{cut.tile[0]} x {cut.tile[1]}" + (f", {_rounds(cut, sms or 1)}" if cut.rounds else ""),
        "choose the size or the batch so that tiles fill whole rounds, or multiply several at once",
        launch_place(case.works[worst]), tuple(sorted(found)), Change(scale),
    )  # fmt: skip


def _rounds(cut: Tiling, sms: int) -> str:
    times = "round" if cut.rounds == 1 else "rounds"
    return f"{cut.rounds} {times} on {sms} multiprocessors, {cut.tiles % sms or sms} in the last"


def _least(case: Case, product: Product) -> float:
    """Seconds below which a product does not come: its bytes, and the rate that products reach."""
    rows, inner, columns = product.rows, product.inner, product.columns
    moved = product.batch * product.size * (rows * inner + inner * columns + rows * columns)
    least = moved / case.bandwidth
    if product.size != 2:
        return least
    rate = _half_rate(case)
    return max(least, product.operations * REACHED / rate) if rate else product.seconds


def _half_rate(case: Case) -> float | None:
    """Operations a second of the tensor cores in half precision; None for a GPU that is not known."""
    known = of_generation(case.device.cc) if case.device else None
    return known.half if known else None


def misfits(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Half-precision products of odd sizes, which run on older and slower kernels."""
    found = {i: p for i in range(len(case.works)) if (p := matrix_product(case, i)) and p.size == 2}
    fitting = [p.rate for p in found.values() if not p.misfits]
    reachable = REACHED * max([*fitting, _half_rate(case) or 0.0])
    odd = {i: p for i, p in found.items()
           if p.misfits and p.rate < PART * reachable and i not in taken}  # fmt: skip
    if not odd:
        return

    # The same products at the rate of those that fit; what is added to pad them is little.
    by = (0.55, 1.0, 1.0 / REACHED)
    scale = {i: Reach(*(min(1.0, p.rate / (b * reachable)) for b in by)) for i, p in odd.items()}
    worst = max(odd, key=lambda i: odd[i].seconds)
    sizes = sorted({n for p in odd.values() for n in p.misfits})
    fits = -(-sizes[-1] // 64) * 64
    yield Draft(
        "kernel",
        f"{len(odd)} products have sizes that no 16-byte load fits "
        f"({', '.join(map(str, sizes[-3:]))}) and reach {odd[worst].rate / 1e12:.3g} TFLOP/s where "
        f"others reach {reachable / 1e12:.3g}: {case.time(sorted(odd)):.3g} ms a step",
        f"pad the size to a multiple of 64 ({fits} for {sizes[-1]})",
        launch_place(case.works[worst]), tuple(sorted(odd)), Change(scale),
    )  # fmt: skip


def odd_by_name(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """The same where sizes were not recorded: cuBLAS' kernels for odd sizes say so in their names."""
    odd = [i for i, w in enumerate(case.works)
           if i not in taken and not w.maker.shapes and w.activity.duration > LONG
           and _UNALIGNED.search(w.activity.name)]  # fmt: skip
    if not odd:
        return
    newer = case.device is not None and case.device.cc is not None and case.device.cc >= (9, 0)
    left = REACH["padding, newer" if newer else "padding, older"]
    worst = case.works[max(odd, key=lambda i: case.works[i].activity.duration)]
    aligned = _UNALIGNED.search(worst.activity.name)
    yield Draft(
        "kernel",
        f"{len(odd)} products run on kernels for sizes that no 16-byte load fits "
        f"({aligned[1] if aligned else ''}): {case.time(odd):.3g} ms a step",
        "pad the odd size (a vocabulary, say) to a multiple of 64",
        launch_place(worst), tuple(odd), Change(dict.fromkeys(odd, left)),
    )  # fmt: skip


def matrix_product(case: Case, index: int) -> Product | None:
    """The product that a work computes, where its operator and sizes are known."""
    work = case.works[index]
    first = _PRODUCTS.get(work.maker.op)
    shapes, types = work.maker.shapes, work.maker.types
    if work.kind != "gemm" or first is None or len(shapes) < first + 2 or len(types) < first + 2:
        return None
    left, right = shapes[first], shapes[first + 1]
    size = BYTES.get(types[first])
    seconds = work.activity.duration * 1e-9
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2] or not size or seconds <= 0:
        return None
    batch = prod(left[:-2])
    made = Product(left[-2], left[-1], right[-1], batch, size, seconds)
    return made if made.operations >= LEAST else None
