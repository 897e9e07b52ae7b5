"""A triage  ->  a part of a page: the step as a bar and over its streams, findings, kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from profkit.program.counts import plain_name
from profkit.program.triage import Triage
from profkit.reports.figures import seconds
from profkit.show.page.draw import Bar, strip
from profkit.show.text.blocks import plain_words
from profkit.show.text.names import short
from profkit.show.views import triage as screen

NARROW = 0.0004  # of the width: what is narrower, or as near to its like, is drawn as one
KERNELS = 12
LOOKS = {cause: bound for cause, (_, _, bound) in screen.CAUSES.items()}
Launched = Mapping[tuple[str, Any, Any], int]  # kernel, grid, block -> a row of the page


@dataclass(frozen=True)
class PageProgram:
    name: str  # what it is called there
    triage: Triage  # the answer, whose typical step is drawn
    content: Mapping[str, Any]  # the same as "profkit.triage/1", with what was counted


def program_section(of: PageProgram, number: int, launched: Launched) -> dict[str, Any]:
    """Return a program as a part of a page: bar, findings, timeline and kernels, linked.

    Its elements are named by its number; kernels lead to the rows of the page in `launched`.
    """
    content, step = of.content, of.content["step"]
    kernels = content["kernels"][:KERNELS]
    at = {row["id"]: f"program-{number}-{row['id']}" for row in kernels}
    table = screen.kernels_table(kernels)
    kinds = dict.fromkeys(work.kind for work in of.triage.steps.typical.works)
    bars = (Bar(a, b, LOOKS[cause], text) for cause, a, b, text in screen.step_parts(step))
    return {
        "name": of.name,
        "answer": screen.step_title(content),
        "steps": screen.steps_line(content),
        "bar": strip(bars, "The step", listed=True),
        "legend": [(LOOKS[cause], text) for cause, text in screen.step_shares(step)],
        "healthy": content["first"]["say"] if content["first"]["category"] == "healthy" else "",
        "findings": [_card(row, step, at) for row in content["findings"]],
        "timeline": timeline(of.triage, {row["name"]: at[row["id"]] for row in reversed(kernels)}),
        "end": seconds(of.triage.split.period / 1e9),
        "kinds": [(f"k-{kind}", kind) for kind in kinds],
        "head": [table.head[i] for i in table.telling()],
        "kernels": [
            {
                "at": at[row["id"]],
                "to": _launch_of(row, launched),
                "share": f"{row['share']:.3g}",
                "cells": [plain_words(cells[i]) for i in table.telling()],
            }
            for row, cells in zip(kernels, table.rows, strict=True)
        ],
        "blocks": list(screen.further(content)),
    }


def _card(row: Mapping[str, Any], step: Mapping[str, Any], at: Mapping[str, str]) -> dict[str, Any]:
    title, try_ = screen.finding_texts(row, step)
    kernels = [(id_, at[id_]) for id_ in row["kernels"] if id_ in at]
    return {"title": title, "say": row["say"], "try": try_, "kernels": kernels}


def _launch_of(row: Mapping[str, Any], launched: Launched) -> str:
    """Return the row of the page that is about a kernel with this grid and block."""
    grid, block = (tuple(row[k]) if row[k] else None for k in ("grid", "block"))
    number = launched.get((plain_name(row["name"]), grid, block))
    return f"launch-{number}" if number else ""


def timeline(of: Triage, places: Mapping[str, str] | None = None) -> dict[str, Markup]:
    """Return the typical step as strips: idle time by its cause, then a stream each.

    `places` are kernel -> the element of the page that is about it.
    """
    first, wide = of.steps.typical.first, max(1, of.split.period)

    def bar(start: int, stop: int, look: str, label: str, to: str = "") -> Bar:
        return Bar((start - first) / wide, (stop - first) / wide, look, label, to)

    rows = {"idle": [bar(start, stop, LOOKS[cause], cause) for start, stop, cause in of.split.gaps]}
    for work in sorted(of.steps.typical.works, key=lambda w: w.activity.stream):
        done, label = work.activity, f"{work.kind}: {short(work.activity.name, 80)}"
        if done.end > first:
            to = (places or {}).get(done.name, "")
            drawn = bar(done.start, done.end, f"k-{work.kind}", label, to)
            rows.setdefault(f"stream {done.stream}", []).append(drawn)
    return {name: strip(_merged(bars), name) for name, bars in rows.items()}


def _merged(bars: list[Bar]) -> Iterator[Bar]:
    """Yield bars of one look that the eye cannot tell apart as one; none outside of the picture."""
    last: Bar | None = None
    for bar in sorted((b for b in bars if b.end > 0 and b.begin < 1), key=lambda b: b.begin):
        begin, end = max(bar.begin, 0.0), max(min(bar.end, 1.0), bar.begin + NARROW)
        like = last and last.look == bar.look and begin - last.end < NARROW
        if last and like and end - begin < 4 * NARROW:
            last = replace(last, end=max(end, last.end))
            continue
        if last:
            yield last
        last = replace(bar, begin=begin, end=end)
    if last:
        yield last
