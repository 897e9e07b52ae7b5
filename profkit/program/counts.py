"""A report of a program's kernels  ->  what counters say of each group, and of which none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.program.steps.cut import KernelGroup
from profkit.reports.figures import remove_abi_tags

if TYPE_CHECKING:
    from profkit.diagnosis.rule import Diagnosis
    from profkit.units import Factor, KernelName

COVER = 0.95  # of the kernels' time: groups after that are not worth a replay
MOST = 40  # groups: each is replayed some forty times
NEVER = {"collective", "copy", "set"}  # a collective that is replayed alone waits for ever


@dataclass(frozen=True)
class KernelVerdicts:
    """What counters say."""

    groups: Mapping[str, Diagnosis] = field(default_factory=dict)  # by a group's id
    notes: tuple[str, ...] = ()  # why others were not counted
    report: str = ""  # where the report is kept; empty where it is not

    @property
    def expected_gains(self) -> dict[str, Factor]:
        """Return expected speed-ups by a group's id; nobody knows what a bare bound brings."""
        tops = {key: found.top for key, found in self.groups.items()}
        known = {key: top for key, top in tops.items() if top and (top.expect or top.at_roof)}
        return {key: top.ranking_gain for key, top in known.items()}


def choose_groups_to_count(groups: Sequence[KernelGroup]) -> list[KernelGroup]:
    """Return the groups to count: kernels that together take nearly all of the kernels' time."""
    kernels = [g for g in groups if g.grid is not None and g.kind not in NEVER]
    whole = sum(g.time for g in kernels)
    out = []
    seen = 0
    for group in kernels[:MOST]:
        if seen >= COVER * whole:
            break
        out.append(group)
        seen += group.time
    return out


def judge_groups_by_counters(report: Path, groups: Sequence[KernelGroup]) -> KernelVerdicts:
    """Judge the launches of a report, and give each group the first that is its.

    Raises:
        ProfkitError: The report cannot be read.
    """
    from profkit.diagnosis.launches import judge_reports
    from profkit.reports.reader import read_report_files as read_reports

    ran = [run for run in reversed(judge_reports(read_reports([report]))) if run.status == "ok"]
    launches = {_make_group_key(run.kernel, run.grid, run.block): run.diagnosis for run in ran}
    keys = {group.id: _make_group_key(group.name, group.grid, group.block) for group in groups}
    counted = {name: launches[key] for name, key in keys.items() if key in launches}
    left = [g for g in choose_groups_to_count(groups) if g.id not in counted]
    note = f"{len(left)} of {len(choose_groups_to_count(groups))} groups were asked for and not counted"
    return KernelVerdicts(counted, (note,) if left else (), str(report))


def _make_group_key(name: str, grid: object, block: object) -> tuple[str, object, object]:
    return remove_demangler_differences(name), grid, block


def remove_demangler_differences(demangled: KernelName) -> KernelName:
    """Return a name without what demanglers disagree on: blanks, result's type, const's place, tags."""
    words = remove_abi_tags(demangled).removeprefix("void ").replace("const", "")
    return "".join(words.split("(", 1)[0].split("<", 1)[0].split())
