"""A process's timeline  ->  its steps: named, marked or found, and one to look at closely.

A step's time is taken on the GPU, from its first activity on the busiest stream to the next step's
first there: the host, and a stream that copies, may be steps ahead, but over steps all run at one pace.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from statistics import median
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.program.steps.attribution import (
    NOBODY,
    CallOrigin,
    describe_source,
    list_origins_of_calls,
    merge_call_origins,
    replace_place_of_origin,
)
from profkit.program.steps.kinds import classify_by_name_then_operator
from profkit.program.steps.lost import (
    Captures,
    find_graph_captures,
    find_unrecorded_launches,
    note_captures,
    note_idle_in_graphs,
    note_lost_launches,
    sum_idle_in_graphs,
)
from profkit.program.steps.passes import (
    Passes,
    find_passes,
    keep_outermost_ranges,
    make_family_name,
    make_host_work,
)
from profkit.program.steps.period import ALIKE, CallIndexAndActivity, find_end_of_work, find_period
from profkit.program.steps.places import find_main_place
from profkit.program.steps.setup import SetUpSpans, find_later_set_up
from profkit.program.timeline import (
    GRAPH,
    UNIFIED_MEMORY,
    Activity,
    Call,
    Dims,
    HostSpan,
    Process,
    SourcePlace,
)
from profkit.reports.figures import format_percent, format_three_figures, make_kernel_name_readable

if TYPE_CHECKING:
    from profkit.units import (
        BeginAndEndNs,
        CallIndex,
        KernelName,
        Nanoseconds,
        RangeName,
        Sentence,
        Share,
        TextOrEmpty,
        WorkIndex,
    )


NAME_MOST = 60  # characters of a range's name in a sentence
PROFILER_STEP = "ProfilerStep"
WHOLE = "the whole recording"  # how steps are told where nothing repeats
UNLAUNCHED = 0.02  # of the GPU's work: what less has no launch is not worth a word
# Of the GPU's time in the same kernels: less is another kind of step. And times the work, from which
# on it is one though its kernels are the same.
SAME_WORK = 0.5
MORE_WORK = 2.0
# Of the computing, what one stream does where it tells when the only step of a recording begins: a
# program that gives each of many streams a part begins with the first of them.
MAIN_STREAM = 0.5
NO_STREAM = -1  # no stream's number
# Turns from which on what repeats is a loop; the last one, of which no end is seen, is not counted. A
# graph is replayed in the third turn at the earliest: one warms up, and one is captured.
LOOP = 2
ODD = 1.5  # a step that takes so many times the median is another kind of step, or was disturbed


@dataclass(frozen=True, slots=True)
class StepWork:
    """An activity of a step, with who launched it."""

    activity: Activity  # what the GPU did
    kind: str  # of profkit.program.steps.kinds, or copy (not within the GPU), convert, set
    call: int  # index of its call among the step's
    maker: CallOrigin  # who made the call


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one process."""

    begin: int  # host time at which it begins, nanoseconds
    end: int  # host time at which the next one begins
    first: int  # GPU time of its first activity on the busiest stream
    period: int  # nanoseconds from that to the next step's; its own span if it is last
    calls: Sequence[Call]
    makers: Sequence[CallOrigin]  # who made each call
    works: Sequence[StepWork]  # what the GPU did, in order of launch
    name: str = ""  # of the range that begins it, where ranges tell steps


@dataclass(frozen=True)
class Steps:
    """All steps of one kind, and which one is typical."""

    how: str  # how they were found, as a sentence's end: "ProfilerStep", "range train_step"
    steps: Sequence[Step]  # in order; those that warm up are left out
    # the one nearest to the median, the later of equals; its host pauses as long as steps usually do
    chosen: int
    notes: tuple[str, ...] = ()  # what is odd about them
    pattern: str = ""  # of --range, that names these and no others; empty where none does
    captures: bool = False  # whether graphs are captured in the recording
    repeats: bool = True  # whether the program marks its steps, or they are seen to repeat
    others: tuple[
        Steps, ...
    ] = ()  # steps of other kinds (prefill, decode), those that take most first

    @property
    def typical(self) -> Step:
        """Return the chosen one."""
        return self.steps[self.chosen]

    @property
    def periods(self) -> list[Nanoseconds]:
        """Return nanoseconds of each step that has a next one; of the only one otherwise."""
        timed = self.steps[:-1] or self.steps
        return [step.period for step in timed]


def find_steps(process: Process, range_name: RangeName = "") -> Steps:
    """Return the steps of a process: of a named range, of what marks steps, or found.

    Activities that no recorded call launched belong to no step.

    Args:
        process: Whose steps.
        range_name: A range's name, or a pattern with * and ? for several; empty finds steps.

    Raises:
        ProfkitError: The range is nowhere, no kernel was launched inside of any step, or all of
            it is at one time.
    """
    calls = _drop_driver_calls_inside_runtime_calls(process.calls)
    order = _list_launched_activities(process.activities, calls)
    marks = _find_step_boundaries(process, calls, order, range_name)
    set_up = _find_set_up_in_only_step(marks, calls, order, range_name)
    if set_up:
        # The same without the time in which modules are loaded: nothing else changes.
        shorter = set_up.remove_set_up_from(process)
        without = find_steps(shorter, range_name)
        return replace(without, notes=(*set_up.note_left_out_time(), *without.notes))
    captures = find_graph_captures(calls)
    launching = {index for index, _ in order}
    lost = find_unrecorded_launches(calls, launching, captures)
    turns = _trim_turns_to_first_launch(marks.turns, calls, chain(launching, lost))
    launches = len(launching)
    del launching  # as large as all that is made of it
    steps = _make_steps_with_origins(process, calls, turns, order, captures)
    complete, notes = _drop_incomplete_steps(steps, turns, calls, lost)
    complete, disturbed = _drop_steps_slowed_by_recording(complete, process.disturbed)
    notes += disturbed
    notes += note_lost_launches(lost, launches)
    only_captured = _say_captures_without_replays(captures, calls)
    notes += only_captured
    notes += _say_work_without_launch(process.activities, order)
    notes += marks.notes
    return _add_other_kinds_to_main_steps(
        _make_steps_of_each_kind(marks, complete, notes), only_captured
    )


def _add_other_kinds_to_main_steps(kinds: Sequence[Steps], only_captured: Sequence[str]) -> Steps:
    """Return the steps that take most time, with those of other kinds.

    Raises:
        ProfkitError: They take none.
    """
    main = kinds[0]
    if main.typical.period <= 0:
        raise ProfkitError(
            "its steps have no duration: their clock does not move", "record it again"
        )
    notes = (*_say_idle_in_graphs_of(main.typical), *main.notes)
    return replace(main, notes=notes, captures=bool(only_captured), others=tuple(kinds[1:]))


def _find_set_up_in_only_step(
    marks: StepMarks,
    calls: Sequence[Call],
    launched_activities: Sequence[CallIndexAndActivity],
    range_name: RangeName,
) -> SetUpSpans | None:
    """Return what a program does once in its only step.

    None where there are more, or the profiler marks it.
    """
    if len(marks.turns) != 1 or marks.how == PROFILER_STEP:
        return None
    if range_name:  # what is set up outside of the range is not in its step anyway
        launched_activities = _list_activities_of_turn(marks.turns[0], calls, launched_activities)
    if not launched_activities:
        return None
    return find_later_set_up(calls, launched_activities)


def _say_captures_without_replays(captures: Captures, calls: Sequence[Call]) -> list[Sentence]:
    """Say which graphs were captured, where none is replayed: those that are show the steps, too."""
    if any(call.launches_graph for call in calls):
        return []
    return list(note_captures(captures))


def _list_activities_of_turn(
    turn: Turn, calls: Sequence[Call], launched_activities: Sequence[CallIndexAndActivity]
) -> list[CallIndexAndActivity]:
    """Return what was launched in a turn."""
    inside = []
    for index, activity in launched_activities:
        if turn.begin <= calls[index].start < turn.end:
            inside.append((index, activity))
    return inside


def _trim_turns_to_first_launch(
    turns: Sequence[Turn], calls: Sequence[Call], launching: Iterable[CallIndex]
) -> list[Turn]:
    """Return turns without what precedes the first launch; `launching`: which calls launch anything.

    That may be no step's: a recorder that starts takes its time once.
    """
    begin = turns[0].begin
    starts = (calls[index].start for index in launching)
    first = min((start for start in starts if start >= begin), default=begin)
    begun = []
    for turn in turns:
        if turn.begin < first:
            turn = replace(turn, begin=first)  # noqa: PLW2901
        begun.append(turn)
    return begun


def _make_steps_of_each_kind(
    marks: StepMarks, complete: list[Step], notes: list[str]
) -> list[Steps]:
    """Return each kind of step with its typical one, that which takes most time first."""
    kinds = [complete]
    if marks.named:
        kinds = group_steps_by_work(complete)
    warm_up = find_warm_up_steps(kinds)
    if warm_up:
        kinds = [own for own in kinds if own not in warm_up]
        notes = [*notes, *_say_warm_up(warm_up, len(complete))]
    repeats = marks.named or marks.how == PROFILER_STEP or len(marks.turns) >= LOOP
    found = []
    for own in kinds:
        found.append(replace(_choose_typical_step(marks.how, own, notes), repeats=repeats))
    if len(found) > 1:
        for number, own in enumerate(kinds):
            found[number] = replace(found[number], pattern=_find_name_pattern(own, complete))
    return found


def _say_idle_in_graphs_of(step: Step) -> Iterator[Sentence]:
    """Say how long the GPU was idle inside of the graphs of a step, where that is much."""
    works = [work.activity for work in step.works]
    callers = []
    for work in step.works:
        callers.append(step.calls[work.call])
    amd = any(call.name.startswith("hip") for call in callers)
    yield from note_idle_in_graphs(sum_idle_in_graphs(works, callers), step.period, amd)


def _drop_driver_calls_inside_runtime_calls(calls: Sequence[Call]) -> list[Call]:
    """Return calls without those that a call of the runtime made of the driver."""
    out: list[Call] = []
    last: dict[int, Call] = {}
    for call in calls:
        outer = last.get(call.thread)
        if outer and call.end <= outer.end and call.correlation == outer.correlation:
            continue
        last[call.thread] = call
        out.append(call)
    return out


def _list_launched_activities(
    activities: Sequence[Activity], calls: Sequence[Call]
) -> list[CallIndexAndActivity]:
    """Return (index of the call, activity) of every activity whose call was recorded, in that order.

    Raises:
        ProfkitError: There is none.
    """
    at = {call.correlation: i for i, call in enumerate(calls) if call.correlation}  # 0 is none
    pairs = []
    for a in activities:
        if a.correlation in at:
            pairs.append((at[a.correlation], a))
    if not pairs:
        why = "no kernel launch was recorded (none has a correlation number)"
        raise ProfkitError(why, "record CPU and GPU together")
    return sorted(pairs, key=lambda pair: (pair[0], pair[1].start))


def _say_work_without_launch(
    activities: Sequence[Activity], launched_activities: Sequence[CallIndexAndActivity]
) -> Iterator[Sentence]:
    """Say so where much of what the GPU did has no launch: a cut recording, dynamic parallelism."""
    begin = min((a.start for _, a in launched_activities), default=0)
    inside = sum(a.duration for a in activities if a.start >= begin)
    left = inside - sum(a.duration for _, a in launched_activities)
    if left > UNLAUNCHED * inside:
        moved = []
        for a in activities:
            if a.name.startswith(UNIFIED_MEMORY) and a.start >= begin:
                moved.append(a)
        why = "cut, or launched by the GPU itself"
        if 2 * sum(a.duration for a in moved) > left:
            why = "pages of unified memory that move when they are touched; prefetch them"
        yield (
            f"{format_percent(left / inside)} of the GPU's work has no launch in the recording ({why}), "
            "so it is not part of any step"
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """The host's time of one step."""

    begin: int
    end: int
    name: str = ""  # of the range that begins it
    kept: bool = True  # whether it is one of the steps that were asked for


@dataclass(frozen=True)
class StepMarks:
    """How steps are told, and the host's time of each, in order."""

    how: str
    turns: Sequence[Turn]
    notes: Sequence[str] = ()
    named: bool = False  # whether ranges that the program names are the steps


def _make_turns_between_begins(begins: Sequence[Nanoseconds]) -> list[Turn]:
    """Return turns from each begin to the next one; the last begin is where the last turn ends."""
    return [Turn(begin, end) for begin, end in pairwise(begins)]


def _find_step_boundaries(
    process: Process,
    calls: Sequence[Call],
    launched_activities: Sequence[CallIndexAndActivity],
    range_name: RangeName,
) -> StepMarks:
    """Return what tells steps apart: a named range, the profiler's marks, ranges, or a period."""
    if range_name:
        return _find_named_steps(process.spans, range_name)
    spans = []
    for s in process.spans:
        if s.kind == "step":
            spans.append(s)
    if spans:
        ends = [*(s.start for s in spans), max(s.end for s in spans)]
        return StepMarks(PROFILER_STEP, _make_turns_between_begins(ends))
    marked = _keep_between_profiler_start_and_stop(calls, launched_activities)
    found = find_period(calls, marked)
    if found:
        begins = found.begins
    else:
        begins = []
    passes = find_passes(process.spans, make_host_work(calls, marked), list(pairwise(begins)))
    if passes:
        return _make_marks_of_passes(passes)
    if found:
        notes = [*found.notes]
        if found.warm_up:
            notes.append(f"the first {found.warm_up:,} calls were treated as warm-up")
        return StepMarks(found.how, _make_turns_between_begins(begins), notes)
    return _mark_recording_until_gpu_is_done(calls, marked)


def _make_marks_of_passes(passes: Passes) -> StepMarks:
    """Return marks of ranges that the program names once a step."""
    turns = _make_turns_of_spans(passes.spans, passes.end)
    shown = turns[0].name
    if len(shown) > NAME_MOST:
        shown = f"{shown[:NAME_MOST]}..."
    if all(turn.name == turns[0].name for turn in turns):
        how = f"range {shown}"
    else:
        how = f"ranges like {shown}"
    return StepMarks(how, turns, named=True)


def _make_turns_of_spans(spans: Sequence[HostSpan], end: Nanoseconds) -> list[Turn]:
    """Return turns from the begin of each span to that of the next; the last one ends at `end`."""
    ends = [*(span.start for span in spans[1:]), end]
    return [
        Turn(span.start, turn_end, span.name) for span, turn_end in zip(spans, ends, strict=True)
    ]


def _find_named_steps(spans: Sequence[HostSpan], range_name: RangeName) -> StepMarks:
    """Return steps of the ranges whose name is so, or matches; what is of their family ends them too.

    Raises:
        ProfkitError: There is none.
    """
    ranges = []
    for s in spans:
        if s.kind in {"range", "step"}:
            ranges.append(s)
    wanted = _select_ranges_by_name(ranges, range_name)
    if any(s.ended for s in wanted):  # one that was still open is no whole step
        ranges = [s for s in ranges if s.ended]
        wanted = [s for s in wanted if s.ended]
    # A server's other kind of pass between two of these is no part of them.
    families = {make_family_name(s.name) for s in wanted}
    alike = []
    for s in ranges:
        if make_family_name(s.name) in families:
            alike.append(s)
    ordered = keep_outermost_ranges(alike)
    chosen = {id(s) for s in wanted}
    turns = []
    for span, turn in zip(ordered, _make_turns_of_spans(ordered, ordered[-1].end), strict=True):
        turns.append(replace(turn, kept=id(span) in chosen))
    if not any(turn.kept for turn in turns):  # they lie in others of their family
        ordered = keep_outermost_ranges(wanted)
        turns = _make_turns_of_spans(ordered, ordered[-1].end)
    return StepMarks(f"range {range_name}", turns, named=True)


def _select_ranges_by_name(ranges: Sequence[HostSpan], range_name: RangeName) -> list[HostSpan]:
    """Return ranges whose name is so, or else matches; a ProfkitError where there is none."""
    wanted = []
    for s in ranges:
        if s.name == range_name:
            wanted.append(s)
    if wanted:
        return wanted
    escaped = re.escape(range_name).replace(r"\*", ".*").replace(r"\?", ".")
    pattern = re.compile(escaped, re.DOTALL)
    wanted = []
    for s in ranges:
        if pattern.fullmatch(s.name):
            wanted.append(s)
    if wanted:
        return wanted
    names = sorted({s.name for s in ranges if s.kind == "range"})[:5]
    hint = "it has no ranges"
    if names:
        hint = f"there are: {', '.join(names)}"
    raise ProfkitError(f"--range {range_name}: not in the timeline", hint)


def _keep_between_profiler_start_and_stop(
    calls: Sequence[Call], launched_activities: Sequence[CallIndexAndActivity]
) -> Sequence[CallIndexAndActivity]:
    """Return what was launched between cudaProfilerStart and Stop, where the program calls them."""
    low = next((i for i, c in enumerate(calls) if "ProfilerStart" in c.name), len(calls))
    stops = (i for i, c in enumerate(calls) if i > low and "ProfilerStop" in c.name)
    high = next(stops, len(calls))
    return [pair for pair in launched_activities if low < pair[0] < high] or launched_activities


def _mark_recording_until_gpu_is_done(
    calls: Sequence[Call], launched_activities: Sequence[CallIndexAndActivity]
) -> StepMarks:
    """Return one step from the first launch to the end of the work, without the end of the program."""
    begin = calls[launched_activities[0][0]].start
    end = find_end_of_work(calls, launched_activities)
    after = []
    for call in calls:
        if call.start >= end:
            after.append(call)
    notes = ["no repeating sequence of launches: the whole recording is taken as one step"]
    took = max((call.end for call in after), default=end) - end
    if took > UNLAUNCHED * (end - begin):
        names = Counter(call.name for call in after)
        most = ", ".join(f"{name} ({count:,}x)" for name, count in names.most_common(2))
        notes.append(
            f"the end of the program is left out of the step: {format_three_figures(took / 1e6)} ms "
            "after the "
            f"GPU's last work, in {most}"
        )
    return StepMarks(WHOLE, [Turn(begin, end)], notes)


def _make_steps_with_origins(
    process: Process,
    calls: Sequence[Call],
    turns: Sequence[Turn],
    launched_activities: Sequence[CallIndexAndActivity],
    captures: Captures,
) -> list[Step]:
    """Return the steps of a process; who made each call is needed no longer than they are made.

    Raises:
        ProfkitError: None launches a kernel.
    """
    made = dict(zip(process.calls, list_origins_of_calls(process), strict=True))
    captured = _find_origins_of_captured_activities(calls, launched_activities, made, captures)
    steps = _make_steps_of_turns(turns, calls, launched_activities, made, captured, process.places)
    if not steps:
        raise ProfkitError(
            "no kernel was launched inside of a step", "name the step with --range, or record more"
        )
    return steps


def _make_steps_of_turns(
    turns: Sequence[Turn],
    calls: Sequence[Call],
    launched_activities: Sequence[CallIndexAndActivity],
    origin_by_call: dict[Call, CallOrigin],
    origin_by_graph_activity: dict[Activity, CallOrigin],
    places: Sequence[SourcePlace],
) -> list[Step]:
    """Return calls and activities of each turn that launches anything, of those that were asked for."""
    starts = [c.start for c in calls]
    launched = [pair[0] for pair in launched_activities]
    steps: list[Step | None] = []
    least = 0.0
    if len(turns) == 1:
        least = MAIN_STREAM
    busiest = _find_stream_that_computes_most(launched_activities, least)
    for turn in turns:
        low = bisect_left(starts, turn.begin)
        high = bisect_left(starts, turn.end)
        pairs = launched_activities[bisect_left(launched, low) : bisect_left(launched, high)]
        if not pairs:
            steps.append(None)
            continue
        own = calls[low:high]
        makers = [origin_by_call.get(call, NOBODY) for call in own]
        works = _make_works(pairs, low, makers, origin_by_graph_activity, places)
        steps.append(_make_step(turn, own, makers, works, busiest))
    return _set_step_periods(turns, steps)


def _make_works(
    pairs: Sequence[CallIndexAndActivity],
    first_call: int,
    makers: Sequence[CallOrigin],
    captured: Mapping[Activity, CallOrigin],
    places: Sequence[SourcePlace],
) -> list[StepWork]:
    """Return what a step's calls launched, with who made each or captured it.

    `first_call` is the index of the step's first call, with which its makers begin.
    """
    works = []
    for index, activity in pairs:
        call = index - first_call
        maker = makers[call]
        if captured:
            maker = captured.get(activity, maker)
        works.append(_make_step_work(activity, call, maker, places))
    return works


def _make_step(
    turn: Turn,
    calls: Sequence[Call],
    makers: Sequence[CallOrigin],
    works: Sequence[StepWork],
    busiest_stream: int,
) -> Step:
    """Return the step of a turn, as long as its work on the GPU, or on the host if that is longer."""
    on_busiest = [w.activity.start for w in works if w.activity.stream == busiest_stream]
    first = min(on_busiest or [w.activity.start for w in works])
    last = max(w.activity.end for w in works)
    on_host = turn.end - turn.begin - _sum_wait_ns_before_step(calls, turn.begin, first)
    return Step(
        begin=turn.begin,
        end=turn.end,
        first=first,
        period=max(last - first, on_host),
        calls=calls,
        makers=tuple(makers),  # smaller than lists, and there may be 150,000
        works=tuple(works),
        name=turn.name,
    )


def _set_step_periods(turns: Sequence[Turn], steps: list[Step | None]) -> list[Step]:
    """Return the steps that were asked for, each as long as until the next one begins on the GPU.

    `steps` is emptied: there may be a hundred thousand, and each is there once.
    """
    out = []
    for at, turn in enumerate(turns):
        step = steps[at]
        after = None
        steps[at] = None
        if at + 1 < len(steps):
            after = steps[at + 1]
        if step is None or not turn.kept:
            continue
        # Where the next one has no kernels, nothing tells when it would have begun.
        if after is not None and after.begin == step.end:
            step = replace(step, period=after.first - step.first)
        out.append(step)
    return out


def _find_origins_of_captured_activities(
    calls: Sequence[Call],
    launched_activities: Sequence[CallIndexAndActivity],
    origin_by_call: Mapping[Call, CallOrigin],
    captures: Captures,
) -> dict[Activity, CallOrigin]:
    """Return the makers of what graphs run, where a capture in the recording tells them."""
    found: dict[Activity, CallOrigin] = {}
    if captures.spans:
        from profkit.program.steps.captured import find_one_stream_graph_replays

        for replay in find_one_stream_graph_replays(calls, launched_activities, captures):
            makers_of_captures = []
            for own in replay.captured:
                makers_of_captures.append([origin_by_call[call] for call in own])
            found.update(zip(replay.ran, merge_call_origins(makers_of_captures), strict=False))
    makers = {}
    for call, maker in origin_by_call.items():
        if call.correlation:
            makers[call.correlation] = maker
    for _, activity in launched_activities:
        maker = makers.get(activity.captured, NOBODY)
        if activity.captured and maker.op:
            # Which operator of its thread it was says nothing of the step that replays it.
            found[activity] = replace(maker, ordinal=-1)
    return found


def _sum_wait_ns_before_step(
    calls: Sequence[Call], earliest_ns: Nanoseconds, first_work_ns: Nanoseconds
) -> Nanoseconds:
    """Return nanoseconds that the host waits for work of earlier steps, before the step's own begins."""
    waited = 0
    for call in calls:
        if call.waits:
            waited += max(0, min(call.end, first_work_ns) - max(call.start, earliest_ns))
    return waited


def _drop_incomplete_steps(
    steps: Sequence[Step],
    turns: Sequence[Turn],
    calls: Sequence[Call],
    lost_launches: frozenset[CallIndex],
) -> tuple[list[Step], list[Sentence]]:
    """Return steps whose kernels are there as far as of any other, and a sentence on the others."""
    starts = []
    for index in sorted(lost_launches):
        starts.append(calls[index].start)
    empty = 0
    whole = {step.begin for step in steps}
    for turn in turns:
        inside = bisect_left(starts, turn.end) - bisect_left(starts, turn.begin)
        empty += turn.kept and turn.begin not in whole and inside > 0
    shares = [_share_of_launches_present(step, starts) for step in steps]
    best = max(shares)
    kept = []
    for step, share in zip(steps, shares, strict=True):
        if share >= ALIKE * best:
            kept.append(step)
    left = empty + len(steps) - len(kept)
    if not left:
        return kept, []
    count = empty + len(steps)
    said = (
        f"{left} of {count} steps lack kernels that they launched ({empty} have none): they are "
        "left out"
    )
    return kept, [said]


def _drop_steps_slowed_by_recording(
    steps: list[Step], disturbed: Sequence[BeginAndEndNs]
) -> tuple[list[Step], list[Sentence]]:
    """Return steps whose host was not slowed by recording operators, and a sentence on the others.

    A step's time ends when the next one begins on the GPU: one before a slowed step is none, either.
    """
    slowed = [_has_overlapping_host_time(step, disturbed) for step in steps]
    if not any(slowed):
        return steps, []
    after = [*slowed[1:], False]
    kept = []
    for step, is_slowed, is_before in zip(steps, slowed, after, strict=True):
        if not is_slowed and not is_before:
            kept.append(step)
    if not kept:
        return steps, [
            "torch's operators were recorded in every step: the host was slowed, and idle time is "
            "longer than without (--no-operators records none)"
        ]
    took = sum(end - begin for begin, end in disturbed)
    said = (
        f"{len(steps) - len(kept)} of {len(steps)} steps are left out: torch's operators were "
        f"recorded in them, which slowed the host for {format_three_figures(took / 1e6)} ms"
    )
    return kept, [said]


def _has_overlapping_host_time(step: Step, spans: Sequence[BeginAndEndNs]) -> bool:
    """Return whether any of some spans of time has a part of a step's time on the host."""
    return any(begin < step.end and step.begin < end for begin, end in spans)


def _share_of_launches_present(step: Step, starts_of_lost_launches: Sequence[Nanoseconds]) -> Share:
    """Return the share of a step's launches whose work is there; starts are in order."""
    missing = bisect_left(starts_of_lost_launches, step.end) - bisect_left(
        starts_of_lost_launches, step.begin
    )
    there = len({work.call for work in step.works})
    return there / (there + missing)


def _find_stream_that_computes_most(
    launched_activities: Sequence[CallIndexAndActivity], least_share: Share
) -> int:
    """Return the stream that computes most: copies on others may run steps ahead of it.

    NO_STREAM where that is less than a share of the whole: then none stands for the others.
    """
    times: Counter[int] = Counter()
    for _, activity in launched_activities:
        computes = activity.kind in {"kernel", GRAPH}
        if computes:
            times[activity.stream] += activity.duration
    busiest = max(times, key=lambda stream: times[stream], default=0)
    if times[busiest] < least_share * times.total():
        return NO_STREAM
    return busiest


def _make_step_work(
    activity: Activity, call: CallIndex, origin: CallOrigin, places: Sequence[SourcePlace]
) -> StepWork:
    if activity.origin >= 0:  # of a graph's kernel: where it was captured, not where it is replayed
        origin = replace_place_of_origin(origin, places[activity.origin])
    name = make_kernel_name_readable(activity.name)
    kind = "set"
    if activity.kind == "copy":
        if activity.direction == "DtoD":
            kind = "convert"
        else:
            kind = "copy"
    elif activity.kind == "kernel":
        kind = classify_by_name_then_operator(name, origin.op)
    elif activity.kind == GRAPH:
        kind = GRAPH
    if name != activity.name:
        activity = replace(activity, name=name)
    return StepWork(activity, kind, call, origin)


def group_steps_by_work(steps: Sequence[Step]) -> list[list[Step]]:
    """Return steps that do one kind of work together, the kind that takes most time first.

    A server's prefill and decode have ranges of one name, and are two steps: other kernels, or the
    same with many times the work.
    """
    kinds: list[tuple[dict[str, float], list[Step]]] = []
    for step in steps:
        shares = _compute_kernel_shares(step)
        for other, own in kinds:
            if sum(min(share, other.get(name, 0.0)) for name, share in shares.items()) >= SAME_WORK:
                own.append(step)
                break
        else:
            kinds.append((shares, [step]))
    divided = []
    for _, alike in kinds:
        divided += _split_steps_by_time(alike)
    return sorted(divided, key=lambda own: -sum(step.period for step in own))


def find_warm_up_steps(kinds: Sequence[list[Step]]) -> list[list[Step]]:
    """Return kinds of step that only warm up: before all others they do what those do, and more besides.

    A first pass that is compiled or tuned runs candidates and then the pass itself, as fast as later
    ones do. The prefill of a server comes first too, but its kernels are others or take longer.
    """
    steady = max(kinds, key=len)
    usual = steady[len(steady) // 2]
    first = min(step.begin for step in steady)
    found = []
    for own in kinds:
        is_before = all(step.begin < first for step in own)
        if (
            is_before
            and len(own) < len(steady)
            and all(_is_longer_step(step, usual) for step in own)
        ):
            found.append(own)
    return found


def _is_longer_step(step: Step, usual: Step) -> bool:
    """Return whether a step ends with all that a usual one does, as fast, and does more before."""
    if len(step.works) <= len(usual.works):
        return False
    left = Counter(work.activity.name for work in usual.works)
    time = 0
    for work in reversed(step.works):
        if left[work.activity.name] > 0:
            left[work.activity.name] -= 1
            time += work.activity.duration
    if left.total() > 0:
        return False
    return time <= MORE_WORK * sum(work.activity.duration for work in usual.works)


def _say_warm_up(warm_up: Sequence[Sequence[Step]], step_count: int) -> Iterator[Sentence]:
    """Say which steps were left out because they warm up."""
    steps = [step for own in warm_up for step in own]
    took = sum(step.period for step in steps) / 1e6
    yield (
        f"{len(steps)} of {step_count} steps were treated as warm-up ({format_three_figures(took)} "
        "ms): they come "
        "first, "
        "and run the kernels of the later ones and others in addition (compiling, tuning)"
    )


def _find_name_pattern(steps_to_match: Sequence[Step], all_steps: Sequence[Step]) -> TextOrEmpty:
    """Return a pattern for the names of some steps that matches no other's.

    Empty where there is none.
    """
    names = {step.name for step in steps_to_match}
    chosen = {step.begin for step in steps_to_match}
    others = set()
    for step in all_steps:
        if step.begin not in chosen:
            others.add(step.name)
    if names & others:
        return ""
    if len(names) == 1:
        return names.pop()
    prefix = ""
    for letter, other in zip(min(names), max(names), strict=False):
        if letter != other:
            break
        prefix += letter
    if any(name.startswith(prefix) for name in others):
        return ""
    return f"{prefix}*"


def _compute_kernel_shares(step: Step) -> dict[KernelName, Share]:
    """Return of the GPU's time in a step, each kernel's share."""
    times: Counter[str] = Counter()
    for work in step.works:
        times[work.activity.name] += work.activity.duration
    whole = max(1, times.total())
    return {name: time / whole for name, time in times.items()}


def _split_steps_by_time(steps: Sequence[Step]) -> list[list[Step]]:
    """Return steps apart where some keep the GPU busy more than twice as long as the next shorter."""
    timed = []
    for step in steps:
        timed.append((sum(work.activity.duration for work in step.works), step))
    timed.sort(key=lambda pair: pair[0])
    divided = [[timed[0][1]]]
    for (shorter, _), (busy, step) in pairwise(timed):
        if busy > MORE_WORK * max(1, shorter):
            divided.append([])
        divided[-1].append(step)
    return [sorted(own, key=lambda s: s.begin) for own in divided]


def _choose_typical_step(how_found: str, steps: list[Step], notes: list[str]) -> Steps:
    """Return steps of one kind with the one nearest to the median, and a note on unlike ones."""
    timed = steps[:-1] or steps
    periods = [step.period for step in timed]
    middle = median(periods)
    odd = 0
    for period in periods:
        if period > ODD * middle or period < middle / ODD:
            odd += 1
    if odd:
        takes = "takes" if odd == 1 else "take"
        low = format_three_figures(min(periods) / 1e6)
        high = format_three_figures(max(periods) / 1e6)
        note = (
            f"{odd} of {len(timed)} steps {takes} a different time: {low} to {high} ms; the answer "
            "is for the typical one"
        )
        notes = [*notes, note]
    chosen = min(range(len(timed)), key=lambda i: (abs(periods[i] - middle), -i))
    usual = _set_typical_pauses(steps, chosen)
    return Steps(how_found, [*steps[:chosen], usual, *steps[chosen + 1 :]], chosen, tuple(notes))


def _set_typical_pauses(steps: Sequence[Step], chosen: int) -> Step:
    """Return a step whose host pauses before its first call and after its last as steps usually do.

    One pause that the GPU's queue bridges says nothing of the others. None is longer than the
    period: steps that follow each other have no time for it.
    """
    step = steps[chosen]
    last_ends = []
    tails = []
    for each in steps:
        last_end = max(call.end for call in each.calls)
        last_ends.append(last_end)
        tails.append(max(0, each.end - last_end))
    heads = [each.calls[0].start - each.begin for each in steps[1:]] or [0]
    head = min(round(median(heads)), step.period)
    tail = min(round(median(tails[:-1] or tails)), step.period)
    end = step.end
    if tails[chosen]:
        end = last_ends[chosen] + tail
    return replace(step, begin=step.calls[0].start - head, end=end)


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
    place: SourcePlace | None = None  # where most of their time comes from


def group_works_by_kernel(works: Sequence[StepWork]) -> list[KernelGroup]:
    """Return kernels, copies and sets of a step, longest first."""
    members: dict[tuple[str, Dims | None, Dims | None], list[int]] = defaultdict(list)
    for i, work in enumerate(works):
        activity = work.activity
        members[activity.name, activity.grid, activity.block].append(i)
    times: Counter[tuple[str, Dims | None, Dims | None]] = Counter()
    for key, own in members.items():
        times[key] = sum(works[i].activity.duration for i in own)
    groups: list[KernelGroup] = []
    for key in sorted(members, key=lambda key: (-times[key], str(key))):
        groups.append(_make_kernel_group(works, f"k{len(groups) + 1}", times[key], members[key]))
    return groups


def _make_kernel_group(
    works: Sequence[StepWork], name: str, time: Nanoseconds, work_indices: Sequence[WorkIndex]
) -> KernelGroup:
    """Return the launches of one kernel with one shape; `work_indices`: theirs among a step's works."""
    members = [works[i] for i in work_indices]
    makers = [work.maker for work in members]
    sources = []
    for maker in makers:
        if maker.place:
            sources.append(maker.source)
        else:
            sources.append(describe_source(maker))
    place = None
    found = find_main_place((work.maker.place, work.activity.duration) for work in members)
    if found:
        place = found.place
    activity = members[0].activity
    return KernelGroup(
        id=name,
        name=activity.name,
        kind=members[0].kind,
        grid=activity.grid,
        block=activity.block,
        calls=len(work_indices),
        time=time,
        works=tuple(work_indices),
        op=_get_most_common_word(maker.top or maker.op for maker in makers),
        range=_get_most_common_word(maker.range for maker in makers),
        source=_get_most_common_word(sources),
        place=place,
    )


def _get_most_common_word(words: Iterable[str]) -> TextOrEmpty:
    counted = Counter(word for word in words if word)
    if counted:
        return counted.most_common(1)[0][0]
    return ""
