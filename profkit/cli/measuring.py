"""Variants  ->  list, doctor, build, check, bench, profile: parse, call one function, print."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from profkit.cli.options import Json, Quiet, say

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from profkit.measure.pipeline import Profiled
    from profkit.measure.runs import Made
    from profkit.measure.targets import Places

BAD, COULD_NOT = 1, 2
Kernels = Annotated[
    Path | None,
    typer.Option("--kernels", metavar="DIR", help="The folder of problems.", show_default=False),
]
BuildDir = Annotated[
    Path | None, typer.Option("--build-dir", metavar="DIR", help="Where libraries are kept.")
]
Artifacts = Annotated[
    Path | None, typer.Option("--artifacts", metavar="DIR", help="Where reports and records go.")
]
Names = Annotated[
    list[str] | None,
    typer.Option("--variant", metavar="ID", help="A variant or a reference; may be repeated."),
]
Every = Annotated[bool, typer.Option("--all", help="The whole ladder.")]
Cases = Annotated[list[str] | None, typer.Option("--case", metavar="CASE", help="May be repeated.")]
Archs = Annotated[
    str | None,
    typer.Option("--arch", metavar="LIST", help="80,89,90; the GPU present when left out."),
]


def register(app: typer.Typer) -> None:
    """Add this file's verbs."""
    app.command("list")(list_)
    app.command()(doctor)
    app.command()(build)
    app.command()(check)
    app.command()(bench)
    app.command(context_settings={"allow_interspersed_args": True})(profile)


def list_(
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    artifacts: Artifacts = None,
    json: Json = False,
) -> None:
    """The variants in ladder order: what is built, what is recorded, what is stale."""
    from profkit.measure import ladder
    from profkit.show import measured

    rows = ladder.listing(_places(kernels, build_dir, artifacts))
    if json:
        _print_json({"schema": "profkit.list/1", "variants": rows})
    else:
        _print(measured.ladder(rows))


def doctor(json: Json = False) -> None:
    """What is there to measure with, and what to do about what is not."""
    from dataclasses import asdict

    from profkit.measure import doctor as examiner
    from profkit.show import measured

    found = [asdict(f) for f in examiner.examine()]
    if json:
        _print_json({"schema": "profkit.doctor/1", "findings": found})
    else:
        _print(measured.findings(found))


def build(
    variant: Names = None,
    every: Every = False,
    arch: Archs = None,
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile variants, and hold them to the budgets in their headers. Needs no GPU."""
    from profkit.measure import ladder
    from profkit.show import measured

    places = _places(kernels, build_dir)
    archs = arch.split(",") if arch else None
    with _progress(quiet) as progress:
        progress("build")
        made = ladder.compiled(places, _named(variant, every), archs)
    if json:
        _print_json({"schema": "profkit.build/1", "builds": [b.summary for b in made]})
    else:
        _print(measured.builds([row for b in made for row in b.rows]))
    for one in made:
        for line in (*one.over_budget, *([one.error] if one.error else [])):
            say(ProfkitError(line))
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
    """Is it right: values on every case, and everything that it must not touch."""
    from profkit.measure import pipeline, targets
    from profkit.show import measured

    target = targets.choose(
        _places(kernels, build_dir), _named(variant, every), every, case or (), False
    )
    if not case:
        target = targets.every_case(target)
    with _progress(quiet) as progress:
        made = pipeline.measure(target, progress, time=False)
        if sanitize:
            pipeline.sanitized(made, progress)
    checks = list(made.outcome.checks.values())
    if json:
        _print_json({"schema": "profkit.check/1", "checks": checks})
    else:
        _print(measured.checks(checks))
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
    """How fast, against every reference, in turns: graph replay, L2 warm and cold."""
    from profkit.measure import pipeline, targets
    from profkit.measure.runs import timed
    from profkit.show import measured

    target = targets.choose(
        _places(kernels, build_dir), _named(variant, every), every, case or (), True
    )
    with _progress(quiet) as progress:
        made = pipeline.measure(target, progress)
    by_case = {c: timed(made, c) for c in target.cases}
    if json:
        _print_json({"schema": "profkit.bench/1", "gpu": made.outcome.gpu, "cases": by_case})
    else:
        for name, rows in by_case.items():
            if rows:
                print(f"{name}: {measured.conditions(made.outcome.gpu, rows[0]['timing'])}")
                _print(measured.times(rows, target.references))
    _faults(made, list(made.outcome.checks.values()))


def profile(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Any command at all.")
    ] = None,
    variant: Names = None,
    every: Every = False,
    case: Cases = None,
    kernel: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Of COMMAND: kernels of this name.")
    ] = None,
    skip: Annotated[int, typer.Option(min=0, help="Leave out so many launches.")] = 0,
    count: Annotated[int | None, typer.Option(min=1, help="Profile so many launches.")] = None,
    set_: Annotated[str, typer.Option("--set", help="ncu's section set.")] = "full",
    cache: Annotated[
        str, typer.Option("--cache-control", help="all: caches flushed before each replay; none.")
    ] = "all",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one run of ncu.")] = 600.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Of COMMAND: where the report goes.")
    ] = None,
    kernels: Kernels = None,
    build_dir: BuildDir = None,
    artifacts: Artifacts = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Why: check, time, then ncu round exactly one call, then the diagnosis."""
    from profkit.measure import collect, pipeline, targets

    _stop_on_term()
    filters = collect.launch_filters(kernel, skip, count)
    options = collect.Options(set_, cache, timeout, filters if command else ())
    if command:
        if variant or every:
            raise ProfkitError("a COMMAND and --variant are two things", "give one of them")
        _wrap(command, output, options, json=json, quiet=quiet)
        return
    if filters:
        raise ProfkitError(
            "--kernel, --skip and --count choose launches of a COMMAND", "profile ... -- COMMAND"
        )
    places = _places(kernels, build_dir, artifacts)
    target = targets.choose(places, _named(variant, every), every, case or (), False)
    with _progress(quiet) as progress:
        results = pipeline.profile(
            target, places.artifacts_dir(), options, progress, _reporter(progress)
        )
    _show(results, json=json, quiet=quiet)


def _reporter(progress: Callable[[str], None]) -> Callable[[Profiled], None]:
    """Says what could not be done as soon as it is known."""

    def finished(result: Profiled) -> None:
        progress("")
        if result.problem:
            say(ProfkitError(f"{result.name} {result.case}: {result.problem.message}",
                             result.problem.hint))  # fmt: skip

    return finished


def _show(results: Sequence[Profiled], *, json: bool, quiet: bool) -> None:
    """The diagnosis of every report; without one, what is known without counters."""
    from profkit.cli import reading
    from profkit.show import measured

    reports = [str(r.report) for r in results if r.report]
    if json:
        runs = [{**r.record, "problem_message": r.problem and r.problem.message} for r in results]
        _print_json({"schema": "profkit.profile/1", "runs": runs})
    else:
        if reports:
            reading.diagnose(reports, quiet=quiet)
        for result in results:
            if not result.report and result.record["timing"]:
                print(f"{result.name} {result.case}, without counters:")
                for line in measured.without_counters(result.record):
                    print(f"  {line}")
    wrong = [r for r in results if r.wrong]
    if any(r.problem for r in results if r not in wrong):
        raise typer.Exit(COULD_NOT)
    if wrong:
        raise typer.Exit(BAD)


def _wrap(
    command: Sequence[str], output: Path | None, options: Any, *, json: bool, quiet: bool
) -> None:
    """Profile any command, then diagnose its report."""
    from profkit.cli import reading
    from profkit.measure import collect, toolchain

    report = output or Path(f"{Path(command[0]).stem}.ncu-rep")
    if report.suffix != ".ncu-rep":
        raise ProfkitError(f"-o {report}: a report ends in .ncu-rep")
    if report.exists() and output is None:
        raise ProfkitError(f"{report} is there already", "say -o NAME.ncu-rep, also to replace it")
    ncu = toolchain.Tool(toolchain.need("ncu"), None)
    got = collect.wrap(command, report, ncu, options, None if quiet else sys.stderr.buffer)
    if got.note:
        say(ProfkitError(f"{command[0]} failed after its kernels were profiled: {got.note}"))
    if not quiet:
        print(f"{report}: {len(got.kernels)} launches, {got.seconds:.1f} s", file=sys.stderr)
    reading.diagnose([str(report)], json=json, quiet=quiet)


def _faults(made: Made, checks: Sequence[dict[str, Any]]) -> None:
    """Say what is wrong on stderr; the worst of it is the exit status."""
    from profkit.show import measured

    for one in checks:
        for line in measured.faults(one):
            print(f"profkit: {line}", file=sys.stderr)
    broken = [b for b in made.builds.values() if b.error]
    for built in broken:
        say(ProfkitError(f"{built.variant.path} does not compile\n{built.error}"))
    judged = {c["variant"] for c in checks}
    lost = [n for n in made.outcome.failed if n not in judged]
    for name in lost:
        say(ProfkitError(f"{name}: {made.outcome.failed[name]}"))
    if broken:
        raise typer.Exit(COULD_NOT)
    if any(c["status"] in ("wrong", "failed") for c in checks):
        raise typer.Exit(BAD)


def _places(
    kernels: Path | None = None, build_dir: Path | None = None, artifacts: Path | None = None
) -> Places:
    from profkit.measure.targets import Places

    return Places(kernels, build_dir, artifacts)


def _named(names: Sequence[str] | None, every: bool) -> Sequence[str]:
    if bool(names) == every:
        raise ProfkitError(
            "which variants?" if not every else "--all and --variant are two answers",
            "--variant ID (profkit list shows them), or --all",
        )
    return names or ()


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being done, on stderr, while somebody looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from profkit.show.escape import visible
    from profkit.show.text import console

    with console(stderr=True).status("") as status:
        yield lambda what: status.update(visible(what))


def _stop_on_term() -> None:
    """A polite kill ends ncu too, like Ctrl-C."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def _print(what: RenderableType) -> None:
    from profkit.show.text import console

    console().print(what)


def _print_json(document: Any) -> None:
    from json import dumps

    from profkit.measure.record import clean

    print(dumps(clean(document), indent=1, allow_nan=False))
