"""A built variant  ->  every check of it: values on each case and seed, then its manners.

The last is whether it waits for what it reads. With programmatic dependent launch a kernel may begin
before the one ahead of it has ended, and must wait (griddepcontrol.wait) before it touches memory.
Launched singly, or again and again on the same arrays, a kernel that forgets to wait is right all the
same: what it reads too early is what it should have read. So here every launch stands in a graph
right behind a kernel that lets the next one begin at once, and only then, late, writes inputs, guards
and poison. What was read early is the data of another launch, or none at all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from profkit.measure.check import arena
from profkit.measure.check.arena import Arena
from profkit.measure.check.check import (
    CaseCheck,
    Check,
    check_case,
    check_stream,
    failure,
    judge_case,
    summed_check,
)
from profkit.measure.check.data import Data
from profkit.measure.cuda import device, graph, library
from profkit.measure.cuda.library import Args
from profkit.measure.variants.problem import Problem

HOLD = 200_000  # nanoseconds that the kernel ahead writes late: many times a launch
_REPLAYS = 2  # the second one begins on what the first has left
_ADVICE = "in a row of launches, its inputs written by the kernel ahead"


@dataclass(frozen=True)
class _Launch:
    """One launch of the row: the image that is put before it, and where its result is kept."""

    data: Data
    image: int
    kept: int


def check_row(
    lib: ctypes.CDLL, problem: Problem, work: Sequence[Data], tools: library.Support, stream: int
) -> CaseCheck | None:
    """Launch on one set of inputs after another, in a captured graph, and judge each result.

    `work`: the inputs of one case, each of another seed.

    Returns:
        The verdict on the first launch that is wrong, or on the last; None where a graph cannot
        hold what the launcher does (timing it says so).

    Raises:
        CudaError: The context is lost.
    """
    here = arena.place_arena(work[0])
    values = problem.module.arguments(problem.case(work[0].case))
    args = arena.args_on(here, values, stream)
    blank = _image(here, None)
    row = [_Launch(data, _image(here, data), device.allocate(here.size)) for data in work]
    try:
        captured = _captured(lambda: _enqueue(lib, args, tools, here, row, blank), stream)
        if captured is None:
            return None
        ready = graph.instantiate(captured)
        for _ in range(_REPLAYS):
            graph.replay(ready, stream)
        device.synchronize()
        return _judged(problem, here, row)
    except device.CudaError as error:
        return failure(work[0], error)
    finally:
        for address in (here.base, blank, *(a for x in row for a in (x.image, x.kept))):
            device.free(address)


def _enqueue(
    lib: ctypes.CDLL,
    args: Args,
    tools: library.Support,
    here: Arena,
    row: Sequence[_Launch],
    blank: int,
) -> None:
    for launch in row:
        tools.put(here.base, blank, here.size, 0, int(args.stream or 0))
        tools.put(here.base, launch.image, here.size, HOLD, int(args.stream or 0))
        library.start_launcher(lib, args)
        tools.put(launch.kept, here.base, here.size, 0, int(args.stream or 0))


def _captured(body: Callable[[], None], stream: int) -> int | None:
    try:
        return graph.capture(stream, body)
    except device.CudaError as error:
        if error.code in device.STICKY:
            raise
        return None


def _image(here: Arena, data: Data | None) -> int:
    """What stands in the allocation before a launch, on the device; without data, no inputs."""
    import numpy as np

    image = np.full(here.size, arena.FENCE, np.uint8)
    for offset, size in here.outputs:
        image[offset : offset + size] = arena.POISON
    for i, (offset, size) in enumerate(here.inputs):
        image[offset : offset + size] = arena.as_bytes(data.inputs()[i]) if data else 0
    for out, source in data.begins if data else ():
        (offset, size), (start, _) = here.outputs[out], here.inputs[source]
        image[offset : offset + size] = image[start : start + size]
    address = device.allocate(here.size)
    device.upload(address, image.ctypes.data, here.size)
    return address


def _judged(problem: Problem, here: Arena, row: Sequence[_Launch]) -> CaseCheck:
    judged: list[CaseCheck] = []
    for launch in row:
        at = replace(here, base=launch.kept, data=launch.data)
        judged.append(judge_case(problem, at, arena.fetch(at)))
        if judged[-1].faults:
            faults = tuple(f"{_ADVICE}: {fault}" for fault in judged[-1].faults)
            return replace(judged[-1], faults=(*faults, "does it miss a griddepcontrol.wait?"))
    return judged[-1]


def check_variant(
    name: str,
    lib: ctypes.CDLL,
    problem: Problem,
    work: Iterable[Data],
    tools: library.Support,
) -> Check:
    """Judge a variant on every case and seed, and its manners on the first that is right."""
    stream = device.new_stream()

    def call(here: Arena) -> None:
        values = problem.module.arguments(problem.case(here.data.case))
        library.start_launcher(lib, arena.args_on(here, values, stream))

    data = list(work)
    cases = [check_case(call, problem, d) for d in data]
    right = [d for judged, d in zip(cases, data, strict=True) if judged.status == "right"]
    if right:
        manners = check_stream(lib, problem, right[0], tools, stream)
        if not manners.faults:
            same = [d for d in right if d.case == right[0].case]
            manners = check_row(lib, problem, same, tools, stream) or manners
        if manners.faults:
            cases.append(manners)
    return summed_check(name, problem, cases)
