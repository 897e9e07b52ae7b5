"""Judged launches  ->  a table that fits the terminal, then the diagnosis of each row.

Nothing here parses markup: text from a report goes into rich as Text, after `visible`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isfinite, nan
from os.path import basename

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profkit.diagnosis.launches import HotLine, Judged, NvidiaRule, Row
from profkit.diagnosis.rule import Finding, share
from profkit.show.text import figures
from profkit.show.text.escape import visible
from profkit.show.text.names import middle, short

# Columns that come and go with the terminal's width: two lines each, how wide, from which width on.
_COLUMNS = {
    "time": ("time\nshare", 8, 0),
    "bound": ("bound\nlimiter", 18, 48),
    "finding": ("top finding\nat most", 22, 72),
}
_STYLE = {"memory": "cyan", "compute": "green", "latency": "yellow", "launch": "red",
          "balanced": "blue", "unknown": "dim"}  # fmt: skip
_TRAILING = re.compile(r" +$", re.MULTILINE)  # rich fills every line up to the width
NVIDIA_SHOWN = 3  # rule results with the largest estimates; --json has them all
ORDER = "worst first: by the time that the top finding could save, time x (1 - 1 / gain)"


def console(*, width: int | None = None, stderr: bool = False) -> Console:
    """A console that obeys NO_COLOR and takes nothing in a text for markup.

    Args:
        width: Columns; those of the terminal when None, 80 in a pipe.
        stderr: For stderr instead of stdout.
    """
    return Console(width=width, stderr=stderr, markup=False, emoji=False, highlight=False)


def render(rows: Sequence[Row], every: Sequence[Row], on: Console) -> str:
    """The table, then the diagnosis of each row.

    Args:
        rows: The rows to show, worst first.
        every: All rows, which the shares of time refer to.
        on: Console whose width and colours it is for; nothing is printed.

    Returns:
        Text with line ends and, on a terminal with colours, escapes of its own making only.
    """
    total = sum(row.total for row in every)
    with on.capture() as captured:
        on.print(overview(rows, total, on.width))
        on.print(f"\n{summary(rows, every)}")
        for number, row in enumerate(rows, 1):
            on.print()
            for part in diagnosis(row, number, total, on.width):
                on.print(part)
    return _TRAILING.sub("", captured.get())


def summary(rows: Sequence[Row], every: Sequence[Row]) -> str:
    """How much was read, what is shown of it, and what the order means."""
    launches = sum(len(row.launches) for row in every)
    total = figures.seconds(sum(row.total for row in every))
    hidden = f"; {len(rows)} of {len(every)} rows shown" if len(every) > len(rows) else ""
    return f"{figures.counted(launches, 'launch', 'launches')}, {total} in all{hidden}; {ORDER}."


def overview(rows: Sequence[Row], total: float, width: int) -> Table:
    """The table of rows, two lines each.

    Args:
        rows: Worst first.
        total: Seconds that the shares of time refer to.
        width: Columns that there are.
    """
    shown = {name: c for name, c in _COLUMNS.items() if width >= c[2]}
    digits = len(str(len(rows)))
    room = max(width - digits - 1 - sum(wide + 1 for _, wide, _ in shown.values()), 12)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right", width=digits)
    table.add_column("kernel", width=room, no_wrap=True, overflow="ellipsis")
    for name, (head, wide, _) in shown.items():
        right = name == "time"
        table.add_column(head, width=wide, justify="right" if right else "left", no_wrap=True)
    for number, row in enumerate(rows, 1):
        kernel = Text(short(row.shown.kernel, room))
        kernel.append("\n" + middle(visible(_under(row)), room), "dim")
        cells = {"time": _time(row, total), "bound": _bound(row.shown), "finding": _top(row.shown)}
        table.add_row(str(number), kernel, *(cells[name] for name in shown))
    return table


def _under(row: Row) -> str:
    """The second line of a kernel: how often it ran, or which launch it is."""
    if len(row.launches) > 1:
        return f"  {spread(row)}"
    run = row.shown
    named = " ".join(filter(None, (run.variant, run.case)))
    return f"  {named or f'{basename(run.report)} #{run.index}'}"


def _time(row: Row, total: float) -> Text:
    if not row.times:
        return Text("?", "dim")
    return Text(f"{figures.seconds(row.total)}\n{_part(row, total)}")


def _part(row: Row, total: float) -> str:
    """A row's share of all time, to a tenth of a percent."""
    part = row.total / total if total else 0.0
    return "<0.1 %" if 0 < part < 0.0005 else f"{100 * part:.1f} %"


def _bound(run: Judged) -> Text:
    found = run.diagnosis
    text = Text(found.bound if run.status == "ok" else run.status, _STYLE[found.bound])
    return text.append(f"\n{found.limiter or ''}")


def _top(run: Judged) -> Text:
    return Text(f"{run.top.rule}\n{figures.times(run.top.gain)}" if run.top else "-")


def spread(row: Row) -> str:
    """How often and how long: "105x 17.2-17.4-17.8 µs" (shortest, median, longest)."""
    if not row.times:
        return f"{len(row.launches)}x"
    mid = row.shown.time
    size = next((f for f in (1.0, 1e-3, 1e-6) if mid >= f), 1e-9)
    noun = figures.seconds(size).split()[1]
    times = "-".join(figures.figures(t / size) for t in (row.times[0], mid, row.times[-1]))
    return f"{len(row.launches)}x {times} {noun}"


def diagnosis(row: Row, number: int, total: float, width: int) -> Iterator[RenderableType]:
    """The verdict on a row's launch of median time, part by part.

    Args:
        row: The launches.
        number: Its number in the table.
        total: Seconds that the share of time refers to.
        width: Columns that there are.
    """
    run, found = row.shown, row.shown.diagnosis
    head = Text(f"{number}  ", "bold").append(short(run.kernel, width - 6), "bold")
    yield head
    for line in _identity(row, total):
        yield _indent(Text(visible(line), "dim"))
    verdict = Text(found.bound, f"bold {_STYLE[found.bound]}")
    verdict.append(f" {found.limiter}" if found.limiter else "", "bold")
    yield _indent(verdict.append(f": {visible(found.because)}", "not bold"))
    for finding in found.findings:
        if finding.status == "fires":
            yield from _firing(finding)
    yield from _unknown(run)
    yield from _nvidia(run.nvidia)
    yield from _lines(run.lines, width - 3)


def _identity(row: Row, total: float) -> Iterator[str]:
    run = row.shown
    part = f"{_part(row, total)} of all" if row.times else "duration not collected"
    if len(row.launches) > 1:
        yield f"{spread(row)} (shortest, median, longest), {part}; here the median one"
    else:
        yield f"{figures.seconds(run.time)}, {part}" if row.times else part
    named = " ".join(filter(None, (run.variant, run.case)))
    yield f"{run.report} launch {run.index}" + (f", {named}" if named else "")
    yield (
        f"grid {figures.dims(run.grid)}, block {figures.dims(run.block)}, "
        f"{run.device or 'device unknown'}, compute capability {run.cc or 'unknown'}"
    )
    if resources := _resources(run):
        yield resources


def _resources(run: Judged) -> str:
    """What a block takes and how full that lets an SM be, as far as it was collected."""
    said = (
        ("registers", "{} registers per thread"),
        ("shared_block", "{} shared memory per block"),
        ("occupancy", "occupancy {}"),
        ("occupancy_limit", "of at most {}"),
    )
    known = {m: v for m, _ in said if isfinite(v := run.values.get(m, nan))}
    texts = (form.format(figures.metric(m, known[m])) for m, form in said if m in known)
    return ", ".join(texts).replace(", of at most", " of at most")


def _firing(found: Finding) -> Iterator[RenderableType]:
    head = Text(found.rule, "bold").append(f" ({figures.gain(found.gain)}): ", "not bold")
    yield _item("-", head.append(visible(found.cause), "not bold"))
    numbers = figures.evidence({k: v for k, v in found.evidence.items() if v is not None})
    if numbers:
        yield _indent(Text(", ".join(f"{name} {value}" for name, value in numbers), "dim"), 5)
    if found.advice:
        yield _indent(Text("try: ", "italic").append(found.advice, "not italic"), 5)
    if found.where:
        yield _indent(Text(f"where: {visible(places(found))}"), 5)


def places(found: Finding) -> str:
    """The first few lines where a finding happens: "attention.cu:41 (23.1 %), ..."."""
    return ", ".join(f"{basename(x.file)}:{x.line} ({share(x.share)})" for x in found.where[:3])


def _unknown(run: Judged) -> Iterator[RenderableType]:
    for missing in run.diagnosis.missing:
        section = f"collect {missing.section}: " if missing.section else ""
        yield _item("?", Text(f"{section}{missing.why}"))
    for need, rules in unknown(run).items():
        yield _item("?", Text(f"not known without {need}: ").append(", ".join(rules), "dim"))


def unknown(run: Judged) -> dict[str, list[str]]:
    """Rules that could not be asked, by what to collect for them."""
    out: dict[str, list[str]] = {}
    for found in run.diagnosis.findings:
        if found.status == "unknown":
            out.setdefault(_need(found.advice), []).append(found.rule)
    return out


def _need(advice: str) -> str:
    # The record is profkit's own, not one of ncu's sections.
    return "the run record of profkit profile" if advice.endswith("run record") else advice


def leading_nvidia(results: Sequence[NvidiaRule]) -> list[NvidiaRule]:
    """The results of NVIDIA's rules that carry an estimate, the largest few first."""
    estimated = [r for r in results if r.speedup]
    return sorted(estimated, key=lambda r: -(r.speedup or 0))[:NVIDIA_SHOWN]


def _nvidia(results: Sequence[NvidiaRule]) -> Iterator[RenderableType]:
    for found in leading_nvidia(results):
        where = " of a part of it" if found.scope == "local" else ""
        what = f"NVIDIA's {found.rule}: {found.title} (Est. Speedup {share(found.speedup or 0)}{where})"
        yield _item(" ", Text(visible(what), "dim"))


def _lines(lines: Sequence[HotLine], room: int) -> Iterator[RenderableType]:
    """The hot lines as a table of so many columns: the source takes what the others leave."""
    if not lines:
        return
    stalls = [f"{x.stall} {share(x.stall_share)}" for x in lines]
    places = [middle(visible(place(x)), 20) for x in lines]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("samples", width=7, min_width=7, justify="right", no_wrap=True)
    widths = [
        max(map(len, (head, *cells))) for head, cells in (("stall", stalls), ("line", places))
    ]
    table.add_column("stall", width=widths[0], no_wrap=True)
    table.add_column("line", width=widths[1], no_wrap=True)
    left = max(room - 7 - sum(widths) - 3, 8)
    table.add_column("", width=left, no_wrap=True, overflow="ellipsis")
    for line, stall, where in zip(lines, stalls, places, strict=True):
        source = Text(visible(line.text.strip()))
        table.add_row(share(line.share), stall, Text(where), source)
    yield _indent(table, 3)


def place(line: HotLine) -> str:
    """Where a hot line is: "attention.cu:41", or that it is an instruction."""
    return f"{basename(line.file)}:{line.line}" if line.file else "SASS"


def _item(mark: str, what: Text) -> Padding:
    """A list item, its lines under one another."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(mark, what)
    return _indent(grid, 3)


def _indent(what: RenderableType, by: int = 3) -> Padding:
    return Padding(what, (0, 0, 0, by))
