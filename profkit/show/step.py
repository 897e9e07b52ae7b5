"""A triage  ->  the parts of a page: the step's bar, its timeline, cards of findings, kernels.

What belongs together lights up together: a finding and its kernels in the timeline, by hover, by the
keyboard's focus and by a link's target. Rules of style do it, so that it works where scripts do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from profkit.program.counts import make_name_comparable
from profkit.program.steps.cut import StepWork
from profkit.program.steps.places import list_line_runs, say_place
from profkit.program.triage import Triage
from profkit.reports.figures import format_percent, seconds
from profkit.show.draw import Bar, draw_strip
from profkit.show.text.blocks import get_plain_text
from profkit.show.text.escape import shorten_name
from profkit.show.views import triage as screen

CELL = 0.0004  # of the width: what begins in the same one is drawn as one, whatever it is
NARROW = 4 * CELL  # what is narrower, and next to its like, is drawn as one with it
KERNELS = 12  # rows of the table
FINDINGS = 12  # those that light up: each takes a few rules of the page's style
LANES = 8  # more do not stay in view
LOOKS = {cause: bound for cause, (_, _, bound) in screen.CAUSES.items()}
Launched = Mapping[tuple[Any, ...], str]  # kernel, grid, block -> its element on the page


@dataclass(frozen=True)
class PageProgram:
    """A program on a page."""

    name: str  # what it is called there
    triage: Triage  # the answer, whose typical step is drawn
    content: Mapping[str, Any]  # the same as "profkit.triage/1", with what was counted


def make_program_section(of: PageProgram, number: int, launched: Launched) -> dict[str, Any]:
    """Return a program as a part of a page; its elements are named by its number."""
    content, step = of.content, of.content["step"]
    kernels = content["kernels"][:KERNELS]
    at = {row["id"]: f"program-{number}-{row['id']}" for row in kernels}
    marks = list_work_marks(of.triage)
    kinds = dict.fromkeys(work.kind for work in of.triage.steps.typical.works)
    first = content["first"]
    bars = (Bar(a, b, LOOKS[cause], text) for cause, a, b, text in screen.iterate_step_parts(step))
    lanes = draw_timeline(of.triage, at)
    head, rows = _list_kernels(of, launched, at)
    return {
        "name": of.name,
        "answer": screen.write_step_title(content),
        "steps": screen.say_steps(content),
        "bar": draw_strip(bars, "The step", listed=True),
        "legend": [(LOOKS[cause], text) for cause, text in screen.iterate_step_shares(step)],
        "verdict": first["say"] if first["category"] in screen.NO_FINDING else "",
        "findings": _list_cards(of, at, marks),
        "timeline": lanes,
        "stays": len(lanes) <= LANES,
        "lights": any(marks.values()),
        "end": seconds(of.triage.split.period / 1e9),
        "kinds": [(f"k-{kind}", kind) for kind in kinds],
        "head": head,
        "kernels": rows,
        "more": _say_more_kernels(content["kernels"]),
        "blocks": list(screen.show_what_is_next(content)),
    }


def _list_cards(
    of: PageProgram, at: Mapping[str, str], marks: Mapping[int, Sequence[str]]
) -> list[dict[str, Any]]:
    """List findings as cards; a card without a mark covers nothing that is drawn."""
    drawn = {mark for own in marks.values() for mark in own}
    drawn |= {mark for cause in screen.CAUSES for mark in list_gap_marks(of.triage, cause)}
    cards = []
    for number, row in enumerate(of.content["findings"], 1):
        title, try_ = screen.write_finding_texts(row, of.content["step"])
        card = {
            "title": title,
            "say": screen.say_finding(row),
            "try": try_,
            "kernels": [(name, at[name]) for name in order_kernels(row["kernels"]) if name in at],
            "mark": f"f{number}" if f"f{number}" in drawn else "",
        }
        cards.append(card)
    return cards


def order_kernels(names: Iterable[str]) -> list[str]:
    """Return the ids of kernels (k2, k10) by their numbers, as the table has them."""
    return sorted(names, key=lambda name: (len(name), name))


def _list_kernels(
    of: PageProgram, launched: Launched, at: Mapping[str, str]
) -> tuple[list[str], list[dict[str, Any]]]:
    """List the columns of the table of kernels, and its rows."""
    kernels = of.content["kernels"][:KERNELS]
    table = screen.make_kernels_table(kernels, of.content.get("origins", ()))
    columns = table.list_filled_columns()
    rows = []
    for row, cells in zip(kernels, table.rows, strict=True):
        sizes = (tuple(row[key]) if row[key] else None for key in ("grid", "block"))
        shown = {
            "at": at[row["id"]],
            "to": launched.get((make_name_comparable(row["name"]), *sizes), ""),
            "share": f"{row['share']:.3g}",
            "cells": [get_plain_text(cells[column]) for column in columns],
            "mark": row["id"],
        }
        rows.append(shown)
    return [table.head[column] for column in columns], rows


def _say_more_kernels(kernels: Sequence[Mapping[str, Any]]) -> str:
    """Return how many kernels the table leaves out, and what they take; "" where it has all."""
    rest = kernels[KERNELS:]
    if not rest:
        return ""
    took = sum(row["ms"] for row in rest)
    share = sum(row["share"] for row in rest)
    return f"and {len(rest):,} more: {screen.format_from_ms(took)}, {format_percent(share, 1)}"


def write_highlight_rules(of: PageProgram, number: int) -> str:
    """Return rules of style by which what belongs together lights up.

    One of them asks for what is pointed at, one for what has the focus, where nothing is pointed at,
    and one for the target of a link, where neither is. The last one lights cards and rows from a bar.
    """
    marks = [f"f{n}" for n in range(1, min(len(of.triage.findings), FINDINGS) + 1)]
    marks += [group.id for group in of.triage.groups[:KERNELS]]
    page = f"#program-{number}"
    quiet = f"{page}:not(:has(.lights:hover))"
    still = f"{page}:not(:has(.lights:hover,.lights:focus-within))"
    rules = []
    for mark in marks:
        others = f".lanes .fill:not(.{mark})"
        asked = (
            f"{page}:has(.on-{mark}:hover) {others}",
            f"{quiet}:has(.on-{mark}:focus-within) {others}",
            f"{still}:has(.on-{mark}:target) {others}",
        )
        rules.append(f"{','.join(asked)}{{opacity:.13}}")
        rules.append(f"{page}:has(.lanes .{mark}:hover) .on-{mark}{{background:var(--raised)}}")
    if rules:
        return f"@media screen{{{''.join(rules)}}}"
    return ""


def list_work_marks(of: Triage) -> dict[int, tuple[str, ...]]:
    """Return each work's marks: f1 for the first finding that covers it, k1 for its kernel's row."""
    marks: dict[int, list[str]] = {}
    for number, finding in enumerate(of.findings[:FINDINGS], 1):
        for index in finding.works:
            marks.setdefault(index, []).append(f"f{number}")
    for group in of.groups[:KERNELS]:
        for index in group.works:
            marks.setdefault(index, []).append(group.id)
    return {index: tuple(own) for index, own in marks.items()}


def list_gap_marks(of: Triage, cause: str) -> tuple[str, ...]:
    """Return the marks of idle time: those of findings that are about idle time of its cause."""
    marks = []
    for number, finding in enumerate(of.findings[:FINDINGS], 1):
        if finding.idle and finding.rule == cause:
            marks.append(f"f{number}")
    return tuple(marks)


def draw_timeline(of: Triage, at: Mapping[str, str] | None = None) -> dict[str, Markup]:
    """Draw the typical step as strips: idle time by its cause, a stream each, lines of Python.

    Args:
        of: Whose step.
        at: The page's element of each group of kernels that has one.
    """
    first, wide = of.steps.typical.first, max(1, of.split.period)
    works = of.steps.typical.works
    marks = list_work_marks(of)
    places = {index: at[g.id] for g in of.groups if at and g.id in at for index in g.works}
    lanes: dict[str, list[Bar]] = {"idle": []}
    for start, stop, cause in of.split.gaps:
        said = f"idle, {cause}: {_say_time(stop - start)}"
        ends = (start - first) / wide, (stop - first) / wide
        lanes["idle"].append(Bar(*ends, LOOKS[cause], said, marks=list_gap_marks(of, cause)))
    for index in sorted(range(len(works)), key=lambda index: works[index].activity.stream):
        done = works[index].activity
        if done.end <= first:
            continue
        bar = Bar(
            begin=(done.start - first) / wide,
            end=(done.end - first) / wide,
            look=f"k-{works[index].kind}",
            about=_say_work(works[index]),
            to=places.get(index, ""),
            marks=marks.get(index, ()),
        )
        lanes.setdefault(f"stream {done.stream}", []).append(bar)
    if lines := list(_list_lines(works, marks, first, wide)):
        lanes["lines"] = lines
    return {name: draw_strip(_merge_narrow_bars(bars), name) for name, bars in lanes.items()}


def _say_work(work: StepWork) -> str:
    said = (
        f"{work.kind}: {shorten_name(work.activity.name, 80)}, {_say_time(work.activity.duration)}"
    )
    place = work.maker.place
    if place is not None and place.line:
        return f"{said}\n{say_place(place)}"
    return said


def _say_time(nanoseconds: int) -> str:
    return seconds(nanoseconds / 1e9)


def _list_lines(
    works: Sequence[StepWork], marks: Mapping[int, Sequence[str]], first: int, wide: int
) -> Iterator[Bar]:
    """Yield a bar for each run of works of one line on the busiest stream; two looks take turns."""
    times: dict[int, int] = {}
    for work in works:
        stream = work.activity.stream
        times[stream] = times.get(stream, 0) + work.activity.duration
    busiest = max(times, key=lambda stream: times[stream], default=0)
    own = [index for index, work in enumerate(works) if work.activity.stream == busiest]
    own.sort(key=lambda index: works[index].activity.start)
    parts = []
    for index in own:
        activity = works[index].activity
        parts.append((works[index].maker.place, activity.start, activity.end))
    at = 0
    for turn, run in enumerate(list_line_runs(parts)):
        inside = own[at : at + run.works]
        at += run.works
        if run.place is None or not run.place.line or run.end <= first:
            continue
        lit = dict.fromkeys(mark for index in inside for mark in marks.get(index, ()))
        yield Bar(
            begin=(run.begin - first) / wide,
            end=(run.end - first) / wide,
            look="line-even" if turn % 2 else "line-odd",
            about=f"{say_place(run.place)}, {_say_time(run.end - run.begin)}",
            marks=tuple(lit),
        )


def _merge_narrow_bars(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Yield bars that the eye cannot tell apart as one; none outside of the picture."""
    group: list[Bar] = []
    end = 0.0  # of the group
    for bar in sorted(bars, key=lambda bar: bar.begin):
        if bar.end <= 0 or bar.begin >= 1:
            continue
        shown = replace(bar, begin=max(bar.begin, 0.0), end=min(bar.end, 1.0))
        if group and not _is_drawn_together(group, end, shown):
            yield _merge_bars(group, end)
            group, end = [], 0.0
        group.append(shown)
        end = max(end, shown.end)
    if group:
        yield _merge_bars(group, end)


def _is_drawn_together(group: Sequence[Bar], end: float, bar: Bar) -> bool:
    """Return whether a bar is drawn as one with those before it."""
    if bar.end - group[0].begin <= CELL:
        return True
    if bar.begin - end >= CELL or bar.end - bar.begin >= NARROW:
        return False
    return all(_is_alike(other, bar) for other in (group[0], group[-1]))


def _is_alike(one: Bar, other: Bar) -> bool:
    return (one.look, one.to, one.marks) == (other.look, other.to, other.marks)


def _merge_bars(group: Sequence[Bar], end: float) -> Bar:
    """The widest of some bars, from the first's begin to the last's end, with the marks of all."""
    widest = max(group, key=lambda bar: bar.end - bar.begin)
    marks = dict.fromkeys(mark for bar in group for mark in bar.marks)
    more = ""
    if len(group) > 1:
        more = f"\nand {len(group) - 1:,} more, too narrow to be drawn"
    return replace(
        widest,
        begin=group[0].begin,
        end=max(end, group[0].begin + CELL),
        about=widest.about + more,
        marks=tuple(marks),
    )
