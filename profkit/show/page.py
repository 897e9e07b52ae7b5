"""Reports and judged launches  ->  one HTML file that needs nothing else.

Everything is in it: texts and pictures by a template that escapes them, numbers as JSON for its script.
Its Content-Security-Policy knows the hashes of that script and of its style and forbids everything else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from profkit.diagnosis.launches import (
    LINES,
    JudgedLaunch,
    LaunchRow,
    add_source_lines_and_explain_missing,
    group_and_rank_launches,
)
from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError
from profkit.evidence import counters as changes
from profkit.evidence.ladder import Ladder, build_ladder_of_runs
from profkit.evidence.noise import HistoryStep
from profkit.evidence.runs import Run
from profkit.files import is_file
from profkit.program.counts import remove_demangler_differences
from profkit.records.record import read_record
from profkit.reports import figures
from profkit.reports.frame import drop_file_status_attribute
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import MEANING
from profkit.show import launch
from profkit.show.draw import draw_histories, draw_ladder, draw_roofline_of_each_device, draw_strip
from profkit.show.numbers import (
    PIPES,
    WORDS,
    get_latest_reference_times,
    group_history_points,
    make_display_name,
)
from profkit.show.step import PageProgram, make_program_section, write_highlight_rules
from profkit.show.text.blocks import page_html
from profkit.show.text.escape import escape_text
from profkit.show.text.words import (
    BOUNDS,
    describe_row_order,
    format_median,
    format_metric,
    say_total_time,
    write_headline,
)
from profkit.show.views.comparison import show_ladder_steps
from profkit.show.views.history import show_history_steps

if TYPE_CHECKING:
    from profkit.reports.frame import Reports
    from profkit.show.text.blocks import Block
    from profkit.units import CaseName, HtmlText, RuleName, Seconds, Sentence

WEB = Path(__file__).parent / "web"
SCRIPTS = ("page.js", "table.js", "charts.js", "compare.js")
TITLE = "What these kernels wait for"
IN_WORDS = 10  # rows with NVIDIA's messages whole: they are a seventh of a page of 190
HOT, AROUND = 12, 2  # source lines of a launch, and lines of code around each


@dataclass(frozen=True)
class Page:
    """A page, and what has to be said about making it."""

    html: str
    launches: int  # rows on it
    left_out: int  # rows that are not
    notes: tuple[str, ...]  # what could not be used, one sentence each


def render_page(
    reports: Reports,
    chosen: Sequence[JudgedLaunch],
    title: str = TITLE,
    top: int | None = None,
    programs: Sequence[PageProgram] = (),
    histories: Sequence[tuple[str, Sequence[HistoryStep]]] = (),
) -> Page:
    """Return the page of `chosen` launches, alike ones in a row; of the worst `top` rows if not None.

    `reports`: every file that was asked for, readable or not.
    """
    every = group_and_rank_launches(chosen)
    shown, notes = _make_page_rows(every, top)
    ladders, ladder_notes = _build_ladders_beside_reports(reports, {run.report for run in chosen})
    notes += ladder_notes
    runs = [row.run for row in shown]
    content = _make_page_head(title, every, shown)
    content |= _describe_launch_table(shown)
    content |= _draw_page_pictures(shown)
    content |= {
        "files": reports.files,
        "notes": notes,
        "ladders": _make_ladder_sections(ladders),
        "programs": _make_program_sections(programs, shown),
        "histories": [make_history_section(name, steps, runs) for name, steps in histories],
    }
    payload = _encode_for_script(build_page_data(shown, ladders))
    content["payload"] = Markup(payload)  # noqa: S704 - nothing in it can end the element
    script = "".join((WEB / name).read_text("utf-8") for name in SCRIPTS)
    rules = "".join(map(write_highlight_rules, programs, count(1)))
    html = fill_template("page.html", content, script, rules)
    return Page(html, len(shown), content["left_out"], tuple(notes))


def _make_page_head(
    title: str, all_rows: Sequence[LaunchRow], shown_rows: Sequence[launch.PageRow]
) -> dict[str, Any]:
    """Return the page's names, its first sentences, and how much of all rows it shows."""
    runs = []
    rows = list(all_rows)
    for place, row in enumerate(shown_rows):
        runs.append(row.run)
        rows[place] = row.row  # with the source lines that could be read
    launches = sum(len(row.launches) for row in all_rows)
    return {
        "title": write_page_heading(title, runs),
        "tab": make_tab_title(title, runs),
        "answer": write_headline(rows),
        "left_out": len(all_rows) - len(shown_rows),
        "count": launches,
        "total": say_total_time(all_rows),
        "order": describe_row_order(all_rows),
    }


def _sum_times(rows: Iterable[LaunchRow]) -> Seconds:
    return sum(row.total for row in rows)


def _make_page_rows(
    all_rows: Sequence[LaunchRow], most_rows: int | None
) -> tuple[list[launch.PageRow], list[Sentence]]:
    """Return the worst rows with their hottest source lines, and notes on unreadable sources."""
    chosen = all_rows[:most_rows]
    runs, notes = add_source_lines_and_explain_missing(
        [row.median_launch for row in chosen], LINES, HOT, AROUND
    )
    total = _sum_times(all_rows)
    shown = []
    for number, (row, run) in enumerate(zip(chosen, runs, strict=True), 1):
        with_lines = row.replace_launch(row.median_launch, run)
        shown.append(launch.PageRow(number, with_lines, total))
    return shown, notes


def _describe_launch_table(shown_rows: Sequence[launch.PageRow]) -> dict[str, Any]:
    """Return the table of launches with what its filters offer, their details, and their words."""
    rows = []
    choices: dict[str, Counter[str]] = {"bound": Counter(), "device": Counter(), "case": Counter()}
    for row in shown_rows:
        summary = launch.make_table_row_of_launch(row)
        rows.append((summary, launch.make_launch_section(row)))
        for key, counts in choices.items():
            counts[summary[key]] += 1
    words = list(launch.iterate_linked_words(shown_rows))
    return {"rows": rows, "choices": choices, "words": words, "words_of_nvidia": IN_WORDS}


def _draw_page_pictures(shown_rows: Sequence[launch.PageRow]) -> dict[str, Any]:
    """Return the bar of time, and a roofline per device with the key to its marks."""
    rooflines = draw_roofline_of_each_device(
        [(row.number, row.label, row.run) for row in shown_rows]
    )
    return {
        "bar": draw_strip(
            launch.iterate_time_bars(shown_rows), "Time by kernel", are_bars_named_in_label=True
        ),
        "rooflines": rooflines,
        "has_points": any("<svg" in picture for picture in rooflines.values()),
        "looks": [(bound, bound) for bound in BOUNDS],
        "levels": list(WORDS.items()),
    }


def _make_ladder_sections(ladders: Iterable[Ladder]) -> list[tuple[CaseName, Markup, list[Block]]]:
    """Return each ladder's case, picture and words."""
    sections = []
    for ladder in ladders:
        sections.append((ladder.case, draw_ladder(ladder), list(show_ladder_steps(ladder))))
    return sections


def _make_program_sections(
    programs: Iterable[PageProgram], shown: Sequence[launch.PageRow]
) -> list[dict[str, Any]]:
    """Return a section per program; its kernels link to the first launch of the same name and shape."""
    launched: dict[tuple[Any, ...], str] = {}
    for row in shown:
        key = remove_demangler_differences(row.run.kernel), row.run.grid, row.run.block
        launched.setdefault(key, f"launch-{row.number}")
    sections = []
    for number, program in enumerate(programs, 1):
        sections.append(make_program_section(program, number, launched))
    return sections


def make_tab_title(title: str, runs: Sequence[JudgedLaunch]) -> str:
    """Return what tells a page from others in a row of tabs: its reports and GPU, or its own title."""
    if title != TITLE or not runs:
        return title
    return f"{describe_reports_and_gpu(runs)} - profkit"


def write_page_heading(title: str, runs: Sequence[JudgedLaunch]) -> str:
    """Return the heading of a page: its own title, or its reports and GPU."""
    if title != TITLE or not runs:
        return title
    return f"Kernels: {describe_reports_and_gpu(runs)}"


def describe_reports_and_gpu(runs: Sequence[JudgedLaunch]) -> str:
    """Return the report that launches are from, how many more there are, and the GPU."""
    files = list(dict.fromkeys(Path(run.report).name for run in runs))
    name = files[0]
    if len(files) > 1:
        name += f" and {len(files) - 1} more"
    devices = sorted({run.device for run in runs if run.device})
    return ", ".join([name, *([" and ".join(devices)] if devices else [])])


def build_page_data(
    shown_rows: Sequence[launch.PageRow], ladders: Sequence[Ladder]
) -> dict[str, Any]:
    """Return what the page's script reads: the catalogue, the rules, and every launch's numbers."""
    times = _format_ladder_times(ladders)
    rules = _list_evaluated_rules(shown_rows)
    ours = [rule for rule in rules if rule in BY_ID]
    metrics = []
    for metric in CATALOGUE.values():
        about = {"name": metric.name, "unit": metric.unit, "meaning": metric.meaning}
        metrics.append(about)
    meanings = {make_display_name(pipe): CATALOGUE[f"{pipe}_busy"].meaning for pipe in PIPES}
    launches = []
    for row in shown_rows:
        data = launch.make_launch_data(row, rules)
        data["timed"] = times.get((row.run.variant, row.run.case), "")
        launches.append(data)
    return {
        "metrics": metrics,
        "meanings": meanings | MEANING,
        "not_the_kernel": list(changes.NOT_THE_KERNEL),
        "thresholds": {
            "points": changes.POINTS,
            "relative": changes.RELATIVE,
            "gain": changes.GAIN,
        },
        "rules": rules,
        "measures": {rule: list_measures_for_script(rule) for rule in ours},
        "shapes": [rule for rule in ours if BY_ID[rule].shape],
        "unit_bounds": list(changes.UNIT_BOUNDS),
        "not_collected": figures.NOT_COLLECTED,
        "launches": launches,
    }


def _format_ladder_times(
    ladders: Iterable[Ladder],
) -> dict[tuple[str | None, CaseName | None], str]:
    """Return (variant or reference, case) -> its time on a ladder, as text."""
    times: dict[tuple[str | None, str | None], str] = {}
    for ladder in ladders:
        measured = {step.variant: step.time for step in ladder.steps}
        measured |= get_latest_reference_times(ladder.steps)
        for name, time in measured.items():
            times[name, ladder.case] = format_median(time)
    return times


def _list_evaluated_rules(shown: Iterable[launch.PageRow]) -> list[RuleName]:
    """Return the rules that were asked of launches: profkit's in its order, then the user's own."""
    asked: dict[str, None] = {}
    for row in shown:
        for finding in row.run.diagnosis.findings:
            asked[finding.rule] = None
    ours = [rule for rule in BY_ID if rule in asked]
    return ours + [rule for rule in asked if rule not in BY_ID]


def list_measures_for_script(rule: RuleName) -> list[dict[str, Any]]:
    """Return how the script tells whether a launch has less of a rule's cause than another."""
    measures = []
    for measure in BY_ID[rule].measures:
        names = ("what", "unit", "border", "less_is_worse", "of_time")
        measures.append({name: getattr(measure, name) for name in names})
    return measures


def render_program_page(program: PageProgram) -> HtmlText:
    """Return a page of one program alone, with the report page's parts and no script at all."""
    content = {"title": f"Triage: {program.name}", "program": make_program_section(program, 1, {})}
    return fill_template("program.html", content, css_rules=write_highlight_rules(program, 1))


def fill_template(
    template: str, content: Mapping[str, Any], script: str = "", css_rules: str = ""
) -> HtmlText:
    """Return a page by a template; its policy allows its own style and script and nothing else."""
    if "</script" in script.lower() or "<!--" in script:
        raise ProfkitError(
            "a script of the page would end itself", "this is a bug; please report it"
        )
    style = (WEB / "page.css").read_text("utf-8") + css_rules
    allowed = ""
    if script:
        allowed = f"script-src {_hash_for_policy(script)}; "
    allowed += f"style-src {_hash_for_policy(style)}"
    environment = Environment(
        loader=FileSystemLoader(WEB),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escape_for_page,
    )
    environment.filters |= {"whole": figures.bind_units, "share": figures.format_share}
    environment.tests["above_zero_in"] = lambda metric, values: values.get(metric, 0) > 0
    environment.globals |= {"fact": launch.make_metric_fact, "metric": format_metric}
    environment.filters["blocks"] = lambda blocks: Markup(page_html(blocks))  # noqa: S704 - escapes
    return environment.get_template(template).render(
        content,
        policy=f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
        style=Markup(style),  # noqa: S704 - the two are files of ours
        own=Markup(script),  # noqa: S704
    )


def escape_for_page(value: Any) -> Any:
    """Return a text as the template writes it: what acts instead of being seen is an escape."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escape_text(value)
    return value


def _hash_for_policy(text: str) -> str:
    """Return what a Content-Security-Policy calls a script or a style sheet of a page's own."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _encode_for_script(value: Any) -> str:
    """Return a document for a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(_escape_texts(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _escape_texts(value: Any) -> Any:
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, Mapping):
        return {str(key): _escape_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escape_texts(item) for item in value]
    return value


def _find_runs_beside_reports(
    reports: Reports, chosen_reports: Collection[str]
) -> tuple[list[Run], list[Sentence]]:
    """Return a run of each variant and case that has a record beside a report, and bad records."""
    runs: dict[tuple[str, str], Run] = {}
    problems = []
    frame = drop_file_status_attribute(reports.launches)
    for file in reports.files:
        path = Path(file.path)
        beside = path.with_suffix(".json")
        if file.path not in chosen_reports or file.status != "ok" or not is_file(beside):
            continue
        try:
            record = read_record(beside)
        except ProfkitError as error:
            problems.append(error.message)
            continue
        key = (record.variant, record.case)
        launches = frame[frame["report"] == file.path]
        runs.setdefault(key, Run(*key, record, launches, path))
    return list(runs.values()), problems


def _build_ladders_beside_reports(
    reports: Reports, chosen_reports: Collection[str]
) -> tuple[list[Ladder], list[Sentence]]:
    """Return a ladder per case of the records beside reports, and what could not be used of them."""
    runs, notes = _find_runs_beside_reports(reports, chosen_reports)
    cases: dict[str, list[Run]] = {}
    for run in runs:
        if run.case:
            cases.setdefault(run.case, []).append(run)
    ladders = []
    try:
        for case in sorted(cases):
            ladder = build_ladder_of_runs(cases[case], case)
            if ladder.steps:
                ladders.append(ladder)
    except ProfkitError as error:  # without what judges times
        return [], [*notes, f"no ladder: {error.message} ({error.hint})"]
    for ladder in ladders:
        notes += [problem.message for problem in ladder.problems]
    return ladders, notes


def make_history_section(
    name: str, all_steps: Sequence[HistoryStep], shown_launches: Iterable[JudgedLaunch]
) -> dict[str, Any]:
    """Return the history of the variants and cases that are shown; all of it where it has none."""
    subjects = {f"{run.variant}.{run.case}" for run in shown_launches}
    steps = [step for step in all_steps if step.run.subject in subjects] or all_steps
    points = group_history_points(steps)
    charts, machines = draw_histories(points)
    measured_once = 0
    for timed in points.values():
        measured_once += len(timed) == 1
    return {
        "name": name,
        "charts": charts,
        "machines": machines,
        "once": measured_once,
        "blocks": list(show_history_steps(steps)),
    }
