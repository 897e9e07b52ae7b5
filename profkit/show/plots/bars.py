"""Launches  ->  bars: states of the warps, pipes, occupancy; times by shape  ->  coloured cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, isfinite, isnan, log2, nan
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from profkit.errors import ProfkitError
from profkit.model.launch import select_collected_metrics
from profkit.records.grid import GridCell, TimeGrid
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import STATES
from profkit.show.numbers import (
    LIMITS,
    PIPES,
    find_deciding_block_limits,
    get_pipe_shares,
    make_display_name,
)
from profkit.show.plots import base
from profkit.show.plots.base import (
    COLOURS,
    FAINT,
    INK,
    WIDTH,
    AlikeLaunches,
    cut_middle_of_plain_text,
)

if TYPE_CHECKING:
    from profkit.show.plots.base import Launches
    from profkit.units import (
        MetricName,
        MetricValues,
        PipeName,
        SentenceOrEmpty,
        ShareOrNan,
        StallState,
        TypographicPoints,
    )

_MOST_STATES = 12  # named in a legend, three lines of it; the rest is one segment
_MOST_ROWS = 40  # the longest-running kernels; a taller picture is not read
_FOLD = 24  # characters; longer names take two lines
# A state looks the same in every picture. Okabe and Ito's colours, plain for what is common.
STATE_LOOKS: dict[str, tuple[str, str]] = {
    "long_scoreboard": ("#0072B2", ""),
    "barrier": ("#D55E00", ""),
    "wait": ("#F0E442", ""),
    "short_scoreboard": ("#56B4E9", ""),
    "mio_throttle": ("#E69F00", ""),
    "math_pipe_throttle": ("#009E73", ""),
    "lg_throttle": ("#CC79A7", ""),
    "gmma": ("#009E73", "////"),
    "not_selected": ("#c4c4c4", ""),
    "no_instruction": ("#D55E00", "////"),
    "branch_resolving": ("#F0E442", "////"),
    "drain": ("#0072B2", "////"),
    "membar": ("#E69F00", "////"),
    "tex_throttle": ("#CC79A7", "////"),
    "dispatch_stall": ("#56B4E9", "////"),
    "imc_miss": ("#56B4E9", "xxxx"),
    "sleeping": ("#c4c4c4", "////"),
    "misc": ("#ffffff", "...."),
}
_OTHER = ("#ffffff", "")
ISSUING = "#222222"
_BLUES, _ORANGES = ("#0072B2", "#b9d5e8"), ("#D55E00", "#f5cdb3")  # solid, light
_HEADS = ("data", "axes fraction")
# Of occupancy: where the bar ends, then one column per limiter.
_BAR = 1.0
_FIRST = 1.36
_WIDE = 0.23
_END = _FIRST + _WIDE * len(LIMITS)
_NEEDS = _END - 0.35 * _WIDE  # what one more block needs


def format_percents(*values: ShareOrNan) -> str:
    """Return shares as figures without a unit: "15 | 19", "?" where not collected."""
    return " | ".join("?" if isnan(v) else f"{100 * v:.0f}" for v in values)


def choose_kernels_to_draw(runs: Launches) -> tuple[list[AlikeLaunches], SentenceOrEmpty]:
    """Return the kernels to draw in the frame's order, and what to say of those left out."""
    every = base.group_alike_launches(base.list_launch_rows(runs))
    longest = sorted(every, key=lambda g: base.get_launch_time(g.rows[0]), reverse=True)[
        :_MOST_ROWS
    ]
    kept = [g for g in every if g in longest]
    sentences = []
    if len(kept) < len(every):
        sentences.append(f"The {len(kept)} longest-running of {len(every)} kernels.")
    if any(len(g.rows) > 1 for g in kept):
        sentences.append("Of identical launches (×n), the longest-running one.")
    return kept, " ".join(sentences)


def make_rows_axes(
    ax: Axes | None, names: Sequence[str], inches_per_row: float, other_inches: float
) -> Axes:
    """Return an Axes with a line of `inches_per_row` per name; all else takes `other_inches`."""
    ax = base.make_axes(ax, other_inches + inches_per_row * max(len(names), 1))
    ax.set_ylim(max(len(names), 1) - 0.5, -0.5)
    folded = [name.replace(" ", "\n", 1) if len(name) > _FOLD else name for name in names]
    ax.set_yticks(range(len(names)), folded)
    base.style_axes(ax, "x")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0, labelsize=9.5 if folded != list(names) else 11)
    return ax


def stalls(runs: Launches, ax: Axes | None = None) -> Axes:
    """Draw the states of the resident warps: left of zero issuing, right of it what they wait for."""
    kept, small_print = choose_kernels_to_draw(runs)
    rows = [select_collected_metrics(group.rows[0]) for group in kept]
    shown = _choose_states(rows)
    above = 12.0
    if shown:
        above = 8 + 19 * ceil((len(shown) + 2) / 5)  # points of a legend, five a line
    ax = make_rows_axes(ax, [group.name for group in kept], 0.46, 1.15 + above / 72)
    issuing = []
    for y, row in enumerate(rows):
        if "stall_selected" in row:
            issuing.append(row["stall_selected"])
            _draw_states(ax, y, row, shown)
        else:
            write_not_collected(ax, y, kept[y], "stall_selected")
    ax.set_xlim(-max(1.1 * max(issuing, default=0), 0.05), 1.01 - min(issuing, default=0))
    ax.axvline(0, color=INK, lw=1.0)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{abs(100 * v):.0f} %"))
    base.write_axis_labels(ax, "Share of a resident warp's time")
    if shown:
        _add_states_legend(ax, shown)
    return base.add_title_and_small_print(ax, "What the warps waited for", small_print, above)


def _choose_states(rows: Sequence[MetricValues]) -> list[StallState]:
    """Return the waiting states with a share worth naming, largest over all launches first."""
    largest: dict[str, float] = {}
    for state in STATES:
        share = max((row.get(f"stall_{state}", 0.0) for row in rows), default=0.0)
        if share >= 0.04 and state != "selected":
            largest[state] = share
    return sorted(largest, key=lambda state: -largest[state])[:_MOST_STATES]


def _draw_states(ax: Axes, y: int, row: MetricValues, states: Sequence[StallState]) -> None:
    """Draw a launch's states in a row: issuing to the left of zero, then `states`, then the rest."""
    issuing = row["stall_selected"]
    draw_segment(ax, y, -issuing, issuing, (ISSUING, ""))
    left = 0.0
    for state in states:
        width = row.get(f"stall_{state}", 0.0)
        draw_segment(ax, y, left, width, STATE_LOOKS[state])
        left += width
    draw_segment(ax, y, left, max(1 - left - issuing, 0.0), _OTHER)


def _add_states_legend(ax: Axes, states: Sequence[StallState]) -> None:
    looks = {"issuing": (ISSUING, "")}
    for state in states:
        looks[state.replace("_", " ")] = STATE_LOOKS[state]
    looks["other"] = _OTHER
    handles = []
    for name, (colour, hatch) in looks.items():
        edge = choose_white_or_grey_edge(colour)
        handles.append(Patch(facecolor=colour, hatch=hatch, edgecolor=edge, label=name))
    at = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "borderaxespad": 0.3}
    base.add_legend(ax, handles, ncols=5, handlelength=1.3, columnspacing=1.4, **at)


def draw_segment(
    ax: Axes, y: int, left: float, width: float, colour_and_hatch: tuple[str, str]
) -> None:
    """Draw a part of a bar, its share written in it where there is room."""
    if width <= 0:
        return
    colour, hatch = colour_and_hatch
    ax.barh(
        y,
        width,
        0.66,
        left,
        color=colour,
        hatch=hatch,
        edgecolor=choose_white_or_grey_edge(colour),
        linewidth=0.6,
    )
    if width >= 0.045:
        dark = colour in {"#0072B2", "#D55E00", "#009E73", ISSUING} and not hatch
        middle: base.Looks = {"ha": "center", "va": "center", "color": "white" if dark else INK}
        text = ax.text(left + width / 2, y, format_percents(width), fontsize=10, **middle)
        if hatch:
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85})


def choose_white_or_grey_edge(fill_hex: str) -> str:
    if fill_hex == "#ffffff":
        return "#8a8a8a"
    return "white"


def write_not_collected(ax: Axes, y: int, group: AlikeLaunches, metric: MetricName) -> None:
    """Write in a kernel's line that its figures are not there, and what collects them."""
    text = f"not collected: ncu --section {CATALOGUE[metric].section}"
    if group.rows[0].get("status") == "failed":
        text = "the launch failed"
    ax.text(0.005, y, text, fontsize=10, color=FAINT, va="center", style="italic")


def pipes(runs: Launches, ax: Axes | None = None) -> Axes:
    """Draw how busy each pipe was, of elapsed cycles (solid) and of active ones (light).

    Active far above elapsed means that the SMs were idle for a part of the launch. A single launch
    has a row a pipe; several have a row a launch and a column a pipe.
    """
    kept, small_print = choose_kernels_to_draw(runs)
    rows = [select_collected_metrics(group.rows[0]) for group in kept]
    is_single = len(rows) == 1
    shown = _choose_pipes(rows, 12 if is_single else 8)
    columns = [make_display_name(pipe) for pipe in shown]
    names = [group.name for group in kept]
    if is_single:
        columns, names = names, columns or names
    ax = make_rows_axes(ax, names, 0.4, 1.15)
    for i, row in enumerate(rows):
        _draw_pipes(ax, None if is_single else i, row, shown)
        if not any(has_collected_pipe_share(row, pipe) for pipe in PIPES):
            write_not_collected(ax, i, kept[i], f"{PIPES[0]}_busy")
    ax.set_xlim(0, 1 if is_single else max(len(shown), 1))
    _write_column_heads(ax, columns)
    title = "How busy the pipes were, % of peak: elapsed | active cycles"
    below = f"{_write_pipes_legend(rows, shown)} {small_print}"
    return base.add_title_and_small_print(ax, title, below, 26, 14)


def _choose_pipes(rows: Sequence[MetricValues], most_pipes: int) -> list[PipeName]:
    """Return the busiest pipes over all launches, at most so many, in the catalogue's order."""
    largest: dict[str, float] = {}
    for pipe in PIPES:
        shares = chain.from_iterable(get_pipe_shares(row, pipe) for row in rows)
        share = max((0.0, *shares))
        if share >= 0.005:
            largest[pipe] = share
    busiest = sorted(largest, key=lambda pipe: -largest[pipe])[:most_pipes]
    return [pipe for pipe in PIPES if pipe in busiest]


def _draw_pipes(ax: Axes, line: int | None, row: MetricValues, pipes: Sequence[str]) -> None:
    """Draw the pipes of a launch side by side in a line; below one another where that is None."""
    busiest = _find_busiest_pipe(row, pipes)
    for place, pipe in enumerate(pipes):
        at = (0, place)
        room = 0.9
        if line is not None:
            at = (place, line)
            room = 0.64
        draw_pipe_cell(ax, at, get_pipe_shares(row, pipe), pipe == busiest, room)


def _find_busiest_pipe(row: MetricValues, pipes: Iterable[str]) -> PipeName | None:
    """Return the pipe that was busiest of elapsed cycles, issue slots apart; None if none is known."""
    busy = {}
    for pipe in pipes:
        elapsed, _ = get_pipe_shares(row, pipe)
        if pipe != "issue" and not isnan(elapsed):
            busy[pipe] = elapsed
    return max(busy, key=lambda pipe: busy[pipe], default=None)


def _write_column_heads(ax: Axes, columns: Sequence[str]) -> None:
    """Write column heads over the Axes, a line before each, in place of a scale."""
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    for i, name in enumerate(columns):
        ax.axvline(i, color="#9a9a9a", lw=0.8)
        base.write_note(ax, name, (i, 1), (2, 6), _HEADS, fontsize=11, ha="left", va="bottom")


def _write_pipes_legend(rows: Sequence[MetricValues], pipes: Sequence[str]) -> str:
    idle = []
    unknown = []
    for pipe in PIPES:
        if pipe in pipes:
            continue
        if any(has_collected_pipe_share(row, pipe) for row in rows):
            idle.append(make_display_name(pipe))
        else:
            unknown.append(make_display_name(pipe))
    text = "Solid elapsed, light active; the busiest pipe in orange."
    if idle:
        text += f" Lightly used or idle: {', '.join(idle)}."
    if unknown:
        text += f" Not collected: {', '.join(unknown)}."
    return text


def draw_pipe_cell(
    ax: Axes,
    column_and_row: tuple[int, int],
    elapsed_and_active_shares: tuple[ShareOrNan, ShareOrNan],
    is_busiest: bool,
    room_in_columns: float,
) -> None:
    """Draw a pipe's elapsed and active share in its cell; ? where unknown."""
    column, y = column_and_row
    if all(map(isnan, elapsed_and_active_shares)):
        ax.text(column + 0.02, y, "?", fontsize=9.5, color=FAINT, va="center")
        return
    colour, light = _ORANGES if is_busiest else _BLUES
    elapsed, active = (
        0.0 if isnan(share) else min(share, 1.0) * room_in_columns
        for share in elapsed_and_active_shares
    )
    ax.barh(y, room_in_columns, 0.62, column, color="#f3f3f3", edgecolor="none")
    ax.barh(y, active, 0.62, column, color=light, edgecolor="none")
    ax.barh(y, elapsed, 0.36, column, color=colour, edgecolor="none")
    text = format_percents(*elapsed_and_active_shares)
    if text == "0 | 0":
        text = "0"
    x = column + max(elapsed, active) + 0.012
    ink = INK
    if (
        elapsed > 0.55 and room_in_columns < 0.9
    ):  # beside a long bar it would run into the next column
        x = column + 0.02
        ink = "white"
    ax.text(x, y, text, fontsize=9.5, color=ink, va="center")


def occupancy(runs: Launches, ax: Axes | None = None) -> Axes:
    """Draw achieved (solid) and theoretical (light) occupancy, and beside them the limiters.

    A limiter's figure is the blocks per SM that it allows; the smallest decides.
    """
    kept, small_print = choose_kernels_to_draw(runs)
    ax = make_rows_axes(ax, [group.name for group in kept], 0.42, 1.6)
    for y, group in enumerate(kept):
        _draw_occupancy_row(ax, y, group)
    ax.set_xlim(0, _END + 0.7)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    ax.spines["bottom"].set_bounds(0, _BAR)
    base.write_axis_labels(ax, "Warps per SM, as a share of the maximum", loc="left")
    for i, name in enumerate(LIMITS):
        head = name.removeprefix("limit_")
        at = (_FIRST + _WIDE * i, 1)
        base.write_note(ax, head, at, (0, 6), _HEADS, fontsize=10.5, ha="center", va="bottom")
    needs = (_NEEDS, 1)
    by = (_FIRST - 0.5 * _WIDE, 1)
    base.write_note(ax, "one more block needs", needs, (0, 6), _HEADS, fontsize=10.5, va="bottom")
    base.write_note(ax, "blocks per SM by", by, (0, 22), _HEADS, fontsize=10.5, color=FAINT)
    title = "Occupancy: achieved (solid), theoretical (light)"
    below = f"Registers are per thread, shared memory is per block. {small_print}"
    return base.add_title_and_small_print(ax, title, below, title_offset_points=40)


def _draw_occupancy_row(ax: Axes, y: int, group: AlikeLaunches) -> None:
    row = select_collected_metrics(group.rows[0])
    if "occupancy_limit" not in row and "occupancy" not in row:
        write_not_collected(ax, y, group, "occupancy_limit")
        return
    achieved = row.get("occupancy", nan)
    theoretical = row.get("occupancy_limit", nan)
    solid, light = _BLUES
    widest = 0.0
    for value, high, colour in ((theoretical, 0.62, light), (achieved, 0.36, solid)):
        if not isnan(value):
            ax.barh(y, value, high, color=colour, edgecolor="none")
            widest = max(widest, value)
    text = format_percents(achieved, theoretical)
    ax.text(min(widest, _BAR) + 0.012, y, text, fontsize=9.5, color=INK, va="center")
    _write_block_limits(ax, y, row)


def _write_block_limits(ax: Axes, y: int, row: MetricValues) -> None:
    """Write the blocks per SM by each limiter, who decides in bold, and what one more block needs."""
    blocks, deciding, needs = find_deciding_block_limits(row)
    for i, name in enumerate(LIMITS):
        text = "–"
        if name in blocks:
            text = f"{blocks[name]:.0f}"
        look: base.Looks = {"fontweight": "normal", "color": FAINT}
        if name in deciding:
            look = {"fontweight": "bold", "color": _ORANGES[0]}
        ax.text(_FIRST + _WIDE * i, y, text, fontsize=11, ha="center", va="center", **look)
    ax.text(_NEEDS, y, needs, fontsize=10, color=INK, va="center")


def has_collected_pipe_share(row: MetricValues, pipe: PipeName) -> bool:
    return not all(map(isnan, get_pipe_shares(row, pipe)))


_MOST = 1.0  # log2 of the ratio at which colours end: twice as fast, or half
_LEVEL = 0.97  # within the spread that one process has from the next: neither ahead nor behind
_CELL = 0.42  # inches of height
_CELL_LETTERS = 12  # letters of a name in a cell
_SMALLEST, _LARGEST, _LETTER = 5.5, 8.5, 0.62  # points; of those, how wide a letter is
_PANEL = 0.44  # of the figure's width, what a panel's cells take
_SCALE = LinearSegmentedColormap.from_list("lead", [COLOURS[1], "#ffffff", COLOURS[0]])
_PER_ROW, _HIGH = 2, 0.84  # panels side by side; of the height of one, what its cells take
_PANEL_GAP = 0.06  # of the width, between two panels
_PANEL_WIDE = (1 - _PANEL_GAP * (_PER_ROW - 1)) / _PER_ROW


@dataclass(frozen=True)
class Lead:
    """How far ahead the fastest is at a shape."""

    name: str  # the fastest of those that are compared; of something that chooses, what it ran
    against: str  # the fastest of what they are compared with
    ratio: float  # its time over the former's; above 1 the former is ahead


@dataclass(frozen=True)
class Panel:
    """The cells that share what tells pictures apart."""

    title: str
    leads: Mapping[tuple[float | str, float | str], Lead]  # (row, column) -> lead

    @property
    def rows(self) -> tuple[float | str, ...]:
        return sort_values({row for row, _ in self.leads})

    @property
    def columns(self) -> tuple[float | str, ...]:
        return sort_values({column for _, column in self.leads})


def list_panels(grid: TimeGrid) -> list[Panel]:
    """Return a grid's cells by what they share beyond rows and columns, in the order of the file.

    Cells in which only one side was timed have no lead, and are left out.
    """
    groups: dict[str, dict[tuple[float | str, float | str], Lead]] = {}
    for cell in grid.cells:
        name, seconds = cell.find_fastest(grid.against, is_of_the_others=True)
        rival, rival_seconds = cell.find_fastest(grid.against)
        if isfinite(seconds) and isfinite(rival_seconds):
            ahead = Lead(cell.ran.get(name, name), rival, rival_seconds / seconds)
            groups.setdefault(name_panel(cell), {})[cell.row_value, cell.column_value] = ahead
    return [Panel(title, leads) for title, leads in groups.items()]


def name_panel(cell: GridCell) -> str:
    """Return what tells a cell's picture apart from others, in words."""
    words = []
    for name, value in list(cell.at.items())[2:]:
        if isinstance(value, bool):
            words.append(name if value else f"not {name}")
        else:
            words.append(f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}")
    return ", ".join(words)


def sort_values(values: set[float | str]) -> tuple[float | str, ...]:
    return tuple(sorted(values, key=lambda v: (isinstance(v, str), v)))


def heatmap(grid: TimeGrid, ax: Axes | None = None) -> Axes:
    """Draw who is fastest at each shape, and how many times faster than what it is compared with."""
    drawn = list_panels(grid)
    if not drawn:
        raise ProfkitError(
            "no shape of this grid has times for both sides",
            "its first line must name the baseline in `against`",
        )
    lines = ceil(len(drawn) / _PER_ROW)
    tallest = max(len(panel.rows) for panel in drawn)
    ax = base.make_axes(ax, 1.6 + lines * (0.9 + _CELL * tallest))
    ax.set_axis_off()
    names = list(grid.cells[0].at)
    for i, panel in enumerate(drawn):
        line, column = divmod(i, _PER_ROW)
        left = column * (_PANEL_WIDE + _PANEL_GAP)
        bottom = 1 - (line + 1) / lines
        inset = ax.inset_axes((left, bottom, _PANEL_WIDE, _HIGH / lines))
        draw_panel(inset, panel, names, is_in_last_line=line == lines - 1)
    shapes = sum(len(panel.leads) for panel in drawn)
    title = f"The fastest at {shapes} shapes"
    if grid.gpu:
        title += f" on {cut_middle_of_plain_text(grid.gpu)}"
    base.add_title_and_small_print(
        ax, title, explain_heatmap(drawn), title_offset_points=4, small_print_offset_points=40
    )
    base.get_figure(ax).draw_without_rendering()
    return ax


def draw_panel(ax: Axes, panel: Panel, names: Sequence[str], is_in_last_line: bool) -> None:
    """Draw the cells of a panel; the names of rows and columns beside it, of columns in the last."""
    ax.set_xlim(-0.5, len(panel.columns) - 0.5)
    ax.set_ylim(len(panel.rows) - 0.5, -0.5)
    size = _choose_letter_size(panel)
    for (row, column), lead in panel.leads.items():
        _draw_heatmap_cell(ax, panel.columns.index(column), panel.rows.index(row), lead, size)
    ax.set_xticks(range(len(panel.columns)), list(map(format_value, panel.columns)))
    ax.set_yticks(range(len(panel.rows)), list(map(format_value, panel.rows)))
    ax.tick_params(labelsize=9.5, colors=INK, length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_title(cut_middle_of_plain_text(panel.title), loc="left", fontsize=11, color=INK, pad=4)
    ax.set_ylabel(cut_middle_of_plain_text(names[0]), fontsize=10, color=INK)
    if is_in_last_line:
        ax.set_xlabel(cut_middle_of_plain_text(names[1]), fontsize=10, color=INK)


def _choose_letter_size(panel: Panel) -> TypographicPoints:
    """Return the size in points: as large as the longest word lets a cell's letters be, and legible."""
    longest = 0
    for lead in panel.leads.values():
        longest = max(longest, *map(len, format_lead_cell(lead).splitlines()))
    inches = WIDTH * _PANEL / len(panel.columns)
    return min(max(72 * inches / (_LETTER * longest), _SMALLEST), _LARGEST)


def _draw_heatmap_cell(ax: Axes, x: int, y: int, lead: Lead, size: TypographicPoints) -> None:
    """Draw who is ahead at a shape: white on a dark shade, bold where it is behind."""
    shade = Normalize(-_MOST, _MOST, clip=True)(log2(lead.ratio))
    ax.fill_between([x - 0.5, x + 0.5], y - 0.5, y + 0.5, color=_SCALE(shade), linewidth=0)
    looks: base.Looks = {"ha": "center", "va": "center", "fontsize": size, "color": INK}
    if abs(log2(lead.ratio)) > 0.75 * _MOST:
        looks["color"] = "white"
    if lead.ratio < _LEVEL:
        looks["fontweight"] = "bold"
    ax.text(x, y, format_lead_cell(lead), **looks)


def format_lead_cell(lead: Lead) -> str:
    return f"{lead.ratio:.2f}x\n{cut_middle_of_plain_text(lead.name, _CELL_LETTERS)}"


def format_value(value: float | str) -> str:
    if isinstance(value, str):
        return cut_middle_of_plain_text(value)
    return f"{value:g}"


def explain_heatmap(drawn: list[Panel]) -> str:
    """Return the small print: against what, what the colours mean, how far ahead and behind."""
    names = set()
    ratios = []
    behind = 0
    for panel in drawn:
        for lead in panel.leads.values():
            names.add(cut_middle_of_plain_text(lead.against))
            ratios.append(lead.ratio)
            behind += lead.ratio < _LEVEL
    return (
        f"Against the fastest of {', '.join(sorted(names))}, by medians of replayed graphs; blue: "
        "ahead, twice or more at "
        f"its darkest; orange: behind. Behind by more than 3 %: {behind} of {len(ratios)}, in bold. "
        f"Least {min(ratios):.2f}x, most {max(ratios):.2f}x."
    )
