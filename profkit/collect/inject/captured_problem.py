"""One launch of a program: what a kernel was given, and what it made of it.

captured.json says the arrays. in<i>.bin holds what the program gave; where there is none, the input
is drawn with the same mean, spread and range. out<i>.bin holds what the program's own kernel made of
exactly these inputs: that is the reference. Arrays are flat: the bytes that the kernel could reach.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
_STORED = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
SEEDS = (0,)


_FILE = HERE / "captured.json"  # beside the program's hook there is none
_SAID: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8")) if _FILE.is_file() else {}
ATOL = _SAID.get("atol", 0.0)
RTOL = _SAID.get("rtol", 0.0)
CASES = CHECKS = {"captured": _SAID}


def arguments(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lengths of up to six arrays."""
    lengths = [a["length"] for a in (*case["outputs"], *case["inputs"])]
    return {"size": tuple(lengths[:6])}


def inputs(case: Mapping[str, Any], seed: int, grid: str | None = None) -> list[NDArray[Any]]:
    """Return the arrays that the kernel reads; formats that numpy lacks lie in integers."""
    del grid
    return [_input(a, i, seed) for i, a in enumerate(case["inputs"])]


def _input(array: Mapping[str, Any], index: int, seed: int) -> NDArray[Any]:
    kept = HERE / f"in{index}.bin"
    if not kept.is_file():
        return drawn(array, index, seed)
    return np.fromfile(kept, np.dtype(_STORED.get(array["dtype"], array["dtype"])))


def drawn(array: Mapping[str, Any], index: int, seed: int) -> NDArray[Any]:
    """Return a random array with the captured mean, spread and range."""
    rng = np.random.default_rng((seed, index, array["length"]))
    values = rng.standard_normal(array["length"], dtype=np.float32)
    values *= np.float32(array["std"])
    values += np.float32(array["mean"])
    np.clip(values, array["min"], array["max"], out=values)
    if array["dtype"] == "bfloat16":
        bits = values.view(np.uint32)
        rounded: NDArray[Any] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return rounded
    converted: NDArray[Any] = values.astype(array["dtype"])
    return converted


def input_types(case: Mapping[str, Any]) -> list[tuple[tuple[int, ...], str]]:
    """Return length and format of each input."""
    return _list_array_types(case["inputs"])


def outputs(case: Mapping[str, Any]) -> list[tuple[tuple[int, ...], str]]:
    """Return length and format of each output."""
    return _list_array_types(case["outputs"])


def _list_array_types(arrays: Sequence[Mapping[str, Any]]) -> list[tuple[tuple[int, ...], str]]:
    return [((array["length"],), array["dtype"]) for array in arrays]


def begins(case: Mapping[str, Any]) -> dict[int, int]:
    """Return output -> the input that it holds at first, for outputs updated in place."""
    starts = {}
    for output, array in enumerate(case["outputs"]):
        if array["begins"] is not None:
            starts[output] = array["begins"]
    return starts


def reference(case: Mapping[str, Any], given: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return what the program's own kernel made."""
    del given
    return [_output(a, i) for i, a in enumerate(case["outputs"])]


def _output(array: Mapping[str, Any], index: int) -> NDArray[Any]:
    kept = np.fromfile(HERE / f"out{index}.bin", _STORED.get(array["dtype"], array["dtype"]))
    if array["dtype"] == "bfloat16":
        return (kept.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return kept.astype(np.float64)


def operations(case: Mapping[str, Any]) -> float:
    """Return 0: a captured kernel says nothing of its arithmetic."""
    del case
    return 0.0


def compulsory_bytes(case: Mapping[str, Any]) -> float:
    """Return the bytes of all inputs and outputs: an upper bound where parts are skipped.

    An input that an output holds at first is the same memory, and counts once.
    """
    total = sum(array["bytes"] for array in case["outputs"])
    updated_in_place = set(begins(case).values())
    for index, array in enumerate(case["inputs"]):
        if index not in updated_in_place:
            total += array["bytes"]
    return float(total)
