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

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import write_text

if TYPE_CHECKING:
    from profkit.evidence.noise import HistoryStep
    from profkit.show.step import PageProgram

ROWS = 50  # on a page; about 40 kB each


GROUP = "Understand a kernel"
SUMMARY = "Write reports as one HTML page, for readers without profkit."


@options.verb(GROUP, SUMMARY, forms="quiet")
def write_report(
    what: list[str] = typer.Argument(
        ...,
        metavar="REPORTS...",
        help="Give reports, folders or globs; folders that triage -o kept; or a history.",
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="Write the page to this HTML file."
    ),
    opens: options.Opens = False,
    title: str | None = typer.Option(None, metavar="TEXT", help="Set the page's heading."),
    kernel: options.Kernel = None,
    where: options.Where = None,
    top: options.Top = None,
) -> int:
    """It needs no network; a whole program and a history can be on it too."""
    from profkit.cli import sources
    from profkit.cli.launches import read_launches
    from profkit.cli.output import note, open_page, say_each, write_to
    from profkit.reports.figures import counted

    if output is None:
        raise ProfkitError(f"{what[0]}: a page of reports needs an output file", "-o page.html")
    from profkit.show import page as pages

    # A whole program that triage kept, or a history.
    folders = []
    for w in what:
        if sources.is_triage(w) or sources.is_history(w):
            folders.append(w)
    patterns = [word for word in what if word not in folders]
    write_to(output, patterns)
    for pattern in patterns:
        sources.refuse_other(pattern, "report")
    programs, histories = [], []
    complete = True  # whether everything of the folders can be shown
    for word in folders:
        if sources.is_triage(word):
            programs.append(_read_program(word))
            continue
        steps, whole = _read_history_and_say_problems(word)
        complete = complete and whole
        if steps:
            histories.append((word, steps))
    chosen = read_launches(patterns, kernel, where, lines_follow=True)
    shown = chosen.reports, chosen.launches
    if not chosen.launches and not programs and not histories:
        return options.COULD_NOT  # what could not be read was said; an empty page says nothing
    page = pages.render(*shown, title or pages.TITLE, top or ROWS, programs, histories)
    write_text(output, page.html)
    say_each((ProfkitError(line) for line in page.notes), quiet=options.FORM.quiet)
    left = f"; {page.left_out} more with --top {page.launches + page.left_out}"
    size = len(page.html.encode()) / 1e6
    rows = counted(page.launches, "row", "rows")
    note(f"{output}: {rows}, {size:.1f} MB{left * bool(page.left_out)}")
    if opens:
        open_page(output)
    if not folders:
        return chosen.status
    if chosen.complete and complete:
        return options.DONE
    return options.COULD_NOT


def _read_history_and_say_problems(folder: str) -> tuple[list[HistoryStep], bool]:
    """Return the steps of a history, and whether there are some and all could be read."""
    from profkit.cli import sources
    from profkit.cli.output import say_each

    steps, problems = sources.read_steps(folder)
    if not steps and not problems:
        problems = [ProfkitError(f"{folder}: this history has no run", "profkit history --add")]
    say_each(problems)
    return steps, not problems


def _read_program(folder: str) -> PageProgram:
    """Judge the recording that triage kept in a folder, and read what triage said of it."""
    from profkit.program import readers as recordings
    from profkit.program.document import read_document
    from profkit.program.triage import triage_timeline
    from profkit.show.step import PageProgram

    answer = triage_timeline(recordings.read_timeline(Path(folder)))
    return PageProgram(folder, answer, read_document(Path(folder)))
