"""A triage  ->  a screen: the step as one bar, what to do first, the kernels that take longest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profkit.reports.figures import figures
from profkit.show.text.blocks import Block, Grid, Heading, TextLine, TextSpan, Words
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
COMPUTING = "computing"
_MARKS = {COMPUTING: "#", "host-launch": "l", "host-sync": "w", "copy": "c", "collective": "n",
          "other": "."}  # fmt: skip


def triaged(of: Mapping[str, Any], rest: str = "--json") -> Iterator[Block]:
    """The screen of a "profkit.triage/1" document: at most 40 lines where nothing wraps.

    Args:
        of: The document.
        rest: Where the findings are that are not shown.
    """
    step = of["step"]
    yield Heading(step_title(of))
    yield TextLine(steps_line(of))
    yield TextLine(bar(step))
    yield TextLine(" · ".join(f"{_MARKS[cause]} {text}" for cause, text in step_shares(step)))
    yield Heading("What to do first", 2)
    if of["first"]["category"] == "healthy":
        yield TextLine(of["first"]["say"], "healthy")
    for number, row in enumerate(of["findings"][:FIRST], 1):
        title, try_ = finding_texts(row, step)
        yield TextLine(f"{number}. {title}")
        yield TextLine(row["say"], indent=1)
        yield TextLine(f"try: {try_}", indent=1)
    if (more := len(of["findings"]) - FIRST) > 0:
        yield TextLine(f"and {more} more that save less: {rest}")
    yield Heading("Where the GPU's time goes", 2)
    yield kernels_table(of["kernels"][:GROUPS])
    yield from further(of)


def step_title(of: Mapping[str, Any]) -> str:
    """How long a step of what is."""
    program = of["program"]
    device = program["device"] or "unknown GPU"
    return f"Step of {ms(of['step']['ms'])} on {device} ({program['how']})"


def finding_texts(row: Mapping[str, Any], step: Mapping[str, Any]) -> tuple[str, str]:
    """A finding's title with what it saves, and what to try where."""
    where = f" ({_place(row['where'])})" if row["where"] else ""
    return f"{row['category']}: {_saves(row, step)}", f"{row['try']}{where}"


def further(of: Mapping[str, Any]) -> Iterator[Block]:
    """How to look at the counted kernel that matters most; what each rank does; notes."""
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
        )
    for text in of["notes"][:NOTES]:
        yield TextLine(text, "note")


def ms(value: float) -> str:
    """Milliseconds with three figures."""
    return f"{figures(value)} ms"


def steps_line(of: Mapping[str, Any]) -> str:
    """Which step it is, how they spread, and what one takes without the profiler."""
    program, step = of["program"], of["step"]
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
    parts = [("#", step["gpu_busy_ms"])]
    parts += [(_MARKS[row["cause"]], row["ms"]) for row in step["idle"]]
    text, seen = "", 0.0
    for mark, part in parts:
        seen += part
        text += mark * (round(BAR * seen / total) - len(text))
    return f"[{text[:BAR].ljust(BAR)}]"


def step_shares(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Cause, or computing, with its part of the step."""
    total = max(step["ms"], 1e-12)
    yield COMPUTING, f"computing {step['gpu_busy_ms'] / total:.1%}"
    for row in step["idle"]:
        if row["ms"] >= 0.001 * total:
            yield row["cause"], f"{_NAMES[row['cause']]} {row['ms'] / total:.1%}"


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


def kernels_table(kernels: Sequence[Mapping[str, Any]]) -> Grid:
    """Kernels by time; what no kernel was counted for is no column."""
    rows: list[tuple[Words, ...]] = []
    for row in kernels:
        limit = f"{row['bound']}: {row['limiter']}" if row["bound"] else "not counted"
        left = f"{row['headroom']:.2f}x" if row["headroom"] else ""
        name = TextSpan(row["name"], "name")
        numbers = (str(row["calls"]), ms(row["ms"]), f"{row['share']:.1%}")
        rows.append((row["id"], name, row["category"], *numbers, limit, left))
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
