"""Judged launches  ->  blocks: the answer in three sentences, a table, the first rows in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, nan
from os.path import basename

from profkit.diagnosis.launches import HotLine, Judged, NvidiaRule, Row
from profkit.diagnosis.rule import Finding
from profkit.show.text import figures
from profkit.show.text.blocks import (
    BREAK,
    Block,
    Fold,
    Grid,
    Heading,
    ListItem,
    Paragraph,
    TextLine,
    TextSpan,
    Words,
)
from profkit.show.text.escape import escaped
from profkit.show.text.names import middle
from profkit.show.text.words import (
    bound_by,
    device_of,
    finding_words,
    in_report,
    listed,
    named,
    places_text,
)
from profkit.show.views.brief import headline, next_commands

NAMED = 40  # characters of which launch it is
LISTED = 12  # rows of the table when not all are asked for
NVIDIA_SHOWN = 3  # rule results with the largest estimates; --json has them all
SMALL_SET = 3  # sections from which on it is one line that says --set full
_WITHOUT = "without --section "
ORDER = "worst first: by the time that mending the top finding is expected to save"


def told(rows: Sequence[Row], detailed: Sequence[Row], *, full: bool = False) -> Iterator[Block]:
    """Everything that `profkit diagnose` says of these rows, worst first.

    Args:
        rows: What the table lists.
        detailed: The first of them, with their source lines: these follow the table one by one.
        full: Every row stands in the table.
    """
    total = sum(row.total for row in rows)
    yield Paragraph(" ".join(headline([*detailed, *rows[len(detailed) :]])))
    listed = rows if full else rows[: max(LISTED, len(detailed))]
    yield overview(listed, total)
    yield Paragraph(TextSpan(diagnosis_summary(listed, rows), "dim"))
    before = None
    for number, row in enumerate(detailed, 1):
        yield diagnosis(row, number, total, before)
        before = row.shown
    lined = any(f.where for row in detailed for f in row.shown.diagnosis.findings)
    commands = list(next_commands(rows, lined or any(r.shown.lines for r in detailed)))
    if commands:
        yield Heading("Next", 2)
        yield from commands[:2]


def diagnosis_summary(listed: Sequence[Row], rows: Sequence[Row]) -> str:
    """How much was read, what is listed of it, and what the order means."""
    launches = sum(len(row.launches) for row in rows)
    timed = any(row.times for row in rows)
    total = f"{figures.seconds(sum(row.total for row in rows))} in all" if timed else "no durations"
    hidden = f"; {len(listed)} of {len(rows)} rows shown (--all)" if len(rows) > len(listed) else ""
    return f"{figures.counted(launches, 'launch', 'launches')}, {total}{hidden}; {ORDER}."


def overview(rows: Sequence[Row], total: float) -> Grid:
    """The table of rows, worst first; shares are of `total` seconds."""
    head = (
        ">#",
        "kernel",
        "launch",
        ">time",
        ">share",
        "bound",
        "top finding",
        f">{figures.WORTH}",
    )
    cells = (_cells(number, row, total) for number, row in enumerate(rows, 1))
    return Grid(head, tuple(cells), indent=0, narrow=True)


def _cells(number: int, row: Row, total: float) -> tuple[Words, ...]:
    run = row.shown
    launch = spread(row) if len(row.launches) > 1 else named(run) or in_report(run)
    return (
        str(number),
        TextSpan(run.kernel, "name"),
        TextSpan(middle(escaped(launch), NAMED), "dim"),
        figures.seconds(row.total) if row.times else "?",
        _part(row, total) if row.times else "",
        figures.bound(run.diagnosis, run.status),
        run.top.rule if run.top else "-",
        figures.top(run.top),
    )


def _part(row: Row, total: float) -> str:
    """A row's share of all time."""
    part = row.total / total if total else 0.0
    return "<0.1 %" if 0 < part < 0.0005 else figures.share(part)


def spread(row: Row) -> str:
    """How often and how long: "105x 17.2-17.4-17.8 µs" (shortest, median, longest)."""
    if not row.times:
        return f"{len(row.launches)}x"
    mid = row.shown.time
    size = next((f for f in (1.0, 1e-3, 1e-6) if mid >= f), 1e-9)
    noun = figures.seconds(size).split()[1]
    times = "-".join(figures.figures(t / size) for t in (row.times[0], mid, row.times[-1]))
    return f"{len(row.launches)}x {times} {noun}"


def diagnosis(row: Row, number: int, total: float, before: Judged | None = None) -> Fold:
    """The verdict on a row's launch of median time; `before` is the launch of the fold before."""
    run = row.shown
    judged = bound_by(run.diagnosis) if run.status == "ok" else run.status
    title = (
        TextSpan(f"{number}. ", "strong"),
        TextSpan(run.kernel, "name"),
        TextSpan(f" {judged}", "strong"),
    )
    blocks = (
        *launch_blocks(row, total),
        *_findings(run, before, listing=bool(run.lines)),
        *_nvidia(run.nvidia),
        *_doubts(run),
        *_lines(run.lines),
    )
    return Fold(title, blocks, shown=number == 1)


def launch_blocks(row: Row, total: float) -> Iterator[Block]:
    """Which launch is shown of a row, where and how large it ran, and the verdict on it."""
    run = row.shown
    identity: list[str | TextSpan] = []
    for line in _identity(row, total):
        identity += [TextSpan(line, "dim"), BREAK]
    yield Paragraph(tuple(identity[:-1]))
    yield TextLine(
        f"{figures.bound(run.diagnosis, run.status)}, {run.diagnosis.because}", "verdict"
    )


def _identity(row: Row, total: float) -> Iterator[str]:
    run = row.shown
    part = f"{_part(row, total)} of all" if row.times else "duration not collected"
    if len(row.launches) > 1:
        yield f"{spread(row)} (shortest, median, longest), {part}; here the median one"
    else:
        yield f"{figures.seconds(run.time)}, {part}" if row.times else part
    yield ", ".join(filter(None, (f"{run.report} launch {run.index}", named(run))))
    sizes = f"grid {figures.dims(run.grid)}, block {figures.dims(run.block)}"
    yield f"{sizes}, {device_of(run)}, compute capability {run.cc or 'unknown'}"
    if resources := _resources(run):
        yield resources


def _resources(run: Judged) -> str:
    """What a block takes and how full that lets an SM be, as far as it was collected."""
    counted = isfinite(run.values.get("occupancy", nan))
    forms = (
        ("registers", ", {} registers per thread"),
        ("shared_block", ", {} shared memory per block"),
        ("occupancy", ", occupancy {}"),
        ("occupancy_limit", " of at most {}" if counted else ", occupancy at most {}"),
    )
    known = {m: v for m, _ in forms if isfinite(v := run.values.get(m, nan))}
    texts = (form.format(figures.metric_text(m, known[m])) for m, form in forms if m in known)
    return "".join(texts).removeprefix(", ")


def _firing(run: Judged, *, doubts: bool) -> list[Finding]:
    """The findings that fire: of the kernel, or those that doubt the measurement."""
    firing = [f for f in run.diagnosis.findings if f.status == "fires"]
    return [f for f in firing if f.note == doubts]


def finding_blocks(run: Judged) -> Iterator[Block]:
    """What fires, what is not known, and what to doubt of the measurement."""
    yield from _findings(run, None, listing=False)
    yield from _doubts(run)


def _findings(run: Judged, before: Judged | None, *, listing: bool) -> Iterator[ListItem]:
    """What fires, and what is not known: in full only where the launch before says other."""
    yield from (firing_item(f, listing=listing) for f in _firing(run, doubts=False))
    for missing in run.diagnosis.missing:
        section = f"collect {missing.section}: " if missing.section else ""
        yield ListItem(f"{section}{missing.why}", bullet="?")
    needs = _by_set(unasked_rules(run))
    if before and len(needs) > 1 and unasked_rules(before) == unasked_rules(run):
        count = sum(map(len, needs.values()))
        yield ListItem(f"not known, as of the launch before: {count} rules", bullet="?")
        return
    for need, rules in needs.items():
        yield ListItem((f"not known {need}: ", TextSpan(", ".join(rules), "dim")), bullet="?")


def _by_set(needs: dict[str, list[str]]) -> dict[str, list[str]]:
    """The same with one clause for sections where so many are missing that the set was small."""
    sections = {need: rules for need, rules in needs.items() if need.startswith(_WITHOUT)}
    if len(sections) < SMALL_SET:
        return needs
    named = ", ".join(need.removeprefix(_WITHOUT) for need in sections)
    clause = f"without --set full ({named})"
    rest = {need: rules for need, rules in needs.items() if need not in sections}
    return {clause: [rule for rules in sections.values() for rule in rules], **rest}


def _doubts(run: Judged) -> Iterator[Block]:
    """What to doubt of the measurement, apart from what the kernel does."""
    doubts = _firing(run, doubts=True)
    if doubts:
        yield Heading("About the measurement", 3)
        yield from map(firing_item, doubts)


def firing_item(finding: Finding, *, listing: bool = False) -> ListItem:
    """A finding that fires: what it is worth, why, the numbers, what to try and where."""
    known = {name: value for name, value in finding.evidence.items() if value is not None}
    numbers = [f"{name} {text}" for name, text in figures.evidence_texts(known)]
    commas = [", "] * (len(numbers) - 1) + [""]
    metrics = (TextSpan(a + b, "metric") for a, b in zip(numbers, commas, strict=False))
    return ListItem(
        (TextSpan(finding.rule, "rule"), finding_words(finding)),
        (
            *([tuple(metrics)] if numbers else []),
            *([(TextSpan("try:", "note"), " ", finding.advice)] if finding.advice else []),
            *_where(finding, listing=listing),
        ),
    )


def _where(finding: Finding, *, listing: bool) -> Iterator[Words]:
    mark = TextSpan("where:", "note")
    if finding.where and listing:
        for line, source in listed(finding):
            yield (mark, f" {line}  ", TextSpan(source, "code"))
    elif finding.where:
        yield (mark, f" {places_text(finding)}")


def unasked_rules(run: Judged) -> dict[str, list[str]]:
    """Rules that could not be asked, by a clause that says why: "without --section LaunchStats"."""
    needs: dict[str, list[str]] = {}
    for finding in run.diagnosis.findings:
        if finding.status == "unknown":
            needs.setdefault(_why(finding), []).append(finding.rule)
    return needs


def _why(finding: Finding) -> str:
    if finding.advice.startswith("--section"):
        return f"{_WITHOUT}{finding.advice.removeprefix('--section ')}"
    if finding.advice == "profkit profile":
        return "without the run record of profkit profile"
    return f"as {finding.cause.partition(': ')[2]}"


def leading_nvidia(results: Sequence[NvidiaRule]) -> list[NvidiaRule]:
    """The results of NVIDIA's rules that carry an estimate, the largest few first."""
    estimated = [r for r in results if r.speedup]
    return sorted(estimated, key=lambda r: -(r.speedup or 0))[:NVIDIA_SHOWN]


def _nvidia(results: Sequence[NvidiaRule]) -> Iterator[ListItem]:
    for result in leading_nvidia(results):
        part = " of a part of it" if result.scope == "local" else ""
        speedup = f"(Est. Speedup {figures.share(result.speedup or 0)}{part})"
        text = ("NVIDIA's ", TextSpan(result.rule, "code"), ": ", TextSpan(result.title, "code"))
        yield ListItem((*text, f" {speedup}"))


def _lines(lines: Sequence[HotLine]) -> Iterator[Grid]:
    """The hot lines as a table."""
    if lines:
        yield Grid(
            (">samples", "stall", "line", "source"), tuple(map(_line, lines)), wraps=3, indent=0
        )


def _line(line: HotLine) -> tuple[Words, ...]:
    return (
        figures.share(line.share),
        f"{line.stall} {figures.share(line.stall_share)}" if line.stall else "",
        TextSpan(middle(escaped(place_of(line)), 20), "code"),
        TextSpan(line.text.strip(), "code"),
    )


def place_of(line: HotLine) -> str:
    """Where a hot line is: "attention.cu:41", or that it is an instruction."""
    return f"{basename(line.file)}:{line.line}" if line.file else "SASS"
