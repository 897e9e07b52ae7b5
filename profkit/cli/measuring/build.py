"""Variants  ->  libraries, within the budgets of their headers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.inputs.targets import named_or_all
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
from profkit.cli.output import note, print_blocks, print_json, say_all, say_each, spinner
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.measure.ladder import Refreshed

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
    from profkit.measure import ladder, targets
    from profkit.show.views import measured

    at = targets.Places(kernels, build_dir, artifacts)
    archs = _archs(arch) if arch else None
    with spinner(quiet) as progress:
        progress("build")
        builds = ladder.compiled(at, named_or_all(variant, every), archs)
    if not builds:
        raise ProfkitError(
            f"--arch {arch}: the headers of these variants rule it out",
            "`arch:` in a header says what it is for; profkit list shows the variants",
        )
    if refresh:
        _refreshed(ladder.refresh(at, builds), quiet)
    if json:
        print_json({"schema": "profkit.build/1", "builds": [b.to_json() for b in builds]})
    else:
        print_blocks(measured.builds_table([row for b in builds for row in b.rows()]))
    for compiled in builds:
        say_each(map(ProfkitError, compiled.over_budget))
        if compiled.error:
            say_all(*compiled.error.split("\n", 1))
    if any(b.error for b in builds):
        raise typer.Exit(COULD_NOT)
    if any(b.over_budget for b in builds):
        raise typer.Exit(BAD)


def _refreshed(records: Refreshed, quiet: bool) -> None:
    """Say which records follow today's source now, and which have to be measured."""
    for path in records.written:
        note(f"{path}: machine code that today's source still gives", quiet=quiet)
    for path in records.unknown:
        note(f"{path}: the same kernels, but a launcher that changed or is not known: "
             "profkit profile", quiet=quiet)  # fmt: skip


def _archs(text: str) -> list[str]:
    """Architectures as nvcc's numbers: 90, 90a; sm_90 and compute_90 are 90."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    numbers = [re.fullmatch(r"(?:sm_|compute_)?(\d{2,3}[af]?)", word) for word in words]
    bad = [word for word, number in zip(words, numbers, strict=True) if number is None]
    if bad or not words:
        raise ProfkitError(
            f"--arch {', '.join(bad) or text}: not an architecture",
            "compute capabilities without a point: --arch 80,89,90",
        )
    return [number[1] for number in numbers if number]


VERB = Verb(
    run=build_variants,
    bad="a variant takes more than its header allows",
    examples=(
        "profkit build --variant stage2 --arch 80,89,90",
        "profkit build --all --arch 90 --refresh --artifacts runs",
        "profkit build --all --kernels mine --build-dir build --json --quiet",
    ),
)
