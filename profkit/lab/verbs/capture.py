"""A running program  ->  its Triton kernels as problems of a folder, each with a variant.

# Capture one launch of a kernel.
profkit capture --kernel layer_norm -- python train.py
# Capture every kernel, with arrays of up to 2 GB, into a folder.
profkit capture --all --limit 2048 -o captured -- python train.py
# Capture the second and third launch with their inputs.
profkit capture --kernel softmax --skip 1 --count 2 --values -- python run.py
# Write the folders without trying the kernels, within 15 minutes.
profkit capture --no-try --timeout 900 --quiet -- torchrun train.py
# Keep compiled libraries in a folder, and print JSON.
profkit capture --build-dir build --json -- python train.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import resolve_path

if TYPE_CHECKING:
    from profkit.lab.measure.capture import CapturedEntry
    from profkit.units import ExitStatus

Command = Annotated[
    list[str],
    typer.Argument(metavar="-- COMMAND...", help="Give the Python command as you run it."),
]
Kernel = Annotated[
    str,
    typer.Option(metavar="REGEX", help="Choose kernels by name. Default: all.", show_default=False),
]
Skip = Annotated[int, typer.Option(metavar="N", help="Skip the first N launches.", min=0)]
Count = Annotated[int, typer.Option(metavar="N", help="Capture N launches.", min=1)]
Every = Annotated[bool, typer.Option("--all", help="Capture every launch.")]
Values = Annotated[
    bool,
    typer.Option("--values", help="Keep the inputs themselves, not only their statistics."),
]
Limit = Annotated[
    float,
    typer.Option(metavar="MB", help="Limit the arrays of a launch to this many megabytes.", min=0),
]
UntriedOnly = Annotated[
    bool,
    typer.Option("--no-try", help="Write the folders without checking or timing."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Stop the program after S seconds, and keep what was captured.",
        min=1,
    ),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="DIR", help="Write the folders of problems here."),
]

GROUP = "Work on your own kernels"
SUMMARY = "Turn Triton kernels of a running program into folders to work on."


@options.verb(
    GROUP, SUMMARY, bad="a captured kernel gives a result that differs from the program's"
)
def capture_kernels(
    command: Command,
    kernel: Kernel = ".",
    skip: Skip = 0,
    count: Count = 1,
    every: Every = False,
    values: Values = False,
    limit: Limit = 512.0,
    untried_only: UntriedOnly = False,
    timeout: Timeout = None,
    output: Output = Path("captured"),
    build_dir: options.BuildDir = None,
) -> int:
    """It runs the command to its end, and copies what the chosen launches read and write.

    Each folder gets a problem.py and a variant, which is then checked and timed here.
    """
    from profkit.cli.output import print_blocks, show_spinner
    from profkit.lab.measure import capture
    from profkit.lab.measure.variants import build
    from profkit.show.views import measured

    wanted = capture.CaptureOptions(
        kernel, skip, None if every else count, values, int(limit * 1e6), timeout
    )
    if options.FORM.quiet:
        echo = None
    else:
        echo = sys.stderr.buffer
    kernels = capture.capture_program_launches(command, output, wanted, echo)
    if not untried_only:
        with show_spinner() as progress:
            kernels = capture.measure_captured_kernels(
                kernels,
                build.choose_build_folder_of_kernels(resolve_path(output), build_dir),
                progress,
            )
    rows = [kernel.to_json() for kernel in kernels]
    print_blocks(
        measured.show_captured_kernels(rows), capture.CaptureDocument(kernels=tuple(kernels))
    )
    return _print_next_steps(kernels, output)


def _print_next_steps(kernels: Sequence[CapturedEntry], output: Path) -> ExitStatus:
    """Say what to do next; the exit status is the worst of the kernels'."""
    from profkit.cli.output import print_error, print_note

    captured = [k for k in kernels if k.file]
    if not captured:
        reasons = (k.why_not for k in kernels if k.why_not)
        why = next(reasons, "no kernel has a matching name")
        raise ProfkitError(f"nothing was captured: {why}", "--kernel REGEX, or --all")
    first = f"{Path(captured[0].file or '').parent.name}/captured"
    print_note(f"{output}: profkit bench --kernels {output} --variant {first}")
    if any(k.equal in ("wrong", "failed") for k in captured):
        return options.BAD
    untried = []
    for k in captured:
        if k.notes and not k.equal:
            untried.append(k)
    for kernel in untried:
        print_error(ProfkitError(f"{kernel.kernel}: {kernel.notes[-1]}"))
    if untried:
        return options.COULD_NOT
    return options.DONE
