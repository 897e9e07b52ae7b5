"""Reports  ->  what each kernel waits for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.inputs.launches import choose, read
from profkit.cli.options import COULD_NOT, Json, Kernel, Markdown, Paths, Quiet, Top, Where
from profkit.cli.output import one_form, print_json, write_to
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.diagnosis.launches import Judged
    from profkit.reports.reader import ReportFile

Csv = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the frame as CSV; - is stdout.")
]
Parquet = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the frame as Parquet.")]
Lines = Annotated[int, typer.Option(min=0, metavar="N", help="The N hottest source lines of each.")]
Every = Annotated[bool, typer.Option("--all", help="Launches of one kernel one by one.")]


def diagnose_reports(
    reports: Paths,
    json: Json = False,
    markdown: Markdown = False,
    csv: Csv = None,
    parquet: Parquet = None,
    top: Top = None,
    kernel: Kernel = None,
    where: Where = None,
    lines: Lines = 0,
    every: Every = False,
    quiet: Quiet = False,
) -> None:
    """What each kernel waits for, and what mending that could gain."""
    one_form(json, markdown)
    files = [write_to(f) for f in (csv, parquet) if f and str(f) != "-"]
    found, complete = read(reports, quiet=quiet)
    chosen = choose(found, kernel, where)
    for file in files:
        _save(chosen.frame, file, as_csv=file == csv)
    if csv and str(csv) == "-":
        print(chosen.frame.to_csv(index=False), end="")
    elif json:
        _show_document(found.files, chosen.launches, top, lines)
    elif not files:
        _print_text(chosen.launches, top, lines, every=every, as_markdown=markdown)
    if not complete or not any(run.status == "ok" for run in chosen.launches):
        raise typer.Exit(COULD_NOT)


def _show_document(
    files: Sequence[ReportFile], launches: list[Judged], top: int | None, lines: int
) -> None:
    from profkit.diagnosis.launches import rows, with_lines
    from profkit.show.views.document import document

    if top is not None:
        worst = {id(run) for row in rows(launches)[:top] for run in row.launches}
        launches = [run for run in launches if id(run) in worst]
    if lines:
        launches = with_lines(launches, lines)
    print_json(document(files, launches))


def _print_text(
    launches: list[Judged], top: int | None, lines: int, *, every: bool, as_markdown: bool
) -> None:
    from profkit.diagnosis.launches import rows, with_lines

    if not launches:
        return
    found = rows(launches, every=every)
    shown = found[:top]
    if lines:
        lined = with_lines([row.shown for row in shown], lines)
        shown = [row.replaced(row.shown, run) for row, run in zip(shown, lined, strict=True)]
    if as_markdown:
        from profkit.show.views import markdown

        print(markdown.render(shown, found), end="")
    else:
        from profkit.show.views import diagnosis as text

        print(text.render(shown, found, text.console()), end="")


def _save(frame: DataFrame, file: Path, *, as_csv: bool) -> None:
    """Write a frame beside its place and move it there, so that no half file is ever left."""
    part = file.with_name(f".{file.name}.part")
    try:
        if as_csv:
            frame.to_csv(part, index=False)
        else:
            frame.to_parquet(part, index=False)
        part.replace(file)
    except ImportError as error:
        raise ProfkitError("--parquet needs pyarrow", "pip install 'profkit[parquet]'") from error
    except OSError as error:
        raise ProfkitError(f"{file}: cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


VERB = Verb(
    run=diagnose_reports,
    examples=(
        "profkit diagnose my.ncu-rep --lines 5         # and the source lines that wait",
        "profkit diagnose runs/ --top 3 --quiet        # the three worst of a folder",
        "profkit diagnose runs/ --kernel flash --all   # launches one by one",
        "profkit diagnose runs/ --where 'bound == \"memory\"' --json",
        "profkit diagnose runs/ --markdown             # for a pull request",
        "profkit diagnose runs/ --csv runs.csv --parquet runs.parquet",
    ),
)
