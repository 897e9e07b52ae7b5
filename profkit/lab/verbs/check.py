"""Variants  ->  whether they are right, on every case; or only built, within their headers' budgets.

# Check a variant in every case, and run compute-sanitizer too.
profkit check --variant stage2 --sanitize
# Check all variants at one case, or on two GPUs.
profkit check --all --case B --kernels mine --build-dir build
profkit check --all --gpus 0,1
# Compile for several architectures; this needs no GPU.
profkit check --build-only --variant stage2 --arch 80,89,90
# Mark records as current whose machine code has not changed.
profkit check --build-only --all --arch 90 --refresh --artifacts runs
# Print JSON.
profkit check --variant stage2 --json --quiet
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.lab.measure.targets import LabFolders, Target
    from profkit.units import ExitStatus
Sanitize = Annotated[
    bool, typer.Option("--sanitize", help="Run compute-sanitizer's four tools too.")
]
BuildOnly = Annotated[
    bool,
    typer.Option("--build-only", help="Compile, and check the header's limits; needs no GPU."),
]
Archs = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="LIST",
        help="Compile for these architectures (80,89,90); with --build-only. Default: this GPU's.",
    ),
]
Refresh = Annotated[
    bool,
    typer.Option(
        "--refresh",
        help="Mark stale records as current if machine code is unchanged; with --build-only.",
    ),
]

GROUP = "Work on your own kernels"
SUMMARY = "Check results and memory accesses in every case."


@options.verb(
    GROUP,
    SUMMARY,
    bad="a variant is wrong or over budget, or a sanitizer found an error",
    sections={"What to check": "variant every case sanitize build_only arch refresh"},
)
def check_variants(
    variant: options.Names = None,
    every: options.Every = False,
    case: options.Cases = None,
    sanitize: Sanitize = False,
    build_only: BuildOnly = False,
    arch: Archs = None,
    refresh: Refresh = False,
    kernels: options.Kernels = None,
    build_dir: options.BuildDir = None,
    artifacts: options.RecordsDir = None,
    gpus: options.Gpus = None,
) -> int:
    """It builds each variant, and compares its outputs with the reference in every case and check.

    Writes outside the outputs are errors too. --build-only compiles, with --arch also without a
    GPU, and compares registers and memory with the budgets in the headers.
    """
    from profkit.cli.output import refuse_flags
    from profkit.lab.flags import require_names_or_all, set_visible_gpus
    from profkit.lab.measure import targets

    at = targets.LabFolders(kernels, build_dir, artifacts)
    names = require_names_or_all(variant, every)
    if build_only:
        running = {"--case": case, "--sanitize": sanitize, "--gpus": gpus}
        refuse_flags(running, "--build-only runs nothing", "leave it out")
        return _compile_and_print_budget_excesses(at, names, _parse_archs(arch), refresh)
    built = {"--arch": arch, "--refresh": refresh, "--artifacts": artifacts}
    refuse_flags(built, "of --build-only", "profkit check --build-only")
    target = targets.find_target_by_options(at, names, every, case or (), False)
    if not case:
        target = replace(target, cases=tuple(target.problem.cases))
    return _check_and_print_target(set_visible_gpus(target, gpus), sanitize)


def _check_and_print_target(target: Target, sanitize: bool) -> ExitStatus:
    """Run each variant in each case, and say what is wrong; return the exit status."""
    from profkit.cli.output import print_blocks, show_spinner
    from profkit.lab.flags import print_faults_and_get_exit_status, print_gpus_of_cases
    from profkit.lab.measure import pipeline
    from profkit.lab.measure.check import CheckDocument
    from profkit.lab.measure.sanitize import run_sanitizer_on_all_variants
    from profkit.show.views import measured

    with show_spinner() as progress:
        run = pipeline.measure_target(target, progress, is_timed=False)
        if sanitize:
            run_sanitizer_on_all_variants(run, progress)
    print_gpus_of_cases(run.measured)
    checks = run.measured.describe_checks()
    document = CheckDocument(checks=tuple(run.measured.checks.values()))
    print_blocks(measured.show_checks(checks), document)
    return print_faults_and_get_exit_status(run, checks)


def _compile_and_print_budget_excesses(
    folders: LabFolders, names: Sequence[str], archs: Sequence[str], refresh: bool
) -> ExitStatus:
    """Compile, and say what is over budget or does not compile; the exit status."""
    from profkit.cli.output import (
        print_blocks,
        print_error_with_output,
        print_errors,
        print_note,
        show_spinner,
    )
    from profkit.lab.measure import ladder
    from profkit.show.views import measured

    with show_spinner() as progress:
        progress("build")
        builds = ladder.compile_and_check_budgets(folders, names, archs)
    if not builds:
        raise ProfkitError(
            f"--arch {', '.join(archs)}: excluded by the headers of these variants",
            "`arch:` in a header lists its architectures; profkit list shows the variants",
        )
    if refresh:
        records = ladder.refresh_records_by_code(folders, builds)
        for path in records.written:
            print_note(f"{path}: the current source still compiles to this machine code")
        for path in records.unknown:
            why = "the kernels are unchanged, but the launcher changed or is unknown"
            print_note(f"{path}: {why}: profkit profile")
    document = ladder.BuildDocument(builds=tuple(compiled.describe_build() for compiled in builds))
    rows = list(chain.from_iterable(b.list_kernel_rows() for b in builds))
    print_blocks(measured.show_builds(rows), document)
    for compiled in builds:
        print_errors(map(ProfkitError, compiled.over_budget))
        if failure := compiled.build.failure:
            print_error_with_output(*failure.message.split("\n", 1))
    if any(compiled.build.error for compiled in builds):
        return options.COULD_NOT
    if any(b.over_budget for b in builds):
        return options.BAD
    return options.DONE


def _parse_archs(text: str | None) -> list[str]:
    """Return architectures as nvcc's numbers: 90, 90a; sm_90 and compute_90 are 90."""
    if not text:
        return []
    numbers = []
    bad = []
    for word in filter(None, map(str.strip, text.split(","))):
        if number := re.fullmatch(r"(?:sm_|compute_)?(\d{2,3}[af]?)", word):
            numbers.append(number[1])
        else:
            bad.append(word)
    if bad or not numbers:
        hint = "give compute capabilities without the dot: --arch 80,89,90"
        raise ProfkitError(f"--arch {', '.join(bad) or text}: not an architecture", hint)
    return numbers
