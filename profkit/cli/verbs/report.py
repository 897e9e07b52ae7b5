"""Reports, programs, a history  ->  one page for somebody else.

# Write one page, to open, send and print.
profkit report runs/ -o page.html
# Show the page in a browser.
profkit report my.ncu-rep -o page.html --open
# Choose launches, and set the page's heading.
profkit report runs/ --output page.html --kernel flash --where 'time > 1e-5'
profkit report *.ncu-rep -o page.html --title 'Attention' --top 20 --quiet
# Add the history of the same kernels.
profkit report runs/ artifacts/history -o page.html
# Show a whole program with the counters of its kernels.
profkit report step.triage step.triage/counters.ncu-rep -o step.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import write_text

if TYPE_CHECKING:
    from profkit.evidence.noise import HistoryStep
    from profkit.show.page import Page
    from profkit.show.step import PageProgram
    from profkit.units import AreAllRead

ROWS = 50  # on a page; about 40 kB each


GROUP = "Understand a kernel"
SUMMARY = "Write reports as one HTML page, for readers without profkit."


What = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORTS...",
        help="Give reports, folders or globs; folders that triage -o kept; or a history.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the page to this HTML file."),
]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="Set the page's heading.")]


@options.verb(GROUP, SUMMARY, forms="quiet")
def write_report(
    what: What,
    output: Output = None,
    opens: options.Opens = False,
    title: Title = None,
    kernel: options.Kernel = None,
    where: options.Where = None,
    top: options.Top = None,
) -> int:
    """It needs no network; a whole program and a history can be on it too."""
    from profkit.cli import sources
    from profkit.cli.launches import read_and_judge_launches
    from profkit.cli.output import open_in_browser, require_writable_output_path

    if output is None:
        raise ProfkitError(f"{what[0]}: a page of reports needs an output file", "-o page.html")
    from profkit.show import page as pages

    folders = select_saved_folders(what)
    patterns = [word for word in what if word not in folders]
    require_writable_output_path(output, patterns)
    for pattern in patterns:
        sources.refuse_file_of_another_verb(pattern, "report")
    kept = _read_saved_folders(folders)
    chosen = read_and_judge_launches(patterns, kernel, where, lines_follow=True)
    if not chosen.launches and not kept.programs and not kept.histories:
        return options.COULD_NOT  # what could not be read was said; an empty page says nothing
    page = pages.render_page(
        chosen.reports,
        chosen.launches,
        title or pages.TITLE,
        top or ROWS,
        kept.programs,
        kept.histories,
    )
    write_text(output, page.html)
    _print_page_summary(output, page)
    if opens:
        open_in_browser(output)
    if not folders:
        return chosen.exit_status
    if chosen.complete and kept.complete:
        return options.DONE
    return options.COULD_NOT


def select_saved_folders(what: Sequence[str]) -> list[str]:
    """Return the words that name a program that triage kept, or a history."""
    from profkit.cli import sources

    return [
        word for word in what if sources.is_triage_folder(word) or sources.is_history_folder(word)
    ]


@dataclass(frozen=True)
class _SavedPageContent:
    """What stands on the page besides launches."""

    programs: list[PageProgram]
    histories: list[tuple[str, list[HistoryStep]]]
    complete: bool  # whether everything of the folders can be shown


def _read_saved_folders(folders: Sequence[str]) -> _SavedPageContent:
    """Read the programs and histories; what is wrong with a history is said."""
    from profkit.cli import sources

    programs = []
    histories = []
    complete = True
    for folder in folders:
        if sources.is_triage_folder(folder):
            programs.append(_judge_saved_program(folder))
            continue
        steps, whole = _read_history_with_problems(folder)
        complete = complete and whole
        if steps:
            histories.append((folder, steps))
    return _SavedPageContent(programs, histories, complete)


def _print_page_summary(output: Path, page: Page) -> None:
    """Say on stderr how large the page is, which rows it lacks, and what it could not show."""
    from profkit.cli.output import print_errors, print_note
    from profkit.reports.figures import format_count_with_noun

    print_errors((ProfkitError(line) for line in page.notes), quiet=options.FORM.quiet)
    rows = format_count_with_noun(page.launches, "row", "rows")
    size = len(page.html.encode()) / 1e6
    text = f"{output}: {rows}, {size:.1f} MB"
    if page.left_out:
        text += f"; {page.left_out} more with --top {page.launches + page.left_out}"
    print_note(text)


def _read_history_with_problems(folder: str) -> tuple[list[HistoryStep], AreAllRead]:
    """Return the steps of a history, and whether there are some and all could be read."""
    from profkit.cli import sources
    from profkit.cli.output import print_errors

    steps, problems = sources.read_history_steps(folder)
    if not steps and not problems:
        problems = [ProfkitError(f"{folder}: this history has no run", "profkit history --add")]
    print_errors(problems)
    return steps, not problems


def _judge_saved_program(folder: str) -> PageProgram:
    """Judge the recording that triage kept in a folder, and read what triage said of it."""
    from profkit.program import readers as recordings
    from profkit.program.document import read_triage_document
    from profkit.program.triage import triage_timeline
    from profkit.show.step import PageProgram

    answer = triage_timeline(recordings.read_timeline(Path(folder)))
    return PageProgram(folder, answer, read_triage_document(Path(folder)))
