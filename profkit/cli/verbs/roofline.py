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
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.records.paths import detect_file_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pandas import DataFrame

    from profkit.diagnosis.launches import JudgedLaunch
    from profkit.records.grid import TimeGrid

GROUP = "Understand a kernel"
SUMMARY = "Plot launches on the roofline of their GPU."
PRINTED = 8  # launches that are also told in words


Reports = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORTS...",
        help="Give reports, folders or globs; or a file of times by shape (profkit.grid/1).",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the picture: .png, .svg or .pdf. Default: roofline.png or heatmap.png.",
    ),
]


@options.verb(GROUP, SUMMARY, forms="quiet")
def draw_roofline(
    reports: Reports,
    output: Output = None,
    kernel: options.Kernel = None,
    where: options.Where = None,
) -> int:
    """Times by shape can be drawn next to launches, or alone as a map of the fastest at each shape."""
    from profkit.cli.launches import read_and_judge_launches
    from profkit.cli.output import print_note, require_writable_output_path
    from profkit.cli.pictures import import_plots

    plots = import_plots()
    shapes = _read_time_grid(reports)
    patterns = [word for word in reports if detect_file_kind(word) != "grid"]
    output = require_writable_output_path(
        output or Path("roofline.png" if patterns else "heatmap.png"), reports
    )
    if shapes and not patterns:
        plots.save(plots.heatmap(shapes), output)
        print_note(f"{output}: {len(shapes.cells)} shapes")
        return options.DONE
    chosen = read_and_judge_launches(patterns, kernel, where)
    if not (chosen.complete or chosen.launches or shapes):
        return options.COULD_NOT  # each was said why
    _refuse_several_devices(chosen.launches)
    if not shapes:
        _refuse_roofline_without_points(chosen.frame)
    plots.save(plots.roofline(chosen.frame, grid=shapes), output)
    _print_positions(chosen.frame)
    _print_picture_summary(output, len(chosen.frame), shapes)
    if chosen.complete:
        return options.DONE
    return options.COULD_NOT


def _read_time_grid(words: Sequence[str]) -> TimeGrid | None:
    """Return the times by shape that one of the words names; None where none does."""
    from profkit.records.grid import read_time_grid

    grids = [word for word in words if detect_file_kind(word) == "grid"]
    if len(grids) > 1:
        raise ProfkitError(f"{len(grids)} files of times by shape", "draw one at a time")
    if grids:
        return read_time_grid(Path(grids[0]))
    return None


def _print_positions(frame: DataFrame) -> None:
    """Print what the launches that take longest reached, and how near which roof that is."""
    from profkit.cli.output import print_blocks
    from profkit.reports.figures import format_count_with_noun, format_seconds
    from profkit.reports.frame import make_row_views
    from profkit.show.numbers import describe_roofline_position
    from profkit.show.text.blocks import TextLine
    from profkit.show.text.escape import shorten_name

    rows = sorted(make_row_views(frame), key=lambda row: -row["time"] if row["time"] > 0 else 0.0)
    lines = []
    for row in rows[:PRINTED]:
        name = shorten_name(row["kernel"], 48)
        lines.append(
            TextLine(f"{name}, {format_seconds(row['time'])}: {describe_roofline_position(row)}")
        )
    if len(rows) > PRINTED:
        lines.append(
            TextLine(
                "and "
                f"{format_count_with_noun(len(rows) - PRINTED, 'shorter launch', 'shorter launches')}"
            )
        )
    print_blocks(lines)


def _print_picture_summary(output: Path, launches: int, shapes: TimeGrid | None) -> None:
    """Say on stderr how many launches, and shapes beside them, are in the picture."""
    from profkit.cli.output import print_note
    from profkit.reports.figures import format_count_with_noun

    text = f"{output}: {format_count_with_noun(launches, 'launch', 'launches')}"
    if shapes:
        text += f" and {len(shapes.cells)} shapes"
    print_note(text)


def _refuse_roofline_without_points(frame: DataFrame) -> None:
    """Raise a ProfkitError where no launch has a point: the picture would say nothing."""
    from profkit.records.paths import ROOFLINE
    from profkit.reports.frame import make_row_views
    from profkit.show.numbers import explain_empty_roofline

    if why := explain_empty_roofline(make_row_views(frame)):
        raise ProfkitError(why, ROOFLINE)


def _refuse_several_devices(launches: Iterable[JudgedLaunch]) -> None:
    """Raise a ProfkitError for launches of several devices, which have several rooflines."""
    devices = sorted({run.device for run in launches if run.device})
    if len(devices) > 1:
        hint = f"draw one at a time: --where 'device == \"{devices[0]}\"'"
        raise ProfkitError(f"launches of {len(devices)} devices: {', '.join(devices)}", hint)
