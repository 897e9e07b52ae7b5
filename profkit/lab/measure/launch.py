"""A plan  ->  exactly one call of one variant under a profiler or sanitizer.

`python -m profkit.lab.measure.launch PLAN.json` is what ncu and compute-sanitizer are given. It
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
from typing import TYPE_CHECKING

from profkit.collect.process import exit_when_parent_ends
from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import device, library

if TYPE_CHECKING:
    from profkit.units import DeviceAddress, ExitStatus


def _run_launch_plan(arguments: list[str]) -> ExitStatus:
    """Do what a plan says; what goes wrong is one line on stderr and status 2."""
    exit_when_parent_ends()
    plan = library.LaunchPlan(**json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    try:
        if plan.reference is None:
            call = _prepare_variant_call(plan)
        else:
            call = _prepare_reference_call(plan, plan.reference)
        tools = None
        if plan.profile:
            tools = library.Support(Path(plan.support))
        call()
        device.wait_for_gpu_or_stream()
        if tools:  # that call was outside of the profiled window: this one is inside
            device.call_driver("cuProfilerStart")
            tools.push_nvtx_range(plan.label)
            call()
            device.wait_for_gpu_or_stream()
            tools.pop()
            device.call_driver("cuProfilerStop")
    except ProfkitError as error:
        sys.stderr.write(f"profkit: {error.message}\n")
        return 2
    return 0


def _prepare_variant_call(plan: library.LaunchPlan) -> Callable[[], None]:
    device.make_first_gpu_current()
    lib = library.load_launcher_library(Path(plan.library or ""))
    inputs = []
    for name in plan.inputs:
        inputs.append(_upload_file(Path(name)))
    outputs = [device.allocate_device_memory(size) for size in plan.outputs]
    for out, start in plan.begins:
        device.copy_on_device(outputs[out], inputs[start], plan.outputs[out])
    args = library.Args.from_addresses(
        inputs, outputs, plan.values, device.create_non_blocking_stream()
    )
    return lambda: library.call_launcher(lib, args)


def _upload_file(path: Path) -> DeviceAddress:
    size = path.stat().st_size
    pointer = device.allocate_device_memory(size)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        source = (ctypes.c_char * size).from_buffer(mapped)
        device.copy_to_device(pointer, ctypes.addressof(source), size)
        del source  # a mapping cannot be closed while something points into it
    return pointer


def _prepare_reference_call(plan: library.LaunchPlan, name: str) -> Callable[[], None]:
    from profkit.lab.measure import data, subjects
    from profkit.lab.measure.variants import problem

    loaded = problem.load_problem(Path(plan.problem))
    at = data.load_or_compute_case_data(loaded, plan.case, 0, Path(plan.build))
    call = loaded.make_reference_call(name, plan.case, subjects.load_inputs_as_gpu_tensors(at))
    device.make_first_gpu_current()
    call()  # libraries choose and load their kernels here, before the window
    return call


if __name__ == "__main__":
    sys.exit(_run_launch_plan(sys.argv[1:]))
