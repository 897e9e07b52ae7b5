"""One call on a GPU and its PTX  ->  what each cause costs.

The process that runs this may be lost to a kernel that hangs or loses the context: whatever is begun is
said before, so that whoever started it can go on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import msgspec

from profkit.ablation import preparation, reading
from profkit.ablation.change import Change, Code
from profkit.ablation.comparison import compare_change
from profkit.ablation.lab import Conditions, Lab
from profkit.ablation.launches import Play
from profkit.ablation.preparation import Prepared, Say
from profkit.ablation.ptx import read_module
from profkit.ablation.timeline import Timeline
from profkit.measure import bench
from profkit.measure.bench import Subject, Times
from profkit.records.ablation import LineGain, MeasuredAblation, Refusal, Shape

WORTH = 1.05  # gains from here on are looked at line by line
_MOST_LINES = 8
_COLD_ROUNDS = 10, 10
Calls = Mapping[str, Callable[[int], None]]


@dataclass(frozen=True)
class Found:
    """What came of one call."""

    kernels: tuple[str, ...]
    base: Times
    rebuilt: float | None  # the same code, assembled here, over the original
    measured: tuple[MeasuredAblation, ...]
    refused: tuple[Refusal, ...]
    shape: Shape
    busy: Mapping[str, float]
    seen: Mapping[str, float]  # what the survey saw
    others: Mapping[str, float] = field(default_factory=dict)  # times of other calls beside it


def measure_call(
    call: Callable[[int], None],
    reset: Callable[[], None],
    text: str | None,
    on: Conditions,
    say: Say,
    beside: Calls | None = None,
) -> Found:
    """Ablate one call. Without PTX only its launch is varied; `beside`: calls timed in turns."""
    lab, prepared = Lab(call, reset, on), Prepared()
    module = preparation.keep_launched(read_module(text), lab.call) if text else None
    code: Code | None = None
    spans: Timeline | None = None
    if module is not None:
        say("survey")
        code, spans = preparation.survey_call(lab, module)
        prepared = preparation.prepare_changes(lab, code, say)
    original = Play(lab.call)
    plays = {"original": original, **preparation.vary_launch(lab), **prepared.plays}
    say("timing")
    lab.reset()
    times = _time_plays(plays, on, beside or {})
    measured, refused = _compare_all(prepared, times)
    measured = _add_lines(lab, prepared, measured, say)
    cold = _time_cold(original, on)
    lab.reset()
    base = times["original"]
    shape = reading.describe_shape(lab, times, cold, spans)
    seen: dict[str, float] = {}
    if code:
        seen = reading.sum_survey(code) | reading.read_chains(code, base, lab, shape)
    rebuilt = median(times["base"].warm) / median(base.warm) if "base" in times else None
    return Found(
        kernels=tuple(dict.fromkeys(start.name for start in lab.call.starts)),
        base=base,
        rebuilt=rebuilt,
        measured=tuple(measured),
        refused=tuple(refused),
        shape=shape,
        busy=reading.read_busy(code, base, lab) if code else {},
        seen=seen,
        others={name: median(times[name].warm) for name in beside or {}},
    )


def _make_subject(name: str, call: Callable[[int], None]) -> Subject:
    def time_plainly(n: int, stream: int) -> tuple[float, float]:
        return bench.eager_time(lambda: bench.host_time(lambda: call(stream), n), n, stream)

    return Subject(name, call, bench.native_capture, time_plainly)


def _time_plays(plays: Mapping[str, Play], on: Conditions, beside: Calls) -> dict[str, Times]:
    timed = [_make_subject(name, play.enqueue) for name, play in plays.items()]
    timed += [_make_subject(name, call) for name, call in beside.items()]
    taken = bench.bench_subjects(timed, "", on.gpu, on.tools, cold=False, rounds=on.rounds)
    return {times.name: times for times in taken}


def _time_cold(original: Play, on: Conditions) -> Times:
    subject = _make_subject("original", original.enqueue)
    taken = bench.bench_subjects([subject], "", on.gpu, on.tools, cold=True, rounds=_COLD_ROUNDS)
    return taken[0]


def _compare_all(
    prepared: Prepared, times: Mapping[str, Times]
) -> tuple[list[MeasuredAblation], list[Refusal]]:
    measured, refused = [], list(prepared.refused)
    for ablation, change in prepared.changes.items():
        found = compare_change(ablation, change, times, prepared.executed.get(ablation.id))
        if isinstance(found, Refusal):
            refused.append(found)
        elif found:
            measured.append(found)
    return measured, refused


def _add_lines(
    lab: Lab, prepared: Prepared, measured: Sequence[MeasuredAblation], say: Say
) -> list[MeasuredAblation]:
    """What each source line has of the gains that are reachable."""
    by_id = {ablation.id: change for ablation, change in prepared.changes.items()}
    with_lines = []
    for row in measured:
        change = by_id[row.ablation]
        if row.gain >= WORTH and row.reachable and len(change.lines) > 1:
            say("lines")
            lines = tuple(_time_lines(lab, change))
            with_lines.append(msgspec.structs.replace(row, lines=lines))
        else:
            with_lines.append(row)
    return with_lines


def _time_lines(lab: Lab, change: Change) -> list[LineGain]:
    """The gain of each line alone, the largest first."""
    module = preparation.pin_registers(lab, change.text)
    machine = lab.assemble(module.text)
    tables = {"": change.control, **dict(list(change.lines.items())[:_MOST_LINES])}
    plays = {}
    for place, table in tables.items():
        loaded = lab.load(module, machine, table)
        plays[place] = Play(lab.call, loaded.functions)
    times = _time_plays(plays, lab.on, {})
    control = median(times[""].warm)
    gains = [
        LineGain(place, control / median(times[place].warm))
        for place in change.lines
        if place in times
    ]
    return sorted(gains, key=lambda row: -row.gain)
