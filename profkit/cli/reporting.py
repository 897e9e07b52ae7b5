"""For somebody else: a page of any reports, or one variant's summary for a pull request."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import complete, summary
from profkit.cli.judging import Artifacts, Case
from profkit.cli.options import Json, Markdown, Quiet, say, write_to
from profkit.cli.reading import COULD_NOT, Kernel, Top, Where, choose, read
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.diagnosis.launches import Judged
    from profkit.reports.reader import Reports

ROWS = 50  # on a page; about 40 kB each
What = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORTS...|VARIANT",
        help="With -o: reports, folders and globs. Without: a variant, stage2 or stage2.B.",
        autocompletion=complete.sides,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write a page in one HTML file."),
]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="The page's heading.")]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="The variant's baseline; what its header changes if left out.",
        autocompletion=complete.recorded,
    ),
]
Gates = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Acceptance gates of the variant: your own file of claims."),
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Stale runs, other GPUs, clocks and ncu versions too.")
]


def register(app: typer.Typer) -> None:
    """Add this file's verb."""
    app.command()(report)


def report(
    what: What,
    output: Output = None,
    title: Title = None,
    kernel: Kernel = None,
    where: Where = None,
    top: Top = None,
    quiet: Quiet = False,
    against: Against = None,
    case: Case = None,
    gate: Gates = None,
    artifacts: Artifacts = Path("artifacts"),
    anyway: Anyway = False,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """A page of reports, or one variant's summary for a pull request.

    With -o a page with everything in it, for somebody without profkit: it needs no network.
    Without, one variant: decision, time, counters, what changed, gates.
    """
    of_page = {"--title": title, "--kernel": kernel, "--where": where, "--top": top}
    of_variant = {"--against": against, "--case": case, "--gate": gate, "--anyway": anyway,
                  "--json": json, "--markdown": markdown}  # fmt: skip
    if output is not None:
        _none_of(of_variant, "for one variant, not for a page", "leave it out, or -o")
        write_to(output)
        found, complete = read(what, quiet=quiet)
        chosen = choose(found, kernel, where).launches
        _page(output, found, chosen, title, top, quiet)
        if not complete or not any(run.status == "ok" for run in chosen):
            raise typer.Exit(COULD_NOT)
        return
    _none_of(of_page, "for a page, not for one variant", "profkit report REPORTS -o page.html")
    asked = summary.Asked(_variant(what), against, case, gate or (), artifacts, anyway)
    summary.write(asked, json=json, markdown=markdown)


def _none_of(flags: Mapping[str, object], why: str, hint: str) -> None:
    """Raise a ProfkitError for a flag that does not belong to what was asked for."""
    given = [flag for flag, value in flags.items() if value]
    if given:
        raise ProfkitError(f"{', '.join(given)}: {why}", hint)


def _variant(what: Sequence[str]) -> str:
    """The one variant that was named."""
    names = [name for name in what if not ("/" in name or Path(name).exists())]
    if len(names) < len(what):
        named = next(name for name in what if name not in names)
        raise ProfkitError(f"{named}: a page of reports needs a place", "-o page.html")
    if len(names) > 1:
        raise ProfkitError(f"{len(names)} variants: one at a time", f"profkit report {names[0]}")
    return names[0]


def _page(
    output: Path,
    found: Reports,
    chosen: Sequence[Judged],
    title: str | None,
    top: int | None,
    quiet: bool,
) -> None:
    from profkit.show.page import page as pages

    page = pages.render(found, chosen, title or pages.TITLE, top or ROWS)
    pages.save(page, output)
    if quiet:
        return
    for note in page.notes:
        say(ProfkitError(note))
    left = f"; {page.left_out} more with --top {page.launches + page.left_out}"
    size = len(page.html.encode()) / 1e6
    more = left if page.left_out else ""
    print(f"{output}: {page.launches} rows, {size:.1f} MB{more}", file=sys.stderr)
