"""Times over a grid of shapes  ->  panels of cells: how far ahead the best is, and who that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from profkit.records.grid import GridCell, TimeGrid


@dataclass(frozen=True)
class Lead:
    """How far ahead the fastest is at a shape.

    Attributes:
        name: The fastest of those that are compared; of something that chooses, what it ran.
        against: The fastest of what they are compared with.
        ratio: Its time over the former's; above 1 the former is ahead.
        seconds: The former's median.
    """

    name: str
    against: str
    ratio: float
    seconds: float


@dataclass(frozen=True)
class Panel:
    """The cells that share what tells pictures apart.

    Attributes:
        title: What they share.
        rows: The values of the first axis, ascending.
        columns: Those of the second.
        leads: (row, column) -> lead.
    """

    title: str
    rows: tuple[float | str, ...]
    columns: tuple[float | str, ...]
    leads: Mapping[tuple[float | str, float | str], Lead]


def panels(grid: TimeGrid) -> list[Panel]:
    """A grid's cells by what they share beyond rows and columns, in the order of the file.

    Cells in which only one side was timed have no lead, and are left out.
    """
    groups: dict[str, dict[tuple[float | str, float | str], Lead]] = {}
    for cell in grid.cells:
        ahead = lead(cell, grid.against)
        if ahead is not None:
            groups.setdefault(shared_part(cell), {})[cell.row, cell.column] = ahead
    return [
        Panel(title, _sorted({r for r, _ in leads}), _sorted({c for _, c in leads}), leads)
        for title, leads in groups.items()
    ]


def lead(cell: GridCell, against: frozenset[str]) -> Lead | None:
    """Who leads at a shape; None where only one side was timed."""
    name, seconds = cell.fastest(against, without=True)
    rival, rival_seconds = cell.fastest(against)
    if not isfinite(seconds) or not isfinite(rival_seconds):
        return None
    return Lead(cell.ran.get(name, name), rival, rival_seconds / seconds, seconds)


def axes_of(grid: TimeGrid) -> tuple[str, str]:
    """The names of rows and columns; empty without cells."""
    names = list(grid.cells[0].at) if grid.cells else ["", ""]
    return names[0], names[1]


def shared_part(cell: GridCell) -> str:
    """What tells a cell's picture apart from others, in words."""
    rest = list(cell.at.items())[2:]
    words = [
        (name if value else f"not {name}") if isinstance(value, bool) else f"{name} {value:g}"
        if isinstance(value, float | int) else f"{name} {value}"
        for name, value in rest
    ]  # fmt: skip
    return ", ".join(words)


def _sorted(values: set[float | str]) -> tuple[float | str, ...]:
    return tuple(sorted(values, key=lambda v: (isinstance(v, str), v)))
