"""Headings, lines, items, tables and folds  ->  the same in a terminal, as Markdown and as HTML.

What is said of a diagnosis, a comparison, a search, a check or a rule is put together once, of these.
Text in them may come out of reports and other people's files: it is escaped where it is rendered,
never before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from profkit.show.text.escape import (
    escape_html,
    escape_markdown,
    escape_text,
    shorten_name,
    write_code_span,
)

if TYPE_CHECKING:
    from profkit.units import HtmlText, MarkdownText, TextOrEmpty


LONGEST = 44  # characters of a kernel's name where there is room
T = TypeVar("T")
Role = Literal[
    "", "strong", "dim", "code", "note", "link", "name", "rule", "metric", "gain", "place", "whole"
]


@dataclass(frozen=True)
class TextSpan:
    text: str
    # how it is set: strong, dim, code (a name or a path), note (an emphasized word), link
    # (a heading of the same document, or an https address), name (of a kernel, whole: it is
    # shortened to what fits), rule (its name), metric (its name and value)
    role: Role = ""


BREAK = TextSpan("\n")  # the next line of the same cell
Words = str | TextSpan | tuple[str | TextSpan, ...]
Columns = Mapping[str, Callable[[T], Words]]  # title -> what a row has in this column


def convert_to_spans(words: Words) -> tuple[TextSpan, ...]:
    """Return words as pieces, the names of kernels as long as they are where there is room."""
    if isinstance(words, tuple):
        pieces = words
    else:
        pieces = (words,)
    texts = (TextSpan(piece) if isinstance(piece, str) else piece for piece in pieces)
    return tuple(
        replace(span, text=shorten_name(span.text, LONGEST)) if span.role == "name" else span
        for span in texts
    )


def join_with_breaks(pieces: Iterable[TextSpan]) -> Words:
    """Return pieces as the lines of one cell."""
    return tuple(chain.from_iterable((BREAK, piece) for piece in pieces))[1:]


def get_plain_text(words: Words) -> str:
    """Return words without how they are set."""
    return "".join(span.text for span in convert_to_spans(words))


@dataclass(frozen=True)
class Heading:
    """What the blocks below it are about; level 1 is the largest."""

    text: Words
    level: int = 1


@dataclass(frozen=True)
class TextLine:
    """One sentence, `mark` (a verdict) in front of it in its colour."""

    text: Words
    mark: str = ""
    indent: int = 0


@dataclass(frozen=True)
class Paragraph:
    """Sentences set apart from what is around them."""

    text: Words
    indent: int = 0


@dataclass(frozen=True)
class ListItem:
    """One of a list: a text, and lines that belong to it beneath."""

    text: Words
    under: tuple[Words, ...] = ()
    bullet: str = "-"


@dataclass(frozen=True)
class Command:
    """A command line that the reader may copy, and what it is for."""

    line: str
    about: str = ""


@dataclass(frozen=True)
class Strip:
    """A whole as one line of characters: parts, each with the word whose colour it has."""

    parts: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return f"[{''.join(part for part, _ in self.parts)}]"


@dataclass(frozen=True)
class Code:
    text: str
    language: str


@dataclass(frozen=True)
class Image:
    """A picture in a file beside the text."""

    path: str


@dataclass(frozen=True)
class Grid:
    head: tuple[str, ...]  # column titles; one that begins with > is aligned to the right
    rows: tuple[tuple[Words, ...], ...]
    wraps: int | None = None  # index of the column of sentences, which may take several lines
    indent: int = 2  # blanks before it on a terminal
    bands: bool = False  # columns that have no room go below, with the first one repeated
    narrow: bool = False  # a pipe's width limits it too
    asked: bool = False  # the reader named the columns: each is shown, also where it says nothing
    # titles of the columns that a terminal leaves out, the first one first, where a row has no room
    spare: tuple[str, ...] = ()

    def list_filled_columns(self) -> list[int]:
        """Return the columns that say something; all of them where a user chose them."""
        columns = list(range(len(self.head)))
        if self.asked:
            return columns
        told = []
        for i in columns:
            if any(get_plain_text(r[i]) not in _NOTHING for r in self.rows):
                told.append(i)
        return told or columns


def make_grid(rows: Iterable[T], columns: Columns[T], **layout: Any) -> Grid:
    """Return the table of `rows`: of each column the title, and what it says of a row."""
    cells = (tuple(cell(row) for cell in columns.values()) for row in rows)
    return Grid(tuple(columns), tuple(cells), **layout)


def is_right_aligned(title: str) -> bool:
    return title.startswith(">")


@dataclass(frozen=True)
class Fold:
    """Details under a title: folded where the form can, open if `shown`; else indented."""

    title: Words
    blocks: tuple[Block, ...]
    shown: bool = False


Block = Heading | TextLine | Paragraph | ListItem | Command | Strip | Code | Image | Grid | Fold


def choose_verdict_colour(text: str) -> TextOrEmpty:
    """Return the colour of a word that judges, "" for any other: "faster", "memory: shared"."""
    return _COLOUR.get(text) or _COLOUR.get(text.partition(":")[0].partition("\n")[0], "")


_NOTHING = {"", "-", "not counted"}  # all that some column holds
_COLOUR = {
    **dict.fromkeys(("faster", "holds", "gone", "kept", "met", "right", "ok", "keep"), "green"),
    **dict.fromkeys(("slower", "fails", "new", "broken", "not met", "wrong", "failed"), "red"),
    **dict.fromkeys(
        ("cannot tell", "undecided", "unknown", "warning", "stale", "hidden"), "yellow"
    ),
    **{"missing": "red", "errored": "bold red", "same": "cyan"},
    **{"fall back": "yellow", "not compared": "bold yellow"},
    **{"memory": "cyan", "compute": "green", "latency": "yellow", "launch": "red"},
    "balanced": "blue",
}


_INDENT = "&nbsp;&nbsp;"  # plain blanks at the start of a cell are dropped by every renderer
_MARKS = {"strong": "**", "rule": "**", "note": "_"}
_TAGS = {"strong": "b", "rule": "b", "note": "i", "code": "code", "name": "code"}
_READABLE = {"yellow": "darkorange", "cyan": "teal"}  # of these on white and on black


def render_markdown(blocks: Iterable[Block]) -> MarkdownText:
    """Return blocks as Markdown for a pull request or a job summary."""
    lines = "\n".join(chain.from_iterable(map(write_markdown_block, blocks)))
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n") + "\n"


def write_markdown_block(block: Block) -> Iterator[MarkdownText]:
    """Yield the lines of a block in Markdown, with empty ones where it has to be set apart."""
    match block:
        case Heading():
            yield from ("", f"{'#' * (block.level + 1)} {write_markdown_words(block.text)}", "")
        case TextLine():
            mark = ""
            if block.mark:
                mark = f"**{escape_markdown(block.mark)}**: "
            yield f"{'  ' * block.indent}- {mark}{write_markdown_words(block.text)}"
        case Paragraph():
            yield from ("", write_markdown_words(block.text), "")
        case ListItem():
            yield f"- {write_markdown_words(block.text)}"
            for under in block.under:
                yield f"  <br>{write_markdown_words(under)}"
        case Command():
            about = ""
            if block.about:
                about = f" ({escape_markdown(block.about)})"
            yield f"- {write_code_span(block.line)}{about}"
        case Strip():
            yield f"- {write_code_span(block.text)}"
        case Code():
            yield from _write_fenced_code(block)
        case Image():
            yield f"![{escape_markdown(block.path.rpartition('.')[0])}]({block.path})"
        case Fold():
            yield from _write_markdown_fold(block)
        case Grid():
            yield from ("", *write_markdown_table(block), "")


def _write_markdown_fold(block: Fold) -> Iterator[MarkdownText]:
    """Yield details under a title, which are HTML in Markdown, too."""
    opened = " open" if block.shown else ""
    title = _NOTEBOOK.render_words(block.title)
    yield from ("", f"<details{opened}><summary>{title}</summary>", "")
    for inner in block.blocks:
        yield from write_markdown_block(inner)
    yield from ("", "</details>", "")


def _write_fenced_code(block: Code) -> list[MarkdownText]:
    """Return code between fences that are longer than any run of backticks in it."""
    longest = max(map(len, re.findall("`+", block.text)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = map(escape_text, block.text.splitlines())
    return ["", f"{fence}{block.language}", *lines, fence, ""]


def write_markdown_words(words: Words, *, in_table: bool = False) -> MarkdownText:
    """Return words as Markdown: code, links and marks by their roles, everything else escaped."""
    out = ""
    for span in convert_to_spans(words):
        text = span.text
        if text == "\n":
            out += "<br>"
        elif not text:
            continue
        elif span.role in ("code", "name"):
            out += write_code_span(text, in_table=in_table)
        elif span.role == "link" and _is_safe_link(text):
            out += f"<{text}>"
        elif span.role == "link":
            out += f"[{escape_markdown(text)}](#{text})"
        else:
            mark = _MARKS.get(span.role, "")
            out += f"{mark}{escape_markdown(text)}{mark}"
    return out


def _is_safe_link(text: str) -> bool:
    """Return whether a link leads out; what could end it, or act, is no address."""
    return bool(re.fullmatch(r"https://[\w./#?=&%-]+", text))


def write_markdown_table(grid: Grid) -> Sequence[MarkdownText]:
    """Return a table as lines of Markdown."""
    head = []
    sides = []
    for title in grid.head:
        head.append(write_markdown_words(title.removeprefix(">"), in_table=True))
        sides.append("--:" if is_right_aligned(title) else "---")
    rows = [head, sides]
    for row in grid.rows:
        rows.append(list(map(write_markdown_cell, row)))
    return [f"| {' | '.join(cells)} |" for cells in rows]


def write_markdown_cell(cell: Words) -> MarkdownText:
    """Return a cell; a ladder's blanks before a name stay to be seen."""
    raw = get_plain_text(cell)
    depth = len(raw) - len(raw.lstrip(" "))
    return _INDENT * (depth // 2) + write_markdown_words(cell, in_table=True).lstrip(" ")


def render_html(blocks: Iterable[Block]) -> HtmlText:
    """Return blocks as one HTML element for a notebook, in the colours of its theme."""
    return f'<div style="overflow-x:auto">{_NOTEBOOK.render_blocks(blocks)}</div>'


@dataclass(frozen=True)
class _Html:
    """Blocks as HTML: with classes for a page, with styles for a notebook."""

    page: bool

    def _format_style(self, classes: str, rules: str = "", judged: str = "") -> TextOrEmpty:
        """Return an element's attributes; `judged` is a word that has a colour."""
        if self.page:
            if classes:
                return f' class="{classes}"'
            return ""
        named = choose_verdict_colour(judged).removeprefix("bold ")
        if named:
            named = f"color:{_READABLE.get(named, named)}"
        else:
            named = ""
        rules = ";".join(filter(None, (rules, named)))
        if rules:
            return f' style="{rules}"'
        return ""

    def render_blocks(self, blocks: Iterable[Block]) -> HtmlText:
        return "".join(chain.from_iterable(map(self._render_block, blocks)))

    def _render_block(self, block: Block) -> Iterator[str]:
        match block:
            case Heading():
                level = min(block.level + 3, 6)
                if self.page:
                    level = max(block.level + 1, 3)
                yield f"<h{level}>{self.render_words(block.text)}</h{level}>"
            case TextLine():
                yield self._render_line(block)
            case Paragraph():
                yield f"<p>{self.render_words(block.text)}</p>"
            case ListItem() if block.bullet == "?":
                yield f"<p{self._format_style('note')}>{self.render_words(block.text)}</p>"
            case ListItem():
                yield self._render_item(block)
            case Command():
                yield f"<div><code>{escape_html(block.line)}</code> {escape_html(block.about)}</div>"
            case Strip():
                yield f"<div><code>{escape_html(block.text)}</code></div>"
            case Code():
                lines = "\n".join(map(escape_html, block.text.splitlines()))
                yield f"<pre><code>{lines}</code></pre>"
            case Image():
                yield f"<div>{escape_html(block.path)}</div>"
            case Fold():
                yield self._render_fold(block)
            case Grid():
                yield self.render_table(block)

    def _render_line(self, block: TextLine) -> HtmlText:
        """Return a line behind its mark; a page's style writes the colon."""
        style = self._format_style(f"said indent-{block.indent}", f"margin:0 {2 * block.indent}em")
        mark = ""
        if block.mark:
            text = escape_html(block.mark)
            if not self.page:
                text += ":"
            mark = f"<b{self._format_style('mark', judged=block.mark)}>{text}</b> "
        return f"<p{style}>{mark}{self.render_words(block.text)}</p>"

    def _render_item(self, block: ListItem) -> HtmlText:
        """Return an entry of a list as an article, with what stands under it."""
        inside = f"<p>{self.render_words(block.text)}</p>"
        style = self._format_style("under", "margin:0 1em")
        for under in block.under:
            inside += f"<p{style}>{self.render_words(under)}</p>"
        return f"<article{self._format_style('found')}>{inside}</article>"

    def _render_fold(self, block: Fold) -> HtmlText:
        opened = ""
        if block.shown:
            opened = " open"
        summary = f"<summary>{self.render_words(block.title)}</summary>"
        inside = self.render_blocks(block.blocks)
        return f"<details{self._format_style('more')}{opened}>{summary}{inside}</details>"

    def render_table(self, grid: Grid) -> HtmlText:
        """Return a table without its empty columns."""
        columns = grid.list_filled_columns()
        head = "".join(self._render_head(grid.head[i]) for i in columns)
        body = ""
        for row in grid.rows:
            cells = "".join(self.render_cell(row[i], grid.head[i], i) for i in columns)
            body += f"<tr>{cells}</tr>"
        table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        wide = self._format_style("wide")
        plain = self._format_style("plain")
        return f"<div{wide}><table{plain}>{table}</table></div>"

    def _render_head(self, title: str) -> HtmlText:
        text = self.render_words(title.removeprefix(">"))
        if not text:  # a corner without words is no heading
            return "<td></td>"
        if self.page:
            scope = ' scope="col"'
        else:
            scope = ""
        right = is_right_aligned(title)
        look = self._format_style("n" * right, f"text-align:{'right' if right else 'left'}")
        return f"<th{scope}{look}>{text}</th>"

    def render_cell(self, cell: Words, title: str, column: int) -> HtmlText:
        """Return a cell; its column decides the side, and in the first one blanks are a depth."""
        raw = get_plain_text(cell)
        right = is_right_aligned(title)
        inner = raw.lstrip(" ")
        depth = ""
        if column == 0:
            depth = f"depth-{min((len(raw) - len(inner)) // 2, 8)}"
        answer = ""
        if inner in ("faster", "slower"):
            answer = f"is-{inner}"
        classes = " ".join(filter(None, ("n" * right, depth, answer)))
        # A ladder is indented with blanks, which HTML would swallow; a number keeps its unit.
        if right:
            rules = "right;white-space:nowrap"
        else:
            rules = "left;white-space:pre-wrap"
        look = self._format_style(classes, f"text-align:{rules}", raw)
        return f"<td{look}>{self.render_words(cell)}</td>"

    def render_words(self, words: Words) -> HtmlText:
        """Return words inside of an element; on a page a rule leads to its words."""
        out = ""
        for span in convert_to_spans(words):
            if span.text == "\n":
                text = "<br>"
            else:
                text = escape_html(span.text)
            if span.role == "link":
                text = f'<a href="{"" if _is_safe_link(span.text) else "#"}{text}">{text}</a>'
            elif self.page and span.role == "rule":
                text = f'<a href="#word-{text}">{text}</a>'
            elif self.page and span.role == "metric":
                text = f'<span class="metric">{text}</span>'
            tag = _TAGS.get(span.role)
            if tag:
                out += f"<{tag}>{text}</{tag}>"
            else:
                out += text
        return out


_NOTEBOOK = _Html(page=False)
page_html = _Html(
    page=True
).render_blocks  # in the classes of a page, whose policy allows no inline style
