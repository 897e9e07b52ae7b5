"""A triage  ->  the parts of a page: the step's bar, its timeline, cards of findings, kernels.

What belongs together lights up together: a finding and its kernels in the timeline, by hover, by the
keyboard's focus and by a link's target. Rules of style do it, so that it works where scripts do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from profkit.program.counts import remove_demangler_differences
from profkit.program.steps.cut import StepWork
from profkit.program.steps.places import describe_place, list_line_runs
from profkit.program.triage import Triage
from profkit.reports.figures import format_seconds
from profkit.show.draw import Bar, draw_strip
from profkit.show.text.blocks import get_plain_text
from profkit.show.text.escape import shorten_name
from profkit.show.views import triage as screen

if TYPE_CHECKING:
    from profkit.units import (
        CauseName,
        ClauseOrEmpty,
        CssTextOrEmpty,
        KernelJson,
        LookName,
        Nanoseconds,
        Share,
        StepJson,
        WorkIndex,
    )


CELL = 0.0004  # of the width: what begins in the same one is drawn as one, whatever it is
NARROW = 4 * CELL  # what is narrower, and next to its like, is drawn as one with it
KERNELS = 12  # rows of the table
FINDINGS = 12  # those that light up: each takes a few rules of the page's style
LANES = 8  # more do not stay in view
LOOKS = {cause: bound for cause, (_, _, bound) in screen.CAUSES.items()}
ElementByLaunch = Mapping[tuple[Any, ...], str]  # kernel, grid, block -> its element on the page


@dataclass(frozen=True)
class PageProgram:
    """A program on a page."""

    name: str  # what it is called there
    triage: Triage  # the answer, whose typical step is drawn
    content: Mapping[str, Any]  # the same as "profkit.triage/1", with what was counted


def make_program_section(
    program: PageProgram, program_number: int, element_by_launch: ElementByLaunch
) -> dict[str, Any]:
    """Return a program as a part of a page; its elements are named by its number."""
    content = program.content
    step = program.content["step"]
    kernels = content["kernels"][:KERNELS]
    at = {row["id"]: f"program-{program_number}-{row['id']}" for row in kernels}
    marks = list_highlight_marks_of_works(program.triage)
    lanes = draw_timeline(program.triage, at)
    head, rows = _make_linked_kernel_rows(program, element_by_launch, at)
    return {
        "name": program.name,
        "answer": screen.write_step_answer(content),
        "step": screen.write_step_title(content),
        "steps": screen.describe_recorded_steps(content),
        "findings": _list_finding_cards(program, at, marks),
        "timeline": lanes,
        "stays": len(lanes) <= LANES,
        "lights": any(marks.values()),
        "end": format_seconds(program.triage.split.period / 1e9),
        "kinds": _list_work_kinds(program.triage),
        "head": head,
        "kernels": rows,
        "more": _say_more_kernels(content["kernels"]),
        "blocks": [
            *screen.show_all_savings_together(content),
            *screen.show_what_is_next(content),
        ],
        **_draw_step_bar(step),
    }


def _draw_step_bar(step: StepJson) -> dict[str, Any]:
    """Return the step as a bar of computing and idle time by its cause, and the key to its looks."""
    bars = []
    for cause, begin, end, text in screen.iterate_step_segments(step):
        bars.append(Bar(begin, end, LOOKS[cause], text))
    legend = [(LOOKS[cause], text) for cause, text in screen.iterate_step_shares(step)]
    return {"bar": draw_strip(bars, "The step", are_bars_named_in_label=True), "legend": legend}


def _list_work_kinds(answer: Triage) -> list[tuple[LookName, str]]:
    """Return look and name of each kind of work in the step, in the order of the first ones."""
    kinds = dict.fromkeys(work.kind for work in answer.steps.typical.works)
    return [(f"k-{kind}", kind) for kind in kinds]


def _list_finding_cards(
    program: PageProgram,
    element_by_kernel_id: Mapping[str, str],
    marks: Mapping[WorkIndex, Sequence[str]],
) -> list[dict[str, Any]]:
    """List findings as cards; a card without a mark covers nothing that is drawn."""
    drawn = set(chain.from_iterable(marks.values()))
    for cause in screen.CAUSES:
        drawn.update(list_highlight_marks_of_idle(program.triage, cause))
    cards = []
    for number, row in enumerate(program.content["findings"], 1):
        title, advice = screen.write_finding_texts(row, program.content)
        other = screen.say_alternative(row, program.content)
        mark = f"f{number}"
        if mark not in drawn:
            mark = ""
        kernels = [
            (name, element_by_kernel_id[name])
            for name in sort_kernel_ids(row["kernels"])
            if name in element_by_kernel_id
        ]
        card = {
            "title": title,
            "say": screen.say_finding(row, program.content["step"]),
            "try": "; or ".join(filter(None, (advice, other))),
            "kernels": kernels,
            "mark": mark,
        }
        cards.append(card)
    return cards


def sort_kernel_ids(names: Iterable[str]) -> list[str]:
    """Return the ids of kernels (k2, k10) by their numbers, as the table has them."""
    return sorted(names, key=lambda name: (len(name), name))


def _make_linked_kernel_rows(
    program: PageProgram,
    element_by_launch: ElementByLaunch,
    element_by_kernel_id: Mapping[str, str],
) -> tuple[list[str], list[dict[str, Any]]]:
    """List the columns of the table of kernels, and its rows."""
    kernels = program.content["kernels"][:KERNELS]
    table = screen.make_kernels_table(kernels, program.content.get("origins", ()))
    columns = table.list_filled_columns()
    rows = []
    for row, cells in zip(kernels, table.rows, strict=True):
        shape = [tuple(row[key]) if row[key] else None for key in ("grid", "block")]
        shown = {
            "at": element_by_kernel_id[row["id"]],
            "to": element_by_launch.get((remove_demangler_differences(row["name"]), *shape), ""),
            "share": f"{row['share']:.3g}",
            "cells": [get_plain_text(cells[column]) for column in columns],
            "mark": row["id"],
        }
        rows.append(shown)
    return [table.head[column] for column in columns], rows


def _say_more_kernels(kernels: Sequence[KernelJson]) -> ClauseOrEmpty:
    """Return how many kernels the table leaves out, and what they take; "" where it has all."""
    rest = kernels[KERNELS:]
    if not rest:
        return ""
    return screen.describe_rest_of_rows(rest)


def write_highlight_rules(program: PageProgram, program_number: int) -> CssTextOrEmpty:
    """Return rules of style by which what belongs together lights up.

    One of them asks for what is pointed at, one for what has the focus, where nothing is pointed at,
    and one for the target of a link, where neither is. The last one lights cards and rows from a bar.
    """
    marks = [f"f{n}" for n in range(1, min(len(program.triage.findings), FINDINGS) + 1)]
    marks += [group.id for group in program.triage.groups[:KERNELS]]
    page = f"#program-{program_number}"
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


def list_highlight_marks_of_works(answer: Triage) -> dict[WorkIndex, tuple[str, ...]]:
    """Return each work's marks: f1 for the first finding that covers it, k1 for its kernel's row."""
    marks: dict[int, list[str]] = {}
    for number, finding in enumerate(answer.findings[:FINDINGS], 1):
        for index in finding.works:
            marks.setdefault(index, []).append(f"f{number}")
    for group in answer.groups[:KERNELS]:
        for index in group.works:
            marks.setdefault(index, []).append(group.id)
    return {index: tuple(own) for index, own in marks.items()}


def list_highlight_marks_of_idle(answer: Triage, cause: CauseName) -> tuple[str, ...]:
    """Return the marks of idle time: those of findings that are about idle time of its cause."""
    marks = []
    for number, finding in enumerate(answer.findings[:FINDINGS], 1):
        if finding.idle and finding.rule == cause:
            marks.append(f"f{number}")
    return tuple(marks)


def draw_timeline(
    answer: Triage, element_by_kernel_id: Mapping[str, str] | None = None
) -> dict[str, Markup]:
    """Draw the typical step as strips: idle time by its cause, a stream each, lines of Python.

    Args:
        answer: Whose step.
        element_by_kernel_id: The page's element of each group of kernels that has one.
    """
    first = answer.steps.typical.first
    wide = max(1, answer.split.period)
    marks = list_highlight_marks_of_works(answer)
    lanes = {"idle": _list_idle_bars(answer, first, wide)}
    works = list(enumerate(answer.steps.typical.works))
    elements = _list_page_elements(answer, element_by_kernel_id or {})
    for index, work in sorted(works, key=lambda numbered: numbered[1].activity.stream):
        done = work.activity
        if done.end <= first:
            continue
        bar = Bar(
            begin=(done.start - first) / wide,
            end=(done.end - first) / wide,
            look=f"k-{work.kind}",
            about=_say_work(work),
            to=elements.get(index, ""),
            marks=marks.get(index, ()),
        )
        lanes.setdefault(f"stream {done.stream}", []).append(bar)
    if lines := list(_list_line_bars(answer.steps.typical.works, marks, first, wide)):
        lanes["lines"] = lines
    return {name: draw_strip(_merge_narrow_bars(bars), name) for name, bars in lanes.items()}


def _list_idle_bars(answer: Triage, step_begin_ns: Nanoseconds, step_ns: Nanoseconds) -> list[Bar]:
    """Return the step's idle time by its cause; `step_begin_ns` and `step_ns` in ns."""
    bars = []
    for start, stop, cause in answer.split.gaps:
        bar = Bar(
            begin=(start - step_begin_ns) / step_ns,
            end=(stop - step_begin_ns) / step_ns,
            look=LOOKS[cause],
            about=f"idle, {cause}: {_say_time(stop - start)}",
            marks=list_highlight_marks_of_idle(answer, cause),
        )
        bars.append(bar)
    return bars


def _list_page_elements(
    answer: Triage, element_by_kernel_id: Mapping[str, str]
) -> dict[WorkIndex, str]:
    """Return the page's element of each work whose group of kernels has one."""
    elements = {}
    for group in answer.groups:
        if group.id in element_by_kernel_id:
            elements.update(dict.fromkeys(group.works, element_by_kernel_id[group.id]))
    return elements


def _say_work(work: StepWork) -> str:
    said = (
        f"{work.kind}: {shorten_name(work.activity.name, 80)}, {_say_time(work.activity.duration)}"
    )
    place = work.maker.place
    if place is not None and place.line:
        return f"{said}\n{describe_place(place)}"
    return said


def _say_time(nanoseconds: Nanoseconds) -> str:
    return format_seconds(nanoseconds / 1e9)


def _list_line_bars(
    works: Sequence[StepWork],
    marks: Mapping[WorkIndex, Sequence[str]],
    step_begin_ns: Nanoseconds,
    step_ns: Nanoseconds,
) -> Iterator[Bar]:
    """Yield a bar for each run of works of one line on the busiest stream; two looks take turns."""
    own = _list_works_of_busiest_stream(works)
    parts = []
    for index in own:
        activity = works[index].activity
        parts.append((works[index].maker.place, activity.start, activity.end))
    at = 0
    for turn, run in enumerate(list_line_runs(parts)):
        inside = own[at : at + run.works]
        at += run.works
        if run.place is None or not run.place.line or run.end <= step_begin_ns:
            continue
        lit: dict[str, None] = {}
        for index in inside:
            lit |= dict.fromkeys(marks.get(index, ()))
        yield Bar(
            begin=(run.begin - step_begin_ns) / step_ns,
            end=(run.end - step_begin_ns) / step_ns,
            look="line-even" if turn % 2 else "line-odd",
            about=f"{describe_place(run.place)}, {_say_time(run.end - run.begin)}",
            marks=tuple(lit),
        )


def _list_works_of_busiest_stream(works: Sequence[StepWork]) -> list[WorkIndex]:
    """Return the works of the stream whose works take longest, by when they start."""
    times: Counter[int] = Counter()
    for work in works:
        times[work.activity.stream] += work.activity.duration
    busiest = max(times, key=lambda stream: times[stream], default=0)
    own = [index for index, work in enumerate(works) if work.activity.stream == busiest]
    return sorted(own, key=lambda index: works[index].activity.start)


def _merge_narrow_bars(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Yield bars that the eye cannot tell apart as one; none outside of the picture."""
    group: list[Bar] = []
    end = 0.0  # of the group
    for bar in sorted(bars, key=lambda bar: bar.begin):
        if bar.end <= 0 or bar.begin >= 1:
            continue
        shown = replace(bar, begin=max(bar.begin, 0.0), end=min(bar.end, 1.0))
        if group and not _is_too_narrow_to_draw_apart(group, end, shown):
            yield _merge_bars(group, end)
            group = []
            end = 0.0
        group.append(shown)
        end = max(end, shown.end)
    if group:
        yield _merge_bars(group, end)


def _is_too_narrow_to_draw_apart(group: Sequence[Bar], end: float, bar: Bar) -> bool:
    """Return whether a bar is drawn as one with those before it."""
    if bar.end - group[0].begin <= CELL:
        return True
    if bar.begin - end >= CELL or bar.end - bar.begin >= NARROW:
        return False
    return all(_are_bars_alike(other, bar) for other in (group[0], group[-1]))


def _are_bars_alike(one: Bar, other: Bar) -> bool:
    return (one.look, one.to, one.marks) == (other.look, other.to, other.marks)


def _merge_bars(group: Sequence[Bar], end: Share) -> Bar:
    """Return the widest of some bars, from the first's begin to the last's end, with all marks."""
    widest = max(group, key=lambda bar: bar.end - bar.begin)
    marks = dict.fromkeys(mark for bar in group for mark in bar.marks)
    more = ""
    if len(group) > 1:
        more = f"; and {len(group) - 1:,} more, too narrow to be drawn"
    return replace(
        widest,
        begin=group[0].begin,
        end=max(end, group[0].begin + CELL),
        about=widest.about + more,
        marks=tuple(marks),
    )
