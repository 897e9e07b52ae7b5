"""Variants  ->  times, against every reference, in turns."""

from __future__ import annotations

from profkit.cli.inputs.faults import leave_with_faults
from profkit.cli.inputs.targets import named, places
from profkit.cli.options import BuildDir, Cases, Every, Json, Kernels, Names, Quiet
from profkit.cli.output import print_blocks, print_json, spinner
from profkit.cli.verb import Verb


def time_variants(
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
    with spinner(quiet) as progress:
        made = pipeline.measure(target, progress)
    by_case = {c: timed(made, c) for c in target.cases}
    if json:
        print_json({"schema": "profkit.bench/1", "gpu": made.measured.gpu_json(), "cases": by_case})
    else:
        for name, rows in by_case.items():
            if rows:
                print_blocks(
                    measured.timed_case(name, made.measured.gpu_json(), rows, target.references)
                )
    leave_with_faults(made, made.measured.checks_json())


VERB = Verb(
    run=time_variants,
    bad="a variant is wrong",
    examples=(
        "profkit bench --variant stage2 --variant champion --case B",
        "profkit bench --all --kernels mine --build-dir build --json --quiet",
    ),
)
