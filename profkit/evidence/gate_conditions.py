"""How two records were made  ->  what differs in the method, and what in the machine.

Library calls that both sides timed say what the machine did, where the code cannot have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from profkit.errors import ProfkitError
from profkit.evidence.compare import SpreadOf, compare_times
from profkit.evidence.power import GATE
from profkit.evidence.stats import TimeComparison
from profkit.records.artifacts import RunName
from profkit.records.record import Record

RunFound = Record | str  # the record; of a report without one, its hash
# What holds clocks down from outside of the kernel; a power cap is what a hard-working kernel meets.
_OUTSIDE = ("thermal", "hardware", "unknown")


def method_differences(before: Record, after: Record) -> list[str]:
    """Why the times of two records are not of one kind: two timers, or a cold L2 and a warm one."""
    found = []
    methods = [r.timing.method if r.timing else None for r in (before, after)]
    if all(methods) and methods[0] != methods[1]:
        found.append(f"BASE was timed by {methods[0]}, HEAD by {methods[1]}")
    states = [_l2(r) for r in (before, after)]
    if all(states) and not states[0] & states[1]:
        found.append(f"BASE was timed with a {min(states[0])} L2, HEAD with a {min(states[1])} one")
    return found


def machine_differences(before: Record, after: Record) -> list[str]:
    """What of the machine differs between two records of one kind of GPU."""
    if before.session is not None and before.session == after.session:
        return []
    return list(_machine(before, after))


def _l2(record: Record) -> set[str]:
    return {word for word in ("warm", "cold") if getattr(record, word)}


def _machine(before: Record, after: Record) -> Iterator[str]:
    one, other = before.gpu, after.gpu
    if one and other:
        if one.uuid and other.uuid and one.uuid != other.uuid:
            yield f"another {other.name or 'GPU'} ({one.uuid} and {other.uuid})"
        if one.driver and other.driver and one.driver != other.driver:
            yield f"driver {one.driver} and {other.driver}"
    limits = [r.timing.after.power_limit if r.timing and r.timing.after else None
              for r in (before, after)]  # fmt: skip
    if None not in limits and limits[0] != limits[1]:
        yield f"a power limit of {limits[0]:.0f} and {limits[1]:.0f} W"
    holders = [_held(r) for r in (before, after)]
    if None not in holders and holders[0] != holders[1]:
        words = [", ".join(sorted(x or ())) or "nothing" for x in holders]
        yield f"clocks held down by {words[0]} and by {words[1]}"


def _held(record: Record) -> frozenset[str] | None:
    """What held the clocks down from outside; None where the GPU was not asked."""
    states = (record.timing.before, record.timing.after) if record.timing else ()
    asked = [s.throttle for s in states if s and s.throttle is not None]
    if not asked:
        return None
    reasons = chain.from_iterable(asked)
    return frozenset(r for r in reasons if any(word in r for word in _OUTSIDE))


def control_of(
    base: Mapping[RunName, RunFound],
    head: Mapping[RunName, RunFound],
    spread_of: SpreadOf,
    problems: list[ProfkitError],
) -> dict[str, TimeComparison]:
    """Case -> how the library calls that both sides timed compare: the most typical one.

    Wrong results took no time worth knowing. `problems` takes calls whose samples are no times.
    """
    by_case: dict[str, list[TimeComparison]] = {}
    for name, before in base.items():
        after = head.get(name)
        if not (isinstance(before, Record) and isinstance(after, Record)):
            continue
        if before.reference and after.reference and _same_library(before, after):
            try:
                time = compare_times(before, after, thresholds=GATE, spread_of=spread_of)
                by_case.setdefault(name[1], []).append(time)
            except ProfkitError as problem:
                problems.append(ProfkitError(f"{'.'.join(name)}: {problem}", problem.hint))
    return {case: _typical(found) for case, found in by_case.items()}


def _same_library(before: Record, after: Record) -> bool:
    if not (before.warm and after.warm) or before.session == after.session:
        return False
    if before.faults or after.faults:
        return False
    return (before.versions.torch, before.backend) == (after.versions.torch, after.backend)


def _typical(found: Sequence[TimeComparison]) -> TimeComparison:
    return sorted(found, key=lambda c: c.speedup.median)[len(found) // 2]
