"""What a launch function started at each case  ->  tables for player.c, and the same as JSON.

In place of arrays it is given addresses with a type, and no memory: an address says which array it is
of, so that a pointer handed to a kernel can be recognised.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda.library import Numbers

if TYPE_CHECKING:
    from profkit.units import ByteCount, CaseName, CppText, PlainValues


Shape3 = tuple[int, int, int]
PlaceKind = Literal["value", "in", "out", "scratch"]
_WHERE: tuple[PlaceKind, ...] = ("value", "in", "out", "scratch")
SIZES = 6  # of ProfkitArgs: how many sizes, and how many strides


@dataclass(frozen=True)
class KernelImage:
    """A compiled kernel."""

    name: str  # what it is called in tables: its function, and what it is specialised for
    symbol: str  # its name in the machine code
    cubin: bytes
    log: str = ""  # what ptxas -v said


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: an address in some array, or a value."""

    where: PlaceKind  # an array of the problem, of the call's own memory, or a plain value
    index: int = 0
    value: int = 0  # offset into the array in bytes; or the bits of the value


@dataclass(frozen=True)
class KernelStart:
    """One kernel launch. Sizes in bytes."""

    image: int  # which of the plan's images
    grid: Shape3  # blocks
    block: Shape3  # threads
    dynamic_smem: int  # dynamic shared memory of a block
    parameters: tuple[Parameter, ...]  # in order
    cluster: int = 1  # blocks of a cluster, in x
    cooperative: bool = False  # whether all blocks must be resident
    dependent: bool = False  # whether it may begin before the kernel ahead has ended


@dataclass(frozen=True)
class Scratch:
    """Device memory for the length of one call, in bytes; zeroed first if asked for."""

    size: int
    zero: bool = False


@dataclass(frozen=True)
class CasePlan:
    """What one call starts where ProfkitArgs says this; nothing: the case is not supported."""

    name: str
    values: Mapping[str, Any]
    starts: tuple[KernelStart, ...] = ()
    scratch: tuple[Scratch, ...] = ()


@dataclass
class CallPlan:
    """The kernels of a variant, and what one call launches at each case."""

    images: list[KernelImage] = field(default_factory=list)
    cases: list[CasePlan] = field(default_factory=list)

    def to_json(self) -> dict[CaseName, PlainValues]:
        """Return case -> its launches, for those who look without a GPU: see variants/dry.py."""
        return {case.name: list(map(self._describe_launch, case.starts)) for case in self.cases}

    def _describe_launch(self, start: KernelStart) -> dict[str, Any]:
        clusters, rows, planes = start.grid
        return {
            "kernel": self.images[start.image].name,
            "grid": (clusters * start.cluster, rows, planes),
            "block": start.block,
            "dynamic_smem": start.dynamic_smem,
        }

    def write_c_tables(self) -> CppText:
        """Return the tables that player.c includes; image i lies next to them as image<i>.cubin."""
        lines = [f'IMAGE({i}, "image{i}.cubin")' for i in range(len(self.images))]
        for declared, rows in self._make_tables().items():
            lines.append(f"static const {declared}[] = {_write_c_value(rows or [(0,)])};")
        counts = f"CASE_COUNT = {len(self.cases)}, IMAGE_COUNT = {max(1, len(self.images))}"
        lines.append(f"enum {{{counts}}};")
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        return "\n".join([*lines, f"#define PLAN_ID 0x{digest}ull", ""])

    def _make_tables(self) -> dict[str, list[Any]]:
        """Return type and name of each array in C, with its rows; a case names its rows by number."""
        images = [(f"image{i}", f'"{image.symbol}"') for i, image in enumerate(self.images)]
        parameters: list[Any] = []
        starts: list[Any] = []
        scratch: list[Any] = []
        cases: list[Any] = []
        for case in self.cases:
            counts = len(starts), len(case.starts), len(scratch), len(case.scratch)
            cases.append((*_list_numbers_of_profkit_args(case.values), *counts))
            scratch += [(s.size, s.zero) for s in case.scratch]
            for s in case.starts:
                how = s.dynamic_smem, s.cluster, s.cooperative, s.dependent
                starts.append((s.image, s.grid, s.block, *how, len(parameters), len(s.parameters)))
                parameters += [(_WHERE.index(p.where), p.index, p.value) for p in s.parameters]
        return {
            "Image IMAGES": images,
            "Parameter PARAMETERS": parameters,
            "Start STARTS": starts,
            "Memory SCRATCH": scratch,
            "Case CASES": cases,
        }


def _write_c_value(value: Any) -> CppText:
    """Return a value as an initialiser in C: several in braces, text as it is."""
    if isinstance(value, list | tuple):
        return f"{{{', '.join(map(_write_c_value, value))}}}"
    if isinstance(value, str):
        return value
    if value >= 1 << 63:
        return f"{value:d}ull"
    return f"{value:d}"


def _list_numbers_of_profkit_args(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return size, stride, scale and causal as ProfkitArgs holds them; scale by its bits."""
    numbers = Numbers.from_problem_arguments(values)
    (scale,) = struct.unpack("<I", struct.pack("<f", numbers.scale))
    return (
        _pad_with_zeros(numbers.size),
        _pad_with_zeros(numbers.stride),
        scale,
        int(numbers.causal),
    )


def _pad_with_zeros(numbers: Sequence[int]) -> list[int]:
    """Return as many numbers as ProfkitArgs has places for, with 0 in those that are left."""
    return [*numbers, *[0] * (SIZES - len(numbers))]


_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}
_STEP = 1 << 40  # between two arrays: none is longer
# The step of the first of each kind, the last kind first: 32 inputs and 16 outputs (see Args).
_FIRST: dict[PlaceKind, int] = {"scratch": 49, "out": 33, "in": 1}


class DeviceArray:
    """An array of the problem, contiguous, as a launch function sees it."""

    is_cuda = True

    def __init__(self, dtype: str, shape: Sequence[int], address: int) -> None:
        if dtype not in _BYTES:
            raise ProfkitError(
                f"an array of {dtype}: no such type", f"there are: {', '.join(_BYTES)}"
            )
        self.dtype, self.shape, self._address = dtype, tuple(map(int, shape)), address

    def data_ptr(self) -> int:
        """Return its address."""
        return self._address

    def element_size(self) -> ByteCount:
        """Return the bytes of one element."""
        return _BYTES[self.dtype]

    def numel(self) -> int:
        """Return how many elements it has."""
        return prod(self.shape)

    def dim(self) -> int:
        """Return how many dimensions it has."""
        return len(self.shape)

    def size(self, axis: int | None = None) -> Any:
        """Return its sizes, or the size of one dimension."""
        if axis is None:
            return self.shape
        return self.shape[axis]

    def stride(self, axis: int | None = None) -> Any:
        """Return its strides in elements, or the stride of one dimension."""
        strides = tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
        if axis is None:
            return strides
        return strides[axis]

    def is_contiguous(self) -> bool:
        """Return True: it has no gaps."""
        return True


class LaunchArgs:
    """What a launch function is given last: numbers of the problem's `arguments`, and the GPU."""

    def __init__(self, values: dict[str, Any], arch: str, sms: int) -> None:
        numbers = Numbers.from_problem_arguments(values)
        self.size, self.stride = tuple(numbers.size), tuple(numbers.stride)
        self.scale, self.causal = float(numbers.scale), int(numbers.causal)
        self.arch, self.sms = arch, sms  # `90` for compute capability 9.0
        self.requested: list[Scratch] = []

    def scratch(self, shape: Sequence[int], dtype: str, zero: bool = False) -> DeviceArray:
        """Return device memory for the length of this call, for what one kernel leaves to the next.

        Not zeroed unless asked for.
        """
        array = make_array_at_coded_address("scratch", len(self.requested), dtype, shape)
        self.requested.append(Scratch(array.numel() * array.element_size(), zero))
        return array


def make_array_at_coded_address(
    where: PlaceKind, index: int, dtype: str, shape: Sequence[int]
) -> DeviceArray:
    """Return an array of a kind and number, at an address that tells both."""
    return DeviceArray(dtype, shape, (_FIRST[where] + index) * _STEP)


def decode_array_address(address: int) -> Parameter:
    """Return what a pointer that a launch function gave a kernel points into."""
    step, offset = divmod(address, _STEP)
    if address == 0:
        return Parameter("value")
    for where, first in _FIRST.items():
        if step >= first:
            return Parameter(where, step - first, offset)
    raise ProfkitError(
        "a kernel is given a pointer to other memory than the problem's arrays",
        "memory of its own comes from args.scratch(shape, dtype)",
    )
