"""Judged launches  ->  blocks: the answer in three sentences, a table, the first rows in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    plain_words,
)
from profkit.show.text.escape import escaped
from profkit.show.text.names import middle, short
from profkit.show.text.words import bound_by, listed, places_text
from profkit.show.views.headline import headline, next_commands

NAME = 60  # characters of a kernel name where nothing else limits it
LEAST = 12  # characters of a kernel name in a table, however narrow
LISTED = 12  # rows of the table when not all are asked for
NVIDIA_SHOWN = 3  # rule results with the largest estimates; --json has them all
SMALL_SET = 3  # sections from which on it is one line that says --set full
_WITHOUT = "without --section "
ORDER = "worst first: by the time that mending the top finding is expected to save"
# Columns from which on the table has one line a row, has the finding's name, has the limiter.
_ONE_LINE, _WITH_FINDING, _WITH_LIMITER = 120, 72, 48


@dataclass(frozen=True)
class Asked:
    """What of the rows is shown, and for how wide a place."""

    detailed: Sequence[Row]  # the rows whose diagnosis follows the table: the first ones
    full: bool = False  # every row stands in the table
    width: int | None = None  # columns of a terminal; None where nothing limits them


def told(rows: Sequence[Row], asked: Asked) -> Iterator[Block]:
    """Everything that `profkit diagnose` says of these rows, worst first."""
    total = sum(row.total for row in rows)
    yield Paragraph(" ".join(headline([*asked.detailed, *rows[len(asked.detailed) :]])))
    listed = rows if asked.full else rows[: max(LISTED, len(asked.detailed))]
    yield overview(listed, total, asked.width)
    yield Paragraph(TextSpan(diagnosis_summary(listed, rows), "dim"))
    before = None
    for number, row in enumerate(asked.detailed, 1):
        yield diagnosis(row, number, total, asked.width, before)
        before = row.shown
    lined = any(f.where for row in asked.detailed for f in row.shown.diagnosis.findings)
    commands = list(next_commands(rows, lined or any(r.shown.lines for r in asked.detailed)))
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


def overview(rows: Sequence[Row], total: float, width: int | None) -> Grid:
    """The table of rows: one line each where there is room, else two.

    Args:
        rows: Worst first.
        total: Seconds that the shares of time refer to.
        width: Columns that there are; None for as many as it takes.
    """
    columns = _columns(rows, total, width)
    taken = sum(max(map(_longest, (head, *cells))) + 2 for head, cells in columns)
    digits = len(str(len(rows)))
    # However wide: the longest name makes blanks in every other row.
    room = NAME if width is None else min(max(width - taken - digits - 3, LEAST), NAME)
    stacked = width is not None and width < _ONE_LINE
    kernels = [_kernel(row, room, stacked) for row in rows]
    return Grid(
        (">#", "kernel", *(head for head, _ in columns)),
        tuple(
            (str(number), kernel, *(cells[number - 1] for _, cells in columns))
            for number, kernel in enumerate(kernels, 1)
        ),
        indent=0,
    )


def _longest(cell: Words) -> int:
    return max(map(len, plain_words(cell).split("\n")))


def _columns(
    rows: Sequence[Row], total: float, width: int | None
) -> list[tuple[Words, Sequence[Words]]]:
    """The columns behind the kernel's that fit: head and cells."""
    times = [figures.seconds(row.total) if row.times else "?" for row in rows]
    shares = [_part(row, total) if row.times else "" for row in rows]
    runs = [row.shown for row in rows]
    bounds = [figures.bound(run.diagnosis, run.status) for run in runs]
    findings = [run.top.rule if run.top else "-" for run in runs]
    worth = [figures.top(run.top) for run in runs]
    if width is None or width >= _ONE_LINE:
        return [(">time", times), (">share", shares), ("bound", bounds),
                ("top finding", findings), (f">{figures.WORTH}", worth)]  # fmt: skip
    over = [_stacked(first, second) for first, second in zip(times, shares, strict=True)]
    words, limiters = zip(*(b.partition(": ")[::2] for b in bounds), strict=True)
    if width < _WITH_LIMITER:
        return [(_stacked("bound", figures.WORTH), [*map(_stacked, words, worth)])]
    columns: list[tuple[Words, Sequence[Words]]] = [
        (_stacked(">time", "share"), over),
        (_stacked("bound", "limiter"), [*map(_stacked, words, limiters)]),
    ]
    if width < _WITH_FINDING:
        return [*columns, (f">{figures.WORTH}", [text.partition(" (")[0] for text in worth])]
    head = _stacked("top finding", figures.WORTH)
    return [*columns, (head, [*map(_stacked, findings, worth)])]


def _stacked(first: str, second: str) -> Words:
    return (first, BREAK, second) if second else first


def _kernel(row: Row, room: int, stacked: bool) -> Words:
    """A kernel's name, and how often it ran or which launch it is."""
    under = spread(row) if len(row.launches) > 1 else _named(row.shown)
    if stacked:
        beneath = middle(escaped(f"  {under}"), room)
        return (TextSpan(short(row.shown.kernel, room), "code"), BREAK, TextSpan(beneath, "dim"))
    left = max(room - len(under) - 2, LEAST)
    return (
        TextSpan(short(row.shown.kernel, left), "code"),
        "  ",
        TextSpan(middle(escaped(under), 40), "dim"),
    )


def _named(run: Judged) -> str:
    """Which launch it is: its variant and case, else its report."""
    named = " ".join(filter(None, (run.variant, run.case)))
    return named or f"{basename(run.report)} #{run.index}"


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


def diagnosis(
    row: Row, number: int, total: float, width: int | None = None, before: Judged | None = None
) -> Fold:
    """The verdict on a row's launch of median time."""
    run = row.shown
    judged = bound_by(run.diagnosis) if run.status == "ok" else run.status
    room = NAME if width is None else max(width - len(judged) - 6, min(width - 6, NAME // 2))
    name = short(run.kernel, max(room, LEAST))
    title = (
        TextSpan(f"{number}. ", "strong"),
        TextSpan(name, "code"),
        TextSpan(f" {judged}", "strong"),
    )
    identity: list[str | TextSpan] = []
    for line in _identity(row, total):
        identity += [TextSpan(line, "dim"), BREAK]
    return Fold(
        title,
        (
            Paragraph(tuple(identity[:-1])),
            TextLine(
                f"{figures.bound(run.diagnosis, run.status)}, {run.diagnosis.because}", "verdict"
            ),
            *_findings(run, before),
            *_nvidia(run.nvidia),
            *_doubts(run),
            *_lines(run.lines, width),
        ),
        shown=number == 1,
    )


def launch_facts(row: Row) -> Iterator[tuple[str, str]]:
    """Name and value of what identifies the launch that is shown, and of how often it ran."""
    run = row.shown
    yield "time under ncu", figures.seconds(run.time)
    if len(row.launches) > 1:
        yield "launches, the median shown", f"{spread(row)} (shortest, median, longest)"
    yield "report", f"{run.report} launch {run.index}"
    yield "grid", figures.dims(run.grid)
    yield "block", figures.dims(run.block)
    yield "device", run.device or "unknown"
    yield "compute capability", run.cc or "unknown"


def _identity(row: Row, total: float) -> Iterator[str]:
    run, facts = row.shown, dict(launch_facts(row))
    part = f"{_part(row, total)} of all" if row.times else "duration not collected"
    if len(row.launches) > 1:
        yield f"{facts['launches, the median shown']}, {part}; here the median one"
    else:
        yield f"{facts['time under ncu']}, {part}" if row.times else part
    named = " ".join(filter(None, (run.variant, run.case)))
    yield facts["report"] + (f", {named}" if named else "")
    device = run.device or "device unknown"
    sizes = f"grid {facts['grid']}, block {facts['block']}"
    yield f"{sizes}, {device}, compute capability {facts['compute capability']}"
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


def _findings(run: Judged, before: Judged | None) -> Iterator[ListItem]:
    """What fires, and what is not known: in full only where the launch before says other."""
    listing = bool(run.lines)
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
    worth = "" if finding.note else f" ({figures.worth(finding)})"
    known = {name: value for name, value in finding.evidence.items() if value is not None}
    numbers = ", ".join(f"{name} {text}" for name, text in figures.evidence_texts(known))
    return ListItem(
        (TextSpan(finding.rule, "strong"), f"{worth}: {finding.cause}"),
        (
            *([TextSpan(numbers, "dim")] if numbers else []),
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


def _lines(lines: Sequence[HotLine], width: int | None) -> Iterator[Grid]:
    """The hot lines as a table: the source takes what the others leave."""
    if not lines:
        return
    stalls = [f"{x.stall} {figures.share(x.stall_share)}" if x.stall else "" for x in lines]
    where = [middle(escaped(place_of(x)), 20) for x in lines]
    taken = 7 + max(map(len, stalls)) + max(map(len, where)) + 6 + 3
    room = NAME if width is None else max(width - taken, 8)
    yield Grid(
        (">samples", "stall", "line", ""),
        tuple(
            (
                figures.share(x.share),
                stall,
                TextSpan(at, "code"),
                TextSpan(_cut(x.text.strip(), room), "code"),
            )
            for x, stall, at in zip(lines, stalls, where, strict=True)
        ),
        indent=0,
    )


def _cut(text: str, room: int) -> str:
    text = escaped(text)
    return text if len(text) <= room else f"{text[: room - 1]}…"


def place_of(line: HotLine) -> str:
    """Where a hot line is: "attention.cu:41", or that it is an instruction."""
    return f"{basename(line.file)}:{line.line}" if line.file else "SASS"
