"""Headings, lines and tables  ->  the same in a terminal, as Markdown and as HTML.

What a comparison, a ladder, claims and the ledger say is put together once, of these. Text in them
may come out of reports and other people's files: it is escaped here, where it is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.show.text.escape import html, markdown, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_WIDEST = 1000  # columns of a table in a pipe
_TRAILING = re.compile(r" +$", re.MULTILINE)  # rich fills every line up to the width
_COLOUR = {
    "faster": "green", "holds": "green", "gone": "green", "kept": "green", "met": "green",
    "slower": "red", "fails": "red", "new": "red", "broken": "red", "errored": "bold red",
    "not met": "red", "cannot tell": "yellow", "undecided": "yellow", "unknown": "yellow",
    "not compared": "bold yellow", "same": "cyan",
}  # fmt: skip

_READABLE = {"yellow": "darkorange", "cyan": "teal"}  # of these on white and on black


@dataclass(frozen=True)
class Heading:
    """What the blocks below it are about; level 1 is the largest."""

    text: str
    level: int = 1


@dataclass(frozen=True)
class Line:
    """One sentence, `mark` (a verdict) in front of it in its colour."""

    text: str
    mark: str = ""
    indent: int = 0


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        head: Column titles; one that begins with > is aligned to the right.
        rows: Cells.
        wraps: Index of the column whose text may take several lines.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    wraps: int | None = None


Block = Heading | Line | Grid


def to_text(blocks: Iterable[Block], on: Console) -> str:
    """Blocks as text for a terminal of that width; nothing is printed."""
    return _TRAILING.sub("", "".join(_to_text(b, on, not i) for i, b in enumerate(blocks)))


def _to_text(block: Block, on: Console, first: bool) -> str:
    from rich.padding import Padding
    from rich.text import Text

    if isinstance(block, Grid):
        # In a pipe no window cuts: a table is as wide as it is, and grep finds whole words.
        room = on if on.is_terminal or block.wraps is not None else _wide()
        return _printed(room, Padding(_table(block), (0, 0, 0, 2)))
    if isinstance(block, Line):
        line = Text(f"{block.mark}: " if block.mark else "", _COLOUR.get(block.mark, "bold"))
        line.append(visible(block.text), "not bold default")
        return _printed(on, Padding(line, (0, 0, 0, 2 + 2 * block.indent)))
    gap = "" if first or block.level >= 3 else "\n"
    return _printed(on, Text(gap + visible(block.text), "bold" if block.level < 3 else "italic"))


def _printed(on: Console, what: RenderableType) -> str:
    with on.capture() as captured:
        on.print(what)
    return captured.get()


def _wide() -> Console:
    from rich.console import Console

    return Console(width=_WIDEST, markup=False, emoji=False, highlight=False)


def _table(grid: Grid) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, title in enumerate(grid.head):
        right = title.startswith(">")
        table.add_column(
            Text(visible(title.removeprefix(">"))),
            justify="right" if right else "left",
            no_wrap=i != grid.wraps,
            overflow="fold" if i == grid.wraps else "ellipsis",
        )
    for row in grid.rows:
        table.add_row(*(Text(visible(cell), _COLOUR.get(cell, "")) for cell in row))
    return table


def to_markdown(blocks: Iterable[Block]) -> str:
    """Blocks as Markdown for a pull request or a job summary."""
    out: list[str] = []
    for block in blocks:
        if isinstance(block, Heading):
            out += ["", f"{'#' * (block.level + 1)} {markdown(block.text)}", ""]
        elif isinstance(block, Line):
            mark = f"**{markdown(block.mark)}**: " if block.mark else ""
            out.append(f"{'  ' * block.indent}- {mark}{markdown(block.text)}")
        else:
            out += ["", *_markdown_table(block), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n") + "\n"


def _markdown_table(grid: Grid) -> Sequence[str]:
    head = [markdown(title.removeprefix(">")) for title in grid.head]
    sides = ["--:" if title.startswith(">") else "---" for title in grid.head]
    rows = [[markdown(cell) for cell in row] for row in grid.rows]
    return [f"| {' | '.join(cells)} |" for cells in (head, sides, *rows)]


def to_html(blocks: Iterable[Block]) -> str:
    """Blocks as one HTML element for a notebook, in the colours of its theme."""
    out = [_html(block) for block in blocks]
    return f'<div style="overflow-x:auto">{"".join(out)}</div>'


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        level = min(block.level + 3, 6)
        return f"<h{level}>{html(block.text)}</h{level}>"
    if isinstance(block, Line):
        mark = f"<b{_style(block.mark)}>{html(block.mark)}:</b> " if block.mark else ""
        return f'<div style="margin-left:{2 * block.indent}em">{mark}{html(block.text)}</div>'
    head = _row("th", [title.removeprefix(">") for title in block.head], block.head)
    rows = "".join(_row("td", row, block.head) for row in block.rows)
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _row(tag: str, texts: Sequence[str], head: Sequence[str]) -> str:
    cells = []
    for text, title in zip(texts, head, strict=True):
        # A ladder is indented with blanks, which HTML would swallow; a number keeps its unit.
        right = title.startswith(">")
        rules = "right;white-space:nowrap" if right else "left;white-space:pre-wrap"
        style = _style(text, f"text-align:{rules}")
        cells.append(f"<{tag}{style}>{html(text)}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"


def _style(text: str, more: str = "") -> str:
    colour = _COLOUR.get(text, "").removeprefix("bold ")
    colour = _READABLE.get(colour, colour)
    rules = ";".join(filter(None, (more, f"color:{colour}" if colour else "")))
    return f' style="{rules}"' if rules else ""
