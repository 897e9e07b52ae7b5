"""One call on a GPU and its PTX  ->  what each cause costs, with the verdict.

The process that runs this may be lost to a kernel that hangs or loses the context: whatever is begun is
said before, so that whoever started it can go on without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from profkit.evidence.stats import estimate_median
from profkit.lab.ablation import preparation, reading
from profkit.lab.ablation.change import CodeChange, Refused, SurveyedCode
from profkit.lab.ablation.comparison import (
    compute_gain_of_change,
    refuse_gain_beyond_arithmetic,
    refuse_gain_of_other_work,
)
from profkit.lab.ablation.judge import add_ablation_verdict
from profkit.lab.ablation.lab import AblationLab, Conditions
from profkit.lab.ablation.launches import Replay
from profkit.lab.ablation.preparation import PreparedChanges, Say
from profkit.lab.ablation.ptx import keep_only_named_entries, parse_ptx_module
from profkit.lab.ablation.timeline import BlockTimeline
from profkit.lab.measure.bench import Times
from profkit.records.ablation import (
    AblationRecord,
    AblationVerdict,
    LaunchOnlyTimes,
    LineGain,
    MeasuredAblation,
    Refusal,
)

if TYPE_CHECKING:
    from profkit.units import CudaStream, PtxText, Share, UnitName


WORTH_A_LOOK = 1.05  # gains from here on are looked at line by line
_MOST_LINES = 8
_COLD_ROUNDS = 10, 10
Calls = Mapping[str, Callable[[int], None]]


def ablate_call(
    call: Callable[[CudaStream], None],
    restore_arrays: Callable[[], None],
    text: PtxText,
    conditions: Conditions,
    say: Say,
    other_calls: Calls | None = None,
) -> tuple[AblationRecord, Times]:
    """Ablate one call, whose own times are returned too; `other_calls`: calls timed in turns with it.

    Without PTX only its launch is varied.
    """
    began = time.monotonic()
    lab = AblationLab(call, restore_arrays, conditions)
    prepared, code, spans = _survey_and_prepare(lab, text, say)
    calls = _list_calls_to_time(lab, prepared)
    say("timing")
    lab.reset()
    times = lab.time_calls({**calls, **(other_calls or {})})
    cold = lab.time_calls({"original": calls["original"]}, _COLD_ROUNDS, with_cold_l2=True)[
        "original"
    ]
    lab.reset()
    shape = reading.make_launch_only_times(lab, times, cold, spans)
    record = msgspec.structs.replace(
        _compare_with_base(lab, prepared, code, times, shape, say),
        others={name: median(times[name].warm) for name in other_calls or ()},
        seconds=time.monotonic() - began,
    )
    judged = add_ablation_verdict(record, conditions.gpu.sms, conditions.gpu.dram_bandwidth)
    return judged, replace(times["original"], cold=cold.cold)


def _list_calls_to_time(lab: AblationLab, prepared: PreparedChanges) -> Calls:
    """List what is timed in turns: the original, it with fewer warps, and the changes."""
    replays = {"original": Replay(lab.call), **prepared.replays}
    half = preparation.make_low_occupancy_replay(lab)
    if half:
        replays["half-occupancy"] = half
    return {name: replay.enqueue_call for name, replay in replays.items()}


def _compare_with_base(
    lab: AblationLab,
    prepared: PreparedChanges,
    code: SurveyedCode | None,
    times: Mapping[str, Times],
    shape: LaunchOnlyTimes,
    say: Say,
) -> AblationRecord:
    """Make a record of what was timed; without code, of the call itself and its shape only."""
    base = times["original"]
    record = _make_record_of_base(base, shape, lab)
    if code:
        busy, seen = reading.summarize_call(code, base, lab, shape)
        rebuilt = median(times["base"].warm) / record.base
        record = msgspec.structs.replace(record, busy=busy, seen=seen, rebuilt=rebuilt)
    measured, refused = _compute_gains_of_all_changes(prepared, times, record.busy)
    measured = _add_gains_of_lines(lab, prepared, measured, say)
    # What a fix can reach comes first, the largest gain of it before all.
    measured.sort(key=lambda row: (not row.reachable, -row.gain))
    return msgspec.structs.replace(record, measured=tuple(measured), refused=tuple(refused))


def _make_record_of_base(base: Times, shape: LaunchOnlyTimes, lab: AblationLab) -> AblationRecord:
    """Return a record of the original's time, of which nothing else is known yet."""
    interval = estimate_median(list(base.warm))
    low: float | None = interval.low
    high: float | None = interval.high
    if isnan(interval.low):  # too few samples
        low = high = None
    return AblationRecord(
        kernels=tuple(dict.fromkeys(launch.name for launch in lab.call.kernel_launches)),
        base=median(base.warm),
        low=low,
        high=high,
        measured=(),
        refused=(),
        shape=shape,
        busy={},
        seen={},
        verdict=AblationVerdict("unknown", "", "", ""),
        sm_clock=base.after.sm_clock,
        power=base.after.power,
        gpu=lab.on.gpu.name,
    )


def run_each_change_once(
    call: Callable[[CudaStream], None],
    restore_arrays: Callable[[], None],
    text: PtxText,
    conditions: Conditions,
    say: Say,
) -> list[Refusal]:
    """Run what `ablate_call` would time, once each; what is left out of it."""
    prepared, _, _ = _survey_and_prepare(AblationLab(call, restore_arrays, conditions), text, say)
    return prepared.refused


def _survey_and_prepare(
    lab: AblationLab, text: PtxText | None, say: Say
) -> tuple[PreparedChanges, SurveyedCode | None, BlockTimeline | None]:
    """Run the copies that count, and make the changes; nothing of either without PTX."""
    if not text:
        return PreparedChanges(), None, None
    module = parse_ptx_module(keep_only_named_entries(text, lab.call.names))
    if lab.call.names.isdisjoint(module.kernels):
        return PreparedChanges(), None, None
    say("survey")
    code, spans = preparation.run_counting_copies_once(lab, module)
    return preparation.prepare_changes(lab, code, say), code, spans


def _compute_gains_of_all_changes(
    prepared: PreparedChanges, times: Mapping[str, Times], busy: Mapping[UnitName, Share]
) -> tuple[list[MeasuredAblation], list[Refusal]]:
    measured = []
    refused = list(prepared.refused)
    for ablation, change in prepared.changes.items():
        if f"gone:{ablation.id}" not in times:
            continue
        executed = prepared.executed.get(ablation.id)
        try:
            row = compute_gain_of_change(ablation, change, times, executed)
            if change.regions:
                refuse_gain_beyond_arithmetic(row.gain, busy)
            measured.append(row)
        except Refused as why:
            refused.append(why.make_refusal(ablation.id))
    try:
        refuse_gain_of_other_work(measured)
    except Refused as why:
        measured = [row for row in measured if row.ablation != "wide"]
        refused.append(why.make_refusal("wide"))
    return measured, refused


def _add_gains_of_lines(
    lab: AblationLab, prepared: PreparedChanges, measured: Sequence[MeasuredAblation], say: Say
) -> list[MeasuredAblation]:
    """Return what each source line has of the gains that are reachable."""
    by_id = {ablation.id: change for ablation, change in prepared.changes.items()}
    with_lines = []
    for row in measured:
        change = by_id[row.ablation]
        lines = row.lines
        if row.gain >= WORTH_A_LOOK and row.reachable and len(change.lines) > 1:
            say("lines")
            lines = _time_change_of_each_line(lab, change)
        with_lines.append(msgspec.structs.replace(row, lines=lines))
    return with_lines


def _time_change_of_each_line(lab: AblationLab, change: CodeChange) -> tuple[LineGain, ...]:
    """Return the gain of each line alone, the largest first."""
    module = lab.limit_registers(change.text)
    machine = lab.assemble_text(module.text)
    lines = list(change.lines.items())[:_MOST_LINES]
    calls = {}
    for place, table in [("", change.control), *lines]:
        replay = Replay(lab.call, lab.load_module(module, machine, table).functions)
        calls[place] = replay.enqueue_call
    times = {place: median(taken.warm) for place, taken in lab.time_calls(calls).items()}
    gains = [LineGain(place, times[""] / times[place]) for place, _ in lines]
    return tuple(sorted(gains, key=lambda row: -row.gain))
