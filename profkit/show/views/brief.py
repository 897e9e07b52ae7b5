"""Rows of launches, or comparisons  ->  cause, place, number and next step in at most 500 tokens.

For an agent, a chat or a log line: plain text, one fact a line, nothing drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profkit.diagnosis.launches import Row
from profkit.diagnosis.rule import Finding
from profkit.evidence.comparison.compare import RunComparison
from profkit.evidence.comparison.counters import LaunchChange
from profkit.evidence.comparison.select import Compared
from profkit.show.text import figures
from profkit.show.text.blocks import plain_words
from profkit.show.text.names import short
from profkit.show.text.words import places_text
from profkit.show.views.comparison import arrow, changed_rules, leading, time_line
from profkit.show.views.headline import headline, next_commands

LONGEST = 2000  # characters: 500 tokens of English with numbers
ROWS, FINDINGS, METRICS = 3, 3, 3
_SENTENCE = 230  # characters of one fact


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
    return _cut(out)


def _finding(finding: Finding) -> str:
    where = f"; at {places_text(finding)}" if finding.where else ""
    return f"{finding.rule} ({figures.worth(finding)}): {finding.cause}{where}"


def brief_comparison(sides: Compared) -> str:
    """What became of the time, the findings and the counters that say why."""
    return _cut([line for change in sides.changes for line in _change(change)])


def _change(change: RunComparison) -> Iterator[str]:
    name = f"{change.before} -> {change.after}"
    if not change.compared:
        yield f"{name}: not compared: {'; '.join(r.sentence for r in change.refusals)}"
        return
    sentence, answer = time_line(change)
    yield f"{name}: {answer}: {sentence}"
    for launch in change.launches:
        yield from _launch(launch)


def _launch(launch: LaunchChange) -> Iterator[str]:
    yield f"bound: {arrow(*launch.bound)}"
    for line in changed_rules([launch]):
        yield f"{line.mark}: {plain_words(line.text)}"
    for moved in leading(launch, METRICS):
        sides = (figures.quantity(value, moved.unit) for value in (moved.before, moved.after))
        yield f"{moved.metric}: {' -> '.join(sides)}"


def _cut(lines: Sequence[str]) -> str:
    """The lines that fit, the long ones shortened; what is left out is counted."""
    kept, room = [], LONGEST - 30
    for line in lines:
        text = line if len(line) <= 2 * _SENTENCE else f"{line[: 2 * _SENTENCE - 1]}…"
        if room - len(text) - 1 < 0:
            break
        kept.append(text)
        room -= len(text) + 1
    more = [f"({len(lines) - len(kept)} more lines)"] if len(kept) < len(lines) else []
    return "\n".join([*kept, *more])
