"""Reports  ->  their launches under the ceilings of the machine, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profkit.cli.inputs.launches import choose_launches, read_patterns
from profkit.cli.options import COULD_NOT, Kernel, Paths, Quiet, Where
from profkit.cli.output import note, write_to
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError


def draw_roofline(
    reports: Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture: .png, .svg or .pdf.")
    ] = Path("roofline.png"),
    kernel: Kernel = None,
    where: Where = None,
    grid: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Times by shape, profkit.grid/1: drawn beside them."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Every launch under the ceilings of its machine, as a picture."""
    from profkit.records.grid import read_grid
    from profkit.show import plots

    write_to(output, [*reports, *([str(grid)] if grid else [])])
    shapes = read_grid(grid) if grid else None
    read, complete = read_patterns(reports, quiet=quiet)
    chosen = choose_launches(read, kernel, where)
    devices = sorted({run.device for run in chosen.launches if run.device})
    if len(devices) > 1:
        raise ProfkitError(f"launches of {len(devices)} devices: {', '.join(devices)}",
                           f"draw one at a time: --where 'device == \"{devices[0]}\"'")  # fmt: skip
    plots.save(plots.roofline(chosen.frame, grid=shapes), output)
    beside = f" and {len(shapes.cells)} shapes" if shapes else ""
    note(f"{output}: {len(chosen.frame)} launches{beside}", quiet=quiet)
    if not complete:
        raise typer.Exit(COULD_NOT)


VERB = Verb(
    run=draw_roofline,
    examples=(
        "profkit roofline runs/ --output roof.svg",
        "profkit roofline runs/ --kernel gemm --where 'time > 1e-5' --quiet",
        "profkit roofline runs/ --grid artifacts/attention/held.jsonl -o shapes.png",
    ),
)
