"""Reports  ->  their launches under the ceilings of the machine; times by shape  ->  who is fastest.

# Draw every launch of a folder.
profkit roofline runs/ --output roof.svg
# Draw the long launches of one kernel.
profkit roofline runs/ --kernel gemm --where 'time > 1e-5' --quiet
# Draw times by shape, alone or next to launches.
profkit roofline times.jsonl -o heat.svg
profkit roofline runs/ artifacts/attention/held.jsonl -o shapes.png
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.records.paths import detect_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pandas import DataFrame

    from profkit.diagnosis.launches import Judged

GROUP = "Understand a kernel"
_COLLECT = "ncu --set full --section SpeedOfLight_RooflineChart -o roofline COMMAND"
SUMMARY = "Draw launches under the ceilings of their GPU."


@options.verb(GROUP, SUMMARY, forms="quiet")
def draw_roofline(
    reports: list[str] = typer.Argument(
        ...,
        metavar="REPORTS...",
        help="Give reports, folders or globs; or a file of times by shape (profkit.grid/1).",
    ),
    output: Path | None = typer.Option(
        None,
        "--output",
        "-o",
        metavar="FILE",
        help="Write the picture: .png, .svg or .pdf. Default: roofline.png or heatmap.png.",
    ),
    kernel: options.Kernel = None,
    where: options.Where = None,
) -> int:
    """Times by shape are drawn next to launches; alone, they show what is fastest at which shape."""
    from profkit.cli.launches import read_launches
    from profkit.cli.output import note, write_to
    from profkit.cli.pictures import import_plots
    from profkit.records.grid import read_grid
    from profkit.reports.figures import counted

    plots = import_plots()

    grids = [Path(word) for word in reports if detect_kind(word) == "grid"]
    patterns = [word for word in reports if Path(word) not in grids]
    if len(grids) > 1:
        raise ProfkitError(f"{len(grids)} files of times by shape", "draw one at a time")
    output = write_to(output or Path("roofline.png" if patterns else "heatmap.png"), reports)
    shapes = None
    if grids:
        shapes = read_grid(grids[0])
    if shapes and not patterns:
        plots.save(plots.heatmap(shapes), output)
        note(f"{output}: {len(shapes.cells)} shapes")
        return options.DONE
    chosen = read_launches(patterns, kernel, where)
    if not (chosen.complete or chosen.launches or shapes):
        return options.COULD_NOT  # each was said why
    _refuse_several_devices(chosen.launches)
    if not shapes:
        _refuse_empty(chosen.frame)
    plots.save(plots.roofline(chosen.frame, grid=shapes), output)
    beside = ""
    if shapes:
        beside = f" and {len(shapes.cells)} shapes"
    note(f"{output}: {counted(len(chosen.frame), 'launch', 'launches')}{beside}")
    if chosen.complete:
        return options.DONE
    return options.COULD_NOT


def _refuse_empty(frame: DataFrame) -> None:
    """Raise a ProfkitError where no launch has a point: the picture would say nothing."""
    from profkit.model import roofline
    from profkit.reports.frame import list_viewed_rows
    from profkit.show.numbers import why_no_point

    rows = list_viewed_rows(frame)
    if not rows or any(roofline.list_points(row) for row in rows):
        return
    reasons = why_no_point(rows).most_common(1)
    why = "its counters were not collected"
    if reasons:
        why = reasons[0][0]
    raise ProfkitError(f"no launch has a point on a roofline: {why}", _COLLECT)


def _refuse_several_devices(launches: Iterable[Judged]) -> None:
    """Raise a ProfkitError for launches of several devices, which have several rooflines."""
    devices = sorted({run.device for run in launches if run.device})
    if len(devices) > 1:
        hint = f"draw one at a time: --where 'device == \"{devices[0]}\"'"
        raise ProfkitError(f"launches of {len(devices)} devices: {', '.join(devices)}", hint)
