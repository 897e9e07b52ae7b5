"""Judged launches  ->  blocks: the answer in three sentences, a table, the first rows in detail.

And the same as a brief for an agent: cause, place, number and next step in at most 500 tokens of
plain text, one fact a line, nothing drawn; and as the JSON document "profkit.diagnosis/1", whose keys
are added, never renamed. No NaN or Infinity gets into that.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from math import isfinite, nan
from os.path import basename
from typing import TYPE_CHECKING

from profkit.diagnosis.launches import HotLine, JudgedLaunch, LaunchRow, NvidiaRule
from profkit.diagnosis.rule import LaunchFinding
from profkit.records.paths import FULL
from profkit.reports import figures
from profkit.show.text import blocks, words
from profkit.show.text.blocks import Block, TextSpan, Words, get_plain_text, join_with_breaks
from profkit.show.text.escape import cut_middle, escape_text, shorten_name
from profkit.show.views.screen import describe_launch_in_line, show_measurement_doubts

if TYPE_CHECKING:
    from profkit.units import (
        Clause,
        CommandText,
        RuleName,
        Seconds,
        Sentence,
        TextOrEmpty,
    )


LISTED = 12  # rows of the table when not all are asked for
NVIDIA_SHOWN = 3  # rule results with the largest estimates; --json has them all
NAMED = 44  # characters of which launch it is
SMALL_SET = 3  # sections from which on it is one line that says --set full
ROWS, FINDINGS = 3, 3  # of a brief
_WITHOUT = "without --section "


def _has_line_data(run: JudgedLaunch) -> bool:
    """Return whether source lines are known of a launch, or of one of its findings."""
    return bool(run.lines) or any(finding.where for finding in run.diagnosis.findings)


def show_diagnosis(
    rows: Sequence[LaunchRow], rows_with_lines: Sequence[LaunchRow], *, list_all_rows: bool = False
) -> Iterator[Block]:
    """Yield everything that `profkit diagnose` says of these rows, worst first.

    `rows_with_lines` are the first of them, with their source lines, which follow the table one by one;
    `list_all_rows` lists every row in the table.
    """
    total = sum(row.total for row in rows)
    yield blocks.Paragraph(
        " ".join(words.write_headline([*rows_with_lines, *rows[len(rows_with_lines) :]]))
    )
    if list_all_rows:
        listed = rows
    else:
        listed = rows[: max(LISTED, len(rows_with_lines))]
    head = (">#", "kernel", "launch", ">time", ">share", "bound", "top finding", ">expected")
    cells = tuple(list_row_cells(number, row, total) for number, row in enumerate(listed, 1))
    yield blocks.Grid(head, cells, indent=0, narrow=True, spare=(">share", "bound", "launch"))
    yield blocks.Paragraph(TextSpan(write_launch_summary_line(listed, rows), "dim"))
    before = None
    for number, row in enumerate(rows_with_lines, 1):
        yield show_folded_verdict(row, number, total, before)
        before = row.median_launch
    lined = any(_has_line_data(row.median_launch) for row in rows_with_lines)
    if commands := list(suggest_next_commands(rows, lined)):
        yield blocks.Heading("Next", 2)
        yield from commands[:2]


def suggest_next_commands(
    rows: Sequence[LaunchRow], are_lines_shown: bool
) -> Iterator[blocks.Command]:
    """Yield the commands that lead on from the first row; with lines, if they are not shown yet."""
    if not rows:
        return
    run = rows[0].median_launch
    if run.status != "ok":
        yield blocks.Command(words.suggest_retry_command(run), "this kernel alone, in fewer passes")
        return
    if words.has_no_metrics(run):
        yield blocks.Command(FULL, "record a complete report")
    if fix := words.find_fix_to_name_first(run):
        yield blocks.Command(f"profkit explain {fix.rule}", "the cause, and how to fix it")
    if are_lines_shown:
        yield blocks.Command(
            f"profkit report {words.join_report_arguments(rows)} -o page.html", "a page to send"
        )
        return
    report = shlex.quote(escape_text(str(run.report)))
    kernel = re.match(r"\w+", shorten_name(run.kernel, words.NAME))
    only = ""
    if kernel and len(rows) > 1:
        only = f" --kernel {kernel.group()}"
    yield blocks.Command(f"profkit diagnose {report}{only} --lines 5", "the hottest source lines")


def write_brief_diagnosis(
    rows: Sequence[LaunchRow], onward: Sequence[str] | None = None
) -> TextOrEmpty:
    """Return the first row's answer, its further findings, and the rows behind it in a line each.

    The first rows have their source lines; `onward` is what to go on with, a line each (None takes
    commands of a shell).
    """
    if not rows:
        return ""
    first = rows[0]
    lines = words.write_headline(rows)
    if words.find_larger_gains(first.median_launch):
        lines = lines[:-1]  # what gains less is said below
    if len(rows) > 1:
        lines[0] = f"1. {lines[0]}"
    lines += _list_further_findings(first.median_launch)
    lines.append(f"Launch: {describe_launch_in_line(first)}")
    for number, row in enumerate(rows[1:ROWS], 2):
        lines.append(f"{number}. {_describe_row_briefly(row)}")
    if len(rows) > ROWS:
        rest = figures.format_seconds(sum(row.total for row in rows[ROWS:]))
        lines.append(f"{len(rows) - ROWS} more kernels: {rest}")
    lines += list_doubts_of_measurement(rows)
    if onward is None:
        onward = [f"Run: {command}" for command in list_commands_for_agents(first.median_launch)]
    return words.fit_lines_in_brief([*lines, *onward])


def _list_further_findings(run: JudgedLaunch) -> list[str]:
    """Return the findings besides the answer's, a line each, and what two of them are worth."""
    causes = []
    for finding in run.diagnosis.findings:
        if finding.status == "fires" and not finding.note and not finding.repeats:
            causes.append(finding)
    lines = []
    for finding in words.put_larger_gains_first(run, causes)[1:]:
        lines.append(f"Also: {_describe_finding_briefly(finding, run)}")
    lines = lines[: FINDINGS - 1]
    if run.diagnosis.together:
        lines.append(words.describe_combined_gain(run.diagnosis.together))
    return lines


def list_doubts_of_measurement(rows: Sequence[LaunchRow]) -> list[Sentence]:
    """Return what to doubt of the measurement, a line of plain text each."""
    lines = []
    for block in show_measurement_doubts(rows):
        lines.append(f"{block.mark}: {get_plain_text(block.text)}")
    return lines


def list_commands_for_agents(run: JudgedLaunch) -> list[CommandText]:
    """Return the commands that lead on from a launch, for one who reads no page."""
    if run.status != "ok":
        return [words.suggest_retry_command(run)]
    report = shlex.quote(escape_text(str(run.report)))
    commands = [f"profkit diagnose {report} --lines 5"]
    if words.has_no_metrics(run):
        return [FULL, *commands]
    rules = dict.fromkeys(f.rule for f in (words.find_fix_to_name_first(run), run.top) if f)
    return [*(f"profkit explain {rule}" for rule in rules), *commands]


def _describe_row_briefly(row: LaunchRow) -> str:
    run = row.median_launch
    time = "no duration"
    if row.known_times_sorted:
        time = figures.format_seconds(row.total)
    said = f"{shorten_name(run.kernel, 40)}, {time}"
    if not run.top:
        return f"{said}: {words.label_verdict(run)}"
    said += f": {_describe_finding_briefly(run.top)}"
    more = []
    for finding in words.find_larger_gains(run)[:2]:
        more.append(f"{finding.rule} {words.format_expected_gain(finding)}")
    if more:
        said += f"; more is expected from {' and '.join(more)}"
    return said


def _describe_finding_briefly(finding: LaunchFinding, told: JudgedLaunch | None = None) -> str:
    """Return a finding in a line; of the limit of a launch that was told of already, what to do."""
    where = ""
    if finding.where:
        where = f"; at {words.format_line_and_share(finding.where[0])}"
    if told is not None and finding is told.top:
        gain = words.describe_finding_gain(finding)
        advice = words.shorten_advice(finding.advice)
        return f"{finding.rule}, {gain}: {advice}"
    return f"{finding.rule}{words.describe_gain_and_cause(finding)}{where}"


# The table.


def write_launch_summary_line(
    shown_rows: Sequence[LaunchRow], all_rows: Sequence[LaunchRow]
) -> Sentence:
    """Return how many launches there are, their time, how many rows are listed and in what order."""
    hidden = ""
    if len(all_rows) > len(shown_rows):
        hidden = f"; {len(shown_rows)} of {len(all_rows)} rows shown (--all)"
    order = words.describe_row_order(all_rows)
    return f"{words.say_launches_and_time(all_rows)}{hidden}; {order}."


def list_row_cells(row_number: int, row: LaunchRow, total_seconds: Seconds) -> tuple[Words, ...]:
    """Return a row of the table; `total_seconds` is the time of all rows, in s."""
    run = row.median_launch
    if len(row.launches) > 1:
        launch = words.format_count_and_median(row)
    else:
        launch = words.name_launch_by_variant(run) or words.name_launch_by_report(run)
    return (
        str(row_number),
        TextSpan(run.kernel, "name"),
        TextSpan(cut_middle(escape_text(launch), NAMED), "dim"),
        figures.format_seconds(row.total) if row.known_times_sorted else "?",
        format_share_of_time(row, total_seconds),
        words.label_verdict(run),
        run.top.rule if run.top else "-",
        words.format_expected_gain(run.top),
    )


def format_share_of_time(row: LaunchRow, total_seconds: Seconds) -> TextOrEmpty:
    """Return a row's part of all time: 12.3 %, <0.1 %; "" where it has no duration."""
    part = 0.0
    if total_seconds:
        part = row.total / total_seconds
    if 0 < part < 0.0005:
        known = "<0.1 %"
    else:
        known = figures.format_share(part)
    if row.known_times_sorted:
        return known
    return ""


# One launch.


def show_folded_verdict(
    row: LaunchRow, row_number: int, total_seconds: Seconds, before: JudgedLaunch | None = None
) -> blocks.Fold:
    """Return the verdict on a row's launch of median time; `before` is that of the fold before."""
    run = row.median_launch
    if run.status == "ok":
        judged = words.say_verdict(run.diagnosis)
    else:
        judged = run.status
    title = (
        TextSpan(f"{row_number}. ", "strong"),
        TextSpan(run.kernel, "name"),
        TextSpan(f" {judged}", "strong"),
    )
    inside = (
        *show_launch_identity(row, total_seconds),
        *show_findings(run, before, listing=bool(run.lines)),
        *show_nvidia_rules(run.nvidia),
        *show_doubts(run),
        *(_list_hot_lines(run.lines) if run.lines else ()),
    )
    return blocks.Fold(title, inside, shown=row_number == 1)


def show_launch_identity(row: LaunchRow, total_seconds: Seconds) -> Iterator[Block]:
    """Yield which launch is shown of a row, where and how large it ran, and the verdict on it."""
    yield blocks.Paragraph(
        join_with_breaks(TextSpan(line, "dim") for line in list_launch_facts(row, total_seconds))
    )
    yield blocks.TextLine(
        f"{words.label_verdict(row.median_launch)}, {row.median_launch.diagnosis.because}",
        "verdict",
    )


def list_launch_facts(row: LaunchRow, total_seconds: Seconds) -> Iterator[str]:
    """Yield when and how a launch ran: time, part of all, sizes, device, clocks."""
    run = row.median_launch
    part = "duration not collected"
    if row.known_times_sorted:
        part = f"{format_share_of_time(row, total_seconds)} of all"
    if len(row.launches) > 1:
        times = words.format_count_and_times(row)
        yield f"{times}, {part}; median launch shown"
    elif row.known_times_sorted:
        yield f"{figures.format_seconds(run.time)}, {part}"
    else:
        yield part
    yield ", ".join(
        filter(None, (f"{run.report} launch {run.index}", words.name_launch_by_variant(run)))
    )
    sizes = f"grid {words.format_dims(run.grid)}, block {words.format_dims(run.block)}"
    yield f"{sizes}, {words.name_device(run)}, compute capability {run.cc or 'unknown'}"
    if resources := describe_resources_and_occupancy(run):
        yield resources


def describe_resources_and_occupancy(run: JudgedLaunch) -> str:
    """Return what a block takes and how full that lets an SM be, as far as it was collected."""
    counted = isfinite(run.values.get("occupancy", nan))
    forms = {
        "registers": ", {} registers per thread",
        "shared_block": ", {} shared memory per block",
        "occupancy": ", occupancy {}",
        "occupancy_limit": " of at most {}" if counted else ", occupancy at most {}",
    }
    known = {name: v for name in forms if isfinite(v := run.values.get(name, nan))}
    texts = (forms[name].format(words.format_metric(name, value)) for name, value in known.items())
    return "".join(texts).removeprefix(", ")


def show_page_findings(run: JudgedLaunch) -> Iterator[Block]:
    """Yield what fires, what is not known, and what to doubt of the measurement."""
    yield from show_findings(run, None, listing=False)
    yield from show_doubts(run)


def show_findings(
    run: JudgedLaunch, before: JudgedLaunch | None, *, listing: bool
) -> Iterator[blocks.ListItem]:
    """Yield what fires, and what is not known: in full only where the launch before says other."""
    for finding in run.diagnosis.findings:
        if finding.status == "fires" and not finding.note:
            yield show_firing_finding(finding, listing=listing)
    if both := run.diagnosis.together:
        yield blocks.ListItem(words.describe_combined_gain(both), bullet="+")
    for missing in run.diagnosis.missing:
        if missing.section:
            section = f"collect {missing.section}: "
        else:
            section = ""
        yield blocks.ListItem(f"{section}{missing.why}", bullet="?")
    unknown = _group_unknown_rules(run)
    if before and len(unknown) > 1 and _group_unknown_rules(before) == unknown:
        count = sum(map(len, unknown.values()))
        yield blocks.ListItem(f"not checked, as in the launch before: {count} rules", bullet="?")
        return
    for why, rules in unknown.items():
        yield blocks.ListItem(
            (f"not checked {why}: ", TextSpan(", ".join(rules), "dim")), bullet="?"
        )


def _group_unknown_rules(run: JudgedLaunch) -> dict[Clause, list[RuleName]]:
    """Return the rules that could not be asked, by a clause that says why: "without --section X".

    Where many sections are missing the set was small, and one clause says so of all of them.
    """
    rules: dict[str, list[str]] = {}
    for finding in run.diagnosis.findings:
        if finding.status != "unknown":
            continue
        if finding.advice.startswith("--section"):
            why = f"{_WITHOUT}{finding.advice.removeprefix('--section ')}"
        elif finding.advice == "profkit profile":
            why = "without the run record of profkit profile"
        else:
            why = f"because {finding.cause.partition(': ')[2]}"
        rules.setdefault(why, []).append(finding.rule)
    sections = [why for why in rules if why.startswith(_WITHOUT)]
    if len(sections) < SMALL_SET:
        return rules
    clause = f"without --set full ({', '.join(why.removeprefix(_WITHOUT) for why in sections)})"
    return {clause: list(chain.from_iterable(map(rules.pop, sections))), **rules}


def show_doubts(run: JudgedLaunch) -> Iterator[Block]:
    """Yield what to doubt of the measurement, apart from what the kernel does."""
    if doubts := [f for f in run.diagnosis.findings if f.status == "fires" and f.note]:
        yield blocks.Heading("About the measurement", 3)
        yield from map(show_firing_finding, doubts)


def show_firing_finding(finding: LaunchFinding, *, listing: bool = False) -> blocks.ListItem:
    """Return a finding that fires: what it is worth, why, the numbers, what to try and where."""
    under: list[Words] = []
    if known := {name: value for name, value in finding.evidence.items() if value is not None}:
        metrics = [f"{name} {words.format_metric(name, value)}, " for name, value in known.items()]
        metrics[-1] = metrics[-1].removesuffix(", ")
        under.append(tuple(TextSpan(text, "metric") for text in metrics))
    if finding.advice:
        under.append((TextSpan("try:", "note"), " ", finding.advice))
    where = TextSpan("where:", "note")
    if finding.where and listing:
        for line in finding.where:
            under.append(
                (
                    where,
                    f" {words.format_line_and_share(line)}  ",
                    TextSpan(line.source or "", "code"),
                )
            )
    elif finding.where:
        under.append((where, f" {words.format_finding_lines(finding)}"))
    return blocks.ListItem(
        (TextSpan(finding.rule, "rule"), words.describe_gain_and_cause(finding)), tuple(under)
    )


def show_nvidia_rules(results: Sequence[NvidiaRule]) -> Iterator[blocks.ListItem]:
    """Yield the results of NVIDIA's rules that carry an estimate, the largest few first."""
    estimated = sorted((r for r in results if r.speedup), key=lambda r: -(r.speedup or 0))
    for result in estimated[:NVIDIA_SHOWN]:
        of = "the time"
        if result.scope == "local":
            of = "its unit's time only"
        speedup = f" (estimate: {figures.format_share(result.speedup or 0)} of {of})"
        text = ("NVIDIA's ", TextSpan(result.rule, "code"), ": ", TextSpan(result.title, "code"))
        yield blocks.ListItem((*text, speedup))


def _list_hot_lines(lines: Sequence[HotLine]) -> Iterator[Block]:
    """Yield the lines with most samples, and under each what it was compiled to."""
    yield blocks.Heading("Hottest lines, by samples of the warps there", 3)
    for line in lines:
        yield _show_hot_line(line)


def _show_hot_line(line: HotLine) -> blocks.ListItem:
    place = line.text.strip()  # an instruction, where the report knows no lines
    instructions = line.sass
    if line.file:
        place = format_line_place(line)
    elif instructions:
        place = instructions[0].text
        instructions = ()
    title: list[TextSpan | str] = [
        f"{figures.format_share(line.share)} at ",
        TextSpan(place, "code"),
    ]
    call = words.describe_call_site(line)
    if call:
        title.append(f", {call}")
    if line.stall:
        state = words.spell_limiter(line.stall)
        title.append(f" ({figures.format_share(line.stall_share)} of it {state})")
    under: list[Words] = []
    if line.file:
        under.append(TextSpan(line.text.strip(), "code"))
    for instruction in instructions:
        share = figures.format_share(instruction.share)
        under.append((f"{share} ", TextSpan(instruction.text, "code")))
    return blocks.ListItem(tuple(title), tuple(under))


def format_line_place(line: HotLine) -> str:
    if line.file:
        return f"{basename(line.file)}:{line.line}"
    return "SASS"
