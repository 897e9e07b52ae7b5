"""A report of a program's kernels  ->  what counters say of each group, and of which none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.program.steps.groups import KernelGroup

if TYPE_CHECKING:
    from profkit.diagnosis.launches import Judged

COVER = 0.95  # of the kernels' time: groups after that are not worth a replay
MOST = 40  # groups: each is replayed some forty times
NEVER = {"collective", "copy", "set"}  # a collective that is replayed alone waits for ever


@dataclass(frozen=True)
class Count:
    """What a counted group's diagnosis says.

    Attributes:
        bound: See profkit.diagnosis.
        limiter: The same.
        headroom: Speed-up left with the same work; None if unknown.
        gain: Expected speed-up of mending its first finding; None if unknown.
        because: One sentence.
    """

    bound: str
    limiter: str | None
    headroom: float | None = None
    gain: float | None = None
    because: str = ""


@dataclass(frozen=True)
class Counts:
    """What counters say.

    Attributes:
        groups: By a group's id.
        notes: Why others were not counted.
        report: Where the report is kept; empty where it is not.
    """

    groups: Mapping[str, Count] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    report: str = ""

    @property
    def gains(self) -> dict[str, float]:
        """Expected speed-ups by a group's id."""
        return {key: row.gain for key, row in self.groups.items() if row.gain is not None}


def wanted(groups: Sequence[KernelGroup]) -> list[KernelGroup]:
    """The groups to count: kernels that together take nearly all of the kernels' time."""
    kernels = [g for g in groups if g.grid is not None and g.kind not in NEVER]
    whole = sum(g.time for g in kernels)
    out, seen = [], 0
    for group in kernels[:MOST]:
        if seen >= COVER * whole:
            break
        out.append(group)
        seen += group.time
    return out


def read_counts(report: Path, groups: Sequence[KernelGroup]) -> Counts:
    """Judge the launches of a report and give each to its group.

    Args:
        report: Of ncu, one launch or a few of each group.
        groups: Of the timeline.

    Raises:
        ProfkitError: The report cannot be read.
    """
    from profkit.diagnosis.launches import judged
    from profkit.reports.reader import read_report as read_reports

    launches = [run for run in judged(read_reports([report])) if run.status == "ok"]
    counted = {}
    for group in groups:
        own = [run for run in launches if _is_of(run, group)]
        if own:
            counted[group.id] = _count(own[0])
    left = [g for g in wanted(groups) if g.id not in counted]
    note = f"{len(left)} of {len(wanted(groups))} groups were asked for and not counted"
    return Counts(counted, (note,) if left else (), str(report))


def _is_of(run: Judged, group: KernelGroup) -> bool:
    return (run.grid, run.block) == (group.grid, group.block) and plain_name(
        run.kernel
    ) == plain_name(group.name)


def plain_name(name: str) -> str:
    """A name without what demanglers disagree on: blanks, the result's type, const's place."""
    words = name.removeprefix("void ").replace("const", "")
    return "".join(words.split("(", 1)[0].split("<", 1)[0].split())


def _count(run: Judged) -> Count:
    found = run.diagnosis
    top = run.top
    return Count(
        found.bound, found.limiter, _number(found, "headroom"),
        expected_gain(top) if top else None, found.because,
    )  # fmt: skip


def expected_gain(finding: Any) -> float | None:
    """The speed-up that mending a finding is expected to bring; None where nobody knows.

    A diagnosis that knows what others got (`expect`) says so; a bare gain is a bound, and half of
    what lies above 1 is taken.
    """
    expect = getattr(finding, "expect", None)
    if expect is not None:
        return _number(expect, "gain") if not isinstance(expect, int | float) else float(expect)
    gain = getattr(finding, "gain", None)
    return 1 + (gain - 1) / 2 if gain is not None else None


def _number(of: Any, key: str) -> float | None:
    value = of.get(key) if isinstance(of, Mapping) else getattr(of, key, None)
    return float(value) if isinstance(value, int | float) else None


def function(name: str) -> str:
    """A kernel's name as ncu's --kernel-name-base function has it: no types, spaces, arguments."""
    return plain_name(name.replace("(anonymous namespace)::", "")).rsplit("::", 1)[-1]
