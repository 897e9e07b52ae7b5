"""A triage  ->  a part of a page: the step as a bar and over its streams, findings, kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from markupsafe import Markup

from profkit.program.counts import plain_name
from profkit.program.triage import Triage
from profkit.reports.figures import seconds
from profkit.show.page.times import WIDTH, legend, picture
from profkit.show.text.blocks import plain_words
from profkit.show.text.escape import html
from profkit.show.text.names import short
from profkit.show.views.triage import (
    COMPUTING,
    finding_texts,
    further,
    kernels_table,
    ms,
    step_shares,
    step_title,
    steps_line,
)

ROW, GAP = 22, 4
LABEL = 110  # pixels for the names of the rows
NARROW = 0.4  # pixels: what is narrower, or as near to its like, is drawn as one
KERNELS = 12
COLOURS = {
    "gemm": "#4c78a8", "conv": "#4c78a8", "attention": "#72b7b2", "softmax": "#b279a2",
    "norm": "#9d755d", "reduce": "#9d755d", "elementwise": "#eeca3b", "convert": "#ff9da6",
    "layout": "#ff9da6", "optimizer": "#bab0ac", "copy": "#e45756", "collective": "#f58518",
    "scatter": "#54a24b", "unknown": "#2ca02c",
}  # fmt: skip
OTHER = "#8c8c8c"
# What the GPU does or waits for, in the page's own colours: the bar and the row of idle time.
LOOKS = {
    COMPUTING: "compute", "host-launch": "launch", "host-sync": "balanced", "copy": "memory",
    "collective": "latency", "other": "unknown",
}  # fmt: skip
Launched = Mapping[tuple[str, Any, Any], int]  # kernel, grid, block -> a row of the page
# From, to in pixels, colour or class, what it is, where it leads.
Bar = tuple[float, float, str, str, str]


@dataclass(frozen=True)
class PageProgram:
    """A program for a page."""

    name: str  # what it is called there
    triage: Triage  # the answer, whose typical step is drawn
    content: Mapping[str, Any]  # the same as "profkit.triage/1", with what was counted


def program_section(of: PageProgram, number: int, launched: Launched) -> dict[str, Any]:
    """A program as a part of a page: bar, findings, timeline and kernels, which lead to each other.

    Args:
        of: The program.
        number: From 1: of its elements' names.
        launched: Rows of the page that its kernels lead to.
    """
    content, step = of.content, of.content["step"]
    kernels = content["kernels"][:KERNELS]
    at = {row["id"]: f"program-{number}-{row['id']}" for row in kernels}
    table = kernels_table(kernels)
    kinds = dict.fromkeys(work.kind for work in of.triage.steps.typical.works)
    return {
        "name": of.name,
        "answer": step_title(content),
        "steps": steps_line(content),
        "bars": list(_bars(step)),
        "legend": [(LOOKS[cause], text) for cause, text in step_shares(step)],
        "healthy": content["first"]["say"] if content["first"]["category"] == "healthy" else "",
        "findings": [_card(row, step, at) for row in content["findings"]],
        "timeline": timeline(of.triage, {row["name"]: at[row["id"]] for row in reversed(kernels)}),
        "kinds": legend([(COLOURS.get(kind, OTHER), kind) for kind in kinds], "kinds of kernels"),
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
        "blocks": list(further(content)),
    }


def _bars(step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The step as parts of a bar 1000 wide."""
    total, x = max(step["ms"], 1e-12), 0.0
    parts = [(COMPUTING, step["gpu_busy_ms"], "")]
    parts += [(row["cause"], row["ms"], row["where"]) for row in step["idle"]]
    for cause, part, where in parts:
        width = 1000 * part / total
        yield {
            "to": "", "x": round(x, 2), "width": round(width, 2), "saved": 0, "thin": False,
            "bound": LOOKS[cause],
            "about": f"{cause} {ms(part)}" + (f", most of it {where}" if where else ""),
        }  # fmt: skip
        x += width


def _card(row: Mapping[str, Any], step: Mapping[str, Any], at: Mapping[str, str]) -> dict[str, Any]:
    title, try_ = finding_texts(row, step)
    kernels = [(id_, at[id_]) for id_ in row["kernels"] if id_ in at]
    return {"title": title, "say": row["say"], "try": try_, "kernels": kernels}


def _launch_of(row: Mapping[str, Any], launched: Launched) -> str:
    """The row of the page that is about a kernel with this grid and block."""
    grid, block = (tuple(row[k]) if row[k] else None for k in ("grid", "block"))
    number = launched.get((plain_name(row["name"]), grid, block))
    return f"launch-{number}" if number else ""


def timeline(of: Triage, places: Mapping[str, str] | None = None) -> Markup:
    """The typical step as SVG: a row a stream, and one for idle time by its cause.

    Args:
        of: The answer.
        places: Kernel -> the element of the page that is about it.
    """
    begin = of.steps.typical.first
    scale = (WIDTH - LABEL) / max(1, of.split.period)
    rows: dict[str, list[Bar]] = {"idle": []}
    for start, stop, cause in of.split.gaps:
        ends = (LABEL + (start - begin) * scale, LABEL + (stop - begin) * scale)
        rows["idle"].append((*ends, LOOKS[cause], cause, ""))
    works = [w for w in of.steps.typical.works if w.activity.end > begin]
    for work in sorted(works, key=lambda w: w.activity.stream):
        done = work.activity
        low = LABEL + max(0, done.start - begin) * scale
        look = COLOURS.get(work.kind, OTHER), f"{work.kind}: {short(done.name, 80)}"
        bar = (low, LABEL + (done.end - begin) * scale, *look, (places or {}).get(done.name, ""))
        rows.setdefault(f"stream {done.stream}", []).append(bar)
    height = len(rows) * (ROW + GAP) + 20
    drawn = (_row(n, name, bars) for n, (name, bars) in enumerate(rows.items()))
    parts = list(chain.from_iterable(drawn))
    end = seconds(of.split.period / 1e9)
    parts.append(f'<text x="{WIDTH}" y="{height - 4}" text-anchor="end">{end}</text>')
    return picture(height, "the step over streams", parts, role="group")


def _row(number: int, name: str, bars: Sequence[Bar]) -> Iterator[str]:
    top = number * (ROW + GAP)
    yield f'<text x="0" y="{top + 15}">{html(name)}</text>'
    for low, high, colour, text, to in _merged(bars):
        look = "fill" if colour.startswith("#") else "class"
        rect = (
            f'<rect x="{low:.2f}" y="{top}" width="{max(NARROW, high - low):.2f}" '
            f'height="{ROW}" {look}="{colour}"><title>{html(text)}</title></rect>'
        )
        yield f'<a href="#{html(to)}">{rect}</a>' if to else rect


def _merged(bars: Sequence[Bar]) -> Iterator[Bar]:
    """Bars of one colour that the eye cannot tell apart as one; none outside of the picture."""
    last: Bar | None = None
    for bar in sorted(b for b in bars if b[1] > LABEL and b[0] < WIDTH):
        low, high = max(bar[0], LABEL), min(bar[1], WIDTH)
        if last and last[2] == bar[2] and low - last[1] < NARROW and high - low < 4 * NARROW:
            last = (last[0], max(high, last[1]), *last[2:])
            continue
        if last:
            yield last
        last = (low, high, *bar[2:])
    if last:
        yield last
