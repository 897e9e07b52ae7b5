"""Reports  ->  what they say: diagnose, roofline, explain."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import complete
from profkit.cli.options import Json, Markdown, Paths, Quiet, progress, say, write_to
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.diagnosis.launches import Judged
    from profkit.reports.reader import ReportFile, Reports

COULD_NOT = 2
Kernel = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Only launches whose kernel name matches this anywhere."),
]
Where = Annotated[
    str | None,
    typer.Option(metavar="EXPR", help="Only launches for which this holds: 'bound == \"memory\"'."),
]
Csv = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the frame as CSV; - is stdout.")
]
Parquet = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the frame as Parquet.")]
Top = Annotated[int | None, typer.Option(min=1, metavar="N", help="The N worst rows only.")]
Lines = Annotated[int, typer.Option(min=0, metavar="N", help="The N hottest source lines of each.")]
Every = Annotated[bool, typer.Option("--all", help="Launches of one kernel one by one.")]


def register(app: typer.Typer) -> None:
    """Add this file's verbs."""
    app.command()(diagnose)
    app.command()(roofline)
    app.command()(explain)


def diagnose(
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
    if json and markdown:
        raise ProfkitError("--json and --markdown are two answers", "give one of them")
    files = [write_to(f) for f in (csv, parquet) if f and str(f) != "-"]
    found, complete = read(reports, quiet=quiet)
    chosen = choose(found, kernel, where)
    for file in files:
        _save(chosen.frame, file, as_csv=file == csv)
    if csv and str(csv) == "-":
        print(chosen.frame.to_csv(index=False), end="")
    elif json:
        _print_json(found.files, chosen.launches, top, lines)
    elif not files:
        _print_text(chosen.launches, top, lines, every=every, as_markdown=markdown)
    if not complete or not any(run.status == "ok" for run in chosen.launches):
        raise typer.Exit(COULD_NOT)


@dataclass(frozen=True)
class Chosen:
    """The launches that were asked for."""

    reports: Reports
    everything: list[Judged]
    kept: list[int]

    @property
    def launches(self) -> list[Judged]:
        """Judged, in the order of the files."""
        return [self.everything[i] for i in self.kept]

    @property
    def frame(self) -> DataFrame:
        """The rows of the frame, with the judgement in it."""
        from profkit.diagnosis.launches import table

        return table(self.reports, self.everything).iloc[self.kept]


def read(patterns: Sequence[str], *, quiet: bool) -> tuple[Reports, bool]:
    """Read all that can be read and say on stderr what cannot.

    Returns:
        The reports, and whether every one of them was read whole.
    """
    from profkit.records.paths import expand
    from profkit.reports.reader import read as read_files

    paths: dict[str, None] = {}
    complete = True
    for pattern in patterns:
        try:
            paths.update(dict.fromkeys(expand(pattern)))
        except ProfkitError as error:
            say(error)
            complete = False
    if not paths:
        raise typer.Exit(COULD_NOT)
    with progress("reading", quiet=quiet) as step:
        found = read_files(paths, progress=step)
    given_up = _given_up(found)
    for file in found.files:
        if file.status != "ok":
            say(ProfkitError(f"{file.path}: {file.status}: {file.message}", _MEND[file.status]))
            complete = False
        elif file.path in given_up:
            say(ProfkitError(f"{file.path}: ncu gave up on every launch in it", _FAILED))
    return found, complete


_FAILED = "profile again: ncu's own output says why (memory, a time-out, a crash of the kernel)"
_MEND = {
    "empty": "ncu recorded no launch: check its --kernel-name, --launch-skip and NVTX filters",
    "damaged": "copy it again or profile again; what could be read is shown",
    "unreadable": "give a report that Nsight Compute wrote (.ncu-rep, .ncu-repz)",
}


def _given_up(found: Reports) -> set[str]:
    """The reports in which no launch was measured."""
    status = {part.file.path: {run["status"] for run in part.launches()} for part in found.parts}
    return {path for path, of in status.items() if of == {"failed"}}


def choose(found: Reports, kernel: str | None, where: str | None) -> Chosen:
    """Judge every launch and keep those that were asked for."""
    from profkit.cli.inputs import select
    from profkit.diagnosis.launches import judged

    chosen = Chosen(found, launches := judged(found), list(range(len(launches))))
    if kernel is not None:
        matches = select.by_kernel([run.kernel for run in launches], kernel)
        chosen = replace(chosen, kept=[i for i in chosen.kept if matches[i]])
    if where is not None:
        kept = select.where(chosen.frame, where).index
        chosen = replace(chosen, kept=[int(i) for i in kept])
    if launches and not chosen.kept:
        asked = " and ".join(
            f"--{flag} {text}" for flag, text in (("kernel", kernel), ("where", where)) if text
        )
        raise ProfkitError(f"no launch matches {asked}", _names(launches))
    return chosen


def _names(launches: Sequence[Judged]) -> str:
    from profkit.show.text.names import short

    names = dict.fromkeys(short(run.kernel, 40) for run in launches)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"there are: {', '.join(list(names)[:5])}{more}"


def _print_json(
    files: Sequence[ReportFile], launches: list[Judged], top: int | None, lines: int
) -> None:
    from profkit.diagnosis.launches import rows, with_lines
    from profkit.show.views.document import document, dumps

    if top is not None:
        worst = {id(run) for row in rows(launches)[:top] for run in row.launches}
        launches = [run for run in launches if id(run) in worst]
    if lines:
        launches = with_lines(launches, lines)
    print(dumps(document(files, launches)))


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


def roofline(
    reports: Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture: .png, .svg or .pdf.")
    ] = Path("roofline.png"),
    kernel: Kernel = None,
    where: Where = None,
    quiet: Quiet = False,
) -> None:
    """Every launch under the ceilings of its machine, as a picture."""
    from profkit.show import plots

    write_to(output)
    found, complete = read(reports, quiet=quiet)
    chosen = choose(found, kernel, where)
    devices = sorted({run.device for run in chosen.launches if run.device})
    if len(devices) > 1:
        raise ProfkitError(f"launches of {len(devices)} devices: {', '.join(devices)}",
                           f"draw one at a time: --where 'device == \"{devices[0]}\"'")  # fmt: skip
    plots.save(plots.roofline(chosen.frame), output)
    if not quiet:
        print(f"{output}: {len(chosen.frame)} launches", file=sys.stderr)
    if not complete:
        raise typer.Exit(COULD_NOT)


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RULE-or-METRIC",
            help="All of them when left out.",
            autocompletion=complete.pages,
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As Markdown; without a name the whole reference.")
    ] = False,
) -> None:
    """What a rule or a metric means and needs, with an example."""
    from profkit.show.views import explain as pages

    if name is None:
        print(pages.reference() if markdown else pages.index())
        return
    page = pages.explain(name)
    print(page.markdown if markdown else page)
