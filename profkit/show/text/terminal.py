"""Blocks  ->  text for a terminal or a pipe of some width."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profkit.reports.figures import unbroken
from profkit.show.text import blocks
from profkit.show.text.blocks import Block, TextSpan, Words, colour, is_right, plain_words, spans
from profkit.show.text.escape import escaped
from profkit.show.text.table import TableColumn, table_lines

_WIDEST = 1000  # columns of a table in a pipe
# Stands for a blank that ends no line: rich wraps at U+00A0 too, and this character means nothing.
_KEPT = "\ufdd0"
_TRAILING = re.compile(r" +$", re.MULTILINE)  # rich fills every line up to the width
_READABLE = 110  # columns of a sentence: the eye loses longer lines
_STYLE = {"strong": "bold", "dim": "dim", "note": "italic", "rule": "bold", "metric": "dim"}


def console(*, width: int | None = None, stderr: bool = False) -> Console:
    """Return a console that obeys NO_COLOR and takes nothing in a text for markup."""
    return Console(width=width, stderr=stderr, markup=False, emoji=False, highlight=False)


def to_text(content: Iterable[Block], on: Console) -> str:
    """Return blocks as text; nothing is printed."""
    out, before = "", None
    for block in content:
        # A paragraph is set apart; a line belongs to what is around it.
        apart = {type(before), type(block)} == {blocks.Paragraph, blocks.Grid}
        out += ("\n" if apart else "") + _block(block, on, before is None, 0)
        before = block
    return _TRAILING.sub("", out)


def _block(block: Block, on: Console, first: bool, indent: int) -> str:
    readable = min(on.width, _READABLE)
    match block:
        case blocks.Grid():
            shown = _grid(block, on, indent + block.indent)
        case blocks.Fold():
            head = Text("" if first else "\n").append(terminal_text(block.title))
            inside = (_block(b, on, first=True, indent=indent + 3) for b in block.blocks)
            shown = _printed(on, head, indent) + "".join(inside)
        case blocks.Heading():
            gap = Text("" if first or block.level >= 3 else "\n")
            style = "bold" if block.level < 3 else "italic"
            shown = _printed(on, gap.append(terminal_text(block.text, style)), indent)
        case blocks.Command():
            shown = _command(block, on, indent + 2)
        case blocks.Code():
            shown = "".join(_whole(line, indent + 2) for line in block.text.splitlines())
        case blocks.TextLine():
            line = Text(f"{block.mark}: " if block.mark else "", colour(block.mark) or "bold")
            line.append(terminal_text(block.text, "not bold default"))
            shown = _printed(on, line, (indent or 2) + 2 * block.indent, readable)
        case blocks.ListItem():
            item = Table.grid(padding=(0, 1, 0, 0))
            item.add_row(block.bullet, terminal_text(block.text))
            for under in block.under:
                item.add_row("", terminal_text(under))
            shown = _printed(on, item, indent, readable)
        case blocks.Image():
            shown = _printed(on, Text(f"see {escaped(block.path)}"), indent, readable)
        case blocks.Paragraph() if all(span.role == "link" for span in spans(block.text)):
            # Nothing but an address, which stays on one line, however long.
            shown = _whole(plain_words(block.text), indent + 2 * block.indent)
        case blocks.Paragraph():
            text = terminal_text(block.text)
            shown = _printed(on, text, indent + 2 * block.indent, readable)
    return shown


def _grid(grid: blocks.Grid, on: Console, indent: int) -> str:
    # In a pipe no window cuts: a table is as wide as it is, and grep finds whole words.
    fits = on.is_terminal or grid.wraps is not None or grid.bands or grid.narrow
    room = on if fits else console(width=_WIDEST)
    columns = [_column(grid, i) for i in grid.telling()]
    lines = table_lines(columns, room.width - indent, banded=grid.bands, trims=on.is_terminal)
    return "".join(_printed(room, line, indent) for line in lines)


def _column(grid: blocks.Grid, i: int) -> TableColumn:
    title, cells = grid.head[i], [row[i] for row in grid.rows]
    names = [x.text for x in cells if isinstance(x, TextSpan) and x.role == "name"]
    return TableColumn(
        terminal_text(title.removeprefix(">")),
        [terminal_text(cell, colour(plain_words(cell))) for cell in cells],
        right=is_right(title),
        names=names if names and len(names) == len(cells) else None,
        prose=i == grid.wraps,
    )


def _whole(line: str, indent: int) -> str:
    """Return a line unchanged, however long: whoever copies it gets it whole."""
    return f"{' ' * indent}{escaped(line)}".rstrip() + "\n"


def _command(command: blocks.Command, on: Console, indent: int) -> str:
    """Return a command on one line, however long: whoever copies it gets it whole."""
    line, about = Text(" " * indent + escaped(command.line), "bold"), f"# {escaped(command.about)}"
    if command.about and len(line) + len(about) + 2 <= on.width:
        line.append(f"  {about}", "not bold dim")
    with on.capture() as captured:
        on.print(line, soft_wrap=True)
    return captured.get()


def terminal_text(words: Words, style: str = "") -> Text:
    """Return words for rich, every character that acts written as an escape; line breaks stay."""
    out = Text(style=style)
    for span in spans(words):
        text = "\n" if span.text == "\n" else unbroken(escaped(span.text), _KEPT)
        out.append(text, _STYLE.get(span.role))
    return out


def _printed(on: Console, what: RenderableType, indent: int, width: int | None = None) -> str:
    with on.capture() as captured:
        on.print(Padding(what, (0, 0, 0, indent)), width=width)
    return captured.get().replace(_KEPT, " ")
