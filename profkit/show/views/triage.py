"""A triage  ->  a screen: the step as one bar, what to do first, the kernels that take longest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from profkit.program.steps.places import join_layers, shorten_line
from profkit.reports.figures import figures
from profkit.show.text.blocks import Block, Columns, Grid, Heading, TextLine, TextSpan, grid
from profkit.show.text.escape import short

FIRST = 3  # findings shown; --json has all
GROUPS = 10
NOTES = 5
RANKS = 3  # those that wait least: others wait for them
BAR = 60
UNPLACED = ("before ", "between ", "in ")  # places that are no "at"
NO_FINDING = ("healthy", "unknown")  # what is said first where no finding is
COMPUTING = "computing"
WITH_FRAMES = "profile(with_stack=True) records functions"
WITH_LINES = "profkit triage -- python train.py records the line of every kernel"
# What a part of the step is -> its mark in the bar, its name, and the bound whose colour it has.
CAUSES = {
    COMPUTING: ("#", "computing", "compute"),
    "host-launch": ("l", "launches come too slowly", "launch"),
    "host-sync": ("w", "the host waits itself", "balanced"),
    "copy": ("c", "copies", "memory"),
    "collective": ("n", "collectives", "latency"),
    "other": (".", "latency, dependencies", "unknown"),
}


def triaged(
    document: Mapping[str, Any], rest: str = "--json", by: str = "kernel"
) -> Iterator[Block]:
    """Yield the screen of a "profkit.triage/1" document: at most 40 lines where nothing wraps.

    Args:
        document: What it says.
        rest: Where the findings are that are not shown.
        by: What the table has a row of: line, module, operator or kernel.
    """
    step = document["step"]
    yield Heading(step_title(document))
    yield TextLine(steps_line(document))
    yield TextLine(bar(step))
    yield TextLine(" · ".join(f"{CAUSES[cause][0]} {text}" for cause, text in step_shares(step)))
    yield Heading("What to do first", 2)
    if document["first"]["category"] in NO_FINDING:
        yield TextLine(document["first"]["say"], document["first"]["category"])
    for number, row in enumerate(document["findings"][:FIRST], 1):
        title, try_ = finding_texts(row, step)
        yield TextLine(f"{number}. {title}")
        yield TextLine(say_finding(row), indent=1)
        yield TextLine(f"try: {try_}", indent=1)
    if (more := len(document["findings"]) - FIRST) > 0:
        yield TextLine(f"and {more} more that save less: {rest}")
    yield Heading("Where the GPU's time goes", 2)
    if by == "kernel":
        yield kernels_table(document["kernels"][:GROUPS], document.get("origins", ()))
    else:
        yield origins_table(document, by)
    yield from further(document)


def step_title(document: Mapping[str, Any]) -> str:
    program = document["program"]
    device = program["device"] or "unknown GPU"
    return f"Step of {ms(document['step']['ms'])} on {device} ({program['how']})"


def has_line(where: str) -> bool:
    """Return whether a place is a line of Python: it is named first then, and never cut."""
    return ".py:" in where and not where.startswith(UNPLACED)


def say_finding(row: Mapping[str, Any]) -> str:
    """Return what is wrong, behind the line that it is in, where that is known."""
    where = row["where"] or ""
    return f"{where}: {row['say']}" if has_line(where) else str(row["say"])


def finding_texts(row: Mapping[str, Any], step: Mapping[str, Any]) -> tuple[str, str]:
    """Return a finding's title with what it saves, and what to try; where, if that is no line."""
    where = row["where"] or ""
    todo = row["try"]
    if where and not has_line(where):
        is_file = ".py:" in where
        place = (
            where if is_file or len(where) <= 60 else short(where, 60)
        )  # a kernel's name is long
        place = place if where.startswith(UNPLACED) else f"at {place}"
        todo = f"{todo} ({place})"
    text = say_saving(row, step)
    if row["on_top_ms"] < 0.7 * row["saves_ms"]["expect"]:
        text += f", {ms(row['on_top_ms'])} after what comes before it"
    return f"{row['category']}: {text}", todo


def say_saving(row: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    """Return what fixing a finding saves: "saves about 19.4 ms of 22.8 (17.8 to 20.6)"."""
    saves, plain = row["saves_ms"], step["plain_ms"]["expect"]
    interval = f"{figures(saves['low'])} to {figures(saves['high'])}"
    return f"saves about {ms(saves['expect'])} of {figures(plain)} ({interval})"


def further(document: Mapping[str, Any]) -> Iterator[Block]:
    """Yield how to look at the counted kernel that matters most; what each rank does; notes."""
    named = list(chain.from_iterable(finding["kernels"] for finding in document["findings"]))
    counted = [row for row in document["kernels"] if row["counted"] and row["next"]]
    if best := min(counted, key=lambda r: (r["id"] not in named, -r["ms"]), default=None):
        yield TextLine(best["next"], f"{best['id']} in full")
    kernels = [row for row in document["kernels"] if row["grid"]]
    if kernels and kernels[0]["category"] == "unknown" and kernels[0].get("missing"):
        yield TextLine(kernels[0]["missing"], kernels[0]["id"])
    ranks = document["ranks"]
    shown = ranks if len(ranks) <= RANKS else sorted(ranks, key=lambda r: r["waiting_ms"])[:RANKS]
    for row in sorted(shown, key=lambda r: r["rank"]):
        transfer = row["collective_ms"] - row["waiting_ms"]
        yield TextLine(
            f"{ms(row['computing_ms'])} computing, {ms(row['collective_ms'])} in collectives: "
            f"{ms(transfer)} transfer, {ms(row['waiting_ms'])} waiting for others",
            f"rank {row['rank']}",
        )
    for text in document["notes"][:NOTES]:
        yield TextLine(text, "note")
    if text := say_lack_of_lines(document):
        yield TextLine(text, "lines")


def say_lack_of_lines(document: Mapping[str, Any]) -> str:
    """Say how to get lines of Python, of a trace that has none; empty where nothing is to be said."""
    program = document["program"]
    origins = document.get("origins", ())
    if program["how"] != "torch trace" or not origins:
        return ""
    has_functions = any(origin["function"] for origin in origins)
    if (program["device"] or "").startswith("AMD"):
        return "" if has_functions else f"no Python frames were recorded: {WITH_FRAMES}"
    if has_functions:
        return f"a trace knows functions, not lines: {WITH_LINES}"
    return f"no Python frames were recorded: {WITH_FRAMES}; {WITH_LINES}"


def ms(value: float) -> str:
    return f"{figures(value)} ms"


def steps_line(document: Mapping[str, Any]) -> str:
    """Return which step it is, how they spread, and what one takes without the profiler."""
    program, step = document["program"], document["step"]
    steps = f"the median of {program['steps']} steps ({step['found']}), "
    steps = steps if program["steps"] > 1 else f"one step ({step['found']}), "
    spread = f"{figures(step['min_ms'])} to {ms(step['max_ms'])}"
    plain = step["plain_ms"]
    if abs(plain["expect"] - step["ms"]) > 0.03 * step["ms"]:
        spread += f"; without the profiler about {format_interval(**plain)}"
    return steps + spread


def format_interval(expect: float, low: float, high: float) -> str:
    return f"{ms(expect)} ({figures(low)} to {figures(high)})"


def bar(step: Mapping[str, Any]) -> str:
    """Return the step as one line: # computes, other marks are idle time by its cause."""
    text = ""
    for cause, _, end, _ in step_parts(step):
        text += CAUSES[cause][0] * (round(BAR * end) - len(text))
    return f"[{text[:BAR].ljust(BAR)}]"


def step_shares(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each cause, and computing, with its part of the step."""
    for cause, begin, end, _ in step_parts(step):
        if cause == COMPUTING or end - begin >= 0.001:
            yield cause, f"{CAUSES[cause][1]} {end - begin:.1%}"


def step_parts(step: Mapping[str, Any]) -> Iterator[tuple[str, float, float, str]]:
    """Yield computing and each cause: begin and end as shares of the step, and what it is."""
    computing = {"cause": COMPUTING, "ms": step["gpu_busy_ms"], "where": ""}
    begin = 0.0
    for row in (computing, *step["idle"]):
        end = begin + row["ms"] / max(step["ms"], 1e-12)
        most = f", most of it {row['where']}" if row["where"] else ""
        yield row["cause"], begin, end, f"{row['cause']} {ms(row['ms'])}{most}"
        begin = end


def kernels_table(
    kernels: Sequence[Mapping[str, Any]], origins: Iterable[Mapping[str, Any]] = ()
) -> Grid:
    """Return kernels by time; what no kernel was counted for is no column."""
    lines: dict[str, set[str]] = {}
    for origin in origins:
        for name in origin["kernels"]:
            lines.setdefault(name, set()).add(origin["line"] or "")
    columns: Columns[Mapping[str, Any]] = {
        "": lambda row: row["id"],
        "kernel": lambda row: TextSpan(row["name"], "name"),
        "line": lambda row: name_source_line(row, len(lines.get(row["id"], ())) - 1),
        "kind": lambda row: row["category"],
        ">calls": lambda row: str(row["calls"]),
        ">per step": lambda row: ms(row["ms"]),
        ">share": lambda row: f"{row['share']:.1%}",
        "limit": lambda row: f"{row['bound']}: {row['limiter']}" if row["bound"] else "not counted",
        ">headroom": lambda row: f"{row['headroom']:.2f}x" if row["headroom"] else "",
    }
    return grid(kernels, columns)


def name_source_line(row: Mapping[str, Any], others: int = 0) -> str:
    """Name the line of most of a kernel's time, its module, and how many lines there are besides."""
    line = row.get("line")
    if not line:
        return ""
    module = f" {row['module']}" if row.get("module") else ""
    more = f" +{others}" if others > 0 else ""
    return f"{shorten_line(line)}{module}{more}"


# What a table can have a row of, besides a kernel -> how a row of "origins" is called there.
ORIGINS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "line": lambda row: shorten_line(row["line"] or ""),
    "module": lambda row: join_layers(row["module"] or ""),
    "operator": lambda row: row["op"] or "",
}
UNKNOWN = "not known"


def origins_table(document: Mapping[str, Any], by: str) -> Grid:
    """Return a step's GPU time by line, module or operator, what takes longest first."""
    limits = {row["id"]: row["limiter"] for row in document["kernels"]}
    rows: dict[str, dict[str, Any]] = {}
    for origin in document["origins"]:
        name = ORIGINS[by](origin) or UNKNOWN
        row = rows.setdefault(name, {"name": name, "ms": 0.0, "share": 0.0, "calls": 0})
        row.setdefault("function", origin["function"] or "")
        row.setdefault("part", Counter())[origin["part"] or ""] += origin["ms"]
        row.setdefault("limits", Counter())
        for key in ("ms", "share", "calls"):
            row[key] += origin[key]
        if limit := limits.get(origin["kernels"][0]):
            row["limits"][limit] += origin["ms"]
    ordered = sorted(rows.values(), key=lambda row: -row["ms"])
    columns: Columns[Mapping[str, Any]] = {
        by: lambda row: TextSpan(row["name"], "name"),
        "in": lambda row: row["function"] if by == "line" else "",
        "part": lambda row: " + ".join(part for part, _ in row["part"].most_common() if part),
        ">calls": lambda row: str(row["calls"]),
        ">per step": lambda row: ms(row["ms"]),
        ">share": lambda row: f"{row['share']:.1%}",
        "limit": lambda row: row["limits"].most_common(1)[0][0] if row["limits"] else "",
    }
    return grid(ordered[:GROUPS], columns)


def compared_triages(document: Mapping[str, Any]) -> Iterator[Block]:
    yield Heading(f"Step: {ms(document['before_ms'])} before, {ms(document['after_ms'])} after")
    saved = document["saved_ms"]
    yield TextLine(f"{ms(abs(saved))} {'saved' if saved >= 0 else 'lost'}", document["answer"])
    if document["kept"] is not None:
        side, mark = ("inside of", "kept") if document["kept"] else ("outside of", "broken")
        yield TextLine(f"what was saved is {side} what was predicted", mark)
    columns: Columns[Mapping[str, Any]] = {
        "finding": lambda row: row["category"],
        ">was to save": lambda row: format_interval(*row["said"]),
        "now": lambda row: row["state"],
        ">still to save": lambda row: ms(row["left"]),
    }
    yield grid(document["promises"], columns)
    for category in document["new"]:
        yield TextLine(f"{category} was not there before", "new")
    for text in document["notes"]:
        yield TextLine(text, "note")
