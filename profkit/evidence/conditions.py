"""How two runs were made  ->  why they must not be compared, and what of method and machine differs.

Refused is what would mislead: a kernel that is wrong, one binary under two names, two GPUs, clocks,
ncu versions or cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

from profkit.evidence.ablated import describe_changed_ablation_gains
from profkit.records.parts import GpuState, NcuRun
from profkit.records.record import Record, suggest_run_command
from profkit.records.store import Document
from profkit.reports.figures import format_seconds

if TYPE_CHECKING:
    from profkit.evidence.runs import Run
    from profkit.units import BeforeAndAfter, Clause, GpuName, GpuUuid, Hertz, Sentence, Watts

Refused = Literal["wrong", "sanitizer", "same-binary", "device", "clocks", "ncu", "case", "stale"]
# Refusals that --anyway sets aside; the others would compare something that is not there.
WAIVABLE: frozenset[Refused] = frozenset({"device", "clocks", "ncu", "case", "stale"})
# Free clocks follow the power that a kernel draws: on one H200 a copy ran at 1.98 GHz and a matrix
# product at 1.54, 1.29x apart. Farther apart, one of the two was locked or throttled.
CLOCKS = 1.35
_NAMED, _LONGEST = 3, 80  # damaged places of a record that a note names; characters of each
SAME_CLOCK = 0.03  # clocks nearer than this are not worth a word
# What holds clocks down from outside of the kernel; a power cap is what a hard-working kernel meets.
_OUTSIDE = re.compile("thermal|hardware|unknown")


class ComparisonRefusal(Document, frozen=True, kw_only=True):
    """Why two runs are not compared: a code and a sentence."""

    code: Refused
    sentence: str = ""


def _list_run_refusals(run: Run) -> Iterator[ComparisonRefusal]:
    """Yield why one run compares with nothing: wrong results, errors in memory, code that changed."""
    record = run.record
    if record and record.correct is False:
        error = ""
        if record.max_abs is not None:
            error = f" (largest error {record.max_abs:.3g})"
        yield ComparisonRefusal(code="wrong", sentence=f"{run.name} gives wrong results{error}")
    if record and record.sanitizer_errors:
        said = f"{run.name}: {', '.join(record.sanitizer_errors)} found errors"
        yield ComparisonRefusal(code="sanitizer", sentence=said)
    if run.stale:
        again = suggest_run_command(run.variant, run.case)
        said = f"{run.name} is stale, its code has changed since: {again}"
        yield ComparisonRefusal(code="stale", sentence=said)


def list_comparison_refusals(before: Run, after: Run) -> list[ComparisonRefusal]:
    """Return why two runs cannot be compared; nothing where they can."""
    reasons: list[ComparisonRefusal] = []
    for run in (before, after):
        reasons += _list_run_refusals(run)
    if before.record and after.record:
        reasons += _refuse_same_binary(before.record, after.record)
    if before.case != after.case:
        reasons.append(
            ComparisonRefusal(
                code="case",
                sentence=f"cases differ: {before.case or 'none'} and {after.case or 'none'}",
            )
        )
    for code, what, get in _CONDITIONS:
        sides = get_differing_values(get, before, after)
        if sides and not is_same_set_clock(*sides):
            was, now = map(format_clock_or_text, sides)
            reasons.append(ComparisonRefusal(code=code, sentence=f"{what} differ: {was} and {now}"))
    return reasons


def _refuse_same_binary(before: Record, after: Record) -> list[ComparisonRefusal]:
    if not before.code_identity.is_surely_same(after.code_identity):
        return []
    if (before.variant, before.source_hash) == (after.variant, after.source_hash):
        return []  # one variant measured twice, on purpose
    names = f"{before.variant} and {after.variant} are the same binary"
    why = "not a comparison: the change never reached the GPU"
    sentence = f"{names} (SASS {(before.sass_hash or '')[:12]}): {why}"
    return [ComparisonRefusal(code="same-binary", sentence=sentence)]


def get_differing_values(
    read_condition: Callable[[Any], Any], before: Any, after: Any
) -> BeforeAndAfter | None:
    """Return what both sides say of a condition, where it is two things; None elsewhere."""
    was = read_condition(before)
    now = read_condition(after)
    if was is None or now is None or was == now:
        return None
    return (was, now)


def is_same_set_clock(clock_hz: Any, other_hz: Any) -> bool:
    """Return whether two clocks in Hz are near enough for one set clock."""
    if not isinstance(clock_hz, float) or not isinstance(other_hz, float):
        return False
    return max(clock_hz, other_hz) <= CLOCKS * min(clock_hz, other_hz)


def format_clock_or_text(value: Any) -> str:
    """Return a clock in MHz, any other condition as it is."""
    if isinstance(value, float):
        return f"{value / 1e6:.0f} MHz"
    return str(value)


def get_gpu_name(run: Run) -> GpuName | None:
    """Return the GPU's name, of the record or else of the report."""
    if run.record and run.record.known_gpu.name:
        return run.record.known_gpu.name
    device: str | None = run.get_value_of_longest_launch("device")
    return device


def get_ncu_clock_control(run: Run) -> str | None:
    """Return what ncu did to the clocks; None without a record."""
    return run.record.clock_control if run.record else None


def get_sm_clock(run: Run) -> Hertz | None:
    """Return the SM clock that the counters were taken at, Hz; else what the record says."""
    clock = run.get_value_of_longest_launch("sm_clock")
    if isinstance(clock, float) and not isnan(clock):
        return clock
    return run.record.sm_clock if run.record else None


_CONDITIONS: tuple[tuple[Refused, str, Callable[[Run], Any]], ...] = (
    ("device", "GPUs", get_gpu_name),
    ("clocks", "SM clocks", get_sm_clock),
    ("clocks", "clock controls", get_ncu_clock_control),
    ("ncu", "Nsight Compute versions", lambda run: run.get_value_of_longest_launch("ncu_version")),
)


# --- of times alone: method and machine ----------------------------------------------------------


def get_timing_method(record: Record) -> str | None:
    """Return how the times were taken; None where the record has none."""
    return record.known_timing.method or None


def list_timing_method_differences(before: Record, after: Record) -> list[Sentence]:
    """Return why two records' times are of two kinds: two timers, or a cold L2 and a warm one."""
    found = []
    if methods := get_differing_values(get_timing_method, before, after):
        found.append("BASE was timed by {}, HEAD by {}".format(*methods))
    was = _list_l2_states(before)
    now = _list_l2_states(after)
    if was and now and not was & now:
        found.append(f"BASE was timed with a {min(was)} L2, HEAD with a {min(now)} one")
    return found


def _list_l2_states(record: Record) -> set[str]:
    """Return the states of the L2 that a record has times with."""
    states = set()
    if record.warm_samples:
        states.add("warm")
    if record.cold_samples:
        states.add("cold")
    return states


def list_machine_differences(before: Record, after: Record) -> list[Clause]:
    """Return what of the machine differs between two records of one kind of GPU."""
    if before.timing_session is not None and before.timing_session == after.timing_session:
        return []
    gpu = after.known_gpu.name or "GPU"
    differences = []
    for read_condition, text in _MACHINE:
        sides = get_differing_values(read_condition, before, after)
        if sides:
            differences.append(text.format(*sides, gpu=gpu))
    return differences


def get_gpu_uuid_of_timing(record: Record | None) -> GpuUuid | None:
    """Return which GPU a record was timed on; None where it is not known."""
    if record is None:
        return None
    return record.known_gpu.uuid or None


def get_driver_version(record: Record) -> str | None:
    """Return the version of NVIDIA's driver; None where the record has none."""
    return record.known_gpu.driver or None


def get_power_limit(record: Record) -> Watts | None:
    """Return the power limit after timing, in watts; None where it was not read."""
    after = record.known_timing.after or GpuState()
    return after.power_limit


def get_gpus_sharing_ncu_run(record: Record) -> str | None:
    """Return CUDA_VISIBLE_DEVICES under ncu, where several GPUs shared the work."""
    ncu = record.ncu or NcuRun()
    return ncu.visible


def describe_external_throttling(record: Record) -> Clause | None:
    """Return what held the clocks down from outside; None where the GPU was not asked."""
    timing = record.known_timing
    held_by = None
    for state in (timing.before, timing.after):
        if state and state.throttle is not None:
            held_by = {*(held_by or ()), *state.throttle}
    if held_by is None:
        return None
    return ", ".join(filter(_OUTSIDE.search, sorted(held_by))) or "nothing"


_MACHINE: tuple[tuple[Callable[[Record], Any], str], ...] = (
    (get_gpu_uuid_of_timing, "another {gpu} ({} and {})"),
    (get_driver_version, "driver {} and {}"),
    (get_power_limit, "a power limit of {:.0f} and {:.0f} W"),
    (describe_external_throttling, "clocks limited by {} and by {}"),
)


# --- what is no reason to refuse, and worth a word ------------------------------------------------


def _list_what_run_lacks(run: Run) -> Iterator[Sentence]:
    """Yield what one run lacks: a record, a check, fields of its record, counters."""
    if run.record is None:
        yield f"{run.name} has no run record: its correctness is unknown"
    elif run.record.correct is None:
        yield f"{run.name} was not checked: profkit check --variant {run.variant}"
    if run.record and run.record.damaged:
        places = shorten_list_of_paths(run.record.damaged)
        yield f"{run.name}: parts of its record are damaged and not used: {places}"
    if run.usable.empty:
        why = "no report" if run.launches.empty else "no launch that ncu finished"
        yield f"{run.name} has {why}: no counters"


UNLIKE_NAMES = "no kernel has the same name on both sides: these may be different kernels"


def list_comparison_notes(before: Run, after: Run) -> list[Sentence]:
    """Return what else to know about two runs: not checked, no report, other kernels, GPUs or clocks."""
    notes: list[str] = []
    for run in (before, after):
        notes += _list_what_run_lacks(run)
    names = [set(run.usable["kernel"]) for run in (before, after)]
    if all(names) and not names[0] & names[1] and before.record is None and after.record is None:
        notes.append(UNLIKE_NAMES)
    counts = len(before.usable), len(after.usable)
    if counts[0] != counts[1] and all(counts):
        sums = [format_seconds(float(run.usable["time"].sum())) for run in (before, after)]
        notes.append(
            f"{counts[0]} and {counts[1]} launches, together {sums[0]} and {sums[1]} under ncu"
        )
    if before.record and after.record:
        notes += _note_two_gpus_of_same_model(before.record, after.record)
    notes += describe_changed_ablation_gains(before.record, after.record)
    notes += _iterate_ncu_clock_notes(get_sm_clock(before), get_sm_clock(after))
    return notes


def _iterate_ncu_clock_notes(hz_before: Hertz | None, hz_after: Hertz | None) -> Iterator[Sentence]:
    """Yield that two clocks of the SM, in Hz, differ."""
    if not hz_before or not hz_after:
        return
    if abs(hz_before - hz_after) > SAME_CLOCK * max(hz_before, hz_after):
        yield (
            f"the SM ran at {hz_before / 1e6:,.0f} and {hz_after / 1e6:,.0f} MHz under ncu: "
            "shares of peak can be compared, durations under ncu cannot"
        )


def shorten_list_of_paths(paths_in_record: Sequence[str]) -> str:
    """Return the first places, and whether there are others."""
    named = ", ".join(path[:_LONGEST] for path in paths_in_record[:_NAMED])
    if len(paths_in_record) > _NAMED:
        return f"{named} and others"
    return named


def _note_two_gpus_of_same_model(before: Record, after: Record) -> list[Sentence]:
    """Return a note on two runs of two GPUs of one name; none of other runs."""
    if uuids := get_differing_values(get_gpu_uuid_of_timing, before, after):
        return ["timed on two GPUs of the same model: {} and {}".format(*uuids)]
    seen = [get_gpus_sharing_ncu_run(record) for record in (before, after)]
    if seen[0] == seen[1]:
        return []
    words = " and ".join("the first" if x is None else x for x in seen)
    return [f"profiled on two GPUs of one host: {words}"]
