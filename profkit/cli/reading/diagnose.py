"""Reports  ->  what each kernel waits for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.inputs.launches import choose, read
from profkit.cli.options import COULD_NOT, Json, Kernel, Markdown, Paths, Quiet, Where
from profkit.cli.output import one_form, print_blocks, print_json, write_to
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.diagnosis.launches import Judged, Row
    from profkit.reports.reader import ReportFile

DETAILS = 3
Csv = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the frame as CSV; - is stdout.")
]
Parquet = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the frame as Parquet.")]
Lines = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="N source lines of each finding, and the N hottest of each launch; 0: none. "
        "Left out, 3 of each finding.",
        show_default=False,
    ),
]
Details = Annotated[
    int | None,
    typer.Option(
        "--top", min=1, metavar="N", help=f"The N worst rows in detail; {DETAILS} if left out."
    ),
]
Every = Annotated[bool, typer.Option("--all", help="Every row, in the table and in detail.")]
Each = Annotated[bool, typer.Option("--each", help="Launches of one kernel one by one.")]


def diagnose_reports(
    reports: Paths,
    json: Json = False,
    markdown: Markdown = False,
    csv: Csv = None,
    parquet: Parquet = None,
    top: Details = None,
    kernel: Kernel = None,
    where: Where = None,
    lines: Lines = None,
    every: Every = False,
    each: Each = False,
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
        from profkit.diagnosis.launches import rows

        table = rows(chosen.launches, every=each)
        _print_rows(table, len(table) if every else top or DETAILS, lines, markdown, every)
    if not complete or not any(run.status == "ok" for run in chosen.launches):
        raise typer.Exit(COULD_NOT)


def _show_document(
    files: Sequence[ReportFile], launches: list[Judged], top: int | None, lines: int | None
) -> None:
    from profkit.diagnosis.launches import rows, with_lines
    from profkit.show.views.document import document

    if top is not None:
        worst = {id(run) for row in rows(launches)[:top] for run in row.launches}
        launches = [run for run in launches if id(run) in worst]
    if lines != 0:
        launches = with_lines(launches, lines, lines or 0)
    print_json(document(files, launches))


def _print_rows(
    table: list[Row], details: int, lines: int | None, markdown: bool, full: bool
) -> None:
    """The answer, the table, and the first rows in detail."""
    from profkit.diagnosis.launches import with_lines
    from profkit.show.text.terminal import console
    from profkit.show.views.diagnosis import Asked, told

    if not table:
        return
    detailed = table[:details]
    if lines != 0:
        lined = with_lines([row.shown for row in detailed], lines, lines or 0)
        detailed = [row.replaced(row.shown, run) for row, run in zip(detailed, lined, strict=True)]
    width = None if markdown else console().width
    print_blocks(told(table, Asked(detailed, full, width)), as_markdown=markdown)


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
        "profkit diagnose my.ncu-rep --lines 5         # five source lines of each finding",
        "profkit diagnose runs/ --top 3 --quiet        # the three worst of a folder",
        "profkit diagnose runs/ --kernel flash --each  # launches one by one",
        "profkit diagnose runs/ --all                  # every row in detail",
        "profkit diagnose runs/ --where 'bound == \"memory\"' --json",
        "profkit diagnose runs/ --markdown             # for a pull request",
        "profkit diagnose runs/ --csv runs.csv --parquet runs.parquet",
    ),
)
