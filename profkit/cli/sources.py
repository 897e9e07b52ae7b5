"""The kernels folder at hand  ->  what the variants' headers say, for the verbs that judge."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.cli.output import print_error
from profkit.errors import ProfkitError
from profkit.files import is_file, list_folder_entries, resolve_path
from profkit.records.paths import suggest_command_for_file

if TYPE_CHECKING:
    from profkit.evidence.noise import HistoryStep
    from profkit.evidence.runs import Evidence
    from profkit.records.record import SourceFile
    from profkit.units import ProblemAndVariant, RunLabel, VerbName


def open_evidence(artifacts: Path) -> Evidence:
    """Return a folder of artifacts; its runs say what the headers of the kernels say today.

    They say nothing where no readable kernels lie beside the artifacts.
    """
    from profkit.cli.lab import SourceFiles, find_kernels_folder
    from profkit.evidence.runs import Evidence

    headers: Mapping[str, SourceFile] = {}
    with suppress(ProfkitError):
        kernels = find_kernels_folder()
        # Those of somebody else may have the same names.
        if kernels.parent in resolve_path(artifacts).parents:
            try:
                headers = SourceFiles(kernels)
            except ProfkitError as error:
                print_error(error)  # what the records say goes on
    return Evidence(artifacts, headers=headers)


def refuse_file_of_another_verb(path: str | Path, verb: VerbName) -> None:
    """Raise a ProfkitError that names the command for a file which this verb does not read."""
    if other := suggest_command_for_file(path, verb):
        raise ProfkitError(f"{path}: {other.meaning}, which {verb} does not read", other.command)


def is_triage_folder(path: str | Path) -> bool:
    """Return whether it is a whole program as profkit triage -o keeps it, and may be looked at."""
    with suppress(ProfkitError):
        return is_file(Path(path) / "triage.json")
    return False


def is_history_folder(path: str | Path) -> bool:
    """Return whether it is a folder of the tables of a history, and may be looked at."""
    with suppress(ProfkitError):
        files = list_folder_entries(Path(path) / "runs")
        return any(file.suffix == ".parquet" and is_file(file) for file in files)
    return False


def is_timeline_folder(path: str | Path) -> bool:
    """Return whether it is a program's timeline, kept by a triage that ended before its answer."""
    with suppress(ProfkitError):
        return is_file(Path(path) / "timeline.json")
    return False


def make_errors_of_stale_runs(
    artifacts: Path, run_labels: Collection[RunLabel]
) -> list[ProfkitError]:
    """Return errors that name the runs ("variant.case") whose code has changed since."""
    from profkit.records.record import suggest_run_command

    evidence = open_evidence(artifacts)
    problems = []
    for need in sorted(run_labels) if evidence.headers else ():
        variant, _, case = need.partition(".")
        try:
            run = evidence.load_without_report(variant, case)
        except ProfkitError:
            continue  # the claim says so itself
        if run.stale:
            why = f"{need} is stale: its code has changed since"
            problems.append(ProfkitError(why, suggest_run_command(variant, case)))
    return problems


def find_source_files(artifacts: Path) -> Mapping[ProblemAndVariant, SourceFile]:
    """Return problem/variant -> its file in the kernels folder beside artifacts; none without one."""
    from profkit.cli.lab import SourceFiles

    kernels = resolve_path(artifacts).parent / "kernels"
    if is_file(kernels / "common" / "variant.cuh"):
        return SourceFiles(kernels)
    return {}


def read_history_steps(
    folder: str, variant: str = "", case: str = ""
) -> tuple[list[HistoryStep], list[ProfkitError]]:
    """Return the steps of a variant at a case ("": of all), and what cannot be read of the history."""
    from profkit.evidence.history import History
    from profkit.evidence.noise import compare_consecutive_runs, estimate_spread_by_gpu

    kept = History(folder)
    runs, bad_runs = kept.list_runs()
    twins, bad_twins = kept.list_aa_runs()
    ablations, bad_ablations = kept.list_ablations()
    chosen = []
    for r in runs:
        if variant in ("", r.variant) and case in ("", r.case):
            chosen.append(r)
    steps = compare_consecutive_runs(chosen, estimate_spread_by_gpu(runs, twins), ablations)
    return steps, [*bad_runs, *bad_twins, *bad_ablations]
