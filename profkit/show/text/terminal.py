"""Blocks  ->  text for a terminal or a pipe of some width."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product, zip_longest
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profkit.reports.figures import bind_units
from profkit.show.text import blocks
from profkit.show.text.blocks import (
    Block,
    TextSpan,
    Words,
    choose_verdict_colour,
    convert_to_spans,
    get_plain_text,
    is_right_aligned,
)
from profkit.show.text.escape import escape_text, shorten_name

if TYPE_CHECKING:
    from profkit.units import CharacterCount, LineCount


_WIDEST = 1000  # columns of a table, in a pipe or in whatever COLUMNS says
# Stands for a blank that ends no line: rich wraps at U+00A0 too, and this character means nothing.
_KEPT = "\ufdd0"
_TRAILING = re.compile(r" +$", re.MULTILINE)  # rich fills every line up to the width
_READABLE = 110  # columns of a sentence: the eye loses longer lines
_STYLE = {
    "strong": "bold",
    "dim": "dim",
    "note": "italic",
    "rule": "bold",
    "metric": "dim",
    "gain": "bold green",
    "place": "cyan",
}


def make_console(*, width: CharacterCount | None = None, stderr: bool = False) -> Console:
    """Return a console that obeys NO_COLOR and takes nothing in a text for markup."""
    on = Console(
        width=width,
        stderr=stderr,
        markup=False,
        emoji=False,
        highlight=False,
        force_jupyter=False,  # in a notebook it would show an empty box per block, captured or not
    )
    on.width = min(on.width, _WIDEST)  # COLUMNS may say anything, and rich fills a line up to it
    return on


def render_text(content: Iterable[Block], console: Console) -> str:
    """Return blocks as text; nothing is printed."""
    out = ""
    before = None
    for block in content:
        # A paragraph is set apart; a line belongs to what is around it.
        apart = {type(before), type(block)} == {blocks.Paragraph, blocks.Grid}
        out += ("\n" if apart else "") + render_block(block, console, before is None, 0)
        before = block
    return _TRAILING.sub("", out)


def render_block(
    block: Block, console: Console, is_first_block: bool, indent: CharacterCount
) -> str:
    """Return a block as text, so many blanks from the left; the first one has no line before it."""
    readable = min(console.width, _READABLE)
    match block:
        case blocks.Grid():
            return render_grid(block, console, indent + block.indent)
        case blocks.Fold():
            return _render_fold(block, console, is_first_block, indent)
        case blocks.Heading():
            return render_in_width(console, _make_heading(block, is_first_block), indent)
        case blocks.Command():
            return render_command(block, console, indent + 2)
        case blocks.Strip():
            return render_in_width(console, render_strip(block), indent or 2)
        case blocks.Code():
            return "".join(
                render_escaped_line(line, indent + 2) for line in block.text.splitlines()
            )
        case blocks.TextLine():
            line = _make_marked_line(block)
            return render_in_width(console, line, (indent or 2) + 2 * block.indent, readable)
        case blocks.ListItem():
            return render_in_width(console, _make_list_item(block), indent, readable)
        case blocks.Image():
            return render_in_width(
                console, Text(f"see {escape_text(block.path)}"), indent, readable
            )
        case blocks.Paragraph():
            return _render_paragraph(block, console, indent, readable)


def _render_fold(
    block: blocks.Fold, console: Console, is_first_block: bool, indent: CharacterCount
) -> str:
    """Return details below their title, three blanks further in."""
    head = Text("" if is_first_block else "\n").append(make_terminal_text(block.title))
    text = render_in_width(console, head, indent)
    for inner in block.blocks:
        text += render_block(inner, console, is_first_block=True, indent=indent + 3)
    return text


def _make_list_item(block: blocks.ListItem) -> Table:
    """Return an entry of a list behind its bullet, with what stands under it."""
    item = Table.grid(padding=(0, 1, 0, 0))
    item.add_row(block.bullet, make_terminal_text(block.text))
    for under in block.under:
        item.add_row("", make_terminal_text(under))
    return item


def _make_heading(block: blocks.Heading, is_first_block: bool) -> Text:
    """Return a heading, bold or of the third level italic, with an empty line before it."""
    gap = "\n"
    style = "bold"
    if block.level >= 3:
        style = "italic"
    if is_first_block or block.level >= 3:
        gap = ""
    return Text(gap).append(make_terminal_text(block.text, style))


def _make_marked_line(block: blocks.TextLine) -> Text:
    """Return a line behind its mark, which has the colour of its word."""
    mark = ""
    if block.mark:
        mark = f"{block.mark}: "
    line = Text(mark, choose_verdict_colour(block.mark) or "bold")
    return line.append(make_terminal_text(block.text, "not bold default"))


def _render_paragraph(
    block: blocks.Paragraph,
    console: Console,
    indent: CharacterCount,
    readable_width: CharacterCount,
) -> str:
    """Return a paragraph; one that is nothing but an address stays on one line, however long."""
    indent += 2 * block.indent
    if all(span.role == "link" for span in convert_to_spans(block.text)):
        return render_escaped_line(get_plain_text(block.text), indent)
    return render_in_width(console, make_terminal_text(block.text), indent, readable_width)


def render_grid(grid: blocks.Grid, console: Console, indent: CharacterCount) -> str:
    """Return a table, indented by so many blanks."""
    # In a pipe no window cuts: a table is as wide as it is, and grep finds whole words.
    fits = console.is_terminal or grid.wraps is not None or grid.bands or grid.narrow
    if fits:
        room = console
    else:
        room = make_console(width=_WIDEST)
    columns = choose_columns(grid, room.width - indent)
    lines = _render_table(
        columns, room.width - indent, banded=grid.bands, trims=console.is_terminal
    )
    return "".join(render_in_width(room, line, indent) for line in lines)


def choose_columns(grid: blocks.Grid, width: CharacterCount) -> list[TableColumn]:
    """Return the columns of a table; spare ones are left out until a row fits on one line."""
    columns = {grid.head[i]: build_column(grid, i) for i in grid.list_filled_columns()}
    for title in grid.spare:
        needed = (
            sum(column.compute_min_width(1, width) + _GAP for column in columns.values()) - _GAP
        )
        if needed <= width:
            break
        columns.pop(title, None)
    return list(columns.values())


def build_column(grid: blocks.Grid, column: int) -> TableColumn:
    """Return column `column` of a table for a terminal, its words in the colours of what they say."""
    title = grid.head[column]
    cells = []
    names = []
    for row in grid.rows:
        cell = row[column]
        cells.append(make_terminal_text(cell, choose_verdict_colour(get_plain_text(cell))))
        if isinstance(cell, TextSpan) and cell.role == "name":
            names.append(cell.text)
    return TableColumn(
        make_terminal_text(title.removeprefix(">")),
        cells,
        right=is_right_aligned(title),
        names=names if names and len(names) == len(cells) else None,
        prose=column == grid.wraps,
        shortest=_SHORTEST_ON_A_LINE if grid.spare else _SHORTEST,
    )


def render_escaped_line(plain_line: str, indent: CharacterCount) -> str:
    return f"{' ' * indent}{escape_text(plain_line)}".rstrip() + "\n"


def render_command(command: blocks.Command, console: Console, indent: CharacterCount) -> str:
    """Return a command on one line, however long: whoever copies it gets it whole."""
    line = Text(" " * indent + escape_text(command.line), "bold")
    about = f"# {escape_text(command.about)}"
    if command.about and len(line) + len(about) + 2 <= console.width:
        line.append(f"  {about}", "not bold dim")
    with console.capture() as captured:
        console.print(line, soft_wrap=True)
    return captured.get()


def make_terminal_text(words: Words, style: str = "") -> Text:
    """Return words for rich, every character that acts written as an escape; line breaks stay."""
    out = Text(style=style)
    for span in convert_to_spans(words):
        if span.text == "\n":
            text = "\n"
        else:
            text = bind_units(escape_text(span.text), _KEPT)
        if span.role == "whole":
            text = text.replace(" ", _KEPT)
        out.append(text, _STYLE.get(span.role))
    return out


def render_strip(bar: blocks.Strip) -> Text:
    """Return a strip in the colours of its parts."""
    line = Text("[")
    for part, word in bar.parts:
        line.append(part, choose_verdict_colour(word))
    return line.append("]")


def render_in_width(
    console: Console,
    renderable: RenderableType,
    indent: CharacterCount,
    width: CharacterCount | None = None,
) -> str:
    """Return what rich prints, indented, in `width` columns of the console if that is given."""
    with console.capture() as captured:
        console.print(Padding(renderable, (0, 0, 0, indent)), width=width)
    return captured.get().replace(_KEPT, " ")


_GAP = 2  # blanks between two columns
TALLEST = 3  # lines of a row
_SHORTEST = 36  # characters of a kernel's name where there is no room; else a part of it
_SHORTEST_ON_A_LINE = 16  # the same in a table that leaves columns out, to keep a row on one line
_UNDER = 4  # blanks before the further lines of a row, where the first column leaves no room
_CONSOLE = Console(width=1000, markup=False, emoji=False, highlight=False, force_jupyter=False)


@dataclass
class TableColumn:
    title: Text
    cells: list[Text]  # one of each row
    right: bool = False  # numbers: aligned to the right, and never cut or wrapped
    # the whole names of kernels that the cells are; None for any other text
    names: list[str] | None = None
    prose: bool = False  # sentences: other words get the room first
    shortest: int = _SHORTEST  # characters of a kernel's name where there is no room
    _needs: dict[int, int] = field(default_factory=dict)  # lines -> width

    @cached_property
    def full_width(self) -> CharacterCount:
        return max(map(_measure_widest_line, (self.title, *self.cells)))

    def compute_min_width(self, most_lines: LineCount, widest: CharacterCount) -> CharacterCount:
        """Return the width in which no cell takes more than so many lines."""
        if most_lines not in self._needs:  # a table is tried in several ways
            self._needs[most_lines] = self._compute_needed_width(most_lines)
        if self.right:
            return self._needs[most_lines]
        return min(self._needs[most_lines], widest)

    def _compute_needed_width(self, most_lines: LineCount) -> CharacterCount:
        need = find_narrowest_width(self.title, most_lines)
        if self.names:
            return max(need, min(self.full_width, self.shortest // most_lines))
        for cell in self.cells:
            widest = _measure_widest_line(cell)
            if widest > need and not self.right:
                widest = find_narrowest_width(cell, most_lines)
            need = max(need, widest)
        return need

    def iterate_cell_lines(self, width: CharacterCount) -> Iterator[list[Text]]:
        """Yield the lines of each cell in a column so wide; a name that does not fit is shortened."""
        for number, cell in enumerate(self.cells):
            name = ""
            if self.names:
                name = self.names[number]
            fits = not name or _measure_widest_line(cell) <= width
            yield wrap_text_into_lines(
                cell if fits else Text(shorten_name(name, width), cell.style), width
            )


@dataclass
class _ColumnGroup:
    """Columns next to each other, and the widths they get."""

    indent: int
    room: int
    columns: list[TableColumn] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    @property
    def free_width(self) -> CharacterCount:
        return self.room - sum(self.widths) - _GAP * (len(self.widths) - 1)

    def widen_columns(self) -> None:
        """Give out the room that is left: to words, to names, then to sentences."""
        ranked = sorted(enumerate(self.columns), key=lambda x: 2 * x[1].prose + bool(x[1].names))
        for at, column in ranked:
            self.widths[at] += max(min(column.full_width - self.widths[at], self.free_width), 0)

    @cached_property
    def cells(self) -> list[list[list[Text]]]:
        return [
            list(c.iterate_cell_lines(w)) for c, w in zip(self.columns, self.widths, strict=True)
        ]

    @cached_property
    def height(self) -> LineCount:
        return max(map(len, chain.from_iterable(self.cells)), default=1)

    def iterate_titles(self) -> Iterator[Text]:
        """Yield the titles, each standing on the first row."""
        titles = [
            wrap_text_into_lines(c.title, w) for c, w in zip(self.columns, self.widths, strict=True)
        ]
        deep = max(map(len, titles))
        for line in self.join_cells([[Text()] * (deep - len(head)) + head for head in titles]):
            line.stylize("bold")
            yield line

    def join_cells(self, cells: Sequence[list[Text]]) -> Iterator[Text]:
        """Yield lines of the group: those of its cells side by side, numbers to the right."""
        for parts in zip_longest(*cells, fillvalue=Text()):
            line = Text(" " * self.indent)
            for part, column, width in zip(parts, self.columns, self.widths, strict=True):
                blanks = " " * max(width - part.cell_len, 0)
                line.append(blanks if column.right else "").append_text(part)
                line.append(" " * _GAP if column.right else blanks + " " * _GAP)
            line.rstrip()
            yield line


def _render_table(
    columns: Sequence[TableColumn],
    width: CharacterCount,
    *,
    banded: bool = False,
    trims: bool = True,
) -> list[Text]:
    """Return the lines of a table in a terminal of this width.

    `banded`: what has no room goes to a further table, never to further lines of a row. `trims`:
    sentences end with an ellipsis where a row would be too tall.
    """
    indents = min(columns[0].full_width + _GAP, width * 2 // 5), _UNDER
    groups = min(
        (_group_columns(columns, width, *way) for way in product(range(1, TALLEST + 1), indents)),
        key=lambda s: (sum(max(-x.free_width, 0) for x in s), sum(x.height for x in s), len(s)),
    )
    if len(groups) > 1 and (banded or len(groups) > TALLEST):
        key, *others = columns
        joined = width - key.compute_min_width(1, width) - _GAP
        bands = [
            _group_columns([key, *s.columns], width, 1, 0)
            for s in _group_columns(others, joined, 1, 0)
        ]
    else:
        bands = [groups]
    return list(chain.from_iterable(render_groups(band, trims=trims) for band in bands))


def _group_columns(
    columns: Sequence[TableColumn],
    width: CharacterCount,
    most_lines: LineCount,
    indent: CharacterCount,
) -> list[_ColumnGroup]:
    """Return columns on as many lines as they need, as words are."""
    out = [_ColumnGroup(0, width)]
    for column in columns:
        need = column.compute_min_width(most_lines, out[-1].room)
        if out[-1].columns and need > out[-1].free_width - _GAP:
            out.append(_ColumnGroup(indent, width - indent))
            need = column.compute_min_width(most_lines, out[-1].room)
        out[-1].columns.append(column)
        out[-1].widths.append(need)
    for group in out:
        group.widen_columns()
    return out


def render_groups(groups: Sequence[_ColumnGroup], *, trims: bool) -> Iterator[Text]:
    """Yield the lines of a table whose columns stand in groups below one another."""
    for group in groups:
        yield from group.iterate_titles()
    for row in range(len(groups[0].columns[0].cells)):
        cells = [[of[row] for of in group.cells] for group in groups]
        if trims:
            trim_cells(groups, cells)
        for group, parts in zip(groups, cells, strict=True):
            # A further line of which nothing is to be said is none.
            for x in group.join_cells(parts):
                if not group.indent or x.plain.strip():
                    yield x


def trim_cells(groups: Sequence[_ColumnGroup], cells: Sequence[list[list[Text]]]) -> None:
    """Leave out the ends of sentences that would make a row too tall."""
    for group, parts in zip(groups, cells, strict=True):
        others = sum(max(map(len, of)) for of in cells if of is not parts)
        for at, column in enumerate(group.columns):
            if column.prose:
                parts[at] = cut_wrapped_lines(parts[at], max(TALLEST - others, 1), group.widths[at])


def cut_wrapped_lines(
    wrapped_lines: list[Text], most_lines: LineCount, width: CharacterCount
) -> list[Text]:
    """Return as many lines of a cell as there may be; whole words are left out."""
    if len(wrapped_lines) <= most_lines:
        return wrapped_lines
    last = wrapped_lines[most_lines - 1].copy()
    last.rstrip()
    if last.cell_len + 2 > width and " " in last.plain:
        last = last[: last.plain.rindex(" ")]
    return [*wrapped_lines[: most_lines - 1], last.append(" …")]


def _measure_widest_line(text: Text) -> CharacterCount:
    if "\n" not in text.plain:
        return text.cell_len
    return max((line.cell_len for line in text.split("\n")), default=0)


def wrap_text_into_lines(text: Text, width: CharacterCount) -> list[Text]:
    if "\n" not in text.plain and text.cell_len <= width:
        return [text]
    return list(text.wrap(_CONSOLE, max(width, 1), overflow="fold"))


def find_narrowest_width(text: Text, most_lines: LineCount) -> CharacterCount:
    """Return the width in which a text takes no more than so many lines, no word cut."""
    widest = _measure_widest_line(text)
    if most_lines == 1 or not text.plain.strip():
        return widest
    longest = max(Text(word).cell_len for word in re.findall(r"^ *\S+|\S+", text.plain))
    widths = range(longest, widest)
    return longest + bisect_left(
        widths, True, key=lambda w: len(wrap_text_into_lines(text, w)) <= most_lines
    )


class ShowsItself:
    """Something that is said in blocks: text where it is printed, HTML in a notebook."""

    WIDTH = 100  # of a terminal that prints it

    def blocks(self) -> Iterable[Block]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return render_text(self.blocks(), make_console(width=self.WIDTH)).rstrip("\n")

    def _repr_html_(self) -> str:
        return blocks.render_html(self.blocks())
