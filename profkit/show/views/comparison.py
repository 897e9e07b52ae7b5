"""Comparisons and ladders  ->  blocks for people: the verdict first, then what explains it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.verdict import NOTHING_TO_WIN
from profkit.evidence.causes import EstimateAndGain
from profkit.evidence.claims import Verified
from profkit.evidence.compare import Compared, GateResult, ResourceChange, RunComparison
from profkit.evidence.conditions import UNLIKE_NAMES, WAIVABLE
from profkit.evidence.counters import (
    FindingChange,
    FindingState,
    HeaderPrediction,
    LaunchChange,
    MovedMetric,
    make_moved_metric,
)
from profkit.evidence.ladder import Ladder, LadderStep, Summary, SummaryGate
from profkit.evidence.stats import TimeComparison, format_ratio, invert_interval
from profkit.model.scenario import Expectation
from profkit.model.whatif import ALIASES, CounterChange, ExpectedLaunch
from profkit.reports import figures
from profkit.reports.metrics import CATALOGUE
from profkit.show.text import words
from profkit.show.text.blocks import (
    Block,
    Columns,
    Grid,
    Heading,
    Paragraph,
    TextLine,
    TextSpan,
    get_plain_text,
    make_grid,
)
from profkit.show.text.escape import shorten_name

if TYPE_CHECKING:
    from profkit.units import Clause, RuleName, Sentence, Share, TextOrEmpty


NAME = 60  # characters of a kernel name
MOVED_SHOWN = 6  # metrics that moved; --all and --json have them all
GROUPS_SHOWN = 12  # launches that the change did other things to
BRIEF_METRICS = 3
NAMED = 6  # launches that a heading names one by one
NO_RECORD = "has no run record: its correctness is unknown"
_KEPT = {True: "kept", False: "broken", None: "unknown"}


def show_comparison(sides: Compared, *, is_complete: bool = False) -> Iterator[Block]:
    """Yield every pair of runs: what a reader looks for first, or with `is_complete` all of it."""
    for change in sides.changes:
        yield Heading(write_change_sentence(change))
        yield from show_run_change(change, is_complete=is_complete)
    if sides.alone:
        yield Heading("Not compared")
        yield TextLine(f"only one side has {', '.join(sides.alone)}")


def show_run_change(change: RunComparison, *, is_complete: bool) -> Iterator[Block]:
    """Yield what became of two runs: the time first, then the launches, then what else differs.

    Only with `is_complete` it has every metric, the times under ncu beside measured ones, and
    predictions and resources as tables.
    """
    if not change.compared:
        for refusal in change.refusals:
            yield TextLine(refusal.sentence, "not compared")
        if all(refusal.code in WAIVABLE for refusal in change.refusals):
            yield TextLine("--anyway", "to compare anyway")
        return
    yield from _show_answer(change)
    groups = group_launches_changed_alike(change.launches)
    if not is_complete:
        groups = groups[:GROUPS_SHOWN]
    for group in groups:
        yield from _show_group(group, change, is_complete=is_complete)
    if is_complete:
        yield from _show_predictions(change.promises)
        yield from _show_resources(change)
    else:
        yield from _list_tables_as_lines(change)
    yield from _show_notes(change)


def _list_tables_as_lines(change: RunComparison) -> Iterator[TextLine]:
    """Yield predictions and resources in a line each; a prediction that was not kept is named."""
    kept = sum(prediction.kept is True for prediction in change.promises)
    if change.promises:
        said = f"{kept} of {len(change.promises)} kept"
        for prediction in change.promises:
            if prediction.kept is not True:
                said += f"; {_KEPT[prediction.kept]}: {say_prediction(prediction)}"
        yield TextLine(said, "predictions in AFTER's header")
    resources: list[TextSpan | str] = []
    for resource in () if change.has_no_pair else change.resources:
        before = _format_resource_amount(resource, resource.before)
        after = _format_resource_amount(resource, resource.after)
        if before.partition(" ")[2] == after.partition(" ")[2]:
            before = before.partition(" ")[0]
        if resource.before is not None and resource.after is not None:
            resources += [TextSpan(f"{resource.name} {before} -> {after}", "whole"), ", "]
    if resources:
        yield TextLine(tuple(resources[:-1]), "resources")


def _show_answer(change: RunComparison) -> Iterator[TextLine]:
    """Yield what changed and by how much, and how that is known."""
    yield from show_ncu_time_without_timing(change)
    if UNLIKE_NAMES in change.notes:
        yield TextLine(UNLIKE_NAMES, "note")
    yield from _list_unmatched_kernels(change)
    if change.estimate is not None:
        yield TextLine(_say_estimate_of_change(change, change.estimate), "predicted")
    if len(change.launches) == 1:
        yield from show_cause_of_change(change.launches[0], change)
    elif change.time is not None:
        yield TextLine(describe_timing(change), "measured")
    for refusal in () if change.has_no_pair else change.refusals:
        yield TextLine(f"compared despite this: {refusal.sentence}", refusal.code)


def _show_predictions(predictions: Sequence[HeaderPrediction]) -> Iterator[Block]:
    """Yield whether the predictions of a header were right."""
    if predictions:
        yield Heading("Predictions in AFTER's header", 3)
        rows = tuple(map(list_prediction_cells, predictions))
        yield Grid(("result", "prediction", "outcome"), rows, wraps=2)


def _list_unmatched_kernels(change: RunComparison) -> Iterator[TextLine]:
    """Yield the kernels that have no partner on the other side, a line for each side."""
    for side, kernels in (("BEFORE", change.only_before), ("AFTER", change.only_after)):
        names = []
        for name, count in Counter(kernels).items():
            many = ""
            if count > 1:
                many = f" ({count}x)"
            names.append(shorten_name(name, NAME) + many)
        if names:
            yield TextLine(", ".join(names), f"only in {side}")


def _show_resources(change: RunComparison) -> Iterator[Block]:
    """Yield the resources that differ, of launches that belong together."""
    resources = change.resources
    if not resources or change.has_no_pair:
        return
    yield Heading("Resources", 3)
    columns: Columns[ResourceChange] = {
        "resource": lambda r: r.name,
        ">before": lambda r: _format_resource_amount(r, r.before),
        ">after": lambda r: _format_resource_amount(r, r.after),
        ">change": _format_resource_change,
    }
    yield make_grid(resources, columns)


def _show_notes(change: RunComparison) -> Iterator[Block]:
    """Yield what else to know of the comparison."""
    is_one = change.time is not None and change.time.reason == "identical"
    for note in _list_distinct_notes(change):
        if is_one and note.startswith("both sides are the same"):  # said above
            continue
        if note == UNLIKE_NAMES:  # said above, too
            continue
        yield TextLine(note, "note")


def _list_distinct_notes(change: RunComparison) -> list[Sentence]:
    """Return the notes of a comparison; that both sides lack a run record is one of them."""
    lacking = [f"{side} {NO_RECORD}" for side in (change.before, change.after)]
    if not all(note in change.notes for note in lacking):
        return list(dict.fromkeys(change.notes))
    said = [note for note in change.notes if note not in lacking]
    return ["neither side has a run record: whether their results are correct is unknown", *said]


# --- launches that became the same are one block --------------------------------------------------


@dataclass(frozen=True)
class LaunchGroup:
    """Launches of one kernel that a change did the same to; the longest one is shown."""

    numbers: tuple[int, ...]  # from 1, in the order of the reports
    launches: tuple[LaunchChange, ...]

    @property
    def shown(self) -> LaunchChange:
        """Return the launch that takes longest after the change; the first one of equals."""
        longest = self.launches[0]
        for launch in self.launches:
            if launch.profiled_time.after > longest.profiled_time.after:
                longest = launch
        return longest


def group_launches_changed_alike(launches: Iterable[LaunchChange]) -> list[LaunchGroup]:
    """Return launches of the same kernels, bounds and changes of findings in one group each."""
    alike: dict[tuple[Any, ...], list[tuple[int, LaunchChange]]] = {}
    for number, launch in enumerate(launches, 1):
        changes = sorted(
            (f.rule, describe_finding_state(f)) for f in launch.findings if not is_note_or_repeat(f)
        )
        leads = launch.leads.before, launch.leads.after
        key = (launch.kernel, launch.bound, leads, tuple(changes))
        alike.setdefault(key, []).append((number, launch))
    groups = []
    for members in alike.values():
        numbers = tuple(number for number, _ in members)
        groups.append(LaunchGroup(numbers, tuple(launch for _, launch in members)))
    return groups


def _show_group(group: LaunchGroup, change: RunComparison, *, is_complete: bool) -> Iterator[Block]:
    """Yield one launch, or the longest of several that became the same."""
    is_only = len(change.launches) == 1
    if not is_only:
        yield Heading(_write_group_title(group), 2)
        yield from show_cause_of_change(group.shown, change)
    is_timed = change.time is not None or not is_only
    yield from _show_both_launches(
        group.shown, is_time_shown=is_timed and (is_complete or not is_only)
    )
    if is_only and change.time is not None:
        yield TextLine(describe_timing(change), "measured")
    yield from _list_findings_of_one_side(group.shown.findings, is_complete=is_complete)
    yield from _show_changed_findings(group.shown, change)
    yield from _show_moved_metrics(group.shown, is_complete=is_complete)
    yield from _list_metrics_of_one_side(group.shown)


def _write_group_title(group: LaunchGroup) -> str:
    """Return which launches a block is about: "Launch 2", "Launches 1 to 4, alike"."""
    first = group.numbers[0]
    last = group.numbers[-1]
    if len(group.numbers) == 1:
        return f"Launch {first}"
    which = ", ".join(map(str, group.numbers))
    if last - first + 1 == len(group.numbers):
        which = f"{first} to {last}"
    elif len(group.numbers) > NAMED:
        which = f"{first} to {last} ({len(group.numbers)} of them)"
    return f"Launches {which}, alike; the one that takes longest"


def _format_resource_amount(resource: ResourceChange, value: float | None) -> str:
    if resource.name in CATALOGUE:
        return words.format_metric(resource.name, value)
    return figures.format_value_with_unit(value, resource.unit)


def _format_resource_change(resource: ResourceChange) -> TextOrEmpty:
    """Return how a resource changed, as a metric is: a factor, or points of a share."""
    if resource.before is None or resource.after is None:
        return ""
    change = make_moved_metric(resource.name, resource.unit, resource.before, resource.after)
    return format_change(change)


def show_ncu_time_without_timing(change: RunComparison) -> Iterator[TextLine]:
    """Yield what a reader of two reports looks for first, where nothing else was timed."""
    if change.time is not None or not change.launches:
        return
    before = sum(launch.profiled_time.before for launch in change.launches)
    after = sum(launch.profiled_time.after for launch in change.launches)
    if not (isfinite(before) and isfinite(after)):
        return
    count = len(change.launches)
    if count == 1:
        many = "one launch each"
    else:
        many = f"{count} launches each"
    text = f"{figures.format_seconds(before)} -> {figures.format_seconds(after)} ({many}; not a timing)"
    yield TextLine(text, "under ncu")


# What became of the finding that led before -> the end of the sentence that says so.
_BECAME: dict[FindingState, str] = {
    "gone": "is gone",
    "better": "is smaller",
    "worse": "is larger",
    "new": "is new",
    "still there": "is unchanged",
    "explained": "is still there",
    "unknown": "cannot be compared",
}


def say_finding_change(change: FindingChange) -> Clause:
    """Return what became of a finding: "fixed-latency is down: 37 % -> 19 % of the warps' time"."""
    said = f"{change.rule} {_BECAME[change.state]}"
    if change.state == "gone" and _is_much_left(change):
        said = f"{change.rule} is no longer reported"
    if change.state == "explained":
        return f"{said}: {change.why}"
    if change.amount is not None:
        return f"{said}: {change.amount.sentence}"
    return said


def show_cause_of_change(launch: LaunchChange, change: RunComparison) -> Iterator[TextLine]:
    """Yield what explains the change in time, and what leads now."""
    found = {finding.rule: finding for finding in launch.findings}
    if change.time is None or change.time.reason != "identical":
        yield from _say_cause_of_time_change(launch, found, change)
    before = launch.leads.before
    after = launch.leads.after
    if after in found:
        worth = words.format_gain_as_bound(found[after].after.gain)
        if after == before:
            lead = f"{after} still leads"
        else:
            lead = f"{after} leads now"
        yield TextLine(f"{lead} ({worth}); profkit explain {after}", "next")
    else:
        yield TextLine("no finding is left: less work is what would make it faster", "next")


def _say_cause_of_time_change(
    launch: LaunchChange, changes_by_rule: Mapping[RuleName, FindingChange], change: RunComparison
) -> Iterator[TextLine]:
    """Yield the finding that explains a change in time; without one that none does."""
    cause = change.cause
    is_changed = change.time is not None and change.time.answer in ("faster", "slower")
    if cause is not None:
        said = say_finding_change(changes_by_rule[cause.rule])
        if cause.share is not None and change.time is not None:
            said += f", {_say_time_of_cause(cause.share, change.time)}"
        yield TextLine(said, "cause")
    if not launch.leads.before:
        yield TextLine("no finding", "led before")
    if is_changed and cause is None and change.time is not None and len(change.launches) == 1:
        yield TextLine(_say_unexplained_change(launch, change.time.answer), "why")


def _say_time_of_cause(share: Share, time: TimeComparison) -> Clause:
    """Return how much of the time that a change saved or lost is a cause's: "28.2 of the 49.7 µs"."""
    did = {"faster": "saved", "slower": "lost"}.get(time.answer, "changed")
    whole = abs(time.before.median - time.after.median)
    number, _, unit = figures.format_seconds(whole).partition(" ")
    if share >= 1:
        return f"which accounts for all of the {number} {unit} {did}"
    part = figures.format_three_figures(share * float(number.replace(",", "")))
    return f"which accounts for about {part} of the {number} {unit} {did}"


def _show_changed_findings(launch: LaunchChange, change: RunComparison) -> Iterator[Block]:
    """Yield the findings that went, came or changed, below a heading of their own."""
    lines = list(_list_changed_findings(launch, change))
    if lines:
        yield Heading("Findings that changed", 3)
        yield from lines


def _list_changed_findings(launch: LaunchChange, change: RunComparison) -> Iterator[TextLine]:
    """Yield the findings that are not as they were, a line each; the cause of the change is above."""
    cause = ""
    if change.cause is not None:
        cause = change.cause.rule
    for finding in launch.findings:
        if finding.what == "stays" or finding.rule == cause or is_note_or_repeat(finding):
            continue
        led = ""
        if finding.rule == launch.leads.before:
            led = ", which led"
        why = _say_why_it_changed(finding)
        text = (
            TextSpan(finding.rule, "rule"),
            f"{led} (",
            TextSpan(_format_gains_of_sides(finding), "gain"),
            f"): {why}" if why else ")",
        )
        yield TextLine(text, describe_finding_state(finding))


def _say_why_it_changed(finding: FindingChange) -> Clause:
    """Return how much of a cause there was and is, else what the cause is."""
    if finding.explained_by is not None:
        return finding.why
    if finding.amount is not None:
        return finding.amount.sentence
    if finding.after.status == "fires":
        return finding.after.cause
    return finding.before.cause


def _format_gains_of_sides(finding: FindingChange) -> Clause:
    """Return what fixing a finding could gain: "at most 2.16x before, 2.48x now"."""
    gains = []
    for side, when in ((finding.before, "before"), (finding.after, "now")):
        if side.status == "fires" and side.gain is not None:
            gains.append((figures.format_speedup(side.gain), when))
    if not gains:
        return "gain unknown"
    if len(gains) == 2 and gains[0][0] == gains[1][0]:
        return f"at most {gains[0][0]}"
    return f"at most {', '.join(f'{gain} {when}' for gain, when in gains)}"


# Metrics of the measurement, which no code of a kernel sets.
_CLOCKS = ("sm_clock", "dram_clock")


def _say_unexplained_change(launch: LaunchChange, answer: str) -> Sentence:
    """Return that no finding explains a change in time, with the metrics that moved farthest."""
    said = f"the findings do not say why it is {answer}"
    moved = []
    for metric in choose_metrics_to_show(launch, len(launch.moved)):
        name, was, now, _ = list_move_cells(metric)
        moved.append(f"{name} {was} -> {now}")
    if not moved:
        return said
    return f"{said}; what changed most: {', '.join(moved[:BRIEF_METRICS])}"


# Of the time saved: what a finding accounts for less of has other changes beside it.
ALONE = 0.8


def say_estimate(estimate: EstimateAndGain, share: float | None = None) -> str:
    """Return whether an estimate was right: "1.87x (1.27 to 3.21) for RULE; measured 1.53x: ...".

    `share`: the part of the time saved that its finding accounts for, where that is known.
    """
    expectation = Expectation(estimate.expected, estimate.low, estimate.high)
    if expectation.is_wide:
        said = words.format_gain_range(expectation)
    else:
        said = words.format_expectation(expectation)
    measured = figures.format_speedup(estimate.measured)
    if estimate.state == "better":
        left = f"it was only reduced, so {measured} does not test this"
        return f"{said} if {estimate.rule} were gone; {left}"
    outcome = f"{estimate.outcome} the interval"
    if share is not None and share < ALONE:
        outcome += f", with other changes that saved {figures.format_share(1 - share)} of the time"
    return f"{said} for {estimate.rule}; measured {measured}: {outcome}"


def _say_estimate_of_change(change: RunComparison, estimate: EstimateAndGain) -> str:
    share = None
    if change.cause is not None and change.cause.rule == estimate.rule:
        share = change.cause.share
    return say_estimate(estimate, share)


def show_prediction(prediction: HeaderPrediction, indent: int = 0) -> TextLine:
    kept, said, because = list_prediction_cells(prediction)
    return TextLine(f"{said}: {because}", kept, indent)


def list_prediction_cells(prediction: HeaderPrediction) -> tuple[str, str, str]:
    return _KEPT[prediction.kept], say_prediction(prediction), prediction.because


_MOVE = re.compile(r"(\w+)([<>~])([\d.]+x)")
_WAYS = {"<": "at most", ">": "at least", "~": "about"}
_OTHER_WAYS = {"<": "above", ">": "below", "~": "away from"}


def say_prediction(prediction: HeaderPrediction) -> Clause:
    """Return what a header says in words: "inst_ffma at most 0.1x", "does not fix tail-effect"."""
    rule = prediction.rule
    kind = prediction.said
    if kind == "fixes":
        return f"fixes {rule}"
    if kind == "fixes-not":
        return f"does not fix {rule}"
    if move := _MOVE.fullmatch(rule):
        rule = f"{move[1]} {_WAYS[move[2]]} {move[3]}"
        if kind == "moves-not":
            rule = f"{move[1]} stays {_OTHER_WAYS[move[2]]} {move[3]}"
    return rule


def is_note_or_repeat(finding: FindingChange) -> bool:
    """Return whether a finding is about the measurement, or says again what another one says."""
    return BY_ID[finding.rule].note or bool(finding.repeated_rule)


def show_changed_rules(launches: Iterable[LaunchChange], indent: int = 0) -> Iterator[TextLine]:
    """Yield the rules that fire no more and those that fire anew, a line each kind of change."""
    findings = list(chain.from_iterable(launch.findings for launch in launches))
    for what in ("gone", "new"):
        rules = [f.rule for f in findings if f.what == what and not is_note_or_repeat(f)]
        if rules:
            yield TextLine(", ".join(rules), what, indent)
    for finding in findings:
        if finding.what in ("hidden", "uncovered"):
            why = _say_why_it_changed(finding)
            yield TextLine(f"{finding.rule}: {why}", describe_finding_state(finding), indent)


# What became of a finding, as a document has it -> the word for it on screens.
STATES: Mapping[FindingState, str] = {
    "better": "smaller",
    "worse": "larger",
    "still there": "unchanged",
    "explained": "still there",
}


def describe_finding_state(finding: FindingChange) -> str:
    """Return what became of a finding in a word; "new" where its cause grew until it was reported."""
    if finding.what == "hidden" and finding.explained_by is not None:
        return "still there"
    if finding.what == "gone" and _is_much_left(finding):
        return "no longer reported"
    if finding.what == "uncovered" and finding.state == "worse":
        return "new"
    if finding.what == "uncovered" and finding.state == "still there":
        return "reported now"
    if finding.what == "hidden" and finding.explained_by is None:
        return "no longer reported"
    amount = finding.amount
    if amount is not None and finding.state in _BY_CYCLES:
        if amount.is_share_against_cycles:
            return _BY_CYCLES[finding.state]
        is_number_up = amount.after > amount.before
        if isnan(amount.cycles_before) and is_number_up == (finding.state == "better"):
            return finding.state
    return STATES.get(finding.state, finding.state)


MUCH = 0.1  # of an amount before: more of it than that is not gone


def _is_much_left(finding: FindingChange) -> bool:
    """Return whether a finding that fires no more has more than a tenth of its cause left."""
    amount = finding.amount
    return amount is not None and MUCH * amount.before < amount.after < amount.before


# A share of the time that went another way than the time itself is neither smaller nor larger.
_BY_CYCLES: Mapping[FindingState, str] = {"better": "fewer cycles", "worse": "more cycles"}


def write_change_sentence(change: RunComparison) -> str:
    """Return which of two runs is faster and by how much, or why that cannot be told.

    "stage2.B is faster than stage1.B: 1.92x (1.90 to 1.94), 104 µs -> 54.3 µs"
    """
    before = change.before
    after = change.after
    if not change.compared:
        return f"{before} and {after} are not compared"
    if change.has_no_pair:
        return f"{before} and {after} are not compared: no kernel is on both sides"
    sentence, answer = say_time_change(change)
    if change.time is not None and change.time.reason == "identical":
        return f"{before} and {after} are the same measurement: there is no change to judge"
    if before == after:
        before = "before"
    if answer == "same":
        return f"{after} takes as long as {before}, {sentence}"
    if answer == "cannot tell":
        return f"Cannot tell whether {after} is faster than {before}: {sentence}"
    return f"{after} is {answer} than {before}: {sentence}"


def say_time_change(change: RunComparison) -> tuple[Sentence, str]:
    """Return the verdict on time as a sentence and its mark."""
    time = change.time
    if time is None:
        return _say_untimed(change), "cannot tell"
    both = " -> ".join(figures.format_seconds(side.median) for side in (time.before, time.after))
    mark = "; " if time.answer == "cannot tell" else ", "
    return f"{_say_speedup(time)}{mark}{both}", time.answer


NO_TIMING = "; a duration under ncu is not a timing ("  # which the line with that duration says


def _say_untimed(change: RunComparison) -> Sentence:
    """Return why there is no answer about time, and what would give one."""
    if change.untimed not in ("both sides", "unchanged"):
        why, _, hint = change.time_note.partition(NO_TIMING)
        if hint.startswith("profkit "):
            return f"{why}. To time it: {hint.removesuffix(')')}"
        return change.time_note
    said = "neither side was timed without a profiler"
    _, bracket, hint = change.time_note.rpartition(" (")
    if not hint.startswith("profkit "):
        return f"{said}; time both in your own program, or record both with profkit triage -o"
    return f"{said}{bracket}{hint}"


def _say_speedup(time: TimeComparison) -> Clause:
    """Return by how much the time changed, as far as another session would find it."""
    if time.answer not in ("faster", "slower") or isnan(time.across_sessions.low):
        said = time.sentence.removeprefix("the same ")  # the mark says it
        return said.replace(f"x {time.answer} (", "x (")
    across = time.across_sessions
    here = time.speedup
    if time.answer == "slower":
        across = invert_interval(across)
        here = invert_interval(here)
    if across.low <= 1:
        return f"{format_ratio(here)} in this session; another one may not show it"
    return format_ratio(across)


def describe_timing(change: RunComparison) -> Clause:
    """Return how the times were taken, and how far apart they are."""
    time = change.time
    if time is None:
        return change.time_note
    parts = [change.time_note]
    if time.across_sessions != time.speedup and time.answer in ("faster", "slower"):
        here = time.speedup
        if time.answer == "slower":
            here = invert_interval(here)
        alone = "in this session alone (the interval above adds the variation between sessions)"
        parts.append(f"{format_ratio(here)} {alone}")
    parts.append(words.format_p_value(time.p_value))
    return ", ".join(filter(None, parts))


def format_both_sides(before: str, after: str) -> str:
    if before == after:
        return before
    return f"{before} -> {after}"


def format_both_bounds(launch: LaunchChange) -> str:
    """Return what limited a launch before and after: "fixed-latency -> shared-bandwidth"."""
    return format_both_sides(
        words.name_limit(launch.bound.before), words.name_limit(launch.bound.after)
    )


def _show_both_launches(launch: LaunchChange, *, is_time_shown: bool) -> Iterator[Block]:
    """Yield kernel and limit of both sides; the time under ncu where it is not said elsewhere."""
    kernel = launch.kernel
    time = launch.profiled_time
    yield TextLine(
        format_both_sides(shorten_name(kernel.before, NAME), shorten_name(kernel.after, NAME)),
        "kernel",
    )
    yield TextLine(format_both_bounds(launch), "limit")
    if is_time_shown:
        times = f"{figures.format_seconds(time.before)} -> {figures.format_seconds(time.after)}"
        yield TextLine(f"{times} (one launch at ncu's clocks; not a timing)", "under ncu")


def _list_metrics_of_one_side(launch: LaunchChange) -> Iterator[TextLine]:
    """Yield which metrics only one side has."""
    for names, side in ((launch.only_before, "BEFORE"), (launch.only_after, "AFTER")):
        if names:
            some = ", ".join(names[:6])
            if len(names) > 6:
                some += f" and {len(names) - 6} more"
            yield TextLine(f"collected in {side} only: {some}", "note")


def _show_moved_metrics(launch: LaunchChange, *, is_complete: bool) -> Iterator[Block]:
    """Yield the metrics that moved; near-copies are one row where not all are asked for."""
    chosen = choose_metrics_to_show(launch, len(launch.moved))
    title = "Metrics that moved"
    if is_complete or len(chosen) <= MOVED_SHOWN:
        rows = list(map(list_move_cells, chosen))
    else:
        rows = make_metric_rows_merging_copies(chosen)[:MOVED_SHOWN]
        title += f" ({len(rows)} of {len(chosen)}; --all)"
    if rows:
        yield Heading(title, 3)
        yield Grid(("metric", ">before", ">after", ">change"), tuple(rows))


def _list_findings_of_one_side(
    findings: Iterable[FindingChange], *, is_complete: bool
) -> Iterator[TextLine]:
    """Yield the findings that stay, and doubts of one side; both clocks are in a note already."""
    stay = []
    notes = []
    for finding in findings:
        if BY_ID[finding.rule].note:
            notes.append(finding)
        elif finding.what == "stays" and not finding.repeated_rule:
            stay.append(finding.rule)
    if stay:
        yield TextLine(", ".join(stay), "as before")
    for finding in notes:
        if finding.before.status == finding.after.status:
            continue
        if finding.rule == "clocks-unsteady" and not is_complete:
            continue
        side = "BEFORE only"
        cause = finding.before.cause
        if finding.after.status == "fires":
            side = "AFTER only"
            cause = finding.after.cause
        yield TextLine(f"{side}: {cause.partition(': ')[0]}", finding.rule)


def choose_metrics_to_show(launch: LaunchChange, most_metrics: int) -> list[MovedMetric]:
    """Return the metrics to show: what the changed findings looked at, then what moved farthest.

    Clocks are none of them: no code of a kernel sets them, and notes say at which the launches ran.
    """
    looked_at: list[str] = []
    for finding in launch.findings:
        if finding.what != "stays":
            looked_at += [*finding.before.looked_at, *finding.after.looked_at]
    places = {name: place for place, name in enumerate(looked_at)}
    moved = []
    for metric in launch.moved:
        if metric.metric not in _CLOCKS:
            moved.append(metric)
    order = sorted(moved, key=lambda m: (places.get(m.metric, len(places)), -m.distance_moved))
    return order[:most_metrics]


NEAR = 0.02  # of a share: two units that were busy for as long within it are one row


def make_metric_rows_merging_copies(moved: Sequence[MovedMetric]) -> list[tuple[str, ...]]:
    """Return the rows of metrics; those that moved from and to the same values are one row.

    L1 and the LSU pipe behind it are busy for about the same time: a second row tells nothing.
    """
    kept: list[tuple[MovedMetric, list[str]]] = []
    for metric in moved:
        for first, names in kept:
            if are_near_copies(first, metric):
                names.append(metric.metric)
                break
        else:
            kept.append((metric, [metric.metric]))
    rows = []
    for first, names in kept:
        _, *values = list_move_cells(first)
        name = names[0]
        if len(names) > 1:
            name += f" (and {len(names) - 1} similar)"
        rows.append((name, *values))
    return rows


def are_near_copies(one: MovedMetric, other: MovedMetric) -> bool:
    """Return whether two counts have the same values on both sides, or two units were as busy."""
    if one.unit != other.unit:
        return False
    pairs = (one.before, other.before), (one.after, other.after)
    if one.metric.endswith("_busy") and other.metric.endswith("_busy"):
        return all(abs(x - y) <= NEAR * x for x, y in pairs)
    return one.unit != "share" and one.before > 1 and all(x == y for x, y in pairs)


def list_move_cells(metric: MovedMetric) -> tuple[str, ...]:
    """Return a metric's row: both values, and the change in points or as a factor.

    Points are the difference of the shares as they are printed: a reader subtracts them.
    """
    before, after = words.format_metric_pair(metric.metric, metric.before, metric.after)
    return metric.metric, before, after, format_change(metric)


def format_change(metric: MovedMetric) -> str:
    """Return the change of a metric: +49.5 points, 0.63x, 16x, new, gone."""
    if metric.points is not None:
        points = round_share_to_printed_percent(metric.after) - round_share_to_printed_percent(
            metric.before
        )
        return f"{points:+.1f} points"
    if not isfinite(metric.factor):
        return "new"
    if not metric.after:
        return "gone"
    if metric.factor < 10:
        return f"{metric.factor:.2f}x"
    return f"{metric.factor:,.0f}x"


def round_share_to_printed_percent(share: Share) -> float:
    """Return a share in per cent with the digits that it is printed with."""
    return float(figures.format_share(share).removesuffix(" %"))


def show_ladder_table(ladder: Ladder) -> Iterator[Block]:
    """Yield every variant with its time, and how it compares with its parent."""
    yield Heading(f"Case {ladder.case}: each step against its parent")
    head = ("variant", ">time", ">95 %", ">vs parent", "result", "limit")
    rows = tuple(map(_list_ladder_cells, ladder.steps))
    yield Grid(head, rows, narrow=True, spare=(">95 %",))


def _list_ladder_cells(step: LadderStep) -> tuple[TextSpan | str, ...]:
    time = "not timed"
    half_width = ""
    if step.time:
        time = figures.format_seconds(step.time.median)
        half_width = words.format_half_width(step.time)
    change = None
    if step.change:
        change = step.change.time
    speedup = words.format_measured_speedup(change)
    answer = TextSpan(get_answer_of_step(step), "whole")
    limit = words.name_limit(step.bound or "")
    return indent_name(step), time, half_width, speedup, answer, limit


def indent_name(step: LadderStep) -> str:
    return " " * step.depth + step.variant  # a ladder of twelve steps has to fit a line


def get_answer_of_step(step: LadderStep) -> TextOrEmpty:
    if step.change is None:
        return ""
    if step.change.time:
        return step.change.time.answer
    if step.change.compared:
        return ""
    return "not compared"


def show_ladder_steps(ladder: Ladder) -> Iterator[Block]:
    """Yield the ablation table: each step against its parent, then against every reference."""
    yield from show_ladder_table(ladder)
    names = list(dict.fromkeys(chain.from_iterable(step.references for step in ladder.steps)))
    if names:
        yield Heading(f"Case {ladder.case}: against the references")
        rows = []
        for step in ladder.steps:
            ratios = [words.format_measured_speedup(step.references.get(name)) for name in names]
            rows.append((indent_name(step), *ratios))
        yield Grid(("variant", *map(">{}".format, names)), tuple(rows))
    yield TextLine("1.50x means 1.5 times as fast; ~ marks differences within the noise", "note")
    yield Heading(f"Case {ladder.case}: what each step did")
    for step in ladder.steps:
        yield from show_ladder_step(step)


def show_ladder_step(step: LadderStep) -> Iterator[Block]:
    """Yield what a variant changes, what its counters say of that, and its predictions."""
    yield TextLine(step.title, step.variant)
    if step.note:
        yield TextLine(step.note, "note", indent=1)
    change = step.change
    if change is None:
        return
    for refusal in () if change.compared else change.refusals:
        yield TextLine(refusal.sentence, "not compared", indent=1)
    yield from show_changed_rules(change.launches, indent=1)
    for prediction in change.promises:
        yield show_prediction(prediction, indent=1)


def write_brief_comparison(compared: Compared) -> str:
    """Return what became of the time, the findings and the counters that say why."""
    lines: list[str] = []
    for change in compared.changes:
        lines += _list_brief_lines(change)
    return words.fit_lines_in_brief(lines)


def _list_brief_lines(change: RunComparison) -> Iterator[str]:
    """Yield a comparison of two runs in lines of plain text, what changed and by how much first."""
    yield write_change_sentence(change)
    if not change.compared:
        yield from (f"not compared: {refusal.sentence}" for refusal in change.refusals)
        return
    yield from map(_write_marked, show_ncu_time_without_timing(change))
    if change.estimate is not None:
        yield f"predicted: {_say_estimate_of_change(change, change.estimate)}"
    if change.time is not None:
        yield f"measured: {describe_timing(change)}"
    for group in group_launches_changed_alike(change.launches):
        yield from _list_brief_launch(group.shown, change)


def _list_brief_launch(launch: LaunchChange, change: RunComparison) -> Iterator[str]:
    """Yield what became of a launch: its bound, why it changed, findings, and a few metrics."""
    name = ""
    if len(change.launches) > 1:
        name = f"{shorten_name(launch.kernel.after, NAME)}, "
    yield f"{name}limit: {format_both_bounds(launch)}"
    yield from map(_write_marked, show_cause_of_change(launch, change))
    yield from map(_write_marked, _list_changed_findings(launch, change))
    for metric, before, after, _ in map(
        list_move_cells, choose_metrics_to_show(launch, BRIEF_METRICS)
    ):
        yield f"{metric}: {before} -> {after}"


def _write_marked(line: TextLine) -> str:
    """Return a line of a screen as plain text behind its mark."""
    return f"{line.mark}: {get_plain_text(line.text)}"


def show_claims(files: Iterable[Verified]) -> Iterator[Block]:
    """Yield every file with its claims, what decides them, and its gates."""
    counted: Counter[str] = Counter()
    collect: dict[str, None] = {}
    for file in files:
        if file.error:
            yield Heading(str(file.path))
            yield TextLine(file.error, "errored")
            counted["errored"] += 1
        elif file.claims or file.gates:
            yield Heading(f"{file.title} ({file.path.name})")
        for judged in file.claims:
            counted[judged.outcome] += 1
            yield TextLine(f"{judged.sentence} [{judged.who}]", judged.outcome)
            yield TextLine(judged.because, indent=2)
            for line in judged.computed:
                yield TextLine(line, "computed", indent=2)
            collect |= dict.fromkeys(judged.collect)
        yield from map(show_gate, file.gates)
    yield Heading("Summary")
    outcomes = (f"{outcome} {n}" for outcome, n in sorted(counted.items()))
    yield TextLine(", ".join(outcomes) or "no claims")
    for command in collect:
        yield TextLine(command, "to decide more claims")


def show_gate(result: GateResult | SummaryGate) -> TextLine:
    """Return whether a gate is met, whether it is binding, and what fails."""
    if result.binding:
        binding = ""
    else:
        binding = " (reported, not required)"
    if result.failing:
        failing = f": failing: {', '.join(result.failing)}"
    else:
        failing = ""
    return TextLine(f"gate {result.name}{binding}{failing}", "met" if result.met else "not met")


def show_predicted_times(
    variant: str, changes: Iterable[CounterChange], expected: Sequence[ExpectedLaunch]
) -> Iterator[Block]:
    """Yield the time of each case now and as predicted, if counts change so: one case in a sentence."""
    condition = " and ".join(_say_counter_change(change) for change in changes)
    if len(expected) == 1:
        yield Paragraph(_say_predicted_time(variant, condition, expected[0]))
    else:
        yield Heading(f"{variant} with {condition}, times under ncu")
        yield _make_table_of_predicted_times(expected)
    yield from _show_uncertain_predictions(expected)


def _say_predicted_time(variant: str, changes_text: Clause, row: ExpectedLaunch) -> Sentence:
    """Return the time of one case if counts change so, beside its time now."""
    name = f"{variant} {row.case}"
    if row.kernel:
        name = shorten_name(row.kernel, 40)
    now = figures.format_seconds(row.time_s)
    then = figures.format_seconds(row.time_s / row.expect.gain)
    gain = f"expect {words.format_expectation(row.expect)}"
    if row.at_most is not None and row.expect.gain >= 1:
        gain += f", {words.format_gain_as_bound(row.at_most)}"
    return f"With {changes_text}, {name} would take about {then} under ncu instead of {now}: {gain}"


def _make_table_of_predicted_times(expected: Sequence[ExpectedLaunch]) -> Grid:
    launch = "case"
    if any(row.kernel for row in expected):
        launch = "kernel"
    columns: Columns[ExpectedLaunch] = {
        launch: lambda row: TextSpan(row.kernel or str(row.case), "name"),
        ">time now": lambda row: figures.format_seconds(row.time_s),
        ">expected": lambda row: words.format_expectation(row.expect),
        ">time then": lambda row: figures.format_seconds(row.time_s / row.expect.gain),
        ">at most": lambda row: figures.format_speedup(row.at_most),
    }
    return make_grid(expected, columns, narrow=True)


def _say_counter_change(change: CounterChange) -> Clause:
    """Return a changed count in words: "4x the blocks", "1/32 of the inst_exp"."""
    name = change.metric
    for alias, metric in ALIASES.items():
        if metric == name:
            name = alias
    if change.op == "=":
        return f"{name} = {change.value:g}"
    if change.op == "/":
        return f"1/{change.value:g} of the {name}"
    if change.value < 1:
        return f"{100 * change.value:.3g} % of the {name}"
    return f"{change.value:g}x the {name}"


def _show_uncertain_predictions(expected: Sequence[ExpectedLaunch]) -> Iterator[TextLine]:
    """Yield what an interval leaves open: whether there is a gain at all, or only how large it is."""
    maybe_nothing = []
    unsure_size = []
    for row in expected:
        expectation = row.expect
        promises = expectation.is_wide or expectation.gain >= NOTHING_TO_WIN
        if promises and expectation.low < 1:
            maybe_nothing.append(row)
        elif expectation.is_wide:
            unsure_size.append(row)
    for rows, doubt in (
        (maybe_nothing, f"the interval includes 1x, no gain: {TRY}"),
        (unsure_size, f"counters cannot tell how much the change gains: {TRY}"),
    ):
        which = ""
        if len(rows) < len(expected):
            which = f"{', '.join(shorten_name(str(row.case), 24) for row in rows)}: "
        if rows:
            yield TextLine(f"{which}{doubt}", "note")


TRY = (
    "test the change before relying on it (this interval is of the model's errors, diagnose's of fixes "
    "that were made)"
)
_NAMES = {
    "l2_hit": "L2 hit rate",
    "dram_busy": "DRAM, of peak",
    "tensor_busy": "tensor pipe, of peak",
    "occupancy": "occupancy",
    "registers": "registers per thread",
    "shared_block": "shared memory per block",
}


def show_ladder_summary(summary: Summary) -> Iterator[Block]:
    """Yield a variant for a pull request: decision, figures, what changed, gates."""
    variant = summary.sides[0]
    yield Heading(f"{variant.name} at case {summary.case}")
    yield TextLine(summary.because, summary.decision)
    yield _make_sides_table(summary)
    if variant.because:
        yield TextLine(variant.because, "verdict")
    if change := summary.change:
        yield from show_changed_rules(change.launches)
        yield from map(show_prediction, change.promises)
        for note in change.notes:
            yield TextLine(note, "note")
    yield from map(show_gate, summary.gates)


def _make_sides_table(summary: Summary) -> Grid:
    """Return the variant, its parent and the references side by side: times, metrics, limiters."""
    head = [""]
    times = ["time per call"]
    speedups = [f"{summary.sides[0].name} is faster by"]
    bounds = []
    for side in summary.sides:
        head.append(f">{side.name} ({side.role})")
        times.append(words.format_median(side.time) or "not timed")
        speedups.append(words.format_measured_speedup(side.against))
        bounds.append(words.name_limit(side.bound or figures.NOT_COLLECTED))
    rows = [tuple(times), tuple(speedups)]
    for metric, label in _NAMES.items():
        values = [words.format_metric(metric, side.metrics.get(metric)) for side in summary.sides]
        rows.append((label, *values))
    rows.append(("limit", *bounds))
    return Grid(tuple(head), tuple(rows), bands=True)
