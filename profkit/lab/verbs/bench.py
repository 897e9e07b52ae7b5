"""Variants  ->  times, against every reference, in turns.

# Time two variants at one case, next to every reference.
profkit bench --variant stage2 --variant champion --case B
# Time all variants, one case per GPU.
profkit bench --all --case B --case C --gpus 2
# Measure the noise between 20 processes.
profkit bench --aa 20 --variant champion
# Measure it with 60 rounds per process, and keep it in a history.
profkit bench --aa 5 --rounds 60 --variant stage2 --history runs/history
# Use folders of your own, and print JSON.
profkit bench --all --kernels mine --build-dir build --json --quiet
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.records.paths import HISTORY

if TYPE_CHECKING:
    from profkit.lab.measure.targets import Target, TargetRun

Twins = Annotated[
    int | None,
    typer.Option(
        "--aa",
        metavar="N",
        help="Time each variant against itself, interleaved, in N processes.",
        min=1,
    ),
]
Rounds = Annotated[
    int, typer.Option(metavar="N", help="Set the rounds per process; with --aa.", min=6)
]
TwinHistory = Annotated[
    str,
    typer.Option("--history", metavar="DIR", help="Keep the results of --aa in this history."),
]

GROUP = "Work on your own kernels"
SUMMARY = "Time variants against every reference, with a warm and a cold L2."


@options.verb(GROUP, SUMMARY, bad="a variant is wrong")
def time_variants(
    variant: options.Names = None,
    every: options.Every = False,
    case: options.Cases = None,
    kernels: options.Kernels = None,
    build_dir: options.BuildDir = None,
    gpus: options.Gpus = None,
    aa: Twins = None,
    rounds: Rounds = 120,
    history: TwinHistory = HISTORY,
) -> int:
    """It builds each variant, checks its results, and times all of a case alternately on one GPU.

    A variant with wrong results gets no time. It writes no records; profile does.
    """
    from profkit.cli.output import show_spinner
    from profkit.lab.flags import (
        print_faults_and_get_exit_status,
        print_gpus_of_cases,
        require_names_or_all,
        set_visible_gpus,
    )
    from profkit.lab.measure import pipeline, targets

    names = require_names_or_all(variant, every)
    at = targets.LabFolders(kernels, build_dir)
    target = targets.find_target_by_options(at, names, every, case or (), aa is None)
    if aa is not None and gpus is not None:
        raise ProfkitError("--aa uses one GPU", "choose it with CUDA_VISIBLE_DEVICES")
    if aa is not None:
        _run_aa_sessions(target, aa, rounds, history)
        return options.DONE
    target = set_visible_gpus(target, gpus)
    with show_spinner() as progress:
        run = pipeline.measure_target(target, progress)
    print_gpus_of_cases(run.measured)
    _print_times(run)
    return print_faults_and_get_exit_status(run, run.measured.describe_checks())


def _print_times(run: TargetRun) -> None:
    """Print what was timed in each case, and on which GPU."""
    from profkit.cli.output import print_blocks, print_json
    from profkit.lab.measure.targets import BenchDocument, list_timed_rows
    from profkit.show.views import measured

    by_case = {case: list_timed_rows(run, case) for case in run.target.cases}
    # Everything of a case is timed on one GPU.
    used = {case: gpu for (_, case), gpu in run.measured.gpus.items()}
    if options.FORM.json:
        gpu = asdict(run.measured.gpu) if run.measured.gpu else {}
        print_json(BenchDocument(gpu=gpu, gpus=used, cases=by_case))
        return
    for case, rows in by_case.items():
        if rows:
            gpu = asdict(used[case]) if case in used else {}
            plain = [row.to_json() for row in rows]
            print_blocks(measured.show_timed_case(case, gpu, plain, run.target.references))


def _run_aa_sessions(target: Target, processes: int, rounds: int, folder: str) -> None:
    from profkit.cli.output import print_blocks, print_note, show_spinner
    from profkit.evidence.history import History
    from profkit.evidence.noise import NoiseDocument, measure_aa_noise_by_gpu
    from profkit.evidence.tables import HistoryTwin
    from profkit.lab.measure.pipeline import iterate_aa_comparisons
    from profkit.show.views.history import show_noise

    comparisons: list[HistoryTwin] = []
    try:
        with show_spinner() as progress:
            for twins in iterate_aa_comparisons(target, processes, rounds, progress):
                comparisons += twins
    finally:  # what was measured before somebody stopped it is kept
        History(folder).append_rows(comparisons)
    print_note(f"{folder}: {len(comparisons)} A/A comparisons added")
    noise = measure_aa_noise_by_gpu(comparisons)
    print_blocks(show_noise(noise), NoiseDocument(machines=tuple(noise)))
