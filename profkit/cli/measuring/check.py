"""Variants  ->  whether they are right, on every case."""

from __future__ import annotations

from typing import Annotated

import typer

from profkit.cli.inputs.faults import leave_with_faults
from profkit.cli.inputs.targets import named_or_all, on_gpus, say_gpus
from profkit.cli.options import BuildDir, Cases, Every, Gpus, Json, Kernels, Names, Quiet
from profkit.cli.output import print_blocks, print_json, spinner
from profkit.cli.verb import Verb


def check_variants(
    variant: Names = None,
    every: Every = False,
    case: Cases = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Run compute-sanitizer's four tools too.")
    ] = False,
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    gpus: Gpus = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Is it right, on every case, and does it keep to its own memory."""
    from profkit.measure import pipeline, targets
    from profkit.show.views import measured

    target = targets.choose_target(
        targets.Places(kernels, build_dir), named_or_all(variant, every), every, case or (), False
    )
    if not case:
        target = targets.every_case(target)
    target = on_gpus(target, gpus)
    with spinner(quiet) as progress:
        run = pipeline.measure_target(target, progress, time=False)
        if sanitize:
            pipeline.sanitized(run, progress)
    say_gpus(run.measured, quiet)
    checks = run.measured.checks_json()
    if json:
        print_json({"schema": "profkit.check/1", "checks": checks})
    else:
        print_blocks(measured.checks(checks))
    leave_with_faults(run, checks)


VERB = Verb(
    run=check_variants,
    bad="a variant is wrong, or a sanitizer found something",
    examples=(
        "profkit check --variant stage2 --sanitize     # compute-sanitizer's four tools too",
        "profkit check --all --case B --kernels mine --build-dir build",
        "profkit check --all --gpus 0,1",
        "profkit check --variant stage2 --json --quiet",
    ),
)
