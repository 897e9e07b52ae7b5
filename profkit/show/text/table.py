"""A table and a width  ->  lines: no number is cut, and no row takes more than three of them.

First the names of kernels get shorter, then words wrap, then the columns that have no room go to
further lines of their row; where three are not enough, they go to a further table, the first column
repeated.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product, zip_longest

from rich.console import Console
from rich.text import Text

from profkit.show.text.names import short

GAP = 2  # blanks between two columns
TALLEST = 3  # lines of a row
_SHORTEST = 36  # characters of a kernel's name where there is no room; else a part of it
_UNDER = 4  # blanks before the further lines of a row, where the first column leaves no room
_CONSOLE = Console(width=1000, markup=False, emoji=False, highlight=False)


@dataclass
class TableColumn:
    title: Text
    cells: list[Text]  # one of each row
    right: bool = False  # numbers: aligned to the right, and never cut or wrapped
    # the whole names of kernels that the cells are; None for any other text
    names: list[str] | None = None
    prose: bool = False  # sentences: other words get the room first

    @cached_property
    def full_width(self) -> int:
        return max(map(_width, (self.title, *self.cells)))

    def min_width(self, lines: int, most: int) -> int:
        """Return the width in which no cell takes more than so many lines."""
        cells = [] if self.names else self.cells
        need = _narrowest(self.title, lines)
        for cell in cells:
            if _width(cell) > need:
                need = max(need, _width(cell) if self.right else _narrowest(cell, lines))
        if self.names:
            need = max(need, min(self.full_width, _SHORTEST // lines))
        return need if self.right else min(need, most)

    def cell_lines(self, width: int) -> Iterator[list[Text]]:
        for number, cell in enumerate(self.cells):
            name = self.names[number] if self.names else ""
            fits = not name or _width(cell) <= width
            yield _lines(cell if fits else Text(short(name, width), cell.style), width)


@dataclass
class _ColumnGroup:
    """Columns next to each other, and the widths they get."""

    indent: int
    room: int
    columns: list[TableColumn] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    @property
    def free(self) -> int:
        return self.room - sum(self.widths) - GAP * (len(self.widths) - 1)

    def widen(self) -> None:
        """Give out the room that is left: to words, to names, then to sentences."""
        ranked = sorted(enumerate(self.columns), key=lambda x: 2 * x[1].prose + bool(x[1].names))
        for at, column in ranked:
            self.widths[at] += max(min(column.full_width - self.widths[at], self.free), 0)

    @cached_property
    def cells(self) -> list[list[list[Text]]]:
        return [list(c.cell_lines(w)) for c, w in zip(self.columns, self.widths, strict=True)]

    @cached_property
    def height(self) -> int:
        return max(map(len, chain.from_iterable(self.cells)), default=1)

    def titles(self) -> Iterator[Text]:
        """Yield the titles, each standing on the first row."""
        titles = [_lines(c.title, w) for c, w in zip(self.columns, self.widths, strict=True)]
        deep = max(map(len, titles))
        for line in self.joined([[Text()] * (deep - len(head)) + head for head in titles]):
            line.stylize("bold")
            yield line

    def joined(self, cells: Sequence[list[Text]]) -> Iterator[Text]:
        for parts in zip_longest(*cells, fillvalue=Text()):
            line = Text(" " * self.indent)
            for part, column, width in zip(parts, self.columns, self.widths, strict=True):
                blanks = " " * max(width - part.cell_len, 0)
                line.append(blanks if column.right else "").append_text(part)
                line.append(" " * GAP if column.right else blanks + " " * GAP)
            line.rstrip()
            yield line


def table_lines(
    columns: Sequence[TableColumn], width: int, *, banded: bool = False, trims: bool = True
) -> list[Text]:
    """Return the lines of a table in a terminal of this width.

    `banded`: what has no room goes to a further table, never to further lines of a row. `trims`:
    sentences end with an ellipsis where a row would be too tall.
    """
    indents = min(columns[0].full_width + GAP, width * 2 // 5), _UNDER
    groups = min(
        (_groups_of(columns, width, *way) for way in product(range(1, TALLEST + 1), indents)),
        key=lambda s: (sum(max(-x.free, 0) for x in s), sum(x.height for x in s), len(s)),
    )
    if len(groups) > 1 and (banded or len(groups) > TALLEST):
        key, *others = columns
        joined = width - key.min_width(1, width) - GAP
        bands = [
            _groups_of([key, *s.columns], width, 1, 0) for s in _groups_of(others, joined, 1, 0)
        ]
    else:
        bands = [groups]
    return list(chain.from_iterable(_drawn(band, trims=trims) for band in bands))


def _groups_of(
    columns: Sequence[TableColumn], width: int, lines: int, indent: int
) -> list[_ColumnGroup]:
    """Return columns on as many lines as they need, as words are."""
    out = [_ColumnGroup(0, width)]
    for column in columns:
        need = column.min_width(lines, out[-1].room)
        if out[-1].columns and need > out[-1].free - GAP:
            out.append(_ColumnGroup(indent, width - indent))
            need = column.min_width(lines, out[-1].room)
        out[-1].columns.append(column)
        out[-1].widths.append(need)
    for group in out:
        group.widen()
    return out


def _drawn(groups: Sequence[_ColumnGroup], *, trims: bool) -> Iterator[Text]:
    for group in groups:
        yield from group.titles()
    for row in range(len(groups[0].columns[0].cells)):
        cells = [[of[row] for of in group.cells] for group in groups]
        if trims:
            _trim(groups, cells)
        for group, parts in zip(groups, cells, strict=True):
            # A further line of which nothing is to be said is none.
            yield from (x for x in group.joined(parts) if not group.indent or x.plain.strip())


def _trim(groups: Sequence[_ColumnGroup], cells: Sequence[list[list[Text]]]) -> None:
    """Leave out the ends of sentences that would make a row too tall."""
    for group, parts in zip(groups, cells, strict=True):
        others = sum(max(map(len, of)) for of in cells if of is not parts)
        for at, column in enumerate(group.columns):
            if column.prose:
                parts[at] = _first(parts[at], max(TALLEST - others, 1), group.widths[at])


def _first(lines: list[Text], most: int, width: int) -> list[Text]:
    """Return as many lines of a cell as there may be; whole words are left out."""
    if len(lines) <= most:
        return lines
    last = lines[most - 1].copy()
    last.rstrip()
    if last.cell_len + 2 > width and " " in last.plain:
        last = last[: last.plain.rindex(" ")]
    return [*lines[: most - 1], last.append(" …")]


def _width(text: Text) -> int:
    return max((line.cell_len for line in text.split("\n")), default=0)


def _lines(text: Text, width: int) -> list[Text]:
    if "\n" not in text.plain and text.cell_len <= width:
        return [text]
    return list(text.wrap(_CONSOLE, max(width, 1), overflow="fold"))


def _narrowest(text: Text, lines: int) -> int:
    """Return the width in which a text takes no more than so many lines, no word cut."""
    widest = _width(text)
    if lines == 1 or not text.plain.strip():
        return widest
    longest = max(Text(word).cell_len for word in re.findall(r"^ *\S+|\S+", text.plain))
    widths = range(longest, widest)
    return longest + bisect_left(widths, True, key=lambda w: len(_lines(text, w)) <= lines)
