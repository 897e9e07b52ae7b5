"""A plan  ->  exactly one call of one variant under a profiler or sanitizer.

`python -m profkit.measure.profile.launch PLAN.json` is what ncu and compute-sanitizer are given. It
needs neither numpy nor torch for a variant and starts in a tenth of a second; for a library reference it
imports torch. One call runs before the profiled window, because the first one loads modules.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.cuda import device, library
from profkit.measure.variants.variants import Args


def main(arguments: list[str]) -> int:
    """Do what a plan says; what goes wrong is one line on stderr and status 2."""
    plan = json.loads(Path(arguments[0]).read_text())
    try:
        call = _reference(plan) if plan.get("reference") else _variant(plan)
        if plan["profile"]:
            _profiled(call, plan)
        else:
            call()
            device.synchronize()
    except ProfkitError as error:
        sys.stderr.write(f"profkit: {error.message}\n")
        return 2
    return 0


def plan_for(
    library_path: Path | None,
    inputs: list[str],
    outputs: list[int],
    values: dict[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """A plan for a variant.

    Args:
        library_path: The variant's library.
        inputs: A file for each input.
        outputs: Bytes of each output.
        values: size, stride, scale and causal.
        more: profile (whether there is a profiler), label, support; for a reference its name,
            problem folder, build folder and case.
    """
    return {
        "library": str(library_path) if library_path else None,
        "inputs": inputs,
        "outputs": outputs,
        "values": values,
        **more,
    }


def _profiled(call: Callable[[], None], plan: dict[str, Any]) -> None:
    """Call once outside the profiled window and once inside, in an NVTX range."""
    tools = library.support(Path(plan["support"]))
    call()
    device.synchronize()
    device.call("cuProfilerStart")
    tools.push(plan["label"])
    call()
    device.synchronize()
    tools.pop()
    device.call("cuProfilerStop")


def _variant(plan: dict[str, Any]) -> Callable[[], None]:
    device.use()
    lib, args = library.load(Path(plan["library"])), Args()
    for i, name in enumerate(plan["inputs"]):
        args.input[i] = _uploaded(Path(name))
    for i, size in enumerate(plan["outputs"]):
        args.out[i] = device.allocate(size)
    for key in ("size", "stride"):
        for i, n in enumerate(plan["values"].get(key, ())):
            getattr(args, key)[i] = n
    args.scale = plan["values"].get("scale", 1.0)
    args.causal = int(plan["values"].get("causal", False))
    args.stream = device.new_stream()
    return lambda: library.launch(lib, args)


def _uploaded(path: Path) -> int:
    """A file's bytes on the device."""
    size = path.stat().st_size
    pointer = device.allocate(size)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        source = (ctypes.c_char * size).from_buffer(mapped)
        device.upload(pointer, ctypes.addressof(source), size)
        del source  # a mapping cannot be closed while something points into it
    return pointer


def _reference(plan: dict[str, Any]) -> Callable[[], None]:
    from profkit.measure.bench import subjects
    from profkit.measure.check import data
    from profkit.measure.variants import problem

    the = problem.load(Path(plan["problem"]))
    at = data.prepare(the, plan["case"], 0, Path(plan["build"]))
    call = the.reference_call(plan["reference"], plan["case"], subjects.to_torch(at))
    device.use()

    def once() -> None:
        call()

    once()  # libraries choose and load their kernels here, before the window
    return once


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
