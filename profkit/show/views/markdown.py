"""Judged launches  ->  Markdown for a pull request or a job summary.

Names and paths are code spans; everything else out of a report is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import basename

from profkit.diagnosis.launches import Judged, Row
from profkit.diagnosis.rule import Finding, share
from profkit.show.text import figures
from profkit.show.text.escape import code, html, markdown
from profkit.show.text.names import short
from profkit.show.views.diagnosis import leading_nvidia, place, places, spread, summary, unknown

WIDTH = 60  # of a kernel name
_HEAD = "| # | kernel | time | share | bound | limiter | top finding | at most |"
_RULE = "|--:|---|--:|--:|---|---|---|--:|"


def render(rows: Sequence[Row], every: Sequence[Row]) -> str:
    """The table, then a folded diagnosis of each row.

    Args:
        rows: The rows to show, worst first.
        every: All rows, which the shares of time refer to.
    """
    total = sum(row.total for row in every)
    out = [_HEAD, _RULE, *(_row(n, row, total) for n, row in enumerate(rows, 1))]
    out += ["", f"{summary(rows, every)}"]
    for number, row in enumerate(rows, 1):
        out += ["", *_details(number, row)]
    return "\n".join(out) + "\n"


def _row(number: int, row: Row, total: float) -> str:
    run, found = row.shown, row.shown.diagnosis
    times = f" {spread(row)}" if len(row.launches) > 1 else ""
    cells = (
        str(number),
        code(short(run.kernel, WIDTH), in_table=True) + times,
        figures.seconds(row.total) if row.times else "?",
        share(row.total / total) if total and row.times else "",
        found.bound if run.status == "ok" else run.status,
        markdown(found.limiter or ""),
        run.top.rule if run.top else "",
        figures.times(run.top.gain) if run.top else "",
    )
    return f"| {' | '.join(cells)} |"


def _details(number: int, row: Row) -> Iterator[str]:
    run, found = row.shown, row.shown.diagnosis
    limiter = f" {found.limiter}" if found.limiter else ""
    yield f"<details><summary>{number}. <code>{html(short(run.kernel, WIDTH))}</code>: "
    yield f"{html(found.bound + limiter)}</summary>"
    yield ""
    yield f"**{found.bound}{markdown(limiter)}**: {markdown(found.because)}"
    yield ""
    yield (
        f"{code(basename(run.report))} launch {run.index}, grid {figures.dims(run.grid)}, "
        f"block {figures.dims(run.block)}, {code(run.device or 'device unknown')}"
    )
    yield ""
    yield from (x for f in found.findings if f.status == "fires" for x in _firing(f))
    yield from _rest(run)
    yield ""
    yield "</details>"


def _firing(found: Finding) -> Iterator[str]:
    yield f"- **{found.rule}** ({figures.gain(found.gain)}): {markdown(found.cause)}"
    numbers = [
        f"{code(name)} {value}"
        for name, value in figures.evidence(found.evidence)
        if value != figures.NOT_COLLECTED
    ]
    if numbers:
        yield f"  <br>{', '.join(numbers)}"
    if found.advice:
        yield f"  <br>_try:_ {markdown(found.advice)}"
    if found.where:
        yield f"  <br>_where:_ {code(places(found))}"


def _rest(run: Judged) -> Iterator[str]:
    for missing in run.diagnosis.missing:
        section = f"collect {code(missing.section)}: " if missing.section else ""
        yield f"- _unknown:_ {section}{markdown(missing.why)}"
    for need, rules in unknown(run).items():
        yield f"- _not known without {markdown(need)}:_ {', '.join(rules)}"
    for found in leading_nvidia(run.nvidia):
        yield (
            f"- NVIDIA's {code(found.rule)}: {code(found.title)} "
            f"(Est. Speedup {share(found.speedup or 0)})"
        )
    if run.lines:
        yield ""
        yield "| samples | leading stall | line | |"
        yield "|--:|---|---|---|"
    for line in run.lines:
        where, source = code(place(line), in_table=True), code(line.text.strip(), in_table=True)
        yield f"| {share(line.share)} | {markdown(line.stall)} | {where} | {source} |"
