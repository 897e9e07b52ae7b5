"""What the hook left of one launch  ->  a problem's folder: problem.py, the arrays, one variant."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from profkit.files import read_json, write_text
from profkit.records.store import JsonObject

CASE, VARIANT = "captured", "captured"
_TEMPLATE = Path(__file__).with_name("inject") / "captured_problem.py"
# Units in the last place of what an output is stored in: two of them, and of its own spread.
_EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-22, "float64": 2**-22}
_KEPT = ("kernel", "grid", "options", "inputs", "outputs", "seconds", "bit_equal", "notes")
_RENAMED = {"num_warps": "WARPS", "num_stages": "STAGES"}
_AROUND = {"num_warps": (1, 16), "num_stages": (1, 5)}


def write_problem(left: Path, place: Path, program: str, launches: int) -> Path:
    """Make a problem of what the hook left; the file of its variant.

    `left` is the folder that the hook left of one launch; `place` must not be there.
    """
    about = read_json(left / "capture.json")
    place.mkdir(parents=True)
    for array in sorted(left.glob("*.bin")):
        shutil.move(array, place / array.name)
    shutil.copy(_TEMPLATE, place / "problem.py")
    document = {**_tolerance(about), **{key: about[key] for key in _KEPT}}
    write_text(place / "captured.json", json.dumps(document, indent=1) + "\n")
    path = place / f"{VARIANT}_{_word(about['kernel'])}.py"
    write_text(path, variant_text(about, program, launches))
    return path


def folder_name(kernel: str, taken: set[str]) -> str:
    """A folder's name that no other has."""
    stem = _word(kernel)
    names = (stem if n == 1 else f"{stem}-{n}" for n in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def variant_text(about: Mapping[str, Any], program: str, launches: int) -> str:
    """The variant's file: header, tunables, the functions as the program has them, launch."""
    tunables = _tunables(about)
    tune = " ".join(f"{name}={','.join(map(str, values))}" for name, values in tunables.items())
    times = "once" if launches == 1 else f"{launches} times"
    prose = (
        f'"""{about["kernel"]} as a program launched it.\n\n'
        f"Captured by profkit from `{_plain(program)}`, which launched it {times}.\n"
        f"The function stands in {_plain(about['file']) or 'a file of the program'}.\n"
        + (f"\ntune: {tune}\n" if tune else "")
        + '"""\n'
    )
    constants = "\n".join(f"{name} = {values[0]}" for name, values in tunables.items())
    parts = [prose + about["imports"], constants, about["definitions"], _launch(about, tunables)]
    return "\n\n\n".join(part for part in parts if part) + "\n"


def _launch(about: Mapping[str, Any], tunables: Mapping[str, Any]) -> str:
    arrays = [f"in{i}" for i in range(len(about["inputs"]))]
    arrays += [f"out{i}" for i in range(len(about["outputs"]))]
    locals_, arguments = [], []
    for parameter in about["parameters"]:
        name = parameter["name"]
        if "array" in parameter:
            arguments.append(parameter["array"])
        elif name in tunables:
            arguments.append(name)
        elif isinstance(parameter.get("value"), int) and about["grid_text"]:
            locals_.append(f"    {name} = {parameter['value']!r}\n")
            arguments.append(name)
        else:
            arguments.append(parameter.get("code", repr(parameter.get("value"))))
    options = [f"{k}={_RENAMED.get(k, repr(v))}" for k, v in about["options"].items()]
    grid = about["grid_text"] or repr(tuple(about["grid"]))
    return (
        f"def launch({', '.join(arrays)}, args):\n"
        '    """As the program launched it."""\n'
        f"{''.join(locals_)}"
        f"    grid = {grid}\n"
        f"    {about['kernel']}[grid](\n        {', '.join([*arguments, *options])},\n    )"
    )


def _tunables(about: Mapping[str, Any]) -> dict[str, list[int]]:
    """Name -> values, the program's own first: blocks where the grid follows them, warps, stages."""
    values = {p["name"]: p.get("value") for p in about["parameters"]}
    values_of: dict[str, list[int]] = {}
    for name in about["tunable"] if about["grid_text"] else ():
        size = values[name]
        if isinstance(size, int) and size > 0:
            values_of[name] = [size, *(n for n in (size // 2, size * 2) if n >= 1)]
    for option, (least, most) in _AROUND.items():
        if isinstance(about["options"].get(option), int):
            n = about["options"][option]
            near = (n // 2, n * 2) if option == "num_warps" else (n - 1, n + 1)
            values_of[_RENAMED[option]] = [n, *(x for x in near if least <= x <= most)]
    return values_of


def _tolerance(about: Mapping[str, Any]) -> JsonObject:
    """What another version of the kernel may differ by; the captured one is bit-equal or nearly."""
    worst = max((_EPSILON.get(a["dtype"], 0.0) for a in about["outputs"]), default=0.0)
    spreads = [float(a.get("std") or 0.0) for a in about["outputs"]]
    spread = max((s for s in spreads if isfinite(s)), default=0.0)
    return {
        "rtol": max(2 * worst, 1e-6),
        "atol": max(2 * worst * spread, 4 * about["spread"], 1e-7),
    }


def _word(text: str) -> str:
    return re.sub(r"\W+", "-", text)[:80].strip("-") or "kernel"


def _plain(text: str) -> str:
    """Text that a docstring can hold: it comes from the program."""
    return re.sub(r'[^\x20-\x7e]|\\|"""', "?", text)[:200]
