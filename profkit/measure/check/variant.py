"""A built variant  ->  every check of it: values on each case and seed, then its manners."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from profkit.measure.check import arena
from profkit.measure.check.arena import Arena
from profkit.measure.check.check import Check, check_case, check_stream, summed_check
from profkit.measure.check.data import Data
from profkit.measure.check.row import check_row
from profkit.measure.cuda import device, library
from profkit.measure.variants.problem import Problem


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
