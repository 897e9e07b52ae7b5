"""Judged launches  ->  one screen: the answer, a line per kernel, the worst one in short, what is open.

What `profkit diagnose` prints where nobody asked for more. Everything in detail is in diagnosis.py.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from os.path import basename
from typing import TYPE_CHECKING

from profkit.diagnosis.launches import JudgedLaunch, LaunchRow
from profkit.diagnosis.rule import LaunchFinding
from profkit.records.paths import FULL
from profkit.reports import figures
from profkit.show.text import blocks, words
from profkit.show.text.blocks import Block, TextSpan, Words
from profkit.show.text.escape import escape_text, shorten_name

if TYPE_CHECKING:
    from profkit.units import ClauseOrEmpty, FilePath, MetricName, TextOrEmpty


LISTED = 12  # rows of the table when not all are asked for
NVIDIA_SHOWN = 2  # rule results with the largest estimates; --json has them all
FURTHER = 2  # findings of a single row besides the one that leads, with their causes
EVIDENCE = 4  # figures of the one that leads
_REMEDIES = {  # how to record anew, for a doubt of the measurement
    "clocks-unsteady": "ncu locked it (--clock-control none prevents that), or a power limit lowered it",
    "cache-resident": "to avoid that, record with ncu --cache-control all",
}


def show_screen(rows: Sequence[LaunchRow], first: LaunchRow) -> Iterator[Block]:
    """Yield one screen about rows, the worst first; `first` is that one with its source lines."""
    shown = [first, *rows[1:]]
    yield blocks.Paragraph(words.highlight_answer(first, " ".join(words.write_headline(shown))))
    listed = shown[:LISTED]
    if (
        len(rows) > 1 or first.median_launch.status != "ok"
    ):  # else the answer and details say it all
        yield make_rows_grid(listed)
        yield blocks.Paragraph(TextSpan(_describe_listed_launches(rows, len(listed)), "dim"))
        yield from _list_larger_gains(listed)
        yield from _list_reports(listed)
    yield _show_first_row(first, FURTHER if len(rows) == 1 else 0)
    yield from show_measurement_doubts(rows)
    yield from _show_what_is_missing(rows)
    yield blocks.Heading("Next", 2)
    yield from _suggest_commands(rows, first)


# The table.


def make_rows_grid(rows: Sequence[LaunchRow]) -> blocks.Grid:
    """Return the table with a line per row; what tells launches apart only where names do not."""
    files = assign_report_letters(rows)
    names = Counter(row.median_launch.kernel for row in rows)
    cells = []
    for number, row in enumerate(rows, 1):
        cells.append(_list_row_cells(number, row, files, names))
    head = ("#", "kernel", "launch", ">calls", ">time", ">saves", "top finding", ">expected")
    spare = [">calls"]
    if len(names) == len(rows):
        spare.append("launch")
    return blocks.Grid(head, tuple(cells), indent=0, narrow=True, spare=tuple(spare))


def _list_row_cells(
    row_number: int,
    row: LaunchRow,
    letter_by_report: Mapping[str, str],
    count_by_kernel_name: Counter[str],
) -> tuple[Words, ...]:
    """Return a row of the table, with the letter of its report and how often its kernel is there."""
    run = row.median_launch
    launch = words.name_launch_by_variant(run)
    if not launch and len(letter_by_report) > 1:
        launch = f"{letter_by_report[run.report]}#{run.index}"
    elif not launch and count_by_kernel_name[run.kernel] > 1:
        launch = f"#{run.index}"
    time = "?"
    saves = ""
    star = ""
    if row.known_times_sorted:
        time = figures.format_seconds(row.total)
    if row.seconds_saved > 0:
        saves = figures.format_seconds(row.seconds_saved)
    if words.find_larger_gains(run):
        star = _STARRED
    return (
        str(row_number),
        TextSpan(run.kernel, "name"),
        TextSpan(launch, "dim"),
        _format_launch_count(row),
        time,
        saves,
        _get_rule_or_status(run),
        TextSpan(f"{format_gain_cell(run.top)}{star}", "gain"),
    )


_STARRED = "*"  # behind a gain, where another finding of the launch should gain more


def _list_larger_gains(rows: Sequence[LaunchRow]) -> Iterator[Block]:
    """Yield which findings should gain more than those that the table has, by its numbers."""
    said = []
    for number, row in enumerate(rows, 1):
        larger = words.find_larger_gains(row.median_launch)
        gains = []
        for finding in larger:
            gains.append(f"{finding.rule} {format_gain_cell(finding)}")
        if gains:
            said.append(f"row {number} from {', '.join(gains)}")
    if said:
        yield blocks.Paragraph(TextSpan(f"* more is expected in {'; '.join(said)}", "dim"))


def assign_report_letters(rows: Sequence[LaunchRow]) -> dict[FilePath, str]:
    """Return report -> the letter that the table has for it, in the order of its rows."""
    reports = dict.fromkeys(row.median_launch.report for row in rows)
    return {report: chr(ord("a") + n) for n, report in enumerate(reports)}


def _list_reports(rows: Sequence[LaunchRow]) -> Iterator[Block]:
    """Yield which report each letter of the table is, where that is not said by its variant."""
    files = assign_report_letters(rows)
    if len(files) < 2 or all(words.name_launch_by_variant(row.median_launch) for row in rows):
        return
    for report, letter in files.items():
        yield blocks.TextLine(TextSpan(escape_text(basename(report)), "dim"), letter)


def _format_launch_count(row: LaunchRow) -> TextOrEmpty:
    if len(row.launches) > 1:
        return str(len(row.launches))
    return ""


def _get_rule_or_status(run: JudgedLaunch) -> str:
    """Return the rule that leads; of a launch without counters that it failed."""
    if run.status != "ok":
        return run.status
    if run.top:
        return run.top.rule
    return "-"


def format_gain_cell(finding: LaunchFinding | None) -> TextOrEmpty:
    """Return what a fix is worth briefly: "2.01x", "2.6-8.9x", "<= 1.2x", "at limit"."""
    if finding is None:
        return ""
    if finding.at_roof:
        return "at limit"
    if finding.measured_reachable_gain is not None:
        return figures.format_speedup(finding.measured_reachable_gain)
    hope = finding.expect
    if hope is None:
        if finding.gain:
            return f"<= {figures.format_speedup(finding.gain)}"
        return "unknown"
    if hope.is_wide:
        return f"{figures.format_three_figures(hope.low)}-{figures.format_speedup(hope.high)}"
    return figures.format_speedup(hope.gain)


def _describe_listed_launches(rows: Sequence[LaunchRow], listed_row_count: int) -> str:
    said = words.say_launches_and_time(rows)
    if len(rows) > listed_row_count:
        said += f"; {listed_row_count} of {len(rows)} rows shown (--all)"
    if len(rows) > 1:
        said += f"; {words.describe_row_order(rows)}"
    return f"{said}."


# The first row in short.


def _show_first_row(row: LaunchRow, most_further_findings: int) -> blocks.Fold:
    """Return a row in short; so many findings have a line, all others one together."""
    run = row.median_launch
    title = TextSpan(
        f"{shorten_name(run.kernel, words.NAME)}: {_describe_verdict_figures(run)}", "strong"
    )
    causes = [f for f in run.diagnosis.findings if f.status == "fires" and not f.note]
    own_causes = [finding for finding in causes if not finding.repeats]
    firing = words.put_larger_gains_first(run, own_causes)
    inside: list[Block] = [
        blocks.Paragraph(TextSpan(describe_launch_in_line(row), "dim")),
        *(_show_rest_of_leading_finding(finding, causes, run) for finding in firing[:1]),
        *(_show_further_finding(finding, run) for finding in firing[1 : 1 + most_further_findings]),
    ]
    if both := run.diagnosis.together:
        inside.append(blocks.ListItem(words.describe_combined_gain(both), bullet="+"))
    if rest := firing[1 + most_further_findings :]:
        listed = "; ".join(f"{f.rule}, {_say_gain_briefly(f)}" for f in rest)
        inside.append(blocks.ListItem(f"also: {listed}"))
    if estimates := _say_nvidia_estimates(run):
        inside.append(blocks.ListItem(estimates))
    return blocks.Fold(title, tuple(inside), shown=True)


def _describe_verdict_figures(run: JudgedLaunch) -> str:
    """Return the numbers that decide; the verdict alone where the answer has said them."""
    because = run.diagnosis.because
    if not run.top:
        return because
    # The rest of the sentence: "nothing is near its peak (...), and the warps spend ... waiting".
    rest, said, _ = because.partition(run.top.cause.partition("; ")[0])
    if not said:
        return because
    return rest.removesuffix(", and the ") or words.BOUNDS[run.diagnosis.bound]


def describe_launch_in_line(row: LaunchRow) -> str:
    """Return time, sizes and device of a launch in one line."""
    run = row.median_launch
    if row.known_times_sorted:
        time = figures.format_seconds(run.time)
    else:
        time = "duration not collected"
    if len(row.launches) > 1:
        time = words.format_count_and_times(row)
    parts = [time, f"grid {words.format_dims(run.grid)}", f"block {words.format_dims(run.block)}"]
    parts += [words.name_device(run), words.name_launch_by_variant(run)]
    return ", ".join(filter(None, parts))


def _show_rest_of_leading_finding(
    finding: LaunchFinding, firing_findings: Sequence[LaunchFinding], run: JudgedLaunch
) -> blocks.ListItem:
    """Return the finding that the answer is about: its figures and places, which that leaves out.

    A unit of `firing_findings` that is full of its work is the same finding again, and is said in a
    line. How full it is stands above.
    """
    under: list[Words] = []
    first_clause = words.shorten_cause(finding.cause)  # which the answer has
    if finding.cause != first_clause:
        under.append(finding.cause[len(first_clause) + 2 :])
    if known := _choose_evidence(finding, run):
        under.append(TextSpan(words.format_metric_values(known), "metric"))
    if finding.where:
        under.append((TextSpan("where:", "note"), f" {words.format_finding_lines(finding)}"))
    advice = words.get_first_clause_of_advice(finding.advice)
    if len(advice) > len(words.shorten_advice(finding.advice)):
        under.append((TextSpan("try:", "note"), f" {advice}"))
    under += _iterate_clauses_on_same_work(finding, firing_findings)
    gain = TextSpan(words.describe_finding_gain(finding), "gain")
    text = (TextSpan(finding.rule, "rule"), ": ", gain)
    return blocks.ListItem(text, tuple(under))


def _choose_evidence(finding: LaunchFinding, run: JudgedLaunch) -> dict[MetricName, float | None]:
    """Return the first figures of a finding, without how full the unit is that the title names."""
    said_above = {f"{unit}_busy" for unit in (run.diagnosis.limiter or "").split("+")}
    chosen: dict[str, float | None] = {}
    for name, value in finding.evidence.items():
        if value is not None and name not in said_above and len(chosen) < EVIDENCE:
            chosen[name] = value
    return chosen


def _iterate_clauses_on_same_work(
    finding: LaunchFinding, all_causes: Sequence[LaunchFinding]
) -> Iterator[str]:
    """Yield the units that are full of the work of a finding."""
    for other in all_causes:
        if other.repeats == finding.rule:
            yield f"{other.rule} has the same cause: {other.cause.partition(';')[0]}"


def _show_further_finding(finding: LaunchFinding, run: JudgedLaunch) -> blocks.ListItem:
    """Return a finding in a line with its cause; of the limit, which the answer has, what to do."""
    cause = finding.cause
    if finding is run.top:
        cause = words.shorten_advice(finding.advice)
    if finding.where:
        place = f"; {words.format_line_and_share(finding.where[0])}"
    else:
        place = ""
    gain = TextSpan(_say_gain_briefly(finding), "gain")
    text = (TextSpan(finding.rule, "rule"), ", ", gain, f": {cause}{place}")
    return blocks.ListItem(text)


def _say_gain_briefly(finding: LaunchFinding) -> str:
    """Return what a fix is worth: "expect 1.80x (1.40 to 2.20), at most 3.10x", "at limit"."""
    if finding.at_roof or finding.measured_reachable_gain is not None:
        return format_gain_cell(finding)
    return words.describe_finding_gain(finding).removesuffix(words.ABLATE)


def _say_nvidia_estimates(run: JudgedLaunch) -> ClauseOrEmpty:
    """Return the largest estimates of NVIDIA's rules in one line; "" where there is none.

    Local ones are of a unit's own time, which says nothing of the launch's: --all has them.
    """
    estimated = [rule for rule in run.nvidia if rule.speedup and rule.scope != "local"]
    estimated.sort(key=lambda rule: -(rule.speedup or 0))
    if not estimated:
        return ""
    said = []
    for result in estimated[:NVIDIA_SHOWN]:
        said.append(f"{result.rule} {figures.format_share(result.speedup or 0)}")
    said[0] += " of the time"
    return f"ncu's own rules, for comparison: {', '.join(said)}"


# What is open, once for all launches.

_Doubtful = tuple[JudgedLaunch, LaunchFinding]  # a launch, and what to doubt of its measurement


def show_measurement_doubts(rows: Sequence[LaunchRow]) -> Iterator[blocks.TextLine]:
    """Yield what to doubt of the measurement, a line for each rule about it."""
    runs = _list_unfailed_launches(rows)
    doubts: dict[str, list[_Doubtful]] = {}
    for run in runs:
        for finding in run.diagnosis.findings:
            if finding.status == "fires" and finding.note:
                doubts.setdefault(finding.rule, []).append((run, finding))
    for rule, found in doubts.items():
        remedy = _REMEDIES.get(rule, f"profkit explain {rule}")
        name, (_, first) = rule, found[0]
        if rule == "clocks-unsteady":
            name = "counters" if "counters" in first.cause else "clocks"
            if "ncu locks" not in first.cause:
                remedy = f"profkit explain {rule}"
        yield blocks.TextLine(f"{_describe_doubt(found, len(runs))}; {remedy}", name)


def _list_unfailed_launches(rows: Sequence[LaunchRow]) -> list[JudgedLaunch]:
    measured = []
    for row in rows:
        for run in row.launches:
            if run.status == "ok":
                measured.append(run)
    return measured


def _show_what_is_missing(rows: Sequence[LaunchRow]) -> Iterator[Block]:
    """Yield what was not collected, or not checked for lack of counters."""
    runs = _list_unfailed_launches(rows)
    missing = list(dict.fromkeys(chain.from_iterable(map(_list_missing_sections, runs))))
    if missing:
        yield blocks.TextLine(f"{', '.join(missing)}; to collect: ncu --set full", "not collected")
    elif unchecked := _say_unchecked(runs):
        yield blocks.TextLine(unchecked, "not checked")


def _describe_doubt(doubtful: Sequence[_Doubtful], launches: int) -> str:
    """Return a doubt with its launches: by name where it is one of several, else how many they are.

    Where their figures differ those of the first are said.
    """
    causes = [finding.cause.partition(": ")[0] for _, finding in doubtful]
    if launches == 1:
        return causes[0]
    if len(doubtful) == 1:
        return f"in {shorten_name(doubtful[0][0].kernel, words.NAME)} {causes[0]}"
    part = _say_part_of_launches(len(doubtful), launches) or _name_all_launches(launches)
    if len(set(causes)) == 1:
        return f"{part} {causes[0]}"
    return f"{part}; in the first, {causes[0]}"


def _name_all_launches(count: int) -> str:
    """Return "in both launches", "in all 5 launches"."""
    if count == 2:
        return "in both launches"
    return f"in all {count} launches"


def _say_part_of_launches(count: int, total: int) -> TextOrEmpty:
    """Return "in 2 of 5 launches"; "" for all of them."""
    if count < total:
        return f"in {count} of {total} launches"
    return ""


def _say_unchecked(runs: Sequence[JudgedLaunch]) -> ClauseOrEmpty:
    """Return how many rules lack counters, and the sections of ncu that have these; "" for none."""
    rules = set[str]()
    sections = dict[str, None]()
    lacking = 0
    for run in runs:
        unknown = [f for f in run.diagnosis.findings if f.status == "unknown"]
        lacking += bool(unknown)
        for finding in unknown:
            rules.add(finding.rule)
            if finding.advice.startswith("--section"):
                sections[finding.advice] = None
    if not rules:
        return ""
    part = _say_part_of_launches(lacking, len(runs))
    said = f"{figures.format_count_with_noun(len(rules), 'rule', 'rules')} {part}".rstrip()
    if len(sections) > 2:
        return f"{said}: counters missing (ncu --set full); --all lists them"
    if sections:
        return f"{said}: counters missing (ncu {' '.join(sections)}); --all lists them"
    return f"{said}: counters missing; --all lists them"


def _list_missing_sections(run: JudgedLaunch) -> Iterator[str]:
    for missing in run.diagnosis.missing:
        yield missing.section or missing.why


def _suggest_commands(rows: Sequence[LaunchRow], first: LaunchRow) -> Iterator[blocks.Command]:
    run = first.median_launch
    if run.status != "ok":
        yield blocks.Command(words.suggest_retry_command(run), "this kernel alone, in fewer passes")
        return
    if words.has_no_metrics(run):
        yield blocks.Command(FULL, "record a complete report")
    elif fix := words.find_fix_to_name_first(run):
        yield blocks.Command(f"profkit explain {fix.rule}", "the cause, and how to fix it")
    report = shlex.quote(escape_text(str(run.report)))
    about = "every finding in detail"
    if len({row.median_launch.report for row in rows}) > 1:
        about = "every finding of the first report"
    elif len(rows) > 1:
        about = "every launch in detail"
    yield blocks.Command(f"profkit diagnose {report} --all", about)
