"""Products that could be faster: in more precision than they need, of sizes that do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, prod
from typing import TYPE_CHECKING

from profkit.program.findings.case import REACH, REACHED, Advice, RuleTexts, StepCase, StepFinding
from profkit.program.operators import Product, get_matrix_product
from profkit.program.replay.scenario import Range, StepChange, make_exact_range
from profkit.program.steps.cut import StepWork
from profkit.program.steps.idle import describe_launch_place
from profkit.program.steps.kinds import find_product_precision, is_memory_bound_product
from profkit.program.timeline import Activity
from profkit.records.gpus import get_measured_levels

if TYPE_CHECKING:
    from profkit.units import ClaimedWorks, Factor, OperationsPerSecond, WorkIndex


_FP32_ATTENTION = re.compile(r"fmha_cutlass[FB]_f32_")
# What kernels of PyTorch and cuFFT say of the type of their values, where no operator does.
_FLOAT64 = re.compile(
    r"(?:Functor\w*|ReduceOp|Kernel\w*|process_kernel)<(?:c10::complex<)?double\b"
    r"|lambda\((?:c10::complex<)?double\b|_fft\w*<.*\bdouble\b"
)
_FFT = re.compile(r"_fft\w*<|(?:pre|post)process_kernel<")  # of cuFFT
DOUBLES = frozenset({"double", "c10::complex<double>"})
HALF = 0.5
LEAST = 0.02  # of the step
FLOOR = 4_000.0  # nanoseconds: a small product is not bound by its pipe
PART = 0.6  # of the rate of products that fit, from which on there is nothing to say
# A block's tile in the names of cuBLAS (nvjet, xmma) and CUTLASS; parts of a sum need no rounds.
_TILE = re.compile(r"(?:nvjet_\w*?_|tilesize|gemm_(?:\w+?_)??)(\d{1,3})x(\d{1,3})(?=_|x\d)")
_PARTS = re.compile(r"(?i)split|streamk")
REGISTERS = 65_536  # of a multiprocessor, since compute capability 3.0
USED = 0.8  # of what tiles and rounds hold, from which on there is nothing to say
FILLED = 0.95  # what sizes that fit reach
# Half-precision kernels of CUTLASS for rows that begin at no multiple of 16 bytes, 8 values.
_UNALIGNED = re.compile(r"tensorop_\w*?b?f16\w*_(align[124])\b")
LONG = 20_000  # nanoseconds: shorter products are bound by other things


FP32_PRODUCTS = RuleTexts(
    rule="fp32-matmul",
    says=(
        "{count:,} {what} run in float32 on the FP32 pipes ({ms:time} per step) while the tensor "
        "cores are idle"
    ),
    advice=Advice(
        torch=(
            "call torch.set_float32_matmul_precision('high') to allow TF32, or autocast to bfloat16"
        ),
        others="allow TF32, or use half precision, where the results tolerate it",
    ),
    instead={
        "attention": Advice(
            others=(
                "run attention in bfloat16 or float16: drop the .float() calls before it, or "
                "wrap it in torch.autocast"
            )
        ),
        "half": Advice(
            torch=(
                "autocast to float16, with torch.amp.GradScaler in training: these tensor cores "
                "have no TF32"
            ),
            others="use float16 where the results tolerate it: these tensor cores have no TF32",
        ),
    },
    floor="kernel",
    spreads=True,
)


def find_fp32_products(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find products and convolutions in float32 on FP32 pipes, the tensor cores idle."""
    if case.cc is not None and case.cc < (7, 0):
        return  # no tensor cores before
    only_half = case.cc is not None and case.cc < (8, 0)  # they have no TF32
    if only_half:
        attention = []
    else:
        attention = case.list_unclaimed_works(is_fp32_attention, claimed_works)
    chosen = sorted([*attention, *case.list_unclaimed_works(_is_fp32_product, claimed_works)])
    if not chosen:
        return
    gains = get_measured_levels("tensor", case.cc)
    # Fused attention has no TF32: its fix is half precision.
    scale = {}
    for i in chosen:
        scale[i] = _estimate_time_left_on_faster_pipe(
            case, i, gains[2] if i in attention else gains[1]
        )
    if attention == chosen:
        what = "attention kernels"
    else:
        what = _name_products(case, chosen)
    advice = ""
    if only_half:
        advice = "half"
    elif 2 * case.sum_work_ms(attention) > case.sum_work_ms(chosen):
        advice = "attention"
    yield case.make_finding(FP32_PRODUCTS, chosen, StepChange(scale), "", advice, what=what)


def _name_products(case: StepCase, chosen: Sequence[WorkIndex]) -> str:
    """Say what products are: of matrices, convolutions, or both."""
    kinds = {case.works[i].kind for i in chosen}
    if kinds == {"conv"}:
        return "convolution kernels"
    if "conv" in kinds:
        return "products and convolution kernels"
    return "products"


def _is_fp32_product(work: StepWork) -> bool:
    name = work.activity.name
    product = work.kind in {"gemm", "conv"} and not is_memory_bound_product(name)
    return product and find_product_precision(name) == "fp32"


def is_fp32_attention(work: StepWork) -> bool:
    """Return whether it is a fused attention on float32, by its operator's types or else by its name."""
    types = work.maker.types
    named = _FP32_ATTENTION.search(work.activity.name) is not None
    return work.kind == "attention" and (types[0] == "float" if types and types[0] else named)


def _estimate_time_left_on_faster_pipe(case: StepCase, index: WorkIndex, gain: Factor) -> Range:
    """Return what is left of a product whose pipe gets faster; a small one is not bound by it."""
    long = max(case.works[index].activity.duration, 1.0)
    return make_exact_range(min(1.0, max(FLOOR, long / gain) / long))


IN_FLOAT64 = RuleTexts(
    rule="elementwise-chain",
    says="{count:,} kernels per step compute in float64: {ms:time}{products}",
    advice=Advice(
        torch="convert inputs to float32 (NumPy arrays are float64 by default){tf32}",
        others=(
            "compute in float32 where float64 accuracy is not needed (preconditioners, inner "
            "iterations)"
        ),
    ),
    floor="kernel",
    spreads=True,
)


def find_float64_work(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Work in float64, which is numpy's and Python's default and seldom a network's need."""
    chosen = case.list_unclaimed_works(_is_float64_work, claimed_works)
    if HALF * case.sum_work_ms(chosen) * 1e6 < LEAST * case.split.period:
        return  # what it would explain is left to other checks
    products = [i for i in chosen if case.works[i].kind in {"gemm", "conv"}]
    least, gain, _ = get_measured_levels("double", case.cc)
    scale = dict.fromkeys(chosen, make_exact_range(HALF))  # 4 bytes a value in place of 8
    for i in (
        products
    ):  # at least what float32 gains without TF32: nothing, where its pipes are no faster
        scale[i] = _estimate_time_left_on_faster_pipe(case, i, gain)._replace(
            low=_estimate_time_left_on_faster_pipe(case, i, least).low
        )
    finding = case.make_finding(
        IN_FLOAT64,
        chosen,
        StepChange(scale),
        products=f", {len(products)} of them matrix products" if products else "",
        tf32=", and allow TF32 for matrix products" if products else "",
    )
    # It is no default elsewhere: somebody chose it.
    finding = replace(finding, optional=case.program_framework == "others")
    if products:
        yield replace(finding, rule="fp32-matmul")
    else:
        yield finding


def _is_float64_work(work: StepWork) -> bool:
    """Return whether a work is in float64: by the name, or by what its operator reads."""
    name = work.activity.name
    types = work.maker.types
    if work.kind in {"gemm", "conv"}:
        return find_product_precision(name) == "fp64"
    if work.kind not in {"elementwise", "convert", "norm", "softmax", "reduce"}:
        return _FFT.search(name) is not None and _FLOAT64.search(name) is not None
    if not work.maker.op:
        return _FLOAT64.search(name) is not None
    return bool(types) and types[0] in DOUBLES and bool(work.maker.shapes[0])


@dataclass(frozen=True)
class Tiling:
    """How a product is cut into tiles, one a block."""

    tile: tuple[int, int]  # rows and columns, in the kernel's own order
    tiles: int  # how many
    rounds: int  # of one tile on each multiprocessor; 0 where several fit at once
    used: float  # the part of all that the tiles of these rounds could hold that is the product


def find_tiling(product: Product, activity: Activity, multiprocessors: int) -> Tiling | None:
    """Return a product's tiles.

    None where the kernel's name does not tell, or it adds parts of a sum.
    """
    named = _TILE.search(activity.name)
    if not named or _PARTS.search(activity.name) or activity.block is None:
        return None
    tile = int(named[1]), int(named[2])
    # Libraries count columns first or last: the cut that wastes less is claimed.
    cuts = [ceil(product.rows / a) * ceil(product.columns / b) for a, b in (tile, tile[::-1])]
    tiles = product.batch * min(cuts)
    alone = activity.registers * prod(activity.block) > REGISTERS // 2  # no second block fits
    rounds = 0
    if alone:
        rounds = ceil(tiles / multiprocessors)
    held = (rounds * multiprocessors or tiles) * prod(tile)
    used = product.batch * product.rows * product.columns / held
    return Tiling(tile, tiles, rounds, used)


TAILS = RuleTexts(
    rule="kernel",
    says=(
        "{count:,} matrix products ({ms:time} per step) use {cut.used:.0%} of their tiles' "
        "capacity: {rows} x {columns} is {cut.tiles} tiles of {cut.tile[0]} x "
        "{cut.tile[1]}{rounds}"
    ),
    advice=Advice(
        others="choose a size or a batch whose tiles fill whole waves, or batch several products"
    ),
)


def find_products_with_wasted_tiles(
    case: StepCase, claimed_works: ClaimedWorks
) -> Iterator[StepFinding]:
    """Find products whose tiles hold much more than the result, or hardly fill their last round."""
    if not case.device or not case.device.multiprocessors:
        return
    sms = case.device.multiprocessors
    found: dict[int, tuple[Product, Tiling]] = {}
    for i, product in _find_products_by_work(case, claimed_works).items():
        cut = find_tiling(product, case.works[i].activity, sms)
        if cut and cut.used < USED:
            found[i] = product, cut
    if not found:
        return
    scale = {i: _estimate_time_left_with_full_tiles(case, *own) for i, own in found.items()}
    worst = max(found, key=lambda i: found[i][0].seconds * (1 - found[i][1].used))
    product, cut = found[worst]
    yield case.make_finding(
        TAILS,
        list(found),
        StepChange(scale),
        describe_launch_place(case.works[worst]),
        rows=product.rows,
        columns=product.columns,
        cut=cut,
        rounds=f", {_say_tile_rounds(cut, sms)}" if cut.rounds else "",
    )


def _estimate_time_left_with_full_tiles(case: StepCase, product: Product, tiling: Tiling) -> Range:
    """Return what is left with full tiles: not below its bytes, or the rate of the fastest products."""
    best = max(tiling.used / FILLED, case.compute_product_floor_seconds(product) / product.seconds)
    return Range((1 + best) / 2, best, tiling.used).limit_to(1.0)


def _say_tile_rounds(tiling: Tiling, sms: int) -> str:
    if tiling.rounds == 1:
        times = "round"
    else:
        times = "rounds"
    return (
        f"{tiling.rounds} {times} on {sms} multiprocessors, {tiling.tiles % sms or sms} in the last"
    )


def _find_products_by_work(
    case: StepCase, claimed_works: ClaimedWorks = frozenset()
) -> dict[WorkIndex, Product]:
    products = (
        (i, get_matrix_product(work)) for i, work in enumerate(case.works) if i not in claimed_works
    )
    return {i: product for i, product in products if product}


MISFITS = RuleTexts(
    rule="kernel",
    says=(
        "{count:,} matrix products have sizes that 16-byte loads do not fit ({sizes}) and reach "
        "{rate:figures} TFLOP/s where others reach {reachable:figures}: {ms:time} per step"
    ),
    advice=Advice(others="pad the size to a multiple of 64 ({fits} for {size})"),
    floor="kernel",
)


def find_odd_sized_products(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find half-precision products of odd sizes, which run on older and slower kernels."""
    halves = {i: p for i, p in _find_products_by_work(case).items() if p.size == 2}
    reachable = REACHED * _find_fastest_product_rate(case, halves.values())
    odd = {}
    for index, product in halves.items():
        if index not in claimed_works and product.misfits and product.rate < PART * reachable:
            odd[index] = product
    if not odd:
        return
    # The same products at the rate of those that fit; what is added to pad them is little.
    scale = {i: make_exact_range(p.rate / reachable) for i, p in odd.items()}
    worst = max(odd.values(), key=lambda p: p.seconds)
    sizes = sorted(set(chain.from_iterable(p.misfits for p in odd.values())))
    yield case.make_finding(
        MISFITS,
        list(odd),
        StepChange(scale),
        sizes=", ".join(map(str, sizes[-3:])),
        rate=worst.rate / 1e12,
        reachable=reachable / 1e12,
        fits=-(-sizes[-1] // 64) * 64,
        size=sizes[-1],
    )


def _find_fastest_product_rate(case: StepCase, products: Iterable[Product]) -> OperationsPerSecond:
    """Return operations a second of the fastest product that fits, or of the GPU's table."""
    best = 0.0
    if case.gpu:
        best = case.gpu.half or 0.0
    for product in products:
        if not product.misfits:
            best = max(best, product.rate)
    return best


ODD_BY_NAME = RuleTexts(
    rule="kernel",
    says=(
        "{count:,} matrix products run on kernels for sizes that 16-byte loads do not fit "
        "({aligned}): {ms:time} per step"
    ),
    advice=Advice(others="pad the odd size (a vocabulary, for example) to a multiple of 64"),
)


def find_odd_sized_products_by_name(
    case: StepCase, claimed_works: ClaimedWorks
) -> Iterator[StepFinding]:
    """Find the same where sizes were not recorded, by the names of cuBLAS' kernels for odd sizes."""
    unsized = case.list_unclaimed_works(
        lambda w: not w.maker.shapes and w.activity.duration > LONG, claimed_works
    )
    odd = []
    for i in unsized:
        if _UNALIGNED.search(case.works[i].activity.name):
            odd.append(i)
    if not odd:
        return
    left = REACH["padding, newer" if case.cc and case.cc >= (9, 0) else "padding, older"]
    aligned = _UNALIGNED.search(case.find_longest_work(odd).activity.name)
    said = ""
    if aligned:
        said = aligned[1]
    yield case.make_finding(ODD_BY_NAME, odd, StepChange(dict.fromkeys(odd, left)), aligned=said)
