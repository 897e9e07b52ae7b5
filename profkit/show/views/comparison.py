"""Comparisons and ladders  ->  blocks for people: the verdict first, then what explains it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import isfinite

from profkit.diagnosis.rules import BY_ID
from profkit.evidence.claims import Verified
from profkit.evidence.compare import Compared, GateResult, ResourceChange, RunComparison
from profkit.evidence.counters import FindingChange, HeaderPrediction, LaunchChange, Moved
from profkit.evidence.ladder import Ladder, Rung, Summary, SummaryGate
from profkit.model.whatif import CounterChange, Expected
from profkit.reports import figures
from profkit.reports.metrics import CATALOGUE
from profkit.show.text import words
from profkit.show.text.blocks import (
    Block,
    Columns,
    Grid,
    Heading,
    TextLine,
    TextSpan,
    get_plain_text,
    make_grid,
)
from profkit.show.text.escape import shorten_name

NAME = 60  # characters of a kernel name
MOVED_SHOWN = 12  # metrics that moved; --json has them all
BRIEF_METRICS = 3
_KEPT = {True: "kept", False: "broken", None: "unknown"}


def show_comparison(sides: Compared, shown: int = MOVED_SHOWN) -> Iterator[Block]:
    """Yield every pair of runs; `shown` metrics at most for each launch."""
    for change in sides.changes:
        yield Heading(f"{change.before} -> {change.after}")
        yield from show_change(change, shown)
    if sides.alone:
        yield Heading("Not compared")
        yield TextLine(f"only one side has {', '.join(sides.alone)}")


def show_change(change: RunComparison, shown: int) -> Iterator[Block]:
    if not change.compared:
        for refusal in change.refusals:
            yield TextLine(refusal.sentence, "not compared")
        return
    yield from _time_under_ncu(change)
    yield TextLine(*say_time_change(change))
    if len(change.launches) == 1:
        yield from say_cause(change.launches[0])
    if change.time is not None:
        yield TextLine(say_timing(change), "measured")
    yield from (TextLine(f"compared despite this: {r.sentence}", r.code) for r in change.refusals)
    for number, launch in enumerate(change.launches, 1):
        if len(change.launches) > 1:
            yield Heading(f"Launch {number}", 2)
            yield from say_cause(launch)
        is_timed = change.time is not None or len(change.launches) > 1
        yield from show_launch(launch, shown, is_timed)
    if change.promises:
        yield Heading("Predictions in the header", 3)
        rows = tuple(map(list_prediction_cells, change.promises))
        yield Grid(("", "prediction", "outcome"), rows, wraps=2)
    if change.resources:
        yield Heading("Resources", 3)
        columns: Columns[ResourceChange] = {
            "resource": lambda r: r.name,
            ">before": lambda r: _say_amount(r, r.before),
            ">after": lambda r: _say_amount(r, r.after),
            "": _say_direction,
        }
        yield make_grid(change.resources, columns)
    if change.unmatched:
        names = ", ".join(shorten_name(name, NAME) for name in change.unmatched)
        yield TextLine(f"unmatched launches: {names}")
    for note in change.notes:
        yield TextLine(note, "note")


def _say_amount(resource: ResourceChange, value: float | None) -> str:
    if resource.name in CATALOGUE:
        return words.format_metric(resource.name, value)
    return figures.quantity(value, resource.unit)


def _say_direction(resource: ResourceChange) -> str:
    """Return which way a resource has gone, where that can cost time: it need not."""
    if not resource.worse or resource.before is None or resource.after is None:
        return ""
    if resource.after > resource.before:
        return "more"
    return "less"


# What became of a finding -> what that means.
MEANINGS = {
    "gone": "fired, and its cause is now too small",
    "new": "fires now, and its cause was too small before",
    "hidden": "its cause is still there, but no longer the one to name",
    "uncovered": "its cause was there before, but not the one to name",
    "changed": "fires in both, with another amount or gain",
    "unknown": "could not be decided on one side",
}


def explain_changes(findings: Iterable[FindingChange]) -> Iterator[TextLine]:
    """Yield what the words in the first column mean, of those that are less than plain."""
    said = {finding.what for finding in findings}
    told = [f"{what}: {MEANINGS[what]}" for what in ("hidden", "uncovered") if what in said]
    if told:
        yield TextLine(TextSpan("; ".join(told), "dim"))


def _time_under_ncu(change: RunComparison) -> Iterator[TextLine]:
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
    text = f"{figures.seconds(before)} -> {figures.seconds(after)} ({many}; not a timing)"
    yield TextLine(text, "Under ncu")


# What became of the finding that led before -> the end of the sentence that says so.
_BECAME = {
    "gone": "is gone",
    "hidden": "is not gone",
    "changed": "is still there",
    "stays": "is still there",
    "unknown": "cannot be compared",
}


def say_cause(launch: LaunchChange) -> Iterator[TextLine]:
    """Yield what became of the cause that led before, and which leads now: that is next."""
    before, after = launch.leads.before, launch.leads.after
    found = {finding.rule: finding for finding in launch.findings}
    if before in found:
        change = found[before]
        said = f"{before}, the top finding before, {_BECAME.get(change.what, change.what)}"
        if change.why:
            said += f": {change.why}"
        yield TextLine(said, "cause")
    elif not before:
        yield TextLine("no finding before", "cause")
    if after in found:
        worth = words.format_gain(found[after].after.gain)
        if after == before:
            lead = f"{after} still leads"
        else:
            lead = f"{after} leads now"
        yield TextLine(f"{lead} ({worth}); profkit explain {after}", "next")
    else:
        yield TextLine("no finding is left: less work is what would make it faster", "next")


def show_prediction(prediction: HeaderPrediction, indent: int = 0) -> TextLine:
    kept, said, because = list_prediction_cells(prediction)
    return TextLine(f"{said}: {because}", kept, indent)


def list_prediction_cells(prediction: HeaderPrediction) -> tuple[str, str, str]:
    return _KEPT[prediction.kept], say_prediction(prediction), prediction.because


_MOVE = re.compile(r"(\w+)([<>~])([\d.]+x)")
_WAYS = {"<": "at most", ">": "at least", "~": "about"}


def say_prediction(prediction: HeaderPrediction) -> str:
    """Return what a header says in words: "inst_ffma at most 0.1x", "does not fix tail-effect"."""
    rule, kind = prediction.rule, prediction.said
    if kind == "fixes":
        return f"fixes {rule}"
    if kind == "fixes-not":
        return f"does not fix {rule}"
    if move := _MOVE.fullmatch(rule):
        rule = f"{move[1]} {_WAYS[move[2]]} {move[3]}"
        if kind == "moves-not":
            rule = f"{move[1]} not {_WAYS[move[2]]} {move[3]}"
    return rule


def show_changed_rules(launches: Iterable[LaunchChange], indent: int = 0) -> Iterator[TextLine]:
    """Yield the rules that fire no more and those that fire anew, a line each kind of change."""
    findings = list(chain.from_iterable(launch.findings for launch in launches))
    for what in ("gone", "new"):
        rules = [f.rule for f in findings if f.what == what]
        if rules:
            yield TextLine(", ".join(rules), what, indent)
    for finding in findings:
        if finding.what in ("hidden", "uncovered"):
            yield TextLine(f"{finding.rule}: {finding.why}", finding.what, indent)


def say_time_change(change: RunComparison) -> tuple[str, str]:
    """Return the verdict on time as a sentence and its mark."""
    time = change.time
    if time is None:
        return change.time_note, "cannot tell"
    both = " -> ".join(figures.seconds(side.median) for side in (time.before, time.after))
    said = time.sentence.replace(f"x {time.answer} (", "x (")  # the mark says it
    return f"{said}; {both}", time.answer


def say_timing(change: RunComparison) -> str:
    """Return how the times were taken, and how far apart they are."""
    time = change.time
    if time is None:
        return change.time_note
    return ", ".join(filter(None, (change.time_note, words.say_chance(time.p_value))))


def join_sides(before: str, after: str) -> str:
    if before == after:
        return before
    return f"{before} -> {after}"


def show_launch(launch: LaunchChange, shown: int, timed: bool = True) -> Iterator[Block]:
    """Yield one launch; its time under ncu only if that was not said above."""
    kernel, bound, time = launch.kernel, launch.bound, launch.profiled_time
    yield TextLine(
        join_sides(shorten_name(kernel.before, NAME), shorten_name(kernel.after, NAME)), "kernel"
    )
    yield TextLine(join_sides(bound.before, bound.after), "bound")
    if timed:
        times = f"{figures.seconds(time.before)} -> {figures.seconds(time.after)}"
        yield TextLine(f"{times} (one launch at ncu's clocks; not a timing)", "under ncu")
    notes = [f for f in launch.findings if BY_ID[f.rule].note]
    differ = [f for f in launch.findings if f.what != "stays" and f not in notes]
    if differ:
        yield Heading("Findings, and what fixing each could gain at most", 3)
        head = ("", "finding", ">before", ">after", "why")
        yield Grid(head, tuple(map(list_finding_cells, differ)), wraps=4)
        yield from explain_changes(differ)
    if stay := [f.rule for f in launch.findings if f.what == "stays"]:
        yield TextLine(", ".join(stay), "as before")
    for finding in notes:
        told = finding.after
        if told.status != "fires":
            told = finding.before
        if finding.what != "stays":
            yield TextLine(f"{finding.what}: {told.cause}", finding.rule)
    if rows := choose_metrics(launch, shown):
        yield Heading(f"Metrics that moved ({len(rows)} of {len(launch.moved)})", 3)
        yield Grid(("metric", ">before", ">after", ">change"), tuple(map(list_move_cells, rows)))
    for names, side in ((launch.only_before, "BEFORE"), (launch.only_after, "AFTER")):
        if names:
            some = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if names[6:] else "")
            yield TextLine(f"collected in {side} only: {some}", "note")


def list_finding_cells(change: FindingChange) -> tuple[str, ...]:
    sides = (change.before, change.after)
    gains = [figures.speedup(s.gain) if s.status == "fires" else s.status for s in sides]
    if change.what in ("hidden", "uncovered"):
        cause = change.why
    elif change.after.status == "fires":
        cause = change.after.cause
    else:
        cause = change.before.cause
    if change.what in ("gone", "changed") and change.amount is not None:
        cause = f"{cause}; {change.why}"
    return change.what, change.rule, *(g or "-" for g in gains), cause


def choose_metrics(launch: LaunchChange, shown: int) -> list[Moved]:
    """Return the metrics to show: what the changed findings looked at, then what moved farthest."""
    changed = [finding for finding in launch.findings if finding.what != "stays"]
    sides = chain.from_iterable((finding.before, finding.after) for finding in changed)
    looked = {name: i for i, name in enumerate(chain.from_iterable(s.looked_at for s in sides))}
    order = sorted(launch.moved, key=lambda m: (looked.get(m.metric, len(looked)), -m.weight))
    return order[:shown]


def list_move_cells(metric: Moved) -> tuple[str, ...]:
    if metric.points is not None:
        change = f"{metric.points:+.1f} points"
    elif isfinite(metric.factor):
        if metric.factor < 10:
            change = f"{metric.factor:.2f}x"
        else:
            change = f"{metric.factor:,.0f}x"
    else:
        change = "from 0"
    sides = (words.format_metric(metric.metric, value) for value in (metric.before, metric.after))
    return metric.metric, *sides, change


def show_ladder_table(ladder: Ladder) -> Iterator[Block]:
    yield Heading(f"Case {ladder.case}: each step against its parent")
    columns: Columns[Rung] = {
        "variant": indent_name,
        ">time": lambda step: figures.seconds(step.time.median) if step.time else "not timed",
        ">95 %": lambda step: words.format_half_width(step.time) if step.time else "",
        ">vs parent": lambda step: words.format_measured_speedup(
            step.change.time if step.change else None
        ),
        "": say_answer,
        "bound": lambda step: step.bound or "",
    }
    yield make_grid(ladder.steps, columns)


def indent_name(step: Rung) -> str:
    return "  " * step.depth + step.variant


def say_answer(step: Rung) -> str:
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
        rows = [
            (
                indent_name(step),
                *(words.format_measured_speedup(step.references.get(name)) for name in names),
            )
            for step in ladder.steps
        ]
        yield Grid(("variant", *(f">{name}" for name in names)), tuple(rows))
    yield TextLine("1.50x means 1.5 times as fast; ~ marks differences within the noise", "note")
    yield Heading(f"Case {ladder.case}: what each step did")
    for step in ladder.steps:
        yield from show_step(step)


def show_step(step: Rung) -> Iterator[Block]:
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
    lines = []
    for change in compared.changes:
        name = f"{change.before} -> {change.after}"
        if not change.compared:
            why = "; ".join(refusal.sentence for refusal in change.refusals)
            lines.append(f"{name}: not compared: {why}")
            continue
        sentence, answer = say_time_change(change)
        lines.append(f"{name}: {answer}: {sentence}")
        if change.time is not None:
            lines.append(f"measured: {say_timing(change)}")
        for launch in change.launches:
            name = ""
            if len(change.launches) > 1:
                name = f"{shorten_name(launch.kernel.after, NAME)}, "
            lines.append(f"{name}bound: {join_sides(launch.bound.before, launch.bound.after)}")
            lines += [f"{x.mark}: {get_plain_text(x.text)}" for x in say_cause(launch)]
            lines += [f"{x.mark}: {get_plain_text(x.text)}" for x in show_changed_rules([launch])]
            for metric, before, after, _ in map(
                list_move_cells, choose_metrics(launch, BRIEF_METRICS)
            ):
                lines.append(f"{metric}: {before} -> {after}")
    return words.cut_lines(lines)


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
    if result.binding:
        binding = ""
    else:
        binding = " (reported, not required)"
    if result.failing:
        failing = f": failing: {', '.join(result.failing)}"
    else:
        failing = ""
    return TextLine(f"gate {result.name}{binding}{failing}", "met" if result.met else "not met")


def show_expected(
    variant: str, changes: Iterable[CounterChange], expected: Sequence[Expected]
) -> Iterator[Block]:
    condition = ", ".join(f"{c.metric} {c.op} {c.value:g}" for c in changes)
    yield Heading(f"{variant}, if {condition}")
    columns: Columns[Expected] = {
        "case": lambda row: TextSpan(str(row.case), "name"),
        ">time now": lambda row: figures.seconds(row.time_s),
        ">expected": lambda row: words.format_expectation(row.expect),
        ">time then": lambda row: figures.seconds(row.time_s / row.expect.gain),
    }
    yield make_grid(expected, columns, narrow=True)
    yield TextLine(
        "times are under ncu; the interval reflects the error on programs not used for calibration"
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
    sides, variant = summary.sides, summary.sides[0]
    yield Heading(f"{variant.name} at case {summary.case}")
    yield TextLine(summary.because, summary.decision)
    yield Grid(
        ("", *(f">{s.name} ({s.role})" for s in sides)),
        (
            ("time per call", *(words.format_median(s.time) or "not timed" for s in sides)),
            (
                f"{variant.name} is faster by",
                *(words.format_measured_speedup(s.against) for s in sides),
            ),
            *(
                (_NAMES[m], *(words.format_metric(m, s.metrics.get(m)) for s in sides))
                for m in _NAMES
            ),
            ("bound: limiter", *(s.bound or figures.NOT_COLLECTED for s in sides)),
        ),
        bands=True,
    )
    if variant.because:
        yield TextLine(variant.because, "verdict")
    if change := summary.change:
        yield from show_changed_rules(change.launches)
        yield from map(show_prediction, change.promises)
        for note in change.notes:
            yield TextLine(note, "note")
    yield from map(show_gate, summary.gates)
