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
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from profkit.diagnosis.launches import LINES, Judged, add_readable_source_lines, make_launch_rows
from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError
from profkit.evidence import counters as changes
from profkit.evidence.ladder import Ladder, build_ladder_of_runs
from profkit.evidence.noise import HistoryStep
from profkit.evidence.runs import Run
from profkit.files import is_file
from profkit.program.counts import make_name_comparable
from profkit.records.record import read_record
from profkit.reports import figures
from profkit.reports.frame import strip_attrs
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import MEANING
from profkit.show import launch
from profkit.show.draw import draw_histories, draw_ladder, draw_roofline_of_each_device, draw_strip
from profkit.show.numbers import (
    PIPES,
    WORDS,
    find_reference_times,
    group_history_points,
    spell_unit,
)
from profkit.show.step import PageProgram, make_program_section, write_highlight_rules
from profkit.show.text.blocks import page_html
from profkit.show.text.escape import escape_text
from profkit.show.text.words import BOUNDS, format_median, format_metric, write_headline
from profkit.show.views.comparison import show_ladder_steps
from profkit.show.views.diagnosis import ORDER
from profkit.show.views.history import show_history_steps

if TYPE_CHECKING:
    from profkit.reports.frame import Reports
    from profkit.show.text.blocks import Block

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
    chosen: Sequence[Judged],
    title: str = TITLE,
    top: int | None = None,
    programs: Sequence[PageProgram] = (),
    histories: Sequence[tuple[str, Sequence[HistoryStep]]] = (),
) -> Page:
    """Return the page of `chosen` launches, alike ones in a row; of the worst `top` rows if not None.

    `reports`: every file that was asked for, readable or not.
    """
    every = make_launch_rows(chosen)
    total = sum(row.total for row in every)
    shown_runs = [row.median_launch for row in every[:top]]
    runs, notes = add_readable_source_lines(shown_runs, LINES, HOT, AROUND)
    kept = [
        row.replace_launch(row.median_launch, run) for row, run in zip(every, runs, strict=False)
    ]
    shown = [launch.PageRow(n, row, total) for n, row in enumerate(kept, 1)]
    recorded, unreadable = _find_runs_beside_reports(reports, {run.report for run in chosen})
    ladders, without = build_ladders(recorded)
    problems = chain.from_iterable(ladder.problems for ladder, _ in ladders)
    notes += [*unreadable, *without, *(problem.message for problem in problems)]
    tables = list(map(launch.summarize_row, shown))
    keys = [(make_name_comparable(s.run.kernel), s.run.grid, s.run.block) for s in shown]
    launched = {key: f"launch-{n}" for n, key in reversed([*enumerate(keys, 1)])}
    choices = {key: Counter(row[key] for row in tables) for key in ("bound", "device", "case")}
    rooflines = draw_roofline_of_each_device([(s.number, s.label, s.run) for s in shown])
    content = {
        "title": name_page(title, shown_runs),
        "tab": make_tab_title(title, shown_runs),
        "files": reports.files,
        "rows": [(row, launch.describe_launch(s)) for row, s in zip(tables, shown, strict=True)],
        "left_out": len(every) - len(kept),
        "count": sum(len(row.launches) for row in every),
        "total": figures.seconds(total),
        "order": ORDER,
        "choices": choices,
        "ladders": [(of.case, draw_ladder(of), blocks) for of, blocks in ladders],
        "notes": notes,
        "answer": write_headline(kept + every[len(kept) :]),
        "bar": draw_strip(launch.iterate_time_bars(shown), "Time by kernel", listed=True),
        "rooflines": rooflines,
        "has_points": any("<svg" in picture for picture in rooflines.values()),
        "programs": [make_program_section(of, n, launched) for n, of in enumerate(programs, 1)],
        "histories": [make_history_section(*of, [s.run for s in shown]) for of in histories],
        "words": list(launch.iterate_linked_words(shown)),
        "payload": Markup(_encode_for_script(build_payload(shown, [of for of, _ in ladders]))),  # noqa: S704
        "words_of_nvidia": IN_WORDS,
        "looks": [(bound, bound) for bound in BOUNDS],
        "levels": list(WORDS.items()),
    }
    script = "".join((WEB / name).read_text("utf-8") for name in SCRIPTS)
    rules = "".join(write_highlight_rules(of, number) for number, of in enumerate(programs, 1))
    html = fill_template("page.html", content, script, rules)
    return Page(html, len(shown), len(every) - len(kept), tuple(notes))


def make_tab_title(title: str, runs: Sequence[Judged]) -> str:
    """Return what tells a page from others in a row of tabs: its reports and GPU, or its own title."""
    if title != TITLE or not runs:
        return title
    return f"{name_reports(runs)} - profkit"


def name_page(title: str, runs: Sequence[Judged]) -> str:
    """Return the heading of a page: its own title, or its reports and GPU."""
    if title != TITLE or not runs:
        return title
    return f"Kernels: {name_reports(runs)}"


def name_reports(runs: Sequence[Judged]) -> str:
    """Return the report that launches are from, how many more there are, and the GPU."""
    files = list(dict.fromkeys(Path(run.report).name for run in runs))
    name = files[0]
    if len(files) > 1:
        name += f" and {len(files) - 1} more"
    devices = sorted({run.device for run in runs if run.device})
    return ", ".join([name, *devices[:1]])


def build_payload(shown: Sequence[launch.PageRow], ladders: Sequence[Ladder]) -> dict[str, Any]:
    times: dict[tuple[str | None, str | None], str] = {}  # of each variant and case
    for ladder in ladders:
        known = {step.variant: step.time for step in ladder.steps}
        for name, time in {**known, **find_reference_times(ladder.steps)}.items():
            times[name, ladder.case] = format_median(time)
    findings = chain.from_iterable(row.run.diagnosis.findings for row in shown)
    asked = dict.fromkeys(finding.rule for finding in findings)
    rules = [rule for rule in {**dict.fromkeys(BY_ID), **asked} if rule in asked]  # ours first
    pipes = {spell_unit(pipe): CATALOGUE[f"{pipe}_busy"].meaning for pipe in PIPES}
    metrics = CATALOGUE.values()
    return {
        "metrics": [{"name": m.name, "unit": m.unit, "meaning": m.meaning} for m in metrics],
        "meanings": {**pipes, **MEANING},
        "not_the_kernel": list(changes.NOT_THE_KERNEL),
        "thresholds": {
            "points": changes.POINTS,
            "relative": changes.RELATIVE,
            "gain": changes.GAIN,
        },
        "rules": rules,
        "measures": {rule: describe_measures(rule) for rule in rules if rule in BY_ID},
        "shapes": [rule for rule in rules if rule in BY_ID and BY_ID[rule].shape],
        "not_collected": figures.NOT_COLLECTED,
        "launches": [
            launch.make_launch_data(s, rules)
            | {"timed": times.get((s.run.variant, s.run.case), "")}
            for s in shown
        ],
    }


def describe_measures(rule: str) -> list[dict[str, Any]]:
    """Return how the script tells whether a launch has less of a rule's cause than another."""
    measures = []
    for measure in BY_ID[rule].measures:
        measures.append(
            {
                "what": measure.what,
                "unit": measure.unit,
                "border": measure.border,
                "less_is_worse": measure.less_is_worse,
                "of_time": measure.of_time,
            }
        )
    return measures


def render_program_page(of: PageProgram) -> str:
    """Return a page of one program alone, with the report page's parts and no script at all."""
    content = {"title": f"Triage: {of.name}", "program": make_program_section(of, 1, {})}
    return fill_template("program.html", content, rules=write_highlight_rules(of, 1))


def fill_template(
    template: str, content: Mapping[str, Any], script: str = "", rules: str = ""
) -> str:
    """Return a page by a template; its policy allows its own style and script and nothing else."""
    if "</script" in script.lower() or "<!--" in script:
        raise ProfkitError(
            "a script of the page would end itself", "this is a bug; please report it"
        )
    style = (WEB / "page.css").read_text("utf-8") + rules
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
    environment.filters |= {"whole": figures.bind_units, "share": figures.share}
    environment.tests["above_zero_in"] = lambda metric, values: values.get(metric, 0) > 0
    environment.globals |= {"fact": launch.make_fact, "metric": format_metric}
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
    reports: Reports, shown: Collection[str]
) -> tuple[list[Run], list[str]]:
    """Return a run of each variant and case that has a record beside a report, and bad records."""
    runs: dict[tuple[str, str], Run] = {}
    problems = []
    frame = strip_attrs(reports.launches)
    for file in reports.files:
        path = Path(file.path)
        beside = path.with_suffix(".json")
        if file.path not in shown or file.status != "ok" or not is_file(beside):
            continue
        try:
            record = read_record(beside)
        except ProfkitError as error:
            problems.append(error.message)
            continue
        key, launches = (record.variant, record.case), frame[frame["report"] == file.path]
        runs.setdefault(key, Run(*key, record, launches, path))
    return list(runs.values()), problems


def build_ladders(runs: Iterable[Run]) -> tuple[list[tuple[Ladder, list[Block]]], list[str]]:
    """Return each case's ladder with its words; without what judges times, a note in their stead."""
    cases: dict[str, list[Run]] = {}
    for run in runs:
        if run.case:
            cases.setdefault(run.case, []).append(run)
    try:
        built = [build_ladder_of_runs(of_case, case) for case, of_case in sorted(cases.items())]
        return [(ladder, list(show_ladder_steps(ladder))) for ladder in built if ladder.steps], []
    except ProfkitError as error:
        return [], [f"no ladder: {error.message} ({error.hint})"]


def make_history_section(
    name: str, every: Sequence[HistoryStep], shown: Iterable[Judged]
) -> dict[str, Any]:
    subjects = {f"{run.variant}.{run.case}" for run in shown}
    steps = [s for s in every if s.run.subject in subjects] or every
    points = group_history_points(steps)
    charts, machines = draw_histories(points)
    return {
        "name": name,
        "charts": charts,
        "machines": machines,
        "once": sum(len(some) == 1 for some in points.values()),
        "blocks": list(show_history_steps(steps)),
    }
