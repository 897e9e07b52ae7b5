"""A variant  ->  what each cause costs, measured by taking it away; needs no counters.

# Measure what each cause costs a variant at one case.
profkit ablate stage2 --case B
# Measure two variants, and keep the records in a folder.
profkit ablate stage2 stage2swizzle --case B --artifacts runs
# Measure a kernel that was captured from a program.
profkit ablate --kernels captured --variant layer_norm-2/captured
# Measure a kernel of a source, library or PTX, launched as a file says.
profkit ablate my.cu --kernel mine --launch launch.toml
profkit ablate libmine.so --kernel mine --launch launch.toml
# Show what was measured before, or write it for a pull request.
profkit ablate stage2 --case B --recorded
profkit ablate stage2 --case B --markdown
# Use folders of your own, and print JSON.
profkit ablate mine --kernels mine --build-dir build --json --quiet
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profkit.cli import options
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.lab.measure.targets import Target
    from profkit.records.record import Record
    from profkit.units import ExitStatus, TextOrEmpty

GROUP = "Work on your own kernels"
SUMMARY = "Measure what each cause costs by removing it; needs no counters."


@options.verb(GROUP, SUMMARY, forms="json markdown quiet")
def ablate_variants(
    variants: list[str] | None = typer.Argument(
        None,
        metavar="[VARIANTS...]",
        help="Give variants of one problem, or a CUDA source, a program, a library or PTX.",
        autocompletion=options.list_known_variants,
    ),
    variant: options.Names = None,
    case: options.Cases = None,
    recorded: bool = typer.Option(
        False, "--recorded", help="Show what was measured before, from its record."
    ),
    kernel: str | None = typer.Option(
        None, "--kernel", metavar="NAME", help="Name the kernel of a source: mine or mine<float>."
    ),
    launch: Path | None = typer.Option(
        None,
        "--launch",
        metavar="TOML",
        help="Describe the launch of a source: grid, block and arguments.",
    ),
    kernels: options.Kernels = None,
    build_dir: options.BuildDir = None,
    artifacts: options.RecordsDir = None,
) -> int:
    """It removes one cause at a time from a kernel's PTX, and times the result next to the original.

    Each row is the speedup without that cause. --recorded shows an earlier result, without a GPU.
    """
    from profkit.lab.measure.targets import LabFolders, find_target_by_options

    names = [*(variants or ()), *(variant or ())]
    if not names:
        raise ProfkitError("no variant was named", "profkit list shows the variants")
    if kernel or launch or any(name.endswith(".cu") for name in names):
        target = _make_target_of_source_or_binary(names, kernel, launch, build_dir)
        return ablate_chosen(target, artifacts or Path("artifacts"), HINTS)
    places = LabFolders(kernels, build_dir, artifacts)
    folder = places.artifacts_dir()
    if recorded:
        return _print_ablations_of_records(_read_records_with_ablation(names, case or (), folder))
    return ablate_chosen(find_target_by_options(places, names, False, case or (), False), folder)


def choose_hint(message: str, hints: Mapping[str, str]) -> TextOrEmpty:
    """Return the first hint whose words a message's first error has: others follow from it."""
    errors = [line for line in message.splitlines() if "error:" in line]
    for words, hint in hints.items():
        if words in (errors or [message])[0]:
            return hint
    return ""


# What nvcc says of a source and its launch -> what to change.
HINTS = {
    'cannot deduce "auto"': "a template is named with its arguments: --kernel 'mine<float>'",
    "is undefined": "--kernel names it as the source does, with its namespace: 'ours::mine'",
    "arguments in function call": "[[argument]] for each of its parameters, in their order",
    "no suitable c": "is the parameter a number (value), an array, or a struct (fields)?",
    "": 'in the launch file, include = ["folder"] names folders of headers, flags = ["-DX"] other '
    "flags",
}


def _make_target_of_source_or_binary(
    sources: Sequence[str], kernel: str | None, launch: Path | None, build_dir: Path | None
) -> Target:
    """Return a problem made of one source or binary, one of its kernels and how that is launched."""
    from profkit.lab.ablation.binary import write_problem_of_binary
    from profkit.lab.ablation.foreign import (
        CASE,
        SOURCES,
        read_launch_file,
        write_problem_of_source_file,
    )
    from profkit.lab.measure.cuda import device
    from profkit.lab.measure.targets import LabFolders, find_target_by_options

    if len(sources) != 1 or kernel is None or launch is None:
        raise ProfkitError(
            f"{sources[0]}: a source or a binary needs --kernel and --launch",
            "profkit ablate my.cu --kernel mine --launch launch.toml",
        )
    build = build_dir or Path("build")
    folder = build / "launched" / "kernels"
    file = Path(sources[0])
    described = read_launch_file(launch)
    if file.suffix in SOURCES:
        name = write_problem_of_source_file(file, kernel, described, folder)
    else:
        arch = device.query_first_gpu().arch
        name = write_problem_of_binary(file, kernel, described, folder, arch)
    return find_target_by_options(LabFolders(folder, build), [name], False, (CASE,), False)


def ablate_chosen(
    target: Target, folder: Path, hints: Mapping[str, str] | None = None
) -> ExitStatus:
    """Ablate what was chosen, keep it with the runs of a folder, and show it.

    `hints`: for errors that have none, the first whose words an error has.
    """
    from profkit.cli.output import print_error, print_note, show_spinner
    from profkit.lab.ablation.run import ablate_target, save_ablation

    records = []
    refused = 0

    def report_error(error: ProfkitError) -> None:
        nonlocal refused
        refused += 1
        progress("")
        hint = choose_hint(error.message, hints or {})
        print_error(ProfkitError(error.message, error.hint or hint))

    with show_spinner() as progress:
        for record in ablate_target(target, progress, report_error):
            file = save_ablation(record, folder)
            print_note(f"{record.variant}.{record.case}: {file}")
            records.append(record)
    status = _print_ablations_of_records(records)
    return options.COULD_NOT if refused else status


def _print_ablations_of_records(records: Sequence[Record]) -> ExitStatus:
    from profkit.cli.output import print_blocks
    from profkit.records.ablation import AblateDocument, AblatedRun, AblationRecord
    from profkit.show.views.ablation import show_ablations

    rows = []
    for record in records:
        row = AblatedRun(
            variant=record.variant,
            case=record.case,
            problem=record.problem,
            ablation=AblationRecord.from_record(record.ablation),
        )
        rows.append(row)
    print_blocks(show_ablations(records), AblateDocument(runs=tuple(rows)))
    return options.DONE


def _read_records_with_ablation(
    variants: Sequence[str], cases: Sequence[str], folder: Path
) -> list[Record]:
    """Return the records of these variants that have an ablation, in the order of the names."""
    from profkit.records.paths import find_all_run_files
    from profkit.records.record import read_record

    files = find_all_run_files(folder)
    records = []
    for variant in variants:
        found = []
        for (name, case), places in files.items():
            file = places[0].record
            if name != variant.rpartition("/")[2] or (cases and case not in cases) or not file:
                continue
            record = read_record(file)
            if record.ablation:
                found.append(record)
        if not found:
            raise ProfkitError(
                f"{folder}: no record of {variant} contains an ablation",
                f"profkit ablate {variant} measures one, on a machine with a GPU",
            )
        records += found
    return records
