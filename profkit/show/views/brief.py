"""Rows of launches  ->  the answer in three sentences, what to run next, and a brief for an agent.

The brief has cause, place, number and next step in at most 500 tokens: plain text, one fact a line,
nothing drawn.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from os.path import basename

from profkit.diagnosis.launches import Judged, Row
from profkit.diagnosis.rule import Finding
from profkit.records.paths import FULL
from profkit.show.text import figures
from profkit.show.text.blocks import Command
from profkit.show.text.escape import escaped
from profkit.show.text.names import short
from profkit.show.text.words import bound_by, finding_words, places_text

LONGEST = 2000  # characters: 500 tokens of English with numbers
ROWS, FINDINGS = 3, 3
_SENTENCE = 230  # characters of one fact
NAME = 48  # characters of a kernel name in a sentence


def headline(rows: Sequence[Row]) -> list[str]:
    """What it is, where, what it is worth and what is next: at most three sentences."""
    if not rows:
        return []
    row = rows[0]
    run, top = row.shown, row.shown.top
    name = short(run.kernel, NAME)
    if run.status != "ok":
        return [f"{name} was not measured: {run.diagnosis.because}.", f"Next: {FULL}"]
    cause = top.cause if top else run.diagnosis.because
    what = f"{name} {bound_by(run.diagnosis)}: {cause}{_where(top)}."
    if top is None:
        return [what, _nothing(run)]
    return [what, _worth(row, rows, top), f"Next: {_first_sentence(top.advice)}"]


def _where(top: Finding | None) -> str:
    """The line that has most of it."""
    if top is None or not top.where:
        return ""
    line = top.where[0]
    return f"; {basename(line.file)}:{line.line} has {figures.share(line.share)} of it"


def _worth(row: Row, rows: Sequence[Row], top: Finding) -> str:
    if not row.times:
        return f"Mending that: {figures.worth(top)}."
    total = sum(every.total for every in rows)
    time = figures.seconds(row.total)
    of_all = f" of {figures.seconds(total)} in all" if len(rows) > 1 else f" of {time}"
    if row.saved <= 0:
        return f"It takes {time}{of_all if len(rows) > 1 else ''}; {figures.worth(top)}."
    return f"Mending that: {figures.worth(top)}; about {figures.seconds(row.saved)}{of_all}."


def _nothing(run: Judged) -> str:
    if run.diagnosis.bound == "unknown" or run.diagnosis.missing:
        return f"Next: collect what is missing, {FULL}"
    return "No rule finds a cause that could be mended: only less work helps."


def _first_sentence(advice: str) -> str:
    sentence = re.match(r".*?[.;](?=\s|$)", advice)
    return f"{(sentence.group() if sentence else advice).rstrip('.;')}."


def next_commands(rows: Sequence[Row], lines: bool) -> Iterator[Command]:
    """The two commands that lead on from the first row.

    Args:
        rows: Every row, worst first.
        lines: Whether source lines are shown already.
    """
    if not rows:
        return
    run = rows[0].shown
    if run.status != "ok" or run.diagnosis.bound == "unknown" or run.diagnosis.missing:
        yield Command(FULL, "makes the report that says more")
    if run.top:
        yield Command(f"profkit explain {run.top.rule}", "why, and what people do about it")
    report = shlex.quote(escaped(str(run.report)))
    if not lines:
        kernel = re.match(r"\w+", short(run.kernel, NAME))
        only = f" --kernel {kernel.group()}" if kernel and len(rows) > 1 else ""
        yield Command(f"profkit diagnose {report}{only} --lines 5", "the source lines that wait")
    else:
        yield Command(f"profkit report {report} -o page.html", "a page to send")


def brief_diagnosis(rows: Sequence[Row], onward: Sequence[str] | None = None) -> str:
    """The first row's answer, its further findings, and the rows behind it in a line each.

    Args:
        rows: Every row, worst first; the first ones with their source lines.
        onward: What to go on with, a line each; None takes commands of a shell.
    """
    if not rows:
        return ""
    run = rows[0].shown
    out = [*headline(rows)]
    firing = [f for f in run.diagnosis.findings[1:] if f.status == "fires"]
    further = [f for f in firing if not f.note]
    out += [f"Also: {_finding(finding)}" for finding in further[: FINDINGS - 1]]
    for number, row in enumerate(rows[1:ROWS], 2):
        judged, top = row.shown, row.shown.top
        what = f"; {_finding(top)}" if top else ""
        name = short(judged.kernel, 40)
        label = figures.bound(judged.diagnosis, judged.status)
        out.append(f"{number}. {name}, {figures.seconds(row.total)}, {label}{what}")
    if len(rows) > ROWS:
        rest = figures.seconds(sum(row.total for row in rows[ROWS:]))
        out.append(f"{len(rows) - ROWS} more kernels: {rest}")
    if onward is None:
        onward = [f"Run: {command.line}" for command in list(next_commands(rows, lines=True))[:2]]
    out += onward
    return cut_lines(out)


def _finding(finding: Finding) -> str:
    where = f"; at {places_text(finding)}" if finding.where else ""
    return f"{finding.rule}{finding_words(finding)}{where}"


def cut_lines(lines: Sequence[str]) -> str:
    """The lines that fit a brief, the long ones shortened; what is left out is counted."""
    kept, room = [], LONGEST - 30
    for line in lines:
        text = line if len(line) <= 2 * _SENTENCE else f"{line[: 2 * _SENTENCE - 1]}…"
        if room - len(text) - 1 < 0:
            break
        kept.append(text)
        room -= len(text) + 1
    more = [f"({len(lines) - len(kept)} more lines)"] if len(kept) < len(lines) else []
    return "\n".join([*kept, *more])
