"""A variant with tunables  ->  tune: search, decide, write down.

# Search the tunables of a variant at one case.
profkit tune --variant v3 --case B
# Continue a search after Ctrl-C, a crash or a kill.
profkit tune --variant v3 --case B --resume
# Search for ten minutes on all GPUs, 200 configurations at most.
profkit tune --variant v3 --trials 200 --time 600 --gpus all --quiet
# Search from several hosts, by time alone.
profkit tune --variant v3 --storage journal:///nfs/v3.log --no-profile
# Give up on a trial after a minute, and write the result to a folder.
profkit tune --variant v3 --timeout 60 -o found --json
# Use folders of your own.
profkit tune --variant mine --kernels mine --build-dir build --artifacts runs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from profkit.cli import options
from profkit.errors import ProfkitError, require_package, suggest_install_command
from profkit.files import write_text

if TYPE_CHECKING:
    from profkit.lab.tune.run import SearchResult, TuneDocument
    from profkit.lab.tune.task import Task

Case = Annotated[
    str | None,
    typer.Option(
        "--case",
        metavar="CASE",
        help="Name the case to tune for.",
        autocompletion=options.list_recorded_cases,
    ),
]
Variant = Annotated[
    str,
    typer.Option(
        "--variant",
        metavar="ID",
        help="Name the variant to tune.",
        autocompletion=options.list_known_variants,
    ),
]
Trials = Annotated[
    int,
    typer.Option(metavar="N", help="Try at most N configurations, the defaults included.", min=1),
]
Time = Annotated[
    float | None,
    typer.Option(metavar="S", help="Start no trial after S seconds. Default: no limit."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue a search that was stopped or killed.")
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Keep the search in this database. Default: SQLite, next to the builds.",
    ),
]
NoProfile = Annotated[
    bool,
    typer.Option(
        "--no-profile",
        help="Run no ncu: search by time alone, without proposals from diagnoses.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(metavar="S", help="Consider a trial hung after S seconds without output.", min=1),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Write the result here. Default: artifacts/tune/NAME.CASE.",
    ),
]


GROUP = "Work on your own kernels"
SUMMARY = "Search the tunables declared in a variant's header."


@options.verb(
    GROUP,
    SUMMARY,
    sections={
        "The search": "variant case trials time timeout resume storage no_profile gpus",
        "Folders": "kernels build_dir artifacts",
    },
)
def tune_variant(
    variant: Variant,
    case: Case = None,
    trials: Trials = 60,
    time: Time = None,
    resume: Resume = False,
    storage: Storage = None,
    gpus: options.Gpus = None,
    no_profile: NoProfile = False,
    timeout: Timeout = 30.0,
    output: Output = None,
    kernels: options.Kernels = None,
    build_dir: options.BuildDir = None,
    artifacts: options.RecordsDir = None,
) -> int:
    """It times configurations alternately with the reference; the diagnosis proposes the next.

    The fastest is kept if it is faster than the defaults when both are measured again.
    """
    from profkit.cli.output import show_spinner
    from profkit.lab.measure import targets
    from profkit.lab.measure.worker import list_visible_devices_of_workers
    from profkit.lab.tune.task import (
        SearchOptions,
        choose_variant_and_case_to_tune,
        prepare_task,
    )

    with require_package("optuna", "profkit tune"):
        from profkit.lab.tune import run

    at = targets.LabFolders(kernels, build_dir, artifacts)
    target = targets.find_target_by_options(at, [variant], False, [case] if case else (), False)
    choose_variant_and_case_to_tune(target)  # said also where there is no GPU
    visible = list_visible_devices_of_workers(gpus)
    search = SearchOptions(trials, time, timeout, profile=not no_profile)
    with show_spinner() as progress:
        progress("build")
        task = prepare_task(target, search)
        with _stop_builds_at_end(task):
            url = storage or run.get_default_storage_url(task)
            result = run.search_fastest_config(task, url, resume, visible, progress)
        progress("writing")
        written = _write_results(result, output or at.artifacts_dir() / "tune" / task.subject)
    _print_result(written)
    return options.DONE


@contextmanager
def _stop_builds_at_end(task: Task) -> Iterator[None]:
    """Stop the builds when the search ends, and say on Ctrl-C how to go on with it."""
    from profkit.cli.output import print_error

    try:
        yield
    except KeyboardInterrupt:
        how = "to continue: the same command with --resume"
        print_error(ProfkitError("stopped; no trial is lost", how))
        raise
    finally:
        task.cancel_builds_not_begun()


def _print_result(written: TuneDocument) -> None:
    """Print how the search ended, which GPUs it lost, and where the result is."""
    from profkit.cli.output import print_blocks, print_errors
    from profkit.show.views import measured as views

    print_blocks(views.show_ended_search(written.to_json()), written)
    if not options.FORM.json:
        lost = (ProfkitError(line, "the others continued") for line in written.lost)
        print_errors(lost, quiet=options.FORM.quiet)
        print(f"written to {written.output}")


def _write_results(result: SearchResult, folder: Path) -> TuneDocument:
    from profkit.cli.pictures import import_plots
    from profkit.show.views import measured as views

    plots = import_plots()
    from profkit.lab.tune import run

    folder.mkdir(parents=True, exist_ok=True)
    document = result.describe_search()
    frame = run.make_trials_frame(result.study)
    run.write_champion_record(result, folder)
    kept = _write_trials(frame, folder)
    pictures: dict[str, Callable[[], Any]] = {
        "history.png": lambda: plots.search_history(frame),
        "resources.png": lambda: plots.search_resources(frame),
    }
    drawn = []
    for name, draw in pictures.items():
        try:
            picture = draw()
        except ProfkitError:  # too few trials to draw
            (folder / name).unlink(missing_ok=True)
        else:
            plots.save(picture, folder / name)
            drawn.append(name)
    write_text(
        folder / "profile_summary.md", views.write_search_summary(document.to_json(), frame, drawn)
    )
    return structs.replace(document, output=str(folder), history=str(kept))


def _write_trials(frame: Any, folder: Path) -> Path:
    """Write the history as Parquet; as CSV where pyarrow is not installed."""
    from profkit.cli.output import print_error, save_frame

    as_csv = find_spec("pyarrow") is None
    if as_csv:
        print_error(
            ProfkitError(
                "pyarrow is missing: the history is a CSV file", suggest_install_command("pyarrow")
            )
        )
    file = folder / ("history.csv" if as_csv else "history.parquet")
    save_frame(frame, file, as_csv=as_csv)
    return file
