"""A running program  ->  its Triton kernels as problems of a folder, each with a variant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.cli.output import note, print_blocks, print_json, say, spinner
from profkit.cli.signals import stop_on_term
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profkit.measure.capture import CapturedKernel


def capture_kernels(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="A Python program, as you run it.")
    ],
    kernel: Annotated[
        str, typer.Option(metavar="REGEX", help="Kernels of this name.", show_default=False)
    ] = ".",
    skip: Annotated[int, typer.Option(min=0, help="Leave out so many of them.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Capture so many of them.")] = 1,
    every: Annotated[bool, typer.Option("--all", help="Capture each of them.")] = False,
    values: Annotated[
        bool, typer.Option("--values", help="Keep the very inputs, not their statistics.")
    ] = False,
    limit: Annotated[
        float, typer.Option(min=0, metavar="MB", help="The most that a launch's arrays may have.")
    ] = 512.0,
    untried_only: Annotated[
        bool, typer.Option("--no-try", help="Write the folders; check and time nothing.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=1, metavar="S", help="Stop it then, and keep what was captured."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder of problems.")
    ] = Path("captured"),
    build_dir: options.BuildDir = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """A running program's Triton kernels, each in a folder to work on."""
    from profkit.measure import capture
    from profkit.measure.variants import build
    from profkit.show.views import measured

    wanted = capture.CaptureOptions(
        kernel, skip, None if every else count, values, int(limit * 1e6), timeout
    )
    stop_on_term()
    echo = None if quiet else sys.stderr.buffer
    kernels = capture.capture_program(command, output, wanted, echo)
    if not untried_only:
        with spinner(quiet) as progress:
            kernels = capture.tried(kernels, build.build_dir(output.resolve(), build_dir), progress)
    rows = [k.to_json() for k in kernels]
    if json:
        print_json({"schema": "profkit.capture/1", "kernels": rows})
    else:
        print_blocks(measured.captured(rows))
    _leave(kernels, output, quiet)


def _leave(kernels: Sequence[CapturedKernel], output: Path, quiet: bool) -> None:
    """Say what to do next; the exit status is the worst of the kernels'."""
    files = [k.file for k in kernels if k.file]
    if not files:
        why = next((k.why_not for k in kernels if k.why_not), "no kernel has such a name")
        raise ProfkitError(f"nothing was captured: {why}", "--kernel REGEX, or --all")
    first = f"{files[0].parent.name}/captured"
    note(f"{output}: profkit bench --kernels {output} --variant {first}", quiet=quiet)
    captured = [k for k in kernels if k.file]
    if any(k.equal in ("wrong", "failed") for k in captured):
        raise typer.Exit(options.BAD)
    untried = [k for k in captured if k.notes and not k.equal]
    for kernel in untried:
        say(ProfkitError(f"{kernel.kernel}: {kernel.notes[-1]}"))
    if untried:
        raise typer.Exit(options.COULD_NOT)


VERB = options.Verb(
    run=capture_kernels,
    group="Your own kernels",
    bad="a captured kernel gives another result here than in the program",
    examples=(
        "profkit capture --kernel layer_norm -- python train.py",
        "profkit capture --all --limit 2048 -o captured -- python train.py",
        "profkit capture --kernel softmax --skip 1 --count 2 --values -- python run.py",
        "profkit capture --no-try --timeout 900 --quiet -- torchrun train.py",
        "profkit capture --build-dir build --json -- python train.py",
    ),
)
