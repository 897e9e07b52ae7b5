"""Times over a grid of shapes  ->  a picture: a cell per shape, coloured by who is ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, isfinite, log2

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize

from profkit.errors import ProfkitError
from profkit.records.grid import GridCell, TimeGrid
from profkit.show.plots import base
from profkit.show.plots.base import COLOURS, INK, WIDTH, clip

_MOST = 1.0  # log2 of the ratio at which colours end: twice as fast, or half
_LEVEL = 0.97  # within the spread that one process has from the next: neither ahead nor behind
_CELL = 0.42  # inches of height
_LONGEST = 12  # letters of a name in a cell
_SMALLEST, _LARGEST, _LETTER = 5.5, 8.5, 0.62  # points; of those, how wide a letter is
_PANEL = 0.44  # of the figure's width, what a panel's cells take
_SCALE = LinearSegmentedColormap.from_list("lead", [COLOURS[1], "#ffffff", COLOURS[0]])
_PER_ROW, _HIGH = 2, 0.84  # panels side by side; of the height of one, what its cells take


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
        return _sorted({row for row, _ in self.leads})

    @property
    def columns(self) -> tuple[float | str, ...]:
        return _sorted({column for _, column in self.leads})


def panels(grid: TimeGrid) -> list[Panel]:
    """Return a grid's cells by what they share beyond rows and columns, in the order of the file.

    Cells in which only one side was timed have no lead, and are left out.
    """
    groups: dict[str, dict[tuple[float | str, float | str], Lead]] = {}
    for cell in grid.cells:
        name, seconds = cell.fastest(grid.against, without=True)
        rival, rival_seconds = cell.fastest(grid.against)
        if isfinite(seconds) and isfinite(rival_seconds):
            ahead = Lead(cell.ran.get(name, name), rival, rival_seconds / seconds)
            groups.setdefault(shared_part(cell), {})[cell.row, cell.column] = ahead
    return [Panel(title, leads) for title, leads in groups.items()]


def shared_part(cell: GridCell) -> str:
    """Return what tells a cell's picture apart from others, in words."""
    words = []
    for name, value in list(cell.at.items())[2:]:
        if isinstance(value, bool):
            words.append(name if value else f"not {name}")
        else:
            words.append(f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}")
    return ", ".join(words)


def _sorted(values: set[float | str]) -> tuple[float | str, ...]:
    return tuple(sorted(values, key=lambda v: (isinstance(v, str), v)))


def heatmap(grid: TimeGrid, ax: Axes | None = None) -> Axes:
    """Draw who is fastest at each shape, and how many times faster than what it is compared with."""
    drawn = panels(grid)
    if not drawn:
        raise ProfkitError(
            "no shape of this grid has times of both sides",
            "its first line names in `against` what the others are compared with",
        )
    lines = ceil(len(drawn) / _PER_ROW)
    tallest = max(len(p.rows) for p in drawn)
    ax = base.canvas(ax, 1.6 + lines * (0.9 + _CELL * tallest))
    ax.set_axis_off()
    wide, gap = (1 - 0.06 * (_PER_ROW - 1)) / _PER_ROW, 0.06
    high = 1 / lines
    for i, panel in enumerate(drawn):
        left, bottom = i % _PER_ROW * (wide + gap), 1 - (i // _PER_ROW + 1) * high
        inset = ax.inset_axes((left, bottom, wide, high * _HIGH))
        _panel(inset, panel, list(grid.cells[0].at), last=i // _PER_ROW == lines - 1)
    shapes = sum(len(p.leads) for p in drawn)
    title = f"The fastest at {shapes} shapes" + (f" on {clip(grid.gpu)}" if grid.gpu else "")
    base.titled_figure(ax, title, _below(drawn), above=4, under=40)
    base.figure_of(ax).draw_without_rendering()
    base.plain_text(ax)
    return ax


def _panel(ax: Axes, panel: Panel, names: Sequence[str], last: bool) -> None:
    ax.set_xlim(-0.5, len(panel.columns) - 0.5)
    ax.set_ylim(len(panel.rows) - 0.5, -0.5)
    # As large as the longest name lets the letters of a cell be, and legible.
    inches = WIDTH * _PANEL / len(panel.columns)
    longest = max(map(len, "\n".join(map(_words, panel.leads.values())).splitlines()))
    size = min(max(72 * inches / (_LETTER * longest), _SMALLEST), _LARGEST)
    for (row, column), lead in panel.leads.items():
        x, y = panel.columns.index(column), panel.rows.index(row)
        shade = Normalize(-_MOST, _MOST, clip=True)(log2(lead.ratio))
        ax.fill_between([x - 0.5, x + 0.5], y - 0.5, y + 0.5, color=_SCALE(shade), linewidth=0)
        looks: base.Looks = {"ha": "center", "va": "center", "fontsize": size}
        looks["color"] = "white" if abs(log2(lead.ratio)) > 0.75 * _MOST else INK
        looks["fontweight"] = "bold" if lead.ratio < _LEVEL else "normal"
        ax.text(x, y, _words(lead), **looks)
    ax.set_xticks(range(len(panel.columns)), [_value(v) for v in panel.columns])
    ax.set_yticks(range(len(panel.rows)), [_value(v) for v in panel.rows])
    ax.tick_params(labelsize=9.5, colors=INK, length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_title(clip(panel.title), loc="left", fontsize=11, color=INK, pad=4)
    ax.set_ylabel(clip(names[0]), fontsize=10, color=INK)
    if last:
        ax.set_xlabel(clip(names[1]), fontsize=10, color=INK)


def _words(lead: Lead) -> str:
    return f"{lead.ratio:.2f}x\n{clip(lead.name, _LONGEST)}"


def _value(value: float | str) -> str:
    return clip(value) if isinstance(value, str) else f"{value:g}"


def _below(drawn: list[Panel]) -> str:
    leads = list(chain.from_iterable(p.leads.values() for p in drawn))
    names = ", ".join(sorted({clip(lead.against) for lead in leads}))
    behind = sum(lead.ratio < _LEVEL for lead in leads)
    return (
        f"Against the fastest of {names}, by medians of replayed graphs; blue: ahead, twice or more at "
        f"its darkest; orange: behind. Behind by more than 3 %: {behind} of {len(leads)}, in bold. "
        f"Least {min(lead.ratio for lead in leads):.2f}x, most {max(lead.ratio for lead in leads):.2f}x."
    )
