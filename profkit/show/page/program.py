"""A triage  ->  one HTML file without scripts: the step over its streams, findings, kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from profkit.program.counts import plain_name
from profkit.program.triage import Triage
from profkit.show.page.payload import policy_hash
from profkit.show.text.escape import html
from profkit.show.text.figures import figures, seconds
from profkit.show.text.markup import to_html
from profkit.show.text.names import short
from profkit.show.views.triage import triaged

WIDTH, ROW, GAP = 1200, 22, 4
LABEL = 110  # pixels for the names of the rows
NARROW = 0.4  # pixels: what is narrower, or as near to its like, is drawn as one
COLOURS = {
    "gemm": "#4c78a8", "conv": "#4c78a8", "attention": "#72b7b2", "softmax": "#b279a2",
    "norm": "#9d755d", "reduce": "#9d755d", "elementwise": "#eeca3b", "convert": "#ff9da6",
    "layout": "#ff9da6", "optimizer": "#bab0ac", "copy": "#e45756", "collective": "#f58518",
    "scatter": "#54a24b", "unknown": "#2ca02c",
}  # fmt: skip
IDLE = {"host-launch": "#d62728", "host-sync": "#9467bd", "copy": "#e45756",
        "collective": "#f58518", "other": "#c7c7c7"}  # fmt: skip
STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;max-width:1240px;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}table{border-collapse:collapse}td,th{padding:.15em .7em}"
    "svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}svg text{fill:#ddd}}"
)
Launched = Mapping[tuple[str, Any, Any], int]  # kernel, grid, block -> a row of the page
Bar = tuple[float, float, str, str]  # from, to in pixels, colour, what it is


def program_page(of: Triage, content: Mapping[str, Any]) -> str:
    """The page."""
    # Inline style attributes are those of the blocks; nothing else is allowed, and no script at all.
    policy = f"default-src 'none'; style-src {policy_hash(STYLE)} 'unsafe-hashes' 'unsafe-inline'"
    title = f"Triage: {content['program']['command'] or content['program']['how']}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html(policy)}">'
        f"<title>{html(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html(title)}</h1>{timeline(of)}{to_html(triaged(content))}"
        f"<h2>Kernels by time</h2>{group_bars(content)}"
        "</body></html>\n"
    )


@dataclass(frozen=True)
class PageProgram:
    """A program for a page."""

    name: str  # what it is called there
    triage: Triage  # the answer, whose typical step is drawn
    content: Mapping[str, Any]  # the same as "profkit.triage/1", with what was counted


def section(of: PageProgram, launched: Launched) -> dict[str, Any]:
    """A program as a part of a page of launches: pictures as SVG without styles, and sentences."""
    links = {}
    for row in of.content["kernels"]:
        grid, block = (tuple(row[k]) if row[k] else None for k in ("grid", "block"))
        if (key := (plain_name(row["name"]), grid, block)) in launched:
            links[row["id"]] = f"#launch-{launched[key]}"
    return {
        "name": of.name, "blocks": list(triaged(of.content)),
        "timeline": Markup(timeline(of.triage)),  # noqa: S704 - every text in it went through html()
        "groups": Markup(group_bars(of.content, links)),  # noqa: S704
    }  # fmt: skip


def timeline(of: Triage) -> str:
    """The typical step as SVG: a row a stream, and one for idle time in the colour of its cause."""
    begin = of.steps.typical.first
    works = [w for w in of.steps.typical.works if w.activity.end > begin]
    scale = (WIDTH - LABEL) / max(1, of.split.period)
    streams = sorted({w.activity.stream for w in works})
    rows = [("idle", [(LABEL + (a - begin) * scale, LABEL + (b - begin) * scale, IDLE[cause], cause)
                      for a, b, cause in of.split.gaps])]  # fmt: skip
    for stream in streams:
        bars = [
            (LABEL + max(0, w.activity.start - begin) * scale,
             LABEL + (w.activity.end - begin) * scale, COLOURS.get(w.kind, "#8c8c8c"),
             f"{w.kind}: {short(w.activity.name, 80)}")
            for w in works if w.activity.stream == stream
        ]  # fmt: skip
        rows.append((f"stream {stream}", bars))
    height = len(rows) * (ROW + GAP) + 20
    parts = [part for n, (name, bars) in enumerate(rows) for part in _row(n, name, bars)]
    end = f'<text x="{WIDTH}" y="{height - 4}" text-anchor="end">{seconds(of.split.period / 1e9)}</text>'
    return (f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="the step over streams">'
            f"{''.join(parts)}{end}</svg>")  # fmt: skip


def _row(number: int, name: str, bars: Sequence[Bar]) -> Iterator[str]:
    top = number * (ROW + GAP)
    yield f'<text x="0" y="{top + 15}">{html(name)}</text>'
    for low, high, colour, text in _merged(bars):
        yield (f'<rect x="{low:.2f}" y="{top}" width="{max(NARROW, high - low):.2f}" '
               f'height="{ROW}" fill="{colour}"><title>{html(text)}</title></rect>')  # fmt: skip


def _merged(bars: Sequence[Bar]) -> Iterator[Bar]:
    """Bars of one colour that the eye cannot tell apart as one; none outside of the picture."""
    last: Bar | None = None
    for bar in sorted(b for b in bars if b[1] > LABEL and b[0] < WIDTH):
        low, high, colour, text = max(bar[0], LABEL), min(bar[1], WIDTH), bar[2], bar[3]
        if last and last[2] == colour and low - last[1] < NARROW and high - low < 4 * NARROW:
            last = (last[0], max(high, last[1]), colour, last[3])
            continue
        if last:
            yield last
        last = (low, high, colour, text)
    if last:
        yield last


def group_bars(content: Mapping[str, Any], links: Mapping[str, str] | None = None) -> str:
    """The kernels as bars of time; the part that counters say can be got back is drawn darker."""
    rows = content["kernels"][:12]
    most = max((row["ms"] for row in rows), default=1.0)
    parts = []
    for n, row in enumerate(rows):
        width = (WIDTH - 420) * row["ms"] / most
        left = width * (1 - 1 / row["headroom"]) if row["headroom"] else 0.0
        top, colour = n * (ROW + GAP), COLOURS.get(row["category"], "#8c8c8c")
        name = f"{html(row['id'])} {html(short(row['name'], 50))}"
        if link := (links or {}).get(row["id"]):
            name = f'<a href="{html(link)}">{name}</a>'
        parts.append(
            f'<text x="0" y="{top + 15}">{name}</text>'
            f'<rect x="400" y="{top}" width="{width:.1f}" height="{ROW}" fill="{colour}"/>'
            f'<rect x="{400 + width - left:.1f}" y="{top}" width="{left:.1f}" height="{ROW}" '
            f'fill="#000" fill-opacity=".35"/>'
            f'<text x="{406 + width:.1f}" y="{top + 15}">{figures(row["ms"])} ms</text>'
        )  # fmt: skip
    height = len(rows) * (ROW + GAP)
    return (f'<svg viewBox="0 0 {WIDTH + 60} {height}" role="img" '
            f'aria-label="kernels by time">{"".join(parts)}</svg>')  # fmt: skip
