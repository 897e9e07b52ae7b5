"""A frame of launches  ->  what every picture needs: rows, names, an Axes, units, colours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.ticker import NullLocator

from profkit.errors import ProfkitError
from profkit.files import write_then_replace
from profkit.model.launch import select_collected_metrics
from profkit.reports.frame import make_row_views
from profkit.show import numbers
from profkit.show.numbers import Row
from profkit.show.text.escape import cut_middle, shorten_name

if TYPE_CHECKING:
    import pandas as pd

    from profkit.units import FrameRow, GpuName, SecondsOrZero, TypographicPoints

    # Launches to draw: a frame, a row of one, or paths and patterns of reports.
    Launches = pd.DataFrame | pd.Series[Any] | str | Path | Sequence[str | Path]

LONGEST = 30  # characters of a kernel name that still reads beside a bar
# Okabe and Ito's colours, told apart with every common colour blindness; without the yellow,
# which is too light for lines and letters on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK = "#222222"
FAINT = "#6b6b6b"
RULE = "#d9d9d9"
WIDTH, DPI = 12.0, 200  # inches; 1200 px at 100 dots per inch, saved at twice that
_PER_INCH = 10  # letters of the small print to an inch of the figure

Looks = dict[str, Any]  # colours, sizes and places by matplotlib's names
_NO_GLYPH = "\N{REPLACEMENT CHARACTER}"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class ShownAxes(Axes):
    """An Axes that a notebook shows by itself: no pyplot, so no figure is left open anywhere."""

    def _repr_png_(self) -> bytes:
        return png(self)


def png(ax: Axes) -> bytes:
    buffer = BytesIO()
    get_figure(ax).savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def get_figure(ax: Axes) -> Figure:
    figure = ax.figure
    if isinstance(figure, Figure):
        return figure
    return figure.figure


def make_axes(ax: Axes | None, height_inches: float) -> Axes:
    """Return the Axes to draw on: the caller's, or one in a figure of its own (12 x height inches)."""
    if ax is not None:
        return ax
    figure = Figure(figsize=(WIDTH, height_inches), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure.add_subplot(axes_class=ShownAxes)


def cut_middle_of_plain_text(name: str, longest: int = LONGEST) -> str:
    """Return plain text of so many characters: the middle left out, what has no glyph replaced."""
    name = cut_middle(_CONTROL.sub(_NO_GLYPH, name), longest)
    if name.isascii():
        return name
    drawn = get_font(findfont(FontProperties())).get_charmap()
    return "".join(char if ord(char) in drawn else _NO_GLYPH for char in name)


def list_launch_rows(runs: Launches) -> list[FrameRow]:
    """Return the rows of a frame, the one of a Series, or those of reports that paths name.

    Raises:
        ProfkitError: There is none, or a report cannot be read.
    """
    import pandas as pd

    if isinstance(runs, pd.Series):
        frame = runs.to_frame().T
    elif isinstance(runs, pd.DataFrame):
        frame = runs
    else:
        from profkit.reports.reader import load_reports

        frame = load_reports(runs)
    rows = make_row_views(frame)
    if not rows:
        raise ProfkitError(
            "no launches to draw", "the frame is empty: check the query that made it"
        )
    return [*rows]


def require_single_device(rows: Sequence[FrameRow]) -> GpuName:
    """Return the device of all launches; several are an error: their ceilings differ."""
    devices = sorted({str(row["device"]) for row in rows if isinstance(row.get("device"), str)})
    if len(devices) > 1:
        raise ProfkitError(
            f"launches of {len(devices)} devices in one roofline: {', '.join(devices)}",
            f"draw one device at a time: runs[runs.device == {devices[0]!r}]",
        )
    if devices:
        return devices[0]
    return "unknown device"


@dataclass(frozen=True)
class AlikeLaunches:
    """Launches of one kernel with one shape: drawn alike, named once."""

    name: str  # as short as tells the groups apart; "x3" behind it for three launches
    rows: tuple[Row, ...]  # the launches, longest-running first


def group_alike_launches(rows: Sequence[FrameRow]) -> list[AlikeLaunches]:
    """Return the launches by variant, case, kernel and shape, in the order of their first ones."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        same = ("variant", "case", "kernel", "grid", "block", "device")
        groups.setdefault(tuple(str(row.get(key)) for key in same), []).append(row)
    ordered = [sorted(group, key=get_launch_time, reverse=True) for group in groups.values()]
    alike = []
    for name, group in zip(name_launches([group[0] for group in ordered]), ordered, strict=True):
        times = ""
        if len(group) > 1:
            times = f" ×{len(group)}"
        alike.append(
            AlikeLaunches(cut_middle_of_plain_text(name + times, 3 * LONGEST), tuple(group))
        )
    return alike


def get_launch_time(row: FrameRow) -> SecondsOrZero:
    """Return how long a launch took in s; 0 where that was not collected, so that it sorts last."""
    return select_collected_metrics(row).get("time", 0.0)


def name_launches(rows: Sequence[FrameRow]) -> list[str]:
    """Return what each launch is called in a picture: as short as tells them apart."""
    pairs = {(row["variant"], row.get("case")) for row in rows if _has_variant(row)}
    often = Counter(variant for variant, _ in pairs)
    names = [name_launch_row(row, with_case=often[row.get("variant")] > 1) for row in rows]
    for name_further in (_get_short_kernel_name, _format_launch_number, _get_report_name):
        alike = Counter(names)
        for place, row in enumerate(rows):
            name = names[place]
            further = name_further(row)
            if alike[name] > 1 and name != further:
                names[place] = f"{name} {further}"
    return names


def _has_variant(row: FrameRow) -> bool:
    return isinstance(row.get("variant"), str)


def _format_launch_number(row: FrameRow) -> str:
    return f"#{row.get('launch', '?')}"


def _get_report_name(row: FrameRow) -> str:
    return cut_middle(Path(str(row.get("report", ""))).stem, LONGEST)


def name_launch_row(row: FrameRow, with_case: bool) -> str:
    """Return the variant, and its case if wanted; the kernel of a launch without a variant."""
    variant = row.get("variant")
    case = row.get("case")
    if not isinstance(variant, str):
        return _get_short_kernel_name(row)
    return cut_middle(
        f"{variant} {case}" if with_case and isinstance(case, str) else variant, LONGEST
    )


def _get_short_kernel_name(row: FrameRow) -> str:
    return shorten_name(str(row.get("kernel", "kernel")), LONGEST)


def add_title_and_small_print(
    ax: Axes,
    title: str,
    small_print: str = "",
    title_offset_points: TypographicPoints = 12,
    small_print_offset_points: TypographicPoints = 46,
) -> Axes:
    """Return a picture with its title so many points over it, and small print so many under it.

    Every text that is there is taken literally.
    """
    looks: Looks = {"fontsize": 14, "fontweight": "bold", "color": INK, "parse_math": False}
    ax.set_title(title, loc="left", pad=title_offset_points, **looks)
    letters = max(int(_PER_INCH * ax.figure.bbox.width / ax.figure.dpi), 20)
    if small_print:
        text = fill(" ".join(small_print.split()), letters)
        looks = {"fontsize": 9.5, "color": FAINT, "va": "top", "parse_math": False}
        write_note(
            ax,
            text,
            (0, 0),
            (0, -small_print_offset_points),
            "axes fraction",
            annotation_clip=False,
            **looks,
        )
    take_text_literally(ax)
    return ax


def write_note(
    ax: Axes,
    text: str,
    position: tuple[float, float],
    offset_points: tuple[float, float] = (0, 0),
    coordinate_system: Any = "data",
    **looks: Any,
) -> Annotation:
    """Write a text at a place of the data or of the Axes, so many points beside it."""
    looks = {"fontsize": 10, "color": INK, "textcoords": "offset points", **looks}
    return ax.annotate(text, position, offset_points, xycoords=coordinate_system, **looks)


def write_axis_labels(ax: Axes, x: str, y: str = "", **looks: Any) -> None:
    ax.set_xlabel(x, **{"fontsize": 12, "color": INK, **looks})
    ax.set_ylabel(y, fontsize=12, color=INK)


def set_log_ticks(axis: Axis, text: Callable[[float], str]) -> None:
    """Write powers of ten, or 1, 2 and 5 times those, on a logarithmic axis that has its limits."""
    ticks = numbers.list_log_ticks(*axis.get_view_interval())
    axis.set_ticks(ticks, list(map(text, ticks)))
    axis.set_minor_locator(NullLocator())


def make_legend_handle(label: str, marker: str, colour: str, **looks: Any) -> Line2D:
    return Line2D([], [], marker=marker, color=colour, linestyle="", label=label, **looks)


def add_legend(ax: Axes, handles: Sequence[Any], **looks: Any) -> Legend:
    return ax.legend(handles=handles, **{"fontsize": 10.5, "frameon": False, **looks})


def style_axes(ax: Axes, grid: Literal["both", "x", "y"]) -> None:
    """Draw the common look: no box, a faint grid across one axis or both."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color("#9a9a9a")
    ax.grid(visible=True, axis=grid, which="major", color=RULE, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=11, colors=INK, length=3)


def take_text_literally(ax: Axes) -> None:
    """Take every text literally, whatever a style sheet wants: a dollar sign is no formula.

    What is measured before this is made without formulas from the start: measuring parses.
    """
    for text in ax.findobj(Text):
        text.set_parse_math(False)
        text.set_usetex(False)


def save(ax: Axes, path: str | Path) -> Path:
    """Write the picture of an Axes; PNG, SVG or PDF by the ending of the name, an error else."""
    path = Path(path)
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        what = f"{path}: cannot draw a {path.suffix or 'nameless'} file"
        raise ProfkitError(what, "end the name in .png, .svg or .pdf")
    with write_then_replace(path) as part:
        get_figure(ax).savefig(part, dpi=DPI, format=path.suffix[1:].lower())
    return path
