"""A step's works  ->  rows by where they come from: line, function, module, operator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from profkit.program.steps.attribution import is_compilers_operator
from profkit.program.steps.cut import KernelGroup, StepWork
from profkit.program.steps.idle import clean_operator_name

if TYPE_CHECKING:
    from profkit.units import TextOrEmpty


# Inductor's name of a kernel: its form, the operators that were fused, and a number.
_FUSED = re.compile(r"^triton_[a-z]+_fused_(?P<operators>\w+?)_\d+$")


class Origin(NamedTuple):
    """Where works come from; empty is what is not known."""

    line: str
    function: str
    module: str
    kind: str  # the module's class
    called: str  # the line from which the model was called
    part: str  # forward, backward or optimizer
    op: str


@dataclass
class OriginRow:
    """What comes from one place."""

    origin: Origin
    time: int = 0  # nanoseconds a step
    calls: int = 0
    kernels: dict[str, int] = field(default_factory=dict)  # nanoseconds by a group's id


def sum_time_by_origin(works: Sequence[StepWork], groups: Sequence[KernelGroup]) -> list[OriginRow]:
    """Sum a step's works by where they come from, what takes longest first."""
    names: dict[int, str] = {}
    for group in groups:
        for index in group.works:
            names[index] = group.id
    rows: dict[Origin, OriginRow] = {}
    for index, work in enumerate(works):
        origin = find_origin_of_work(work)
        row = rows.setdefault(origin, OriginRow(origin))
        time = work.activity.duration
        row.time += time
        row.calls += 1
        name = names[index]
        row.kernels[name] = row.kernels.get(name, 0) + time
    return sorted(rows.values(), key=lambda row: -row.time)


def find_origin_of_work(work: StepWork) -> Origin:
    """Find where one piece of work comes from."""
    maker = work.maker
    op = get_called_operator(work)
    place = maker.place
    if place is not None and place.line:
        return Origin(
            line=place.line,
            function=place.function,
            module=place.module,
            kind=place.kind,
            called=place.called,
            part=place.part,
            op=op,
        )
    if "ackward" in maker.top:
        part = "backward"
    else:
        part = ""
    return Origin(maker.source, maker.function, "", "", "", part, op)


def get_called_operator(work: StepWork) -> TextOrEmpty:
    """Find the operator that a program called; inside of what was compiled, the one that is computed."""
    maker = work.maker
    name = clean_operator_name(maker.top or maker.op)
    if is_compilers_operator(name) and not is_compilers_operator(maker.op):
        name = maker.op
    fused = _FUSED.match(name) or _FUSED.match(work.activity.name)
    if fused:
        return f"fused {fused['operators']}"
    return name
