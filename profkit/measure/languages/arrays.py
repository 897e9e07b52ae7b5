"""What a launch function is given in place of arrays: addresses with a type, and no memory.

An address says which array it is of, so that a pointer handed to a kernel can be told again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.languages.plan import Parameter, Scratch

_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}  # fmt: skip
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
        self.size = tuple(values.get("size", ()))
        self.stride = tuple(values.get("stride", ()))  # of the first input, in elements
        self.scale, self.causal = float(values.get("scale", 1.0)), int(values.get("causal", False))
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
