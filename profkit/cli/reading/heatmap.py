"""Times over a grid of shapes  ->  who is fastest where, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profkit.cli.inputs.sources import refuse_other
from profkit.cli.options import Quiet
from profkit.cli.output import note
from profkit.cli.verb import Verb


def draw_heatmap(
    grid: Annotated[
        Path, typer.Argument(metavar="FILE", help="Times by shape: JSON lines of profkit.grid/1.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture: .png, .svg or .pdf.")
    ] = Path("heatmap.png"),
    quiet: Quiet = False,
) -> None:
    """Who is fastest at which shape, and how far ahead, as a picture."""
    from profkit.files import check_output
    from profkit.records.grid import read_grid
    from profkit.show import plots

    refuse_other(grid, "heatmap")
    check_output(output, [grid])
    times = read_grid(grid)
    plots.save(plots.heatmap(times), output)
    note(f"{output}: {len(times.cells)} shapes", quiet=quiet)


VERB = Verb(
    run=draw_heatmap,
    examples=(
        "profkit heatmap artifacts/attention/held.jsonl --output held.png",
        "profkit heatmap times.jsonl -o heat.svg --quiet",
    ),
)
