"""Blocks  ->  Markdown, and HTML: for a notebook, and for a page with its own style."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from profkit.show.text import blocks
from profkit.show.text.blocks import Block, Words, colour, is_right, plain_words, spans
from profkit.show.text.escape import code, escaped, html, markdown

_INDENT = "&nbsp;&nbsp;"  # plain blanks at the start of a cell are dropped by every renderer
_MARKS = {"strong": "**", "rule": "**", "note": "_"}
_TAGS = {"strong": "b", "rule": "b", "note": "i", "code": "code", "name": "code"}
_READABLE = {"yellow": "darkorange", "cyan": "teal"}  # of these on white and on black


def to_markdown(blocks: Iterable[Block]) -> str:
    """Return blocks as Markdown for a pull request or a job summary."""
    lines = "\n".join(chain.from_iterable(map(_markdown, blocks)))
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n") + "\n"


def _markdown(block: Block) -> Iterator[str]:
    match block:
        case blocks.Heading():
            yield from ("", f"{'#' * (block.level + 1)} {_words(block.text)}", "")
        case blocks.TextLine():
            mark = f"**{markdown(block.mark)}**: " if block.mark else ""
            yield f"{'  ' * block.indent}- {mark}{_words(block.text)}"
        case blocks.Paragraph():
            yield from ("", _words(block.text), "")
        case blocks.ListItem():
            yield f"- {_words(block.text)}"
            yield from (f"  <br>{_words(under)}" for under in block.under)
        case blocks.Command():
            yield f"- {code(block.line)}" + (f" ({markdown(block.about)})" if block.about else "")
        case blocks.Code():
            longest = max(map(len, re.findall("`+", block.text)), default=0)
            fence = "`" * max(3, longest + 1)
            lines = map(escaped, block.text.splitlines())
            yield from ("", f"{fence}{block.language}", *lines, fence, "")
        case blocks.Image():
            yield f"![{markdown(block.path.rpartition('.')[0])}]({block.path})"
        case blocks.Fold():
            opened, title = " open" if block.shown else "", _NOTEBOOK.words(block.title)
            yield from ("", f"<details{opened}><summary>{title}</summary>", "")
            for inner in block.blocks:
                yield from _markdown(inner)
            yield from ("", "</details>", "")
        case blocks.Grid():
            yield from ("", *_table(block), "")


def _words(words: Words, *, in_table: bool = False) -> str:
    out = ""
    for text, role in ((span.text, span.role) for span in spans(words) if span.text):
        if text == "\n":
            out += "<br>"
        elif role in ("code", "name"):
            out += code(text, in_table=in_table)
        elif role == "link":
            out += f"<{text}>" if _is_address(text) else f"[{markdown(text)}](#{text})"
        else:
            mark = _MARKS.get(role, "")
            out += f"{mark}{markdown(text)}{mark}"
    return out


def _is_address(text: str) -> bool:
    """Return whether a link leads out; what could end it, or act, is no address."""
    return bool(re.fullmatch(r"https://[\w./#?=&%-]+", text))


def _table(grid: blocks.Grid) -> Sequence[str]:
    head = [_words(title.removeprefix(">"), in_table=True) for title in grid.head]
    sides = ["--:" if is_right(title) else "---" for title in grid.head]
    rows = [[_cell(cell) for cell in row] for row in grid.rows]
    return [f"| {' | '.join(cells)} |" for cells in (head, sides, *rows)]


def _cell(cell: Words) -> str:
    """Return a cell; a ladder's blanks before a name stay to be seen."""
    raw = plain_words(cell)
    depth = len(raw) - len(raw.lstrip(" "))
    return _INDENT * (depth // 2) + _words(cell, in_table=True).lstrip(" ")


def to_html(blocks: Iterable[Block]) -> str:
    """Return blocks as one HTML element for a notebook, in the colours of its theme."""
    return f'<div style="overflow-x:auto">{_NOTEBOOK.render(blocks)}</div>'


@dataclass(frozen=True)
class _Html:
    """Blocks as HTML: with classes for a page, with styles for a notebook."""

    page: bool

    def _look(self, classes: str, rules: str = "", judged: str = "") -> str:
        """Return an element's attributes; `judged` is a word that has a colour."""
        if self.page:
            return f' class="{classes}"' if classes else ""
        named = colour(judged).removeprefix("bold ")
        named = f"color:{_READABLE.get(named, named)}" if named else ""
        rules = ";".join(filter(None, (rules, named)))
        return f' style="{rules}"' if rules else ""

    def render(self, blocks: Iterable[Block]) -> str:
        return "".join(chain.from_iterable(map(self._block, blocks)))

    def _block(self, block: Block) -> Iterator[str]:
        match block:
            case blocks.Heading():
                level = max(block.level + 1, 3) if self.page else min(block.level + 3, 6)
                yield f"<h{level}>{self.words(block.text)}</h{level}>"
            case blocks.TextLine():
                yield f"<p{self._look(f'said indent-{block.indent}', f'margin:0 {2 * block.indent}em')}>"
                if block.mark:
                    mark = html(block.mark) + ("" if self.page else ":")
                    yield f"<b{self._look('mark', judged=block.mark)}>{mark}</b> "
                yield f"{self.words(block.text)}</p>"
            case blocks.Paragraph():
                yield f"<p>{self.words(block.text)}</p>"
            case blocks.ListItem() if block.bullet == "?":
                yield f"<p{self._look('note')}>{self.words(block.text)}</p>"
            case blocks.ListItem():
                yield f"<article{self._look('found')}><p>{self.words(block.text)}</p>"
                for under in block.under:
                    yield f"<p{self._look('under', 'margin:0 1em')}>{self.words(under)}</p>"
                yield "</article>"
            case blocks.Command():
                yield f"<div><code>{html(block.line)}</code> {html(block.about)}</div>"
            case blocks.Code():
                lines = "\n".join(map(html, block.text.splitlines()))
                yield f"<pre><code>{lines}</code></pre>"
            case blocks.Image():
                yield f"<div>{html(block.path)}</div>"
            case blocks.Fold():
                opened = " open" if block.shown else ""
                summary = f"<summary>{self.words(block.title)}</summary>"
                inside = self.render(block.blocks)
                yield f"<details{self._look('more')}{opened}>{summary}{inside}</details>"
            case blocks.Grid():
                yield self._table(block)

    def _table(self, grid: blocks.Grid) -> str:
        columns = grid.telling()
        top = "".join(self._head(grid.head[i]) for i in columns)
        rows = ("".join(self._cell(row[i], grid.head[i], i) for i in columns) for row in grid.rows)
        body = "".join(f"<tr>{cells}</tr>" for cells in rows)
        table = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
        return f"<div{self._look('wide')}><table{self._look('plain')}>{table}</table></div>"

    def _head(self, title: str) -> str:
        text = self.words(title.removeprefix(">"))
        if not text:  # a corner without words is no heading
            return "<td></td>"
        scope = ' scope="col"' if self.page else ""
        right = is_right(title)
        look = self._look("n" * right, f"text-align:{'right' if right else 'left'}")
        return f"<th{scope}{look}>{text}</th>"

    def _cell(self, cell: Words, title: str, column: int) -> str:
        raw, right = plain_words(cell), is_right(title)
        inner = raw.lstrip(" ")
        depth = f"depth-{min((len(raw) - len(inner)) // 2, 8)}" if column == 0 else ""
        answer = f"is-{inner}" if inner in ("faster", "slower") else ""
        classes = " ".join(filter(None, ("n" * right, depth, answer)))
        # A ladder is indented with blanks, which HTML would swallow; a number keeps its unit.
        rules = "right;white-space:nowrap" if right else "left;white-space:pre-wrap"
        return f"<td{self._look(classes, f'text-align:{rules}', raw)}>{self.words(cell)}</td>"

    def words(self, words: Words) -> str:
        """Return words inside of an element; on a page a rule leads to its words."""
        out = ""
        for span in spans(words):
            text = "<br>" if span.text == "\n" else html(span.text)
            if span.role == "link":
                text = f'<a href="{"" if _is_address(span.text) else "#"}{text}">{text}</a>'
            elif self.page and span.role == "rule":
                text = f'<a href="#word-{text}">{text}</a>'
            elif self.page and span.role == "metric":
                text = f'<span class="metric">{text}</span>'
            tag = _TAGS.get(span.role)
            out += f"<{tag}>{text}</{tag}>" if tag else text
        return out


_NOTEBOOK = _Html(page=False)
page_html = _Html(page=True).render  # in the classes of a page, whose policy allows no inline style


class ShowsItself:
    """Something that is said in blocks: text where it is printed, HTML in a notebook."""

    WIDTH = 100  # of a terminal that prints it

    def blocks(self) -> Iterable[Block]:
        raise NotImplementedError

    def __repr__(self) -> str:
        from profkit.show.text.terminal import console, to_text

        return to_text(self.blocks(), console(width=self.WIDTH)).rstrip("\n")

    def _repr_html_(self) -> str:
        return to_html(self.blocks())
