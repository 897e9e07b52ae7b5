"""Variants  ->  list, doctor, build, check, bench, profile: parse, call one function, print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profkit.cli import profiling
from profkit.cli.inputs.targets import (
    BAD,
    COULD_NOT,
    Archs,
    Artifacts,
    BuildDir,
    Cases,
    Every,
    Kernels,
    Names,
    named,
    places,
    print_json,
    say_all,
    show,
    status,
)
from profkit.cli.options import Json, Quiet, say
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.measure.runs import Made


def register(app: typer.Typer) -> None:
    """Add this file's verbs."""
    app.command("list")(list_)
    app.command()(doctor)
    app.command()(build)
    app.command()(check)
    app.command()(bench)
    profiling.register(app)


def list_(
    problem: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this one: a folder of --kernels.")
    ] = None,
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    artifacts: Artifacts = None,
    json: Json = False,
) -> None:
    """The variants in ladder order: built, recorded, stale."""
    from profkit.measure import ladder
    from profkit.show.views import measured

    rows = ladder.listing(places(kernels, build_dir, artifacts), problem)
    if json:
        print_json({"schema": "profkit.list/1", "variants": rows})
    else:
        for name in dict.fromkeys(row["problem"] for row in rows):
            print(name)
            show(measured.ladder([row for row in rows if row["problem"] == name]))


def doctor(json: Json = False) -> None:
    """What is there to measure with, and what to do about what is not."""
    from dataclasses import asdict

    from profkit.measure import doctor as examiner
    from profkit.show.views import measured

    found = [asdict(f) for f in examiner.examine()]
    if json:
        print_json({"schema": "profkit.doctor/1", "findings": found})
    else:
        show(measured.findings(found))


def build(
    variant: Names = None,
    every: Every = False,
    arch: Archs = None,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Stale records of this very machine code are so no more."),
    ] = False,
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    artifacts: Artifacts = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile variants, and hold them to the budgets in their headers. Needs no GPU."""
    from profkit.measure import ladder
    from profkit.show.views import measured

    at = places(kernels, build_dir, artifacts)
    archs = arch.split(",") if arch else None
    with status(quiet) as progress:
        progress("build")
        made = ladder.compiled(at, named(variant, every), archs)
    for path in ladder.refresh(at, made) if refresh else ():
        if not quiet:
            print(f"{path}: machine code that today's source still gives", file=sys.stderr)
    if json:
        print_json({"schema": "profkit.build/1", "builds": [b.summary for b in made]})
    else:
        show(measured.builds([row for b in made for row in b.rows]))
    for one in made:
        for line in one.over_budget:
            say(ProfkitError(line))
        if one.error:
            say_all(*one.error.split("\n", 1))
    if any(b.error for b in made):
        raise typer.Exit(COULD_NOT)
    if any(b.over_budget for b in made):
        raise typer.Exit(BAD)


def check(
    variant: Names = None,
    every: Every = False,
    case: Cases = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Run compute-sanitizer's four tools too.")
    ] = False,
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Is it right, on every case, and does it keep to its own memory."""
    from profkit.measure import pipeline, targets
    from profkit.show.views import measured

    target = targets.choose(
        places(kernels, build_dir), named(variant, every), every, case or (), False
    )
    if not case:
        target = targets.every_case(target)
    with status(quiet) as progress:
        made = pipeline.measure(target, progress, time=False)
        if sanitize:
            pipeline.sanitized(made, progress)
    checks = list(made.outcome.checks.values())
    if json:
        print_json({"schema": "profkit.check/1", "checks": checks})
    else:
        show(measured.checks(checks))
    _faults(made, checks)


def bench(
    variant: Names = None,
    every: Every = False,
    case: Cases = None,
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """How fast, against every reference, in turns: L2 warm and cold."""
    from profkit.measure import pipeline, targets
    from profkit.measure.runs import timed
    from profkit.show.views import measured

    target = targets.choose(
        places(kernels, build_dir), named(variant, every), every, case or (), True
    )
    with status(quiet) as progress:
        made = pipeline.measure(target, progress)
    by_case = {c: timed(made, c) for c in target.cases}
    if json:
        print_json({"schema": "profkit.bench/1", "gpu": made.outcome.gpu, "cases": by_case})
    else:
        for name, rows in by_case.items():
            if rows:
                print(f"{name}: {measured.conditions(made.outcome.gpu, rows[0]['timing'])}")
                show(measured.times(rows, target.references))
                for line in measured.notes(rows, target.references):
                    print(line)
    _faults(made, list(made.outcome.checks.values()))


def _faults(made: Made, checks: Sequence[dict[str, Any]]) -> None:
    """Say what is wrong on stderr; the worst of it is the exit status."""
    from profkit.show.views import measured

    for one in checks:
        for line in measured.faults(one):
            print(f"profkit: {line}", file=sys.stderr)
    broken = [b for b in made.builds.values() if b.error]
    for built in broken:
        say_all(f"{built.variant.path} does not compile", built.error or "")
    judged = {c["variant"] for c in checks}
    lost = [n for n in made.outcome.failed if n not in judged]
    for name in lost:
        say(ProfkitError(f"{name}: {made.outcome.failed[name]}"))
    if broken:
        raise typer.Exit(COULD_NOT)
    if any(c["status"] in ("wrong", "failed") for c in checks):
        raise typer.Exit(BAD)
