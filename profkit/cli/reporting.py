"""Reports  ->  one page to open, send and print: report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from profkit.cli.options import Paths, Quiet, say, write_to
from profkit.cli.reading import COULD_NOT, Kernel, Where, choose, read
from profkit.errors import ProfkitError


def register(app: typer.Typer) -> None:
    """Add this file's verb."""
    app.command()(report)


def report(
    reports: Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("page.html"),
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Its heading.", show_default=False)
    ] = None,
    kernel: Kernel = None,
    where: Where = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="The N worst rows only.")] = 50,
    quiet: Quiet = False,
) -> None:
    """One HTML page with everything in it, for somebody without profkit.

    For example: profkit report runs/ -o page.html --title "Attention on an H200"
    """
    from profkit.show import page as pages

    write_to(output)
    found, complete = read(reports, quiet=quiet)
    launches = choose(found, kernel, where).launches
    page = pages.render(found, launches, title or pages.TITLE, top)
    pages.save(page, output)
    for note in page.notes:
        say(ProfkitError(note))
    if not quiet:
        left = f"; {page.left_out} more rows with --top" if page.left_out else ""
        size = len(page.html.encode()) / 1e6
        print(f"{output}: {page.launches} rows, {size:.1f} MB{left}", file=sys.stderr)
    if not complete or not any(run.status == "ok" for run in launches):
        raise typer.Exit(COULD_NOT)
