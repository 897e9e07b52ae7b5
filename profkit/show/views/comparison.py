"""Comparisons and ladders  ->  blocks for people: the verdict first, then what explains it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import isfinite

from profkit.evidence.comparison.compare import RunComparison
from profkit.evidence.comparison.counters import FindingChange, LaunchChange, Moved
from profkit.evidence.comparison.ladder import Ladder, Rung
from profkit.evidence.comparison.select import Compared
from profkit.evidence.timing.stats import TimeComparison
from profkit.show.text import figures
from profkit.show.text.blocks import Block, Grid, Heading, TextLine
from profkit.show.text.names import short

NAME = 60  # characters of a kernel name
MOVED_SHOWN = 12  # metrics that moved; --json has them all
_KEPT = {True: "kept", False: "broken", None: "unknown"}


def compared_runs(found: Compared, shown: int = MOVED_SHOWN) -> Iterator[Block]:
    """Every pair of runs; `shown` metrics at most for each launch."""
    for change in found.changes:
        yield Heading(f"{change.before} -> {change.after}")
        yield from _change(change, shown)
    if found.alone:
        yield Heading("Not compared")
        yield TextLine(f"only one side has {', '.join(found.alone)}")


def _change(change: RunComparison, shown: int) -> Iterator[Block]:
    if not change.compared:
        yield from (TextLine(refusal.sentence, "not compared") for refusal in change.refusals)
        return
    yield TextLine(*time_line(change))
    yield from (TextLine(f"compared anyway: {r.sentence}", r.code) for r in change.refusals)
    yield from (
        TextLine(f"{p.because} ({p.said}: {p.rule})", _KEPT[p.kept]) for p in change.predictions
    )
    for number, launch in enumerate(change.launches, 1):
        if len(change.launches) > 1:
            yield Heading(f"Launch {number}", 2)
        yield from _launch(launch, shown)
    if change.resources:
        yield Heading("Resources", 3)
        yield Grid(
            ("resource", ">before", ">after", ""),
            tuple(
                (r.name, figures.quantity(r.before, r.unit), figures.quantity(r.after, r.unit),
                 "worse" if r.worse else "")
                for r in change.resources
            ),
        )  # fmt: skip
    if change.unmatched:
        names = ", ".join(short(name, NAME) for name in change.unmatched)
        yield TextLine(f"launches without a partner: {names}")
    yield from (TextLine(note, "note") for note in change.notes)


def time_line(change: RunComparison) -> tuple[str, str]:
    """The verdict on time as a sentence and its mark."""
    time = change.time
    if time is None:
        return change.time_note, "cannot tell"
    p = "p < 0.001" if time.p_value < 1e-3 else f"p = {time.p_value:.2g}"
    more = [
        f"{figures.seconds(time.before.median)} -> {figures.seconds(time.after.median)}",
        f"Hedges' g {time.hedges_g:.1f}" if isfinite(time.hedges_g) else "",
        p if isfinite(time.p_value) else "",
        change.time_note,
    ]
    return f"{time.sentence}; {', '.join(filter(None, more))}", time.answer


def _launch(launch: LaunchChange, shown: int) -> Iterator[Block]:
    one, other = (short(name, NAME) for name in launch.kernel)
    yield TextLine(one if one == other else f"{one} -> {other}", "kernel")
    was, now = launch.bound
    yield TextLine(was if was == now else f"{was} -> {now}", "bound")
    times = [figures.seconds(t) for t in launch.profiled_time]
    yield TextLine(
        f"{times[0]} -> {times[1]} (one launch at ncu's clocks: no verdict)", "under ncu"
    )
    differ = [f for f in launch.findings if f.what != "stays"]
    if differ:
        yield Heading("Findings", 3)
        yield Grid(
            ("", "rule", ">gain before", ">gain after", "cause"),
            tuple(_finding(f) for f in differ),
            wraps=4,
        )
    stay = [f.rule for f in launch.findings if f.what == "stays"]
    if stay:
        yield TextLine(", ".join(stay), "as before")
    rows = leading(launch, shown)
    if rows:
        yield Heading(f"Metrics that moved ({len(rows)} of {len(launch.moved)})", 3)
        yield Grid(("metric", ">before", ">after", ">change"), tuple(map(_moved, rows)))
    for names, side in ((launch.only_before, "BEFORE"), (launch.only_after, "AFTER")):
        if names:
            some = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if names[6:] else "")
            yield TextLine(f"collected in {side} only: {some}", "note")


def _finding(found: FindingChange) -> tuple[str, ...]:
    sides = (found.before, found.after)
    gains = [figures.speedup(s.gain) if s.status == "fires" else s.status for s in sides]
    cause = found.after.cause if found.after.status == "fires" else found.before.cause
    return found.what, found.rule, *(g or "-" for g in gains), cause


def leading(launch: LaunchChange, shown: int) -> list[Moved]:
    """The metrics to show: time, what the changed findings looked at, then what moved farthest."""
    changed = [finding for finding in launch.findings if finding.what != "stays"]
    sides = chain.from_iterable((finding.before, finding.after) for finding in changed)
    looked = {name: i for i, name in enumerate(chain.from_iterable(s.evidence for s in sides))}
    order = sorted(launch.moved, key=lambda m: (looked.get(m.metric, len(looked)), -m.weight))
    return order[:shown]


def _moved(found: Moved) -> tuple[str, ...]:
    if found.points is not None:
        change = f"{found.points:+.1f} points"
    elif isfinite(found.factor):
        change = f"{found.factor:.2f}x" if found.factor < 10 else f"{found.factor:,.0f}x"
    else:
        change = "from 0"
    sides = (figures.quantity(value, found.unit) for value in (found.before, found.after))
    return found.metric, *sides, change


def ladder_table(found: Ladder) -> Iterator[Block]:
    """Each step against its parent."""
    yield Heading(f"Case {found.case}: each step against its parent")
    yield Grid(
        ("variant", ">time", ">95 %", ">vs parent", "", "bound"),
        tuple(_step(step) for step in found.steps),
    )


def ladder_steps(found: Ladder) -> Iterator[Block]:
    """The ablation table: each step against its parent, then against every reference."""
    yield from ladder_table(found)
    names = list(dict.fromkeys(name for step in found.steps for name in step.references))
    if names:
        yield Heading(f"Case {found.case}: against the references")
        yield Grid(
            ("variant", *(f">{name}" for name in names)),
            tuple(
                (_indented(step), *(factor(step.references.get(name)) for name in names))
                for step in found.steps
            ),
        )
    yield TextLine("1.50x is one and a half times as fast; ~ where the samples cannot tell", "note")
    yield Heading(f"Case {found.case}: what each step did")
    for step in found.steps:
        yield from _did(step)


def _indented(step: Rung) -> str:
    return "  " * step.depth + step.variant


def _step(step: Rung) -> tuple[str, ...]:
    time = step.change.time if step.change else None
    median = step.time.median if step.time else None
    half = (step.time.high - step.time.low) / 2 / step.time.median if step.time else float("nan")
    refused = "not compared" if step.change and not step.change.compared else ""
    return (
        _indented(step),
        figures.seconds(median) if median is not None else "not timed",
        f"± {100 * half:.2g} %" if isfinite(half) else "",
        factor(time),
        time.answer if time else refused,
        step.bound,
    )


def _did(step: Rung) -> Iterator[Block]:
    yield TextLine(step.title, step.variant)
    if step.note:
        yield TextLine(step.note, "note", indent=1)
    change = step.change
    if change is None:
        return
    for refusal in () if change.compared else change.refusals:
        yield TextLine(refusal.sentence, "not compared", indent=1)
    findings = [f for launch in change.launches for f in launch.findings]
    for what in ("gone", "new"):
        rules = [f.rule for f in findings if f.what == what]
        if rules:
            yield TextLine(", ".join(rules), what, indent=1)
    for prediction in change.predictions:
        text = f"{prediction.said}: {prediction.rule}; {prediction.because}"
        yield TextLine(text, _KEPT[prediction.kept], indent=1)


def factor(time: TimeComparison | None) -> str:
    """A speed-up: 1.84x, with ~ before it where nothing can be told."""
    if time is None:
        return ""
    return f"{'~' if time.answer == 'cannot tell' else ''}{time.speedup.median:.2f}x"
