"""Inputs and outputs of one launch in one device allocation, guards between  ->  what was touched.

Outputs hold NaN before the launch (0xFF bytes are NaN in every float format), guards hold 0xA5.
One copy back shows what was written, what was not, and what should not have been.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from profkit.measure.check.data import Data, held_as, values_of
from profkit.measure.cuda import device
from profkit.measure.cuda.library import Args

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

GUARD = 4096
POISON, FENCE = 0xFF, 0xA5
_ALIGN = 256  # what cudaMalloc promises


@dataclass(frozen=True)
class Arena:
    """One device allocation: guard, input, guard, input, guard, output, guard."""

    base: int
    size: int
    data: Data
    inputs: tuple[tuple[int, int], ...]  # (offset, bytes) of each input
    outputs: tuple[tuple[int, int], ...]  # (offset, bytes) of each output


def layout(data: Data, base: int = 0) -> Arena:
    """Where each array lies in an allocation that begins at `base`."""
    at, places = GUARD, []
    for shape, dtype in (*data.shapes, *data.outputs):
        size = prod(shape) * held_as(dtype).itemsize
        places.append((at, size))
        at += (size + _ALIGN - 1) // _ALIGN * _ALIGN + GUARD
    count = len(data.shapes)
    return Arena(base, at, data, tuple(places[:count]), tuple(places[count:]))


def place_arena(data: Data) -> Arena:
    """Allocate and upload; guards and outputs are filled."""
    arena = layout(data, device.allocate(layout(data).size))
    device.fill(arena.base, FENCE, arena.size)
    for (offset, size), array in zip(arena.inputs, data.inputs(), strict=True):
        device.upload(arena.base + offset, array.ctypes.data, size)
    poison(arena)
    return arena


def poison(arena: Arena) -> None:
    """Fill the outputs with NaN; what is worked on in place with the input that it begins as."""
    for offset, size in arena.outputs:
        device.fill(arena.base + offset, POISON, size)
    for out, source in arena.data.begins:
        (offset, size), (start, _) = arena.outputs[out], arena.inputs[source]
        device.copy(arena.base + offset, arena.base + start, size)


def args_on(arena: Arena, values: Mapping[str, Any], stream: int) -> Args:
    """ProfkitArgs for a launch on this arena."""
    places = arena.inputs, arena.outputs
    inputs, outputs = ([arena.base + offset for offset, _ in kind] for kind in places)
    return Args.filled(inputs, outputs, values, stream)


def fetch(arena: Arena) -> Bytes:
    """The whole allocation, copied back."""
    import numpy as np

    host = np.empty(arena.size, np.uint8)
    device.download(host.ctypes.data, arena.base, arena.size)
    return host


def output(arena: Arena, host: Bytes, index: int) -> NDArray[np.generic]:
    """The values of one output out of a copy of the allocation."""
    (shape, dtype), (offset, size) = arena.data.outputs[index], arena.outputs[index]
    return values_of(host[offset : offset + size].view(held_as(dtype)).reshape(shape), dtype)


def unwritten(arena: Arena, host: Bytes, index: int) -> int:
    """How many elements of an output still hold every bit of the poison; 0 where it never was."""
    if any(out == index for out, _ in arena.data.begins):
        return 0
    (_, dtype), (offset, size) = arena.data.outputs[index], arena.outputs[index]
    words = host[offset : offset + size].reshape(-1, held_as(dtype).itemsize)
    return int((words == POISON).all(axis=1).sum())


def out_of_bounds_writes(arena: Arena, host: Bytes) -> list[str]:
    """What a launch wrote that it should not have, one line each."""
    lines = []
    for i, ((offset, size), array) in enumerate(
        zip(arena.inputs, arena.data.inputs(), strict=True)
    ):
        changed = int((host[offset : offset + size] != as_bytes(array)).sum())
        if changed:
            lines.append(f"input {i} was overwritten: {changed} bytes changed")
    ends = [(f"input {i}", o, s) for i, (o, s) in enumerate(arena.inputs)]
    ends += [(f"output {i}", o, s) for i, (o, s) in enumerate(arena.outputs)]
    start = 0
    for before, after in zip([None, *ends], [*ends, None], strict=True):
        stop = after[1] if after else arena.size
        touched = int((host[start:stop] != FENCE).sum())
        if touched:
            sides = [f"behind {before[0]}"] if before else []
            sides += [f"before {after[0]}"] if after else []
            lines.append(f"{touched} bytes written {' or '.join(sides)}, outside the arrays")
        start = after[1] + after[2] if after else stop
    return lines


def as_bytes(array: Any) -> Bytes:
    """An array's content."""
    import numpy as np

    flat: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat
