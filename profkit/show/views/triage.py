"""A triage  ->  a screen: the step as one bar, what to do first, the kernels that take longest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profkit.show.text.blocks import Block, Grid, Heading, TextLine, TextSpan
from profkit.show.text.figures import figures
from profkit.show.text.names import short

FIRST = 3  # findings shown; --json has all
GROUPS = 10
NOTES = 3
RANKS = 3  # those that wait least: others wait for them
BAR = 60
_NAMES = {
    "host-launch": "launches come too slowly", "host-sync": "the host waits itself",
    "copy": "copies", "collective": "collectives", "other": "latency, dependencies",
}  # fmt: skip
_MARKS = {"host-launch": "l", "host-sync": "w", "copy": "c", "collective": "n", "other": "."}


def triaged(of: Mapping[str, Any], rest: str = "--json") -> Iterator[Block]:
    """The screen of a "profkit.triage/1" document: at most 40 lines where nothing wraps.

    Args:
        of: The document.
        rest: Where the findings are that are not shown.
    """
    program, step = of["program"], of["step"]
    device = program["device"] or "unknown GPU"
    yield Heading(f"Step of {ms(step['ms'])} on {device} ({program['how']})")
    yield TextLine(_steps(program, step))
    yield TextLine(bar(step))
    yield TextLine(_shares(step))
    yield Heading("What to do first", 2)
    first = of["first"]
    if first["category"] == "healthy":
        yield TextLine(first["say"], "healthy")
    for number, row in enumerate(of["findings"][:FIRST], 1):
        yield TextLine(f"{number}. {row['category']}: {_saves(row, step)}")
        yield TextLine(row["say"], indent=1)
        yield TextLine(f"try: {row['try']}" + (f" ({_place(row['where'])})" if row["where"] else ""),
                   indent=1)  # fmt: skip
    if (more := len(of["findings"]) - FIRST) > 0:
        yield TextLine(f"and {more} more that save less: {rest}")
    yield Heading("Where the GPU's time goes", 2)
    yield _groups(of)
    yield from _further(of)
    for text in of["notes"][:NOTES]:
        yield TextLine(text, "note")


def _further(of: Mapping[str, Any]) -> Iterator[Block]:
    """How to look at the counted kernel that matters most; what each rank does."""
    named = [id_ for finding in of["findings"] for id_ in finding["kernels"]]
    counted = [row for row in of["kernels"] if row["counted"] and row["next"]]
    if best := min(counted, key=lambda r: (r["id"] not in named, -r["ms"]), default=None):
        yield TextLine(best["next"], f"{best['id']} in full")
    kernels = [row for row in of["kernels"] if row["grid"]]
    if kernels and kernels[0]["category"] == "unknown" and kernels[0].get("missing"):
        yield TextLine(kernels[0]["missing"], kernels[0]["id"])
    ranks = of["ranks"]
    shown = ranks if len(ranks) <= RANKS else sorted(ranks, key=lambda r: r["waiting_ms"])[:RANKS]
    for row in sorted(shown, key=lambda r: r["rank"]):
        transfer = row["collective_ms"] - row["waiting_ms"]
        yield TextLine(
            f"{ms(row['computing_ms'])} computing, {ms(row['collective_ms'])} in collectives: "
            f"{ms(transfer)} transfer, {ms(row['waiting_ms'])} waiting for others",
            f"rank {row['rank']}",
        )  # fmt: skip


def ms(value: float) -> str:
    """Milliseconds with three figures."""
    return f"{figures(value)} ms"


def _steps(program: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    steps = f"the median of {program['steps']} steps ({step['found']}), "
    steps = steps if program["steps"] > 1 else f"one step ({step['found']}), "
    spread = f"{figures(step['min_ms'])} to {ms(step['max_ms'])}"
    plain = step["plain_ms"]
    if abs(plain["expect"] - step["ms"]) > 0.03 * step["ms"]:
        spread += (f"; without the profiler about {ms(plain['expect'])} "
                   f"({figures(plain['low'])} to {figures(plain['high'])})")  # fmt: skip
    return steps + spread


def bar(step: Mapping[str, Any]) -> str:
    """The step as one line: # computes, other marks are idle time by its cause."""
    total = max(step["ms"], 1e-12)
    parts = [("#", step["gpu_busy_ms"]), *((_MARKS[r["cause"]], r["ms"]) for r in step["idle"])]
    text, seen = "", 0.0
    for mark, part in parts:
        seen += part
        text += mark * (round(BAR * seen / total) - len(text))
    return f"[{text[:BAR].ljust(BAR)}]"


def _shares(step: Mapping[str, Any]) -> str:
    total = max(step["ms"], 1e-12)
    parts = [f"# computing {step['gpu_busy_ms'] / total:.1%}"]
    parts += [f"{_MARKS[r['cause']]} {_NAMES[r['cause']]} {r['ms'] / total:.1%}"
              for r in step["idle"] if r["ms"] >= 0.001 * total]  # fmt: skip
    return " · ".join(parts)


def _saves(row: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    saves, plain = row["saves_ms"], step["plain_ms"]["expect"]
    text = (f"saves about {ms(saves['expect'])} of {figures(plain)} "
            f"({figures(saves['low'])} to {figures(saves['high'])})")  # fmt: skip
    if row["on_top_ms"] < 0.7 * saves["expect"]:
        text += f", {ms(row['on_top_ms'])} after what stands before it"
    return text


def _place(where: str) -> str:
    named = where if len(where) <= 60 else short(where, 60)
    return named if where.startswith(("before ", "between ")) else f"at {named}"


def _groups(of: Mapping[str, Any]) -> Grid:
    rows = []
    for row in of["kernels"][:GROUPS]:
        limit = f"{row['bound']}: {row['limiter']}" if row["bound"] else "not counted"
        left = f"{row['headroom']:.2f}x" if row["headroom"] else ""
        rows.append((row["id"], TextSpan(row["name"], "name"), row["category"], str(row["calls"]),
                     ms(row["ms"]), f"{row['share']:.1%}", limit, left))  # fmt: skip
    head = ("", "kernel", "kind", ">calls", ">a step", ">share", "limit", ">headroom")
    return Grid(head, tuple(rows))


def compared_triages(of: Mapping[str, Any]) -> Iterator[Block]:
    """Two triages, from the document of profkit.program.change."""
    yield Heading(f"Step: {ms(of['before_ms'])} before, {ms(of['after_ms'])} after")
    yield TextLine(
        f"{ms(abs(of['saved_ms']))} {'saved' if of['saved_ms'] >= 0 else 'lost'}", of["answer"]
    )
    if of["kept"] is not None:
        yield TextLine("what was saved is "
                   + ("inside of" if of["kept"] else "outside of") + " what was promised",
                   "kept" if of["kept"] else "broken")  # fmt: skip
    rows = tuple(
        (p["category"], f"{ms(p['said'][0])} ({figures(p['said'][1])} to {figures(p['said'][2])})",
         p["state"], ms(p["left"]))
        for p in of["promises"]
    )  # fmt: skip
    yield Grid(("finding", ">was to save", "now", ">still to save"), rows)
    for category in of["new"]:
        yield TextLine(f"{category} was not there before", "new")
    for text in of["notes"]:
        yield TextLine(text, "note")
