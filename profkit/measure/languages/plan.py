"""What a launch function started at each case  ->  tables for player.c, and the same as JSON.

In place of arrays it is given addresses with a type, and no memory: an address says which array it is
of, so that a pointer handed to a kernel can be told again.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from profkit.errors import ProfkitError
from profkit.measure.cuda.library import Numbers

Shape3 = tuple[int, int, int]
Where = Literal["value", "in", "out", "scratch"]
_WHERE: tuple[Where, ...] = ("value", "in", "out", "scratch")
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
    """One parameter of a kernel."""

    where: Where  # an array of the problem, of the call's own memory, or a plain value
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

    values: Mapping[str, Any]
    starts: tuple[KernelStart, ...] = ()
    scratch: tuple[Scratch, ...] = ()


@dataclass
class CallPlan:
    """All of a launch function."""

    images: list[KernelImage] = field(default_factory=list)
    cases: list[CasePlan] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """What a launch is made of, for those who look without a GPU: see variants/dry.py."""
        return {"cases": [{**_plain(c.values), "launches": self._launches(c)} for c in self.cases]}

    def _launches(self, case: CasePlan) -> list[dict[str, Any]]:
        return [
            {
                "kernel": self.images[s.image].name,
                "grid": (s.grid[0] * s.cluster, *s.grid[1:]),
                "block": s.block,
                "dynamic_smem": s.dynamic_smem,
            }
            for s in case.starts
        ]

    def to_c(self) -> str:
        """The tables that player.c includes; image i lies beside them as image<i>.cubin."""
        parameters: list[str] = []
        starts: list[str] = []
        scratch: list[str] = []
        cases: list[str] = []
        for case in self.cases:
            first = len(starts), len(scratch)
            for start in case.starts:
                starts.append(_start(start, len(parameters)))
                parameters += [
                    f"{{{_WHERE.index(p.where)}, {p.index}, {p.value}ull}}"
                    for p in start.parameters
                ]
            scratch += [f"{{{s.size}ull, {int(s.zero)}}}" for s in case.scratch]
            cases.append(_case(case, first))
        tables = {
            "Parameter PARAMETERS": parameters,
            "Start STARTS": starts,
            "Memory SCRATCH": scratch,
            "Case CASES": cases,
        }
        lines = [f'IMAGE({i}, "image{i}.cubin")' for i in range(len(self.images))]
        rows = [f'{{image{i}, "{image.symbol}"}}' for i, image in enumerate(self.images)]
        tables = {"Image IMAGES": rows, **tables}
        lines += [f"static const {k}[] = {{{', '.join(v) or '{0}'}}};" for k, v in tables.items()]
        lines.append(f"enum {{CASE_COUNT = {len(cases)}, IMAGE_COUNT = {max(1, len(rows))}}};")
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        return "\n".join([*lines, f"#define PLAN_ID 0x{digest}ull", ""])


def of_values(document: Mapping[str, Any], values: Mapping[str, Any]) -> list[Any] | None:
    """The launches of a plan's JSON for what ProfkitArgs would say; None: no such case."""
    arguments = json.loads(json.dumps(_plain(values)))
    for case in document["cases"]:
        if {k: v for k, v in case.items() if k != "launches"} == arguments:
            launches: list[Any] = case["launches"]
            return launches
    return None


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """size, stride, scale and causal as ProfkitArgs holds them; scale by its bits."""
    numbers = Numbers.of(values)
    return {
        "size": _padded(numbers.size),
        "stride": _padded(numbers.stride),
        "scale": bits_of(numbers.scale),
        "causal": int(numbers.causal),
    }


def _padded(numbers: Sequence[int]) -> list[int]:
    return [*map(int, numbers), *(0,) * (SIZES - len(numbers))]


def bits_of(value: float) -> int:
    """The bits of a float of four bytes."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)


def _start(start: KernelStart, first: int) -> str:
    grid, block = (", ".join(map(str, shape)) for shape in (start.grid, start.block))
    rest = start.cluster, int(start.cooperative), int(start.dependent)
    numbers = start.dynamic_smem, *rest, first, len(start.parameters)
    return f"{{{start.image}, {{{grid}}}, {{{block}}}, {', '.join(map(str, numbers))}}}"


def _case(case: CasePlan, first: tuple[int, int]) -> str:
    arguments = _plain(case.values)
    size, stride = (", ".join(f"{n}ll" for n in arguments[k]) for k in ("size", "stride"))
    counts = first[0], len(case.starts), first[1], len(case.scratch)
    return (
        f"{{{{{size}}}, {{{stride}}}, {arguments['scale']}u, {arguments['causal']}, "
        f"{', '.join(map(str, counts))}}}"
    )


_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}
_STEP = 1 << 40  # between two arrays: none is longer
_OUT, _SCRATCH = 17, 33  # the first output's and the first scratch array's step


class DeviceArray:
    """An array of the problem, contiguous, as a launch function sees it."""

    is_cuda = True

    def __init__(self, dtype: str, shape: Sequence[int], address: int) -> None:
        """An array.

        Raises:
            ProfkitError: There is no such type.
        """
        if dtype not in _BYTES:
            raise ProfkitError(
                f"an array of {dtype}: no such type", f"there are: {', '.join(_BYTES)}"
            )
        self.dtype, self.shape, self._address = dtype, tuple(map(int, shape)), address

    def data_ptr(self) -> int:
        """Its address, a multiple of 256."""
        return self._address

    def element_size(self) -> int:
        """Bytes of an element."""
        return _BYTES[self.dtype]

    def numel(self) -> int:
        """How many elements."""
        return prod(self.shape)

    def dim(self) -> int:
        """How many dimensions."""
        return len(self.shape)

    def size(self, axis: int | None = None) -> Any:
        """The size of an axis, or all."""
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis: int | None = None) -> Any:
        """The stride of an axis in elements, or all."""
        strides = tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
        return strides if axis is None else strides[axis]

    def is_contiguous(self) -> bool:
        """Always."""
        return True


class LaunchArgs:
    """What a launch function is given last: numbers of the problem's `arguments`, and the GPU."""

    def __init__(self, values: dict[str, Any], arch: str, sms: int) -> None:
        numbers = Numbers.of(values)
        self.size, self.stride = tuple(numbers.size), tuple(numbers.stride)
        self.scale, self.causal = float(numbers.scale), int(numbers.causal)
        self.arch, self.sms = arch, sms  # `90` for compute capability 9.0
        self.asked: list[Scratch] = []

    def scratch(self, shape: Sequence[int], dtype: str, zero: bool = False) -> DeviceArray:
        """Device memory for the length of this call, for what one kernel leaves to the next.

        Not zeroed unless asked for.
        """
        array = DeviceArray(dtype, shape, (_SCRATCH + len(self.asked)) * _STEP)
        self.asked.append(Scratch(array.numel() * array.element_size(), zero))
        return array


def array_of(output: bool, index: int, dtype: str, shape: Sequence[int]) -> DeviceArray:
    """The problem's input or output of this number."""
    return DeviceArray(dtype, shape, ((_OUT if output else 1) + index) * _STEP)


def parameter_of(address: int) -> Parameter:
    """What a pointer that a launch function gave a kernel points into.

    Raises:
        ProfkitError: Into nothing that the function was given.
    """
    step, offset = divmod(address, _STEP)
    if address == 0:
        return Parameter("value")
    if step >= _SCRATCH:
        return Parameter("scratch", step - _SCRATCH, offset)
    if step >= _OUT:
        return Parameter("out", step - _OUT, offset)
    if step >= 1:
        return Parameter("in", step - 1, offset)
    raise ProfkitError(
        "a kernel is given a pointer to other memory than the problem's arrays",
        "memory of its own comes from args.scratch(shape, dtype)",
    )
