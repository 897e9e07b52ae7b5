"""One launch of a kernel function  ->  a folder: its arrays, its source, and how it was started."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import profkit_capture_arrays as arrays
import profkit_capture_source as source

_BLOCK = re.compile(r"[A-Z][A-Z0-9_]*BLOCK[A-Z0-9_]*|BLOCK[A-Z0-9_]*")


@dataclass
class Start:
    """One launch of one kernel function."""

    kernel: Any
    given: dict[str, Any]  # parameter -> argument, in order
    options: dict[str, Any]  # num_warps, num_stages and so on
    grid: tuple[int, ...]
    grid_text: str  # the grid as an expression of the parameters, where it is known; else empty
    # parameter -> another tensor: launch once more on the current stream
    launch: Callable[[dict[str, Any]], None]
    file: str = ""  # where the function stands

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.kernel.fn.__name__)


@dataclass
class Seen:
    """A launch that is about to be."""

    name: str
    given: dict[str, Any]  # parameter -> argument, as far as it is known before
    start: Callable[[], Start]  # what is known once it was launched

    def key(self) -> str:
        """What tells it from other launches of the function."""
        return repr((self.name, [_kind(v) for v in self.given.values()]))

    def tensors(self) -> list[tuple[str, Any]]:
        """The parameters that are tensors."""
        return [(k, v) for k, v in self.given.items() if hasattr(v, "data_ptr")]


def _kind(value: Any) -> Any:
    """What makes two launches of a function alike: arrays of one shape; numbers may differ."""
    if hasattr(value, "data_ptr"):
        return str(value.dtype), tuple(value.shape), tuple(value.stride())
    return type(value).__name__ if isinstance(value, int | float) else repr(value)


def write_launch(start: Start, outcome: arrays.CaptureOutcome, place: Path, drawn: Any) -> None:
    """The arrays, what they are, and the source."""
    pointers = [(k, v) for k, v in start.given.items() if hasattr(v, "data_ptr")]
    unaligned = [k for k, v in pointers if v.data_ptr() % 16]
    imports, definitions = source.standalone(start.kernel, unaligned)
    place.mkdir()
    inputs = arrays.inputs_of(outcome.arrays)
    outputs = [a for a in outcome.arrays if a.written]
    for i, array in enumerate(inputs):
        if drawn is None or i not in drawn:
            arrays.store(array.before, place / f"in{i}.bin")
    for i, array in enumerate(outputs):
        arrays.store(array.after, place / f"out{i}.bin")
    begins = [inputs.index(a) if a.works_in_place else None for a in outputs]
    # Parameter -> the array that the variant is given in its place; what is both is an output.
    named: dict[str, str] = {}
    for kind, several in (("in", inputs), ("out", outputs)):
        for i, array in enumerate(several):
            named |= dict.fromkeys(array.names, f"{kind}{i}")
    about = {
        "kernel": start.name,
        "file": start.file,
        "inputs": [a.about() for a in inputs],
        "outputs": [{**a.made(), "begins": b} for a, b in zip(outputs, begins, strict=True)],
        "grid": start.grid,
        "grid_text": start.grid_text,
        "options": {k: v for k, v in start.options.items() if isinstance(v, int | float | str)},
        "parameters": [_parameter(k, v, named) for k, v in start.given.items()],
        "tunable": [k for k, v in start.given.items() if _BLOCK.fullmatch(k) and _power(v)],
        "imports": imports,
        "definitions": definitions,
        "seconds": outcome.seconds,
        "bit_equal": outcome.bit_equal,
        "spread": outcome.spread,
        "values": drawn is None,
        "notes": outcome.notes,
    }
    (place / "capture.json").write_text(json.dumps(about), encoding="utf-8")


def _power(value: Any) -> bool:
    return isinstance(value, int) and value > 1 and value & (value - 1) == 0


def _parameter(name: str, value: Any, named: dict[str, str]) -> dict[str, Any]:
    """How the launch function of the variant says an argument."""
    if name in named:
        return {"name": name, "array": named[name]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"name": name, "value": value}
    if type(value).__name__ == "dtype" and hasattr(value, "primitive_bitwidth"):
        return {"name": name, "code": f"tl.{_DTYPES.get(str(value), str(value))}"}
    raise arrays.CannotCapture(f"its argument {name} is a {type(value).__name__}")


_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
