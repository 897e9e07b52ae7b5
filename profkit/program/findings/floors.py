"""What an operator moves and computes, by its sizes and types: the least that its work can take."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from profkit.program.steps.cut import StepWork

# Of each type in PyTorch's words.
BYTES = {
    **dict.fromkeys(("double", "long int", "long"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("c10::BFloat16", "c10::Half"), 2),
    **dict.fromkeys(("bool", "unsigned char", "signed char"), 1),
}
# Bytes: the tensor memory accelerator and vector loads want rows to begin at multiples.
ALIGNED = 16
LEAST = 5e8  # floating-point operations: smaller products are bound by other things
# Of these a trace does not say how much of their first operand they read.
_PARTLY = frozenset({"aten::index", "aten::index_select", "aten::embedding", "aten::gather"})
_IN_PLACE = frozenset({"reduce", "scatter"})  # write next to nothing that they do not read
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}


class Traffic(NamedTuple):
    """Bytes of an operator."""

    reads: int
    largest: int  # of what it reads, one operand's
    writes: int


def traffic(work: StepWork) -> Traffic | None:
    """What the operator of a work moves; None where its sizes or types do not tell."""
    maker, activity = work.maker, work.activity
    sizes = [
        prod(shape) * BYTES[kind]
        for shape, kind in zip(maker.shapes, maker.types, strict=False)
        if shape and kind in BYTES
    ]
    if not sizes or maker.op in _PARTLY:
        return None
    if maker.op == "aten::copy_" and len(sizes) > 1:
        return Traffic(sizes[1], sizes[1], sizes[0])
    largest = writes = max(sizes)
    if is_native_loop(work.kind, activity.name) and activity.grid and activity.block:
        # A value a thread, at least.
        writes = max(writes, prod(activity.grid) * prod(activity.block))
    return Traffic(sum(sizes), largest, 0 if work.kind in _IN_PLACE else writes)


def is_native_loop(kind: str, name: str) -> bool:
    """A loop of PyTorch's own that is no elementwise one (interpolation, pooling, depthwise)."""
    return kind in {"other", "conv"} and "at::native" in name


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
    def bytes(self) -> int:
        """Of both operands and the result."""
        rows, inner, columns = self.rows, self.inner, self.columns
        return self.batch * self.size * (rows * inner + inner * columns + rows * columns)

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds

    @property
    def misfits(self) -> list[int]:
        """Sizes that are rows in memory for one of the operands, and no multiple of 16 bytes."""
        unit = ALIGNED // self.size
        return [n for n in (self.inner, self.columns, self.rows) if n >= unit and n % unit]


def matrix_product(work: StepWork) -> Product | None:
    """The product that a work computes, where its operator and sizes are known."""
    first = _PRODUCTS.get(work.maker.op)
    shapes, types = work.maker.shapes, work.maker.types
    if work.kind != "gemm" or first is None or len(shapes) < first + 2 or len(types) < first + 2:
        return None
    left, right = shapes[first], shapes[first + 1]
    size = BYTES.get(types[first])
    seconds = work.activity.duration * 1e-9
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2] or not size or seconds <= 0:
        return None
    made = Product(left[-2], left[-1], right[-1], prod(left[:-2]), size, seconds)
    return made if made.operations >= LEAST else None
