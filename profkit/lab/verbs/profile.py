"""A variant, or any command  ->  profile: checked, timed, collected, diagnosed.

# Check, time, profile and diagnose a variant at one case.
profkit profile --variant stage2 --case B
# Profile one kernel of any program, and write the report.
profkit profile --kernel softmax -o run.ncu-rep -- python train.py
# Profile three launches after the first ten, within 30 minutes.
profkit profile --skip 10 --count 3 --timeout 1800 -- ./train
# Profile five launches inside an NVTX range.
profkit profile --nvtx backward --count 5 -- python train.py
# Profile all variants on all GPUs of this machine, or on a cluster.
profkit profile --all --case B --gpus all
profkit profile --all --case A --case B --on tcp://host:8786
# Use folders of your own.
profkit profile --all --kernels mine --build-dir build --artifacts runs
# Collect fewer counters with warm caches, and print JSON.
profkit profile --variant stage2 --set basic --cache-control none --json -q
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.cli.options import make_completion
from profkit.errors import ProfkitError
from profkit.files import is_path_there, resolve_path

if TYPE_CHECKING:
    from profkit.collect import profiler
    from profkit.lab.measure.pipeline import Profiled
    from profkit.lab.measure.targets import LabFolders, Target
    from profkit.units import ExitStatus

Set = Annotated[
    str,
    typer.Option(
        "--set",
        metavar="SET",
        help="Collect this set of sections: basic, detailed, full or roofline.",
        autocompletion=make_completion("full", "detailed", "basic", "roofline"),
    ),
]
CacheControl = Annotated[
    str,
    typer.Option(
        "--cache-control",
        metavar="WHEN",
        help="Flush caches before each pass (all) or never (none).",
        autocompletion=make_completion("all", "none"),
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run each case on a GPU of a Dask cluster: tcp://host:8786."
    ),
]
Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND...]", help="Give a command to profile, instead of --variant."
    ),
]
Kernel = Annotated[
    str | None,
    typer.Option("--kernel", metavar="REGEX", help="Choose kernels by name. Default: all."),
]
Skip = Annotated[int, typer.Option(metavar="N", help="Skip the first N launches.", min=0)]
Count = Annotated[
    int | None, typer.Option(metavar="N", help="Profile N launches. Default: all.", min=1)
]
Nvtx = Annotated[
    str | None, typer.Option(metavar="RANGE", help="Profile only inside this NVTX range.")
]
Timeout = Annotated[
    float, typer.Option(metavar="S", help="Stop a run of ncu after S seconds.", min=1)
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the report to this file."),
]

GROUP = "Work on your own kernels"
SUMMARY = "Check, time and profile a variant with ncu, and diagnose it."


@options.verb(
    GROUP,
    SUMMARY,
    bad="a variant is wrong",
    sections={
        "Any command": "kernel skip count nvtx output",
        "Your own variants": "variant every case gpus on kernels build_dir artifacts",
        "Collection": "set_ cache timeout",
    },
)
def profile_variants(
    command: Command = None,
    variant: options.Names = None,
    every: options.Every = False,
    case: options.Cases = None,
    kernel: Kernel = None,
    skip: Skip = 0,
    count: Count = None,
    nvtx: Nvtx = None,
    set_: Set = "full",
    cache: CacheControl = "all",
    timeout: Timeout = 600.0,
    output: Output = None,
    kernels: options.Kernels = None,
    build_dir: options.BuildDir = None,
    artifacts: options.RecordsDir = None,
    gpus: options.Gpus = None,
    on: On = None,
) -> int:
    """It runs ncu on any command, or on variants of a folder of problems.

    It writes the report, and prints what diagnose says of it. A variant is first checked against
    its reference and timed without ncu.
    """
    from profkit.collect import profiler
    from profkit.lab.flags import require_names_or_all, set_visible_gpus
    from profkit.lab.measure import targets

    filters = profiler.make_launch_filter_options(kernel, skip, count, nvtx)
    settings = profiler.CollectOptions(set_, cache, timeout, filters if command else ())
    if command:
        if variant or every:
            raise ProfkitError("COMMAND and --variant cannot be combined", "choose one of them")
        return _profile_command(command, output, settings)
    if filters:
        why = "--kernel, --nvtx, --skip and --count choose launches of a COMMAND"
        raise ProfkitError(why, "profile ... -- COMMAND")
    at = targets.LabFolders(kernels, build_dir, artifacts)
    target = targets.find_target_by_options(
        at, require_names_or_all(variant, every), every, case or (), False
    )
    if on:
        how = ["--set", set_, "--cache-control", cache, "--timeout", str(timeout)]
        return _profile_on_cluster(on, target, at, how, gpus)
    return _profile_target(set_visible_gpus(target, gpus), at, settings)


def _profile_target(
    target: Target, folders: LabFolders, settings: profiler.CollectOptions
) -> ExitStatus:
    """Check, time and profile each variant in each case; return the exit status."""
    from profkit.cli import output as out
    from profkit.lab.flags import print_gpus_of_cases
    from profkit.lab.measure import pipeline

    with out.show_spinner() as progress:

        def say_problem(result: Profiled) -> None:  # what could not be done, as soon as it is known
            progress("")
            if result.problem:
                first, _, rest = result.problem.message.partition("\n")
                out.print_error_with_output(
                    f"{result.name} {result.case}: {first}", rest or result.problem.hint
                )

        runs = pipeline.profile_target(
            target, folders.artifacts_dir(), settings, progress, say_problem
        )
    print_gpus_of_cases(runs.measured)
    return _print_results_and_get_exit_status(runs.results)


def _profile_on_cluster(
    address: str, target: Target, at: LabFolders, how: Sequence[str], gpus: str | None
) -> ExitStatus:
    """Profile each case wherever a GPU is free, into the shared artifacts; the exit status."""
    from profkit.cli import output as out
    from profkit.lab.measure.pipeline import HostResult, profile_cases_on_workers
    from profkit.reports.cluster import connect_to_dask_scheduler

    if gpus is not None:
        hint = "each worker of the cluster has one GPU"
        raise ProfkitError("--on and --gpus cannot be combined", hint)
    names = [*(v.id for v in target.variants), *target.references]
    folders = (at.kernels_dir(), at.build_dir(), at.artifacts_dir())
    places = zip(("--kernels", "--build-dir", "--artifacts"), folders, strict=True)
    flags = [("--variant", name) for name in names]
    flags += [(flag, str(resolve_path(path))) for flag, path in places]

    def say_problem(result: HostResult) -> None:
        where = f"case {result.case} on {result.host or 'no host'}"
        out.print_error_with_output(f"{where}: exit status {result.status}", result.errors)

    client = connect_to_dask_scheduler(address)
    results = profile_cases_on_workers(
        client, [*chain.from_iterable(flags), *how], target.cases, say_problem
    )
    return max(result.status for result in results)


def _print_results_and_get_exit_status(results: Sequence[Profiled]) -> ExitStatus:
    """Print the diagnosis of every report, or what is known without counters; the exit status."""
    from msgspec import structs

    from profkit.cli import output as out
    from profkit.cli.verbs.diagnose import print_diagnosis
    from profkit.records.record import ProfileDocument, ProfiledRun
    from profkit.show.views import measured

    reports = [str(r.report) for r in results if r.report]
    unread = options.DONE
    if options.FORM.json:
        runs = []
        for result in results:
            if result.problem:
                message = result.problem.message
            else:
                message = None
            fields = structs.asdict(result.record)
            runs.append(ProfiledRun(**fields, problem_message=message))
        out.print_json(ProfileDocument(runs=tuple(runs)))
    else:
        if reports:
            unread = print_diagnosis(reports)
        for result in results:
            if not result.report and result.record.timing:
                name = f"{result.name} {result.case}"
                out.print_blocks(measured.show_run_without_counters(name, result.record))
    faulty = [r for r in results if r.wrong]
    if unread or any(r.problem for r in results if r not in faulty):
        return options.COULD_NOT
    if faulty:
        return options.BAD
    return options.DONE


def _profile_command(
    command: Sequence[str], output: Path | None, settings: profiler.CollectOptions
) -> ExitStatus:
    from profkit.cli import output as out
    from profkit.cli.ncu_words import show_ncu_output
    from profkit.cli.verbs.diagnose import print_diagnosis
    from profkit.collect import profiler, tools
    from profkit.collect.ncu_output import LOG

    report = output or Path(f"{Path(command[0]).stem}.ncu-rep")
    if report.suffix != ".ncu-rep":
        raise ProfkitError(f"-o {report}: the name must end in .ncu-rep")
    if is_path_there(report) and output is None:
        raise ProfkitError(
            f"{report} already exists", "use -o NAME.ncu-rep, which also replaces it"
        )
    ncu = tools.require_tool("ncu")
    with show_ncu_output(out.require_writable_output_path(report.with_suffix(LOG))) as words:
        done = profiler.profile_program(command, report, ncu, settings, words)
    if done.note:
        out.print_error(
            ProfkitError(f"{command[0]} failed after its kernels were profiled: {done.note}")
        )
    out.print_note(f"{report}: {len(done.kernels)} launches, {done.seconds:.1f} s")
    return print_diagnosis([str(report)])
