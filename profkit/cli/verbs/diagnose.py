"""Reports  ->  what limits each kernel.

# Diagnose a report, with five source lines per finding.
profkit diagnose my.ncu-rep --lines 5
# Show the three largest expected savings of a folder in detail.
profkit diagnose runs/ --top 3 --quiet
# List each launch of one kernel by itself.
profkit diagnose runs/ --kernel flash --each
# Show all findings of the launches that are bound by memory.
profkit diagnose runs/ --where 'bound == "memory"' --all
# Write the answer for a program, for a pull request or for an agent.
profkit diagnose runs/ --json
profkit diagnose runs/ --markdown
profkit diagnose runs/ --brief
# Annotate source lines in an editor or in CI, and leave one rule out.
profkit diagnose runs/ --format gcc --ignore clocks-unsteady
# Read what ncu --csv --page raw printed, and export its metrics.
profkit diagnose raw.csv --csv metrics.csv --parquet metrics.parquet
# Add 10,000 reports to a history, read on a Dask cluster.
profkit diagnose runs/ --history history --on tcp://host:8786
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError, suggest_nearest_names

if TYPE_CHECKING:
    from profkit.cli.launches import ChosenLaunches
    from profkit.diagnosis.launches import JudgedLaunch, LaunchRow
    from profkit.units import DaskClientOrExecutor, ExitStatus, RuleName

DETAILS = 3
_LEFT = "it has a row in the table reports; profkit query 'SELECT * FROM reports' shows all"
Details = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="N",
        help="Show the N rows with the largest expected saving in detail. Default: 1.",
        min=1,
    ),
]
Lines = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help=(
            "Show N source lines per finding and the N hottest lines per launch; 0 shows none. "
            "Default: 3 per finding, no hottest lines."
        ),
        min=0,
        show_default=False,
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore", metavar="RULE", help="Leave out the findings of this rule; repeatable."
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Read on the Dask cluster with this scheduler: tcp://host:8786."
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--history", metavar="DIR", help="Add the reports to this history, and print no answer."
    ),
]

NO_LINES = (
    "this report has no source lines: compile with nvcc -lineinfo, and profile again with\n  ncu "
    "--set full --import-source yes -o lines COMMAND"
)
GROUP = "Understand a kernel"
SUMMARY = "Find what limits each kernel, and how much a fix would gain."


Csv = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write all metrics as CSV; - writes to stdout."),
]
Parquet = Annotated[Path | None, typer.Option(metavar="FILE", help="Write all metrics as Parquet.")]
Every = Annotated[bool, typer.Option("--all", help="Show every row and every finding in detail.")]
Each = Annotated[
    bool,
    typer.Option("--each", help="List every launch by itself, instead of one row per kernel."),
]


@options.verb(
    GROUP,
    SUMMARY,
    forms="brief json markdown quiet",
    sections={
        "Which launches": "kernel where each ignore",
        "How much detail": "top lines every",
        "Many reports": "history on",
    },
)
def diagnose_reports(
    reports: options.Paths,
    csv: Csv = None,
    parquet: Parquet = None,
    top: Details = None,
    kernel: options.Kernel = None,
    where: options.Where = None,
    lines: Lines = None,
    every: Every = False,
    each: Each = False,
    on: On = None,
    history: Into = None,
    form: options.Format = None,
    ignore: Ignore = None,
) -> int:
    """It takes Nsight Compute reports, and needs no GPU.

    It begins with the launch whose leading fix would save most: its limit, source line, expected gain
    and what to try. A row per kernel follows, then what could not be checked.
    """
    from profkit.cli import output
    from profkit.cli.launches import read_and_judge_launches
    from profkit.reports.isolated import ROOM

    ROOM.allow_disassembly_here()
    output.require_known_format(form)
    if history:
        _refuse_output_with_history(csv, parquet, kernel, where, form)
        return _add_diagnoses_to_history(reports, history, on)
    files = _check_table_files([csv, parquet], reports)
    ignored = check_ignored_rules(ignore or ())
    client = _open_cluster_client(on)
    chosen = read_and_judge_launches(
        reports, kernel, where, client, lines_follow=lines != 0, ignored_rules=ignored
    )
    _print_ignored_findings(chosen, ignored)
    for file in files:
        output.save_frame(chosen.frame, file, as_csv=file == csv)
    if csv and str(csv) == "-":
        _print_csv(chosen)
    elif form or options.FORM.json or not files:
        _print_diagnoses(chosen, form, _Detail(top, lines, every, each))
    return chosen.exit_status


def _check_table_files(table_files: Sequence[Path | None], reports: Sequence[str]) -> list[Path]:
    """Return the files that tables are written to, checked before anything is read; - is none."""
    from profkit.cli.output import refuse_same_file, require_writable_output_path

    files = [
        require_writable_output_path(file, reports)
        for file in table_files
        if file and str(file) != "-"
    ]
    refuse_same_file(files)
    return files


def _refuse_output_with_history(*other_options: object) -> None:
    """Raise a ProfkitError if anything of an answer is wanted beside --history."""
    if any(other_options) or options.FORM.markdown or options.FORM.brief:
        raise ProfkitError("--history prints no answer", "remove the other options")


def _print_diagnoses(
    chosen: ChosenLaunches, annotation_format: str | None, detail: _Detail
) -> None:
    """Print annotations, a document, or the answer as text."""
    if annotation_format:
        _print_annotations(chosen, annotation_format)
    elif options.FORM.json and options.FORM.brief:
        _print_brief_document(chosen, detail)
    elif options.FORM.json:
        _print_unread_lines(_print_json_of_worst_rows(chosen, detail.top, detail.lines))
    else:
        _show_launches(chosen, detail)


def _print_brief_document(chosen: ChosenLaunches, detail: _Detail) -> None:
    """Print what --brief says as data: the first rows, and of their findings those that fire."""
    from profkit.cli import output
    from profkit.diagnosis.launches import add_source_lines, group_and_rank_launches
    from profkit.show.views.agents import select_answer

    table = group_and_rank_launches(chosen.launches, one_row_per_launch=detail.each)
    runs = [row.median_launch for row in table[: detail.top or DETAILS]]
    if detail.lines != 0:
        runs = list(add_source_lines(runs, detail.lines, detail.lines or 0))
    rows = [
        row.replace_launch(row.median_launch, run) for row, run in zip(table, runs, strict=False)
    ]
    problems = [f"{f.path}: {f.message}" for f in chosen.reports.files if f.status != "ok"]
    output.print_compact_json(select_answer([*rows, *table[len(rows) :]], len(rows), problems))
    _print_unread_lines(runs)


def _print_csv(chosen: ChosenLaunches) -> None:
    """Print all metrics of the launches."""
    from profkit.show.text.escape import iterate_csv

    for piece in iterate_csv(chosen.frame):
        print(piece, end="")


def check_ignored_rules(rules: Sequence[RuleName]) -> Sequence[RuleName]:
    """Return the rules that are left out; a ProfkitError where one is unknown."""
    if rules:
        from profkit.diagnosis.rules import BY_ID

        for rule in rules:
            if rule not in BY_ID:
                hint = suggest_nearest_names(rule, BY_ID, "profkit explain lists the rules")
                raise ProfkitError(f"--ignore {rule}: no such rule", hint)
    return rules


def _print_ignored_findings(chosen: ChosenLaunches, ignored: Sequence[str]) -> None:
    """Say on stderr which findings are left out, and which file or flag asked for it.

    --quiet silences this for the flag only: a file that came with a repository was not asked for by
    the one who runs the command.
    """
    from profkit.cli import output
    from profkit.reports.figures import format_count_with_noun

    if not ignored:
        return
    settings = options.find_pyproject_with_settings() if "ignore" in options.FROM_SETTINGS else None
    asked = f"{settings}: [tool.profkit] ignore" if settings else "--ignore"
    found = [rule for rule in ignored if chosen.left_out.get(rule)]
    launches = format_count_with_noun(len(chosen.everything), "launch", "launches")
    said = [f"{rule} (fires in {chosen.left_out[rule]} of {launches})" for rule in found]
    if not said:
        output.print_note(f"{asked}: no finding was left out")
        return
    text = f"{asked}: left out {', '.join(said)}"
    if settings:
        output.print_warning(text)
    else:
        output.print_note(text)


def _open_cluster_client(address: str | None) -> DaskClientOrExecutor:
    """Return a client of the cluster that was named; None without one."""
    if address is None:
        return None
    from profkit.reports.cluster import connect_to_dask_scheduler

    return connect_to_dask_scheduler(address)


def print_diagnosis(reports: Sequence[str]) -> ExitStatus:
    """Print what the kernels of reports just made wait for; the exit status."""
    from profkit.cli.launches import read_and_judge_launches

    chosen = read_and_judge_launches(reports, lines_follow=True)
    if options.FORM.json:
        _print_unread_lines(_print_json_of_worst_rows(chosen, None, None))
    else:
        _show_launches(chosen, _Detail())
    return chosen.exit_status


def _add_diagnoses_to_history(
    reports: Sequence[str], history: str, scheduler_address: str | None
) -> ExitStatus:
    """Diagnose reports into a history, a few in memory at a time; the exit status."""
    from profkit.cli import output
    from profkit.cli.launches import expand_report_patterns
    from profkit.evidence.history import History
    from profkit.evidence.stream import add_new_reports_to_history, make_stream_document

    paths, complete = expand_report_patterns(reports)
    with output.show_progress() as step:
        done = add_new_reports_to_history(
            paths,
            History(history),
            _open_cluster_client(scheduler_address),
            lambda n: step(n, len(paths)) if step else None,
        )
    unread = (ProfkitError(f"{f.path}: {f.status}: {f.message}", _LEFT) for f in done.not_ok)
    output.print_errors(unread, quiet=options.FORM.quiet)
    added = f"{done.reports} reports and {done.launches} launches added"
    left = f"{done.known} already known, {len(done.not_ok)} incomplete"
    output.print_note(f"{history}: {added}, {left}")
    if options.FORM.json:
        output.print_json(make_stream_document(done))
    return 0 if complete and not done.not_ok else options.COULD_NOT


def _print_json_of_worst_rows(
    chosen: ChosenLaunches, most_rows: int | None, most_lines: int | None
) -> Sequence[JudgedLaunch]:
    """Print the launches, of the worst `most_rows` rows if not None, as one document; return them."""
    from profkit.cli import output
    from profkit.diagnosis.document import make_diagnosis_document, make_launch_entry
    from profkit.diagnosis.launches import add_source_lines, group_and_rank_launches

    launches: Sequence[JudgedLaunch] = chosen.launches
    if most_rows is not None:
        kept = {
            id(run) for row in group_and_rank_launches(launches)[:most_rows] for run in row.launches
        }
        launches = [run for run in launches if id(run) in kept]
    if most_lines != 0:
        launches = add_source_lines(launches, most_lines, most_lines or 0)
    document = make_diagnosis_document(chosen.reports.files, ())
    output.print_json_rows(document, "launches", map(make_launch_entry, launches))
    return launches


@dataclass(frozen=True)
class _Detail:
    """How much of the answer is shown; the fields are the verb's options."""

    top: int | None = None
    lines: int | None = None
    every: bool = False
    each: bool = False

    @property
    def is_requested(self) -> bool:
        """Whether rows are shown in detail: a screen of the first one is the answer else."""
        is_limited = self.top is not None or self.lines is not None
        return self.every or is_limited or options.FORM.markdown

    def take_first_rows(self, ranked_rows: list[LaunchRow]) -> list[LaunchRow]:
        """Return the rows that are shown in detail."""
        if self.every:
            return ranked_rows
        if self.is_requested or options.FORM.brief:
            return ranked_rows[: self.top or DETAILS]
        return ranked_rows[:1]  # a screen shows no line of the others


def _show_launches(chosen: ChosenLaunches, detail: _Detail) -> None:
    """Print the answer, the table, and the first rows in detail."""
    from profkit.diagnosis.launches import add_source_lines, group_and_rank_launches

    table = group_and_rank_launches(chosen.launches, one_row_per_launch=detail.each)
    if not table:
        _print_unread_lines(chosen.launches)
        return
    detailed = detail.take_first_rows(table)
    read: Sequence[JudgedLaunch] = chosen.launches
    if detail.lines != 0:
        read = add_source_lines(
            [row.median_launch for row in detailed], detail.lines, detail.lines or 0
        )
        pairs = zip(detailed, read, strict=True)
        detailed = [row.replace_launch(row.median_launch, run) for row, run in pairs]
    _print_rows(table, detailed, detail)
    _print_unread_lines(read)


def _print_rows(table: list[LaunchRow], detailed: list[LaunchRow], detail: _Detail) -> None:
    """Print the rows of the table, the detailed ones as briefly or fully as was asked for."""
    from profkit.cli import output

    if not options.FORM.brief and not detail.is_requested:
        from profkit.show.views.screen import show_screen

        output.print_blocks(show_screen(table, detailed[0]))
        return
    from profkit.show.views.diagnosis import show_diagnosis, write_brief_diagnosis

    if options.FORM.brief:
        output.print_brief(write_brief_diagnosis([*detailed, *table[len(detailed) :]]))
        return
    output.print_blocks(show_diagnosis(table, detailed, list_all_rows=detail.every))
    if detail.lines and not any(has_source_lines(row.median_launch) for row in detailed):
        output.print_note(NO_LINES)


def _print_unread_lines(runs: Sequence[JudgedLaunch]) -> None:
    """Say of which reports the source lines could not be read: the answer is whole without."""
    from profkit.cli import output
    from profkit.diagnosis.launches import explain_unread_lines

    for why in explain_unread_lines(runs):
        output.print_note(f"{why}; allow more of it, or --lines 0")


def has_source_lines(run: JudgedLaunch) -> bool:
    """Return whether a launch, or one of its findings, has lines of source; instructions are none."""
    return any(line.file for line in run.lines) or any(
        finding.where for finding in run.diagnosis.findings
    )


def _print_annotations(chosen: ChosenLaunches, annotation_format: str) -> None:
    """Print each finding at its source line, a line each."""
    from profkit.diagnosis.launches import add_source_lines, group_and_rank_launches
    from profkit.show.annotations import WRITERS, annotate_launches

    rows = group_and_rank_launches(chosen.launches)
    lined = add_source_lines([row.median_launch for row in rows], None, 0)
    pairs = zip(rows, lined, strict=True)
    rows = [row.replace_launch(row.median_launch, run) for row, run in pairs]
    print(WRITERS[annotation_format](annotate_launches(rows)), end="")
    _print_unread_lines(lined)
