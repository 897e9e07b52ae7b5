"""A step's works  ->  kernels by name, grid and block, with their share of the step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from profkit.program.steps.cut import StepWork
from profkit.program.timeline import Dims


@dataclass(frozen=True)
class KernelGroup:
    """Launches of one kernel with one shape."""

    id: str  # k1, k2 ... by time.
    name: str  # demangled
    kind: str  # see profkit.program.steps.kinds
    grid: Dims | None
    block: Dims | None
    calls: int  # launches a step
    time: int  # nanoseconds a step, all launches together
    works: tuple[int, ...]  # indices among the step's works
    op: str  # the operator that launches most of them
    range: str
    source: str


def group(works: Sequence[StepWork]) -> list[KernelGroup]:
    """Kernels, copies and sets of a step, longest first."""
    members: dict[tuple[str, Dims | None, Dims | None], list[int]] = defaultdict(list)
    for i, work in enumerate(works):
        activity = work.activity
        members[activity.name, activity.grid, activity.block].append(i)
    sums = {key: sum(works[i].activity.duration for i in own) for key, own in members.items()}
    ordered = sorted(members, key=lambda key: (-sums[key], str(key)))
    out = []
    for number, key in enumerate(ordered, 1):
        own = members[key]
        makers = [works[i].maker for i in own]
        out.append(
            KernelGroup(
                f"k{number}", key[0], works[own[0]].kind, key[1], key[2], len(own), sums[key],
                tuple(own), _usual([m.top or m.op for m in makers]),
                _usual([m.range for m in makers]), _usual([m.source for m in makers]),
            )
        )  # fmt: skip
    return out


def _usual(words: Sequence[str]) -> str:
    counted = Counter(word for word in words if word)
    return counted.most_common(1)[0][0] if counted else ""
