"""Products whose sizes do not fit the tensor cores: rows that no 16-byte load can begin at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from profkit.program.findings.case import BYTES, Case, Draft
from profkit.program.savings.replay import Model
from profkit.program.step.idle import launch_place

ALIGNED = (
    16  # bytes: the tensor memory access unit and vector loads want rows to begin at multiples
)
LEAST = 5e8  # floating-point operations: smaller products are bound by other things
PART = 0.6  # of the rate of products that fit, from which on there is nothing to say
REACHED = 0.75  # of the fastest product that fits: what the padded one is expected to reach
# Operations a second that large half-precision products reach where the step has none that fits:
# 9.0 was measured on an H200 (769 to 798e12 at 8192^3); the others are two thirds of datasheets.
HALF_RATES = {8: 2.1e14, 9: 6.0e14, 10: 1.5e15, 12: 1.5e14}
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}


@dataclass(frozen=True)
class Product:
    """One product of matrices.

    Attributes:
        rows: Of the left matrix.
        inner: Columns of the left one, rows of the right one.
        columns: Of the right matrix.
        batch: How many such products.
        size: Bytes of an element.
        seconds: How long it took.
    """

    rows: int
    inner: int
    columns: int
    batch: int
    size: int
    seconds: float

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


def misfits(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Half-precision products of odd sizes, which run on older and slower kernels."""
    found = {i: p for i in range(len(case.works)) if (p := matrix_product(case, i)) and p.size == 2}
    fitting = [p.rate for p in found.values() if not p.misfits]
    major = case.device.cc[0] if case.device and case.device.cc else 9
    reachable = REACHED * max([*fitting, HALF_RATES.get(major, 2e14)])
    odd = {i: p for i, p in found.items()
           if p.misfits and p.rate < PART * reachable and i not in taken}  # fmt: skip
    if not odd:
        return

    def padded(model: Model, level: str) -> Model:
        """The same products at the rate of those that fit; what is added to pad them is little."""
        by = {"low": 0.55, "expect": 1.0, "high": 1.0 / REACHED}[level]

        def factor(i: int) -> float:
            return min(1.0, odd[i].rate / (by * reachable)) if i in odd else 1.0

        return model.scaled(factor)

    worst = max(odd, key=lambda i: odd[i].seconds)
    sizes = sorted({n for p in odd.values() for n in p.misfits})
    fits = -(-sizes[-1] // 64) * 64
    yield Draft(
        "kernel",
        f"{len(odd)} products have sizes that no 16-byte load fits "
        f"({', '.join(map(str, sizes[-3:]))}) and reach {odd[worst].rate / 1e12:.3g} TFLOP/s where "
        f"others reach {reachable / 1e12:.3g}: {case.time(sorted(odd)):.3g} ms a step",
        f"pad the size to a multiple of 64 ({fits} for {sizes[-1]})",
        launch_place(case.works[worst]), tuple(sorted(odd)), padded,
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
