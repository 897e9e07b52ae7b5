"""Variants  ->  libraries, within the budgets of their headers."""

from __future__ import annotations

from typing import Annotated

import typer

from profkit.cli.inputs.targets import named, places
from profkit.cli.options import (
    BAD,
    COULD_NOT,
    BuildDir,
    Every,
    Json,
    Kernels,
    Names,
    Quiet,
    RecordsDir,
)
from profkit.cli.output import note, print_blocks, print_json, say, say_all, spinner
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError

Archs = Annotated[
    str | None,
    typer.Option("--arch", metavar="LIST", help="80,89,90; the GPU present when left out."),
]


def build_variants(
    variant: Names = None,
    every: Every = False,
    arch: Archs = None,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Stale records of this very machine code are so no more."),
    ] = False,
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    artifacts: RecordsDir = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile variants, and hold them to the budgets in their headers. Needs no GPU."""
    from profkit.measure import ladder
    from profkit.show.views import measured

    at = places(kernels, build_dir, artifacts)
    archs = arch.split(",") if arch else None
    with spinner(quiet) as progress:
        progress("build")
        made = ladder.compiled(at, named(variant, every), archs)
    for path in ladder.refresh(at, made) if refresh else ():
        note(f"{path}: machine code that today's source still gives", quiet=quiet)
    if json:
        print_json({"schema": "profkit.build/1", "builds": [b.to_json() for b in made]})
    else:
        print_blocks(measured.builds([row for b in made for row in b.rows()]))
    for compiled in made:
        for line in compiled.over_budget:
            say(ProfkitError(line))
        if compiled.error:
            say_all(*compiled.error.split("\n", 1))
    if any(b.error for b in made):
        raise typer.Exit(COULD_NOT)
    if any(b.over_budget for b in made):
        raise typer.Exit(BAD)


VERB = Verb(
    run=build_variants,
    bad="a variant takes more than its header allows",
    examples=(
        "profkit build --variant stage2 --arch 80,89,90",
        "profkit build --all --arch 90 --refresh --artifacts runs",
        "profkit build --all --kernels mine --build-dir build --json --quiet",
    ),
)
