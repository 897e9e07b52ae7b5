"""A kernel or a run of kernels  ->  its floor: the nanoseconds that its bytes and operations need.

Nothing else prices a region. Rates are the GPU's (gpus.toml), bandwidth what the step itself has shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from profkit.program.findings.case import REACHED, SHORT, Case, count_accesses
from profkit.program.findings.products import is_fp32_attention, is_unaligned
from profkit.program.operators import Needs, find_needs, find_traffic, is_native_loop
from profkit.program.steps.cut import StepWork
from profkit.program.steps.kinds import is_librarys, is_vector_product, precision_of
from profkit.records.gpus import find_levels

PRODUCTS = frozenset({"gemm", "conv"})
# An H200 took a sixth for a vocabulary of 50,304 in place of 50,257.
UNALIGNED = 1 / 6
BY_NAME = 0.2  # of the step: what takes less and has only a name is no finding
HALF = 0.5  # of sums into places that may be many, and of orders that may all be read
SMALL_PRODUCT = 4_000.0  # nanoseconds: a small product is not bound by its pipe
BY_BYTES = frozenset(
    "elementwise convert set random softmax norm reduce gather concat scatter sort layout".split()
)


def needs_of(work: StepWork) -> Needs | None:
    """What a kernel's operator needs, where its sizes are known and the kernel does its work."""
    return find_needs(work.maker.op, work.maker.shapes, work.maker.types)


def price_kernel(case: Case, index: int) -> float | None:
    """Return a kernel's floor in nanoseconds; None where nobody knows it."""
    work = case.works[index]
    took = float(work.activity.duration)
    floors = []
    if is_native_loop(work.kind, work.activity.name):
        floors.append(_price_loop(case, work))
    elif work.kind in PRODUCTS and not is_vector_product(work.activity.name):
        floors.append(_price_product(case, work))
    elif work.kind in BY_BYTES:
        needs = needs_of(work)
        floors.append(_price_bytes(case, needs.reads + needs.writes) if needs else None)
    elif work.kind == "attention" and is_fp32_attention(work):
        floors.append(took / find_levels("tensor", case.cc)[2])
    if not work.maker.shapes:
        floors.append(_price_by_name(case, work))
    filled = _price_filled(case, work)
    known = [floor for floor in (*floors, filled) if floor is not None]
    if not known:
        return None
    least = SMALL_PRODUCT if work.kind in PRODUCTS else SHORT
    return min(took, max(least, min(known)))


def _price_bytes(case: Case, moved: float) -> float:
    return moved / case.bandwidth * 1e9


def _price_by_name(case: Case, work: StepWork) -> float | None:
    """Return what is left where only a library's name is known, that of a kernel for an unlucky case."""
    took = float(work.activity.duration)
    if is_unaligned(work.activity.name):
        return took * UNALIGNED
    if work.kind in {"scatter", "sort"} and is_librarys(work.activity.name):
        alike = [i for i, other in enumerate(case.works) if other.kind == work.kind]
        if case.sum_time(alike) * 1e6 >= BY_NAME * case.split.period:
            return took * HALF
    return None


def _price_loop(case: Case, work: StepWork) -> float | None:
    """Return the floor of a loop of PyTorch's own: its operator's bytes, or a value of each thread."""
    moved = find_traffic(work)
    if moved:
        return _price_bytes(case, moved.reads + moved.writes)
    if work.kind != "conv" or not work.activity.grid or not work.activity.block:
        return None
    values = prod(work.activity.grid) * prod(work.activity.block)
    return _price_bytes(case, 2 * 4 * values)


def _price_product(case: Case, work: StepWork) -> float | None:
    """Return the floor of a product on the tensor cores; None where it is there, or nobody knows."""
    precision = precision_of(work.activity.name)
    took = float(work.activity.duration)
    if precision in {"fp32", "fp64"}:
        known = "tensor" if precision == "fp32" else "double"
        return took / find_levels(known, case.cc)[1]
    needs = needs_of(work)
    half = case.gpu.half if case.gpu else None
    if needs is None or half is None or precision == "unknown":
        return None
    rate = half if precision == "half" else half / 2
    operations = needs.operations / (REACHED * rate) * 1e9
    return max(operations, _price_bytes(case, needs.reads + needs.writes))


def _price_filled(case: Case, work: StepWork) -> float | None:
    """Return the time that a kernel of few blocks would take if its work filled the GPU."""
    count = case.device.multiprocessors if case.device else None
    grid = work.activity.grid
    if not count or not grid or work.kind in {"collective", "attention"}:
        return None
    blocks = prod(grid)
    if blocks >= count:
        return None
    return work.activity.duration * blocks / count


def price_run(case: Case, run: Sequence[int], keeps: bool) -> float:
    """Return the floor of a run as one kernel, which reads what comes from outside and writes its end.

    Of each kernel after the first the largest tensor is the last one's result; of its other tensors
    half are taken to come from outside. On its way forward in training (`keeps`) one more is written.
    """
    needs = []
    for index in run:
        needs.append(needs_of(case.works[index]))
    if None not in needs:
        known = [need for need in needs if need is not None]
        outside = sum(need.reads - need.largest for need in known[1:])
        moved = known[0].reads + outside / 2 + known[-1].writes * (2 if keeps else 1)
        return max(SHORT, _price_bytes(case, moved))
    took, touched, second = 0.0, 0, 0
    for index in run:
        count = count_accesses(case.works[index])
        took += case.works[index].activity.duration
        touched += count
        second += max(0, count - 2)
    return max(SHORT, took * (2 + second / 2 + keeps) / touched)
