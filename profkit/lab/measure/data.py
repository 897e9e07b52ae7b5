"""A problem's case and seed  ->  inputs and fp64 reference, kept on disk; one launch of them on a GPU.

Plain bytes, so that a child process can upload them without numpy. The reference is computed in
fp64 and kept as fp32: its rounding (6e-8) is far below any tolerance of a half-precision output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.files import is_file, read_json, write_bytes, write_text
from profkit.lab.measure.cuda import device
from profkit.lab.measure.cuda.library import Args
from profkit.lab.measure.variants.problem import Problem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from profkit.units import ByteCount, CaseName, CudaStream, DeviceAddress, TorchTensor

    Array = NDArray[np.generic]
    Bytes = NDArray[np.uint8]


class ArrayType(NamedTuple):
    """What an array is like; one of bfloat16 is held as uint16."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> ByteCount:
        """Return the bytes that it takes."""
        return prod(self.shape) * choose_storage_type(self.dtype).itemsize


class Span(NamedTuple):
    """Where an array is in an allocation, in bytes."""

    offset: int
    size: int

    def cut_span_out_of_allocation(self, allocation_bytes: Bytes) -> Bytes:
        """Return its bytes, out of those of the whole allocation."""
        return allocation_bytes[self.offset : self.offset + self.size]


@dataclass(frozen=True)
class CaseData:
    """What one case and seed are given, and what must come out."""

    case: str
    seed: int
    folder: Path
    shapes: tuple[ArrayType, ...]  # of the inputs
    outputs: tuple[ArrayType, ...]
    # (output, input): what is worked on in place holds that input at first
    begins: tuple[tuple[int, int], ...] = ()

    def load_inputs(self) -> list[Array]:
        """Return the inputs, mapped from disk, read-only."""
        arrays = []
        for i, array in enumerate(self.shapes):
            arrays.append(_map_array_file(self.folder / f"in{i}", array.shape, array.dtype))
        return arrays

    def load_reference(self) -> list[Array]:
        """Return the fp64 reference, kept as fp32."""
        arrays = []
        for i, array in enumerate(self.outputs):
            arrays.append(_map_array_file(self.folder / f"ref{i}", array.shape, "float32"))
        return arrays

    def list_output_sizes(self) -> list[ByteCount]:
        """Return the size of each output in bytes."""
        return [array.size for array in self.outputs]


def _map_array_file(path: Path, shape: tuple[int, ...], dtype: str) -> Array:
    import numpy as np

    if 0 in shape:
        return np.empty(shape, choose_storage_type(dtype))
    return np.memmap(path, choose_storage_type(dtype), mode="r", shape=shape)


def load_or_compute_case_data(
    problem: Problem, case: CaseName, seed: int, cache_folder: Path, inputs_key: str | None = None
) -> CaseData:
    """Compute inputs and reference of a case once; `inputs_key` is the header's `inputs:` key."""
    key = hashlib.sha256(f"{problem.hash}:{case}:{seed}:{inputs_key}".encode()).hexdigest()[:12]
    place = cache_folder / "data" / problem.name / f"{case}-{seed}-{key}"
    kept = place / "data.json"
    if not is_file(kept):
        _compute_and_store_case(problem, problem.get_case(case), seed, inputs_key, place)
    shapes = read_json(kept)
    arrays = _make_array_types(shapes["inputs"]), _make_array_types(shapes["outputs"])
    begins = tuple((out, source) for out, source in shapes.get("begins", ()))
    return CaseData(case, seed, place, *arrays, begins)


def _make_array_types(shapes: list[Any]) -> tuple[ArrayType, ...]:
    return tuple(ArrayType(tuple(shape), dtype) for shape, dtype in shapes)


def _compute_and_store_case(
    problem: Problem, case: Any, seed: int, inputs_key: str | None, folder: Path
) -> None:
    import numpy as np

    inputs = []
    for a in problem.module.inputs(case, seed, inputs_key):
        inputs.append(np.ascontiguousarray(a))
    outputs = problem.module.reference(case, inputs)
    for i, array in enumerate(inputs):
        write_bytes(folder / f"in{i}", array.tobytes())
    for i, array in enumerate(outputs):
        write_bytes(folder / f"ref{i}", array.astype(np.float32).tobytes())
    named = getattr(problem.module, "input_types", None)
    if named:
        types = [dtype for _, dtype in named(case)]
    else:
        types = [str(a.dtype) for a in inputs]
    shapes = {
        "inputs": [(a.shape, dtype) for a, dtype in zip(inputs, types, strict=True)],
        "outputs": [(tuple(shape), dtype) for shape, dtype in problem.module.outputs(case)],
        "begins": sorted(problem.map_inplace_outputs_to_inputs(case).items()),
    }
    write_text(folder / "data.json", json.dumps(shapes))


BFLOAT16 = "bfloat16"  # numpy has none


def choose_storage_type(dtype: str) -> np.dtype[Any]:
    """Return the numpy type of the same size that an array of this type is kept as."""
    import numpy as np

    return np.dtype(np.uint16 if dtype == BFLOAT16 else dtype)


def decode_stored_values(array: Array, dtype: str) -> Array:
    """Return the values of an array that is kept as `choose_storage_type` says; bfloat16 as float32."""
    import numpy as np

    if dtype != BFLOAT16:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def make_host_tensor(array: Array, dtype: str) -> TorchTensor:
    """Return an array as a tensor on the host, of its shape and of this type."""
    import numpy as np
    import torch

    tensor = torch.from_numpy(np.array(array))
    if dtype == BFLOAT16:
        return tensor.view(torch.bfloat16)
    return tensor


def copy_tensor_values_to_host(tensor: TorchTensor) -> Array:
    """Return a tensor's values on the host, in its shape; bfloat16 as float32."""
    import torch

    plain: Array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
    return plain


GUARD = 4096
POISON = 0xFF
FENCE = 0xA5
_ALIGN = 256  # what cudaMalloc promises


@dataclass(frozen=True)
class Arena:
    """One device allocation: guard, input, guard, input, guard, output, guard.

    Outputs hold NaN before the launch (0xFF bytes are NaN in every float format), guards hold 0xA5.
    One copy back shows what was written, what was not, and what should not have been.
    """

    base: int
    size: int
    data: CaseData
    inputs: tuple[Span, ...]
    outputs: tuple[Span, ...]

    def write_initial_contents_to(self, data: CaseData | None, address: DeviceAddress) -> None:
        """Put at an address what stands here before a launch; without data, no inputs."""
        import numpy as np

        image = np.full(self.size, FENCE, np.uint8)
        for span in self.outputs:
            span.cut_span_out_of_allocation(image)[:] = POISON
        for i, span in enumerate(self.inputs):
            span.cut_span_out_of_allocation(image)[:] = (
                view_as_bytes(data.load_inputs()[i]) if data else 0
            )
        for out, source in data.begins if data else ():
            span = self.outputs[out]
            first = self.inputs[source].offset
            span.cut_span_out_of_allocation(image)[:] = image[first : first + span.size]
        device.copy_to_device(address, image.ctypes.data, self.size)

    def make_args(self, problem: Problem, stream: CudaStream) -> Args:
        """Return the addresses and values that a variant is launched with."""
        inputs = [self.base + span.offset for span in self.inputs]
        outputs = [self.base + span.offset for span in self.outputs]
        values = problem.module.arguments(problem.get_case(self.data.case))
        return Args.from_addresses(inputs, outputs, values, stream)

    def copy_arena_to_host(self) -> Bytes:
        """Copy the whole arena, guards included, to the host."""
        import numpy as np

        host = np.empty(self.size, np.uint8)
        device.copy_to_host(host.ctypes.data, self.base, self.size)
        return host

    def cut_output_out_of(self, arena_bytes: Bytes, output_index: int) -> Array:
        """Return an output in its shape, out of a copy of all the arena's bytes."""
        shape, dtype = self.data.outputs[output_index]
        stored = (
            self.outputs[output_index]
            .cut_span_out_of_allocation(arena_bytes)
            .view(choose_storage_type(dtype))
        )
        return decode_stored_values(stored.reshape(shape), dtype)

    def count_unwritten_elements(self, arena_bytes: Bytes, output_index: int) -> int:
        """Return how many elements of an output still are the poison; 0 where none ever was."""
        if any(out == output_index for out, _ in self.data.begins):
            return 0
        width = choose_storage_type(self.data.outputs[output_index].dtype).itemsize
        words = (
            self.outputs[output_index].cut_span_out_of_allocation(arena_bytes).reshape(-1, width)
        )
        return int((words == POISON).all(axis=1).sum())

    def describe_forbidden_writes(self, arena_bytes: Bytes) -> list[str]:
        """Return what a launch wrote that it should not have, one line each."""
        return [
            *self._describe_changed_inputs(arena_bytes),
            *self._describe_changed_guards(arena_bytes),
        ]

    def _describe_changed_inputs(self, arena_bytes: Bytes) -> Iterator[str]:
        given = zip(self.inputs, self.data.load_inputs(), strict=True)
        for index, (span, array) in enumerate(given):
            changed = int(
                (span.cut_span_out_of_allocation(arena_bytes) != view_as_bytes(array)).sum()
            )
            if changed:
                yield f"input {index} was overwritten: {changed} bytes changed"

    def _describe_changed_guards(self, arena_bytes: Bytes) -> Iterator[str]:
        """Yield a line for each gap between arrays in which a byte changed."""
        arrays = []
        for kind, places in (("input", self.inputs), ("output", self.outputs)):
            for index, (offset, size) in enumerate(places):
                arrays.append((f"{kind} {index}", offset, size))
        start = 0
        behind = ""
        for name, offset, size in [*arrays, ("", self.size, 0)]:
            touched = int((arena_bytes[start:offset] != FENCE).sum())
            if touched:
                sides = []
                if behind:
                    sides.append(f"behind {behind}")
                if name:
                    sides.append(f"before {name}")
                yield f"{touched} bytes written {' or '.join(sides)}, outside the arrays"
            start = offset + size
            behind = name


def plan_arena(data: CaseData, base_address: DeviceAddress = 0) -> Arena:
    """Place inputs and outputs one after another, with guards around each."""
    at = GUARD
    places = []
    for array in (*data.shapes, *data.outputs):
        places.append(Span(at, array.size))
        at += (array.size + _ALIGN - 1) // _ALIGN * _ALIGN + GUARD
    count = len(data.shapes)
    return Arena(base_address, at, data, tuple(places[:count]), tuple(places[count:]))


def upload_arena(data: CaseData) -> Arena:
    """Allocate and upload; guards and outputs are filled."""
    arena = plan_arena(data, device.allocate_device_memory(plan_arena(data).size))
    arena.write_initial_contents_to(data, arena.base)
    return arena


def view_as_bytes(array: Any) -> Bytes:
    """Return the bytes of an array as one flat array."""
    import numpy as np

    flat: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat
