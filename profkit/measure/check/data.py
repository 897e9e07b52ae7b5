"""A problem's case and seed  ->  its inputs and fp64 reference on disk, computed once.

Plain bytes, so that a child process can upload them without numpy. The reference is computed in
fp64 and kept as fp32: its rounding (6e-8) is far below any tolerance of a half-precision output.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.files import write_bytes, write_text
from profkit.measure.variants.problem import Problem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


@dataclass(frozen=True)
class Data:
    """What one case and seed are given, and what must come out."""

    problem: str
    case: str
    seed: int
    folder: Path
    # (shape, dtype) of each input; an array of bfloat16 is held as uint16
    shapes: tuple[tuple[tuple[int, ...], str], ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]  # (shape, dtype) of each output
    # (output, input): what is worked on in place holds that input at first
    begins: tuple[tuple[int, int], ...] = ()

    def inputs(self) -> list[Array]:
        """The inputs, mapped from disk, read-only."""
        return [_map(self.folder / f"in{i}", *s) for i, s in enumerate(self.shapes)]

    def reference(self) -> list[Array]:
        """The fp64 reference, kept as fp32."""
        return [_map(self.folder / f"ref{i}", s[0], "float32") for i, s in enumerate(self.outputs)]

    def output_bytes(self) -> list[int]:
        """Size of each output in bytes."""
        return [prod(shape) * held_as(dtype).itemsize for shape, dtype in self.outputs]


def _map(path: Path, shape: tuple[int, ...], dtype: str) -> Array:
    import numpy as np

    if 0 in shape:
        return np.empty(shape, held_as(dtype))
    return np.memmap(path, held_as(dtype), mode="r", shape=shape)


def prepare_data(
    problem: Problem, case: str, seed: int, folder: Path, grid: str | None = None
) -> Data:
    """Inputs and reference of a case, computed if they are not there yet.

    `grid` is the header's `inputs:` key, passed to the problem.
    """
    key = hashlib.sha256(f"{problem.hash}:{case}:{seed}:{grid}".encode()).hexdigest()[:12]
    place = folder / "data" / problem.name / f"{case}-{seed}-{key}"
    kept = place / "data.json"
    if not kept.is_file():
        _compute(problem, problem.case(case), seed, grid, place)
    shapes = json.loads(kept.read_text())
    arrays = _tuples(shapes["inputs"]), _tuples(shapes["outputs"])
    begins = tuple((out, source) for out, source in shapes.get("begins", ()))
    return Data(problem.name, case, seed, place, *arrays, begins)


def _tuples(shapes: list[Any]) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple((tuple(shape), dtype) for shape, dtype in shapes)


def _compute(problem: Problem, case: Any, seed: int, grid: str | None, place: Path) -> None:
    import numpy as np

    inputs = [np.ascontiguousarray(a) for a in problem.module.inputs(case, seed, grid)]
    outputs = problem.module.reference(case, inputs)
    for i, array in enumerate(inputs):
        write_bytes(place / f"in{i}", array.tobytes())
    for i, array in enumerate(outputs):
        write_bytes(place / f"ref{i}", array.astype(np.float32).tobytes())
    named = getattr(problem.module, "input_types", None)
    types = [dtype for _, dtype in named(case)] if named else [str(a.dtype) for a in inputs]
    shapes = {
        "inputs": [(a.shape, dtype) for a, dtype in zip(inputs, types, strict=True)],
        "outputs": [(tuple(shape), dtype) for shape, dtype in problem.module.outputs(case)],
        "begins": sorted(problem.begins(case).items()),
    }
    write_text(place / "data.json", json.dumps(shapes))


BFLOAT16 = "bfloat16"  # numpy has none


def held_as(dtype: str) -> np.dtype[Any]:
    """The numpy type of the same size that an array of this type is kept as."""
    import numpy as np

    return np.dtype(np.uint16 if dtype == BFLOAT16 else dtype)


def values_of(array: Array, dtype: str) -> Array:
    """What the bits stand for: bfloat16 as fp32, which holds each value; others as they are."""
    import numpy as np

    if dtype != BFLOAT16:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def tensor_of(array: Array, dtype: str) -> Any:
    """The array as a torch tensor of this type, on the CPU."""
    import numpy as np
    import torch

    tensor = torch.from_numpy(np.array(array))
    return tensor.view(torch.bfloat16) if dtype == BFLOAT16 else tensor


def values_of_tensor(tensor: Any) -> Array:
    """A tensor's values, on the CPU."""
    import torch

    plain: Array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
    return plain
