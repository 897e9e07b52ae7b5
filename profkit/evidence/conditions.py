"""Two runs  ->  why they must not be compared: comparisons that would mislead are refused.

A kernel that is wrong, one binary under two names, two GPUs, clocks, ncu versions or cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

from profkit.evidence.runs import Run
from profkit.records.record import Record

Refused = Literal["wrong", "sanitizer", "same-binary", "device", "clocks", "ncu", "case", "stale"]
# Refusals that --anyway sets aside; the others would compare something that is not there.
WAIVABLE: frozenset[Refused] = frozenset({"device", "clocks", "ncu", "case", "stale"})
# Free clocks follow the power that a kernel draws: on one H200 a copy ran at 1.98 GHz and a matrix
# product at 1.54, 1.29x apart. Farther apart, one of the two was locked or throttled.
CLOCKS = 1.35


@dataclass(frozen=True)
class Incomparable:
    """Why two runs are not compared: a code and a sentence."""

    code: Refused
    sentence: str


def refusals_of(before: Run, after: Run) -> list[Incomparable]:
    """Every reason not to compare these two runs."""
    reasons: list[Incomparable] = []
    for run in (before, after):
        record = run.record
        if record and record.correct is False:
            error = "" if record.max_abs is None else f" (largest error {record.max_abs:.3g})"
            reasons.append(Incomparable("wrong", f"{run.name} gives wrong results{error}"))
        if record and record.sanitizer_errors:
            reasons.append(
                Incomparable(
                    "sanitizer", f"{run.name}: {', '.join(record.sanitizer_errors)} found errors"
                )
            )
        if run.stale:
            again = f"profkit profile --variant {run.variant} --case {run.case}"
            reasons.append(
                Incomparable("stale", f"{run.name} is stale, its code has changed since: {again}")
            )
    if before.record and after.record:
        reasons += _same_binary(before.record, after.record)
    if before.case != after.case:
        reasons.append(Incomparable("case", f"two cases: {before.case} and {after.case}"))
    for code, what, get in _CONDITIONS:
        was, now = get(before), get(after)
        if was is not None and now is not None and was != now and not _near(was, now):
            reasons.append(Incomparable(code, f"{what} differ: {_show(was)} and {_show(now)}"))
    return reasons


def _same_binary(before: Record, after: Record) -> list[Incomparable]:
    if not before.machine_code.same_as(after.machine_code):
        return []
    if (before.variant, before.source_hash) == (after.variant, after.source_hash):
        return []  # one variant measured twice, on purpose
    sass = (before.sass or "")[:12]
    return [
        Incomparable(
            "same-binary",
            f"{before.variant} and {after.variant} are the same binary (SASS {sass}): "
            "not a comparison, the change never reached the GPU",
        )
    ]


def _near(one: Any, other: Any) -> bool:
    numbers = isinstance(one, float) and isinstance(other, float)
    return numbers and max(one, other) <= CLOCKS * min(one, other)


def _show(value: Any) -> str:
    return f"{value / 1e6:.0f} MHz" if isinstance(value, float) else str(value)


def _device(run: Run) -> Any:
    recorded = run.record.gpu.name if run.record and run.record.gpu else None
    return recorded or run.column("device")


def clock_of(run: Run) -> float | None:
    """The SM clock that the counters were taken at, Hz; else what the record says."""
    clock = run.column("sm_clock")
    if isinstance(clock, float) and not isnan(clock):
        return clock
    return run.record.sm_clock if run.record else None


def _clock_control(run: Run) -> Any:
    return run.record.clock_control if run.record else None


_CONDITIONS: tuple[tuple[Refused, str, Callable[[Run], Any]], ...] = (
    ("device", "GPUs", _device),
    ("clocks", "SM clocks", clock_of),
    ("clocks", "clock controls", _clock_control),
    ("ncu", "Nsight Compute versions", lambda run: run.column("ncu_version")),
)
