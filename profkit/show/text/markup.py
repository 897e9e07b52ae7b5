"""Blocks  ->  Markdown, and HTML: for a notebook, and for a page with its own style."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from profkit.show.text.blocks import (
    Block,
    Code,
    Command,
    Fold,
    Grid,
    Heading,
    Image,
    ListItem,
    Paragraph,
    TextLine,
    Words,
    colour,
    is_right,
    plain_words,
    spans,
    titled_block,
)
from profkit.show.text.escape import code, escaped, html, markdown

_INDENT = "&nbsp;&nbsp;"  # plain blanks at the start of a cell are dropped by every renderer
_READABLE = {"yellow": "darkorange", "cyan": "teal"}  # of these on white and on black


def to_markdown(blocks: Iterable[Block]) -> str:
    """Blocks as Markdown for a pull request or a job summary."""
    lines = "\n".join(line for block in blocks for line in _markdown(block))
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n") + "\n"


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield from ("", f"{'#' * (block.level + 1)} {_words(block.text)}", "")
    elif isinstance(block, TextLine):
        mark = f"**{markdown(block.mark)}**: " if block.mark else ""
        yield f"{'  ' * block.indent}- {mark}{_words(block.text)}"
    elif isinstance(block, Paragraph):
        yield from ("", _words(block.text), "")
    elif isinstance(block, ListItem):
        yield f"- {_words(block.text)}"
        yield from (f"  <br>{_words(under)}" for under in block.under)
    elif isinstance(block, Command):
        yield f"- {code(block.line)}" + (f" ({markdown(block.about)})" if block.about else "")
    elif isinstance(block, Code):
        longest = max(map(len, re.findall("`+", block.text)), default=0)
        fence = "`" * max(3, longest + 1)
        yield from (
            "",
            f"{fence}{block.language}",
            *map(escaped, block.text.splitlines()),
            fence,
            "",
        )
    elif isinstance(block, Image):
        yield f"![{markdown(block.path.rpartition('.')[0])}]({block.path})"
    elif isinstance(block, Fold):
        opened = " open" if block.shown else ""
        yield from ("", f"<details{opened}><summary>{_inline(block.title)}</summary>", "")
        yield from (line for inner in block.blocks for line in _markdown(inner))
        yield from ("", "</details>", "")
    else:
        yield from ("", *_table(block), "")


def _words(words: Words, *, in_table: bool = False) -> str:
    """Words as Markdown prose."""
    forms: dict[str, Callable[[str], str]] = {
        "strong": lambda t: f"**{markdown(t)}**",
        "rule": lambda t: f"**{markdown(t)}**",
        "note": lambda t: f"_{markdown(t)}_",
        "code": lambda t: code(t, in_table=in_table),
        "name": lambda t: code(t, in_table=in_table),
        "link": lambda t: f"<{t}>" if _is_address(t) else f"[{markdown(t)}](#{t})",
    }
    pieces = [
        "<br>"
        if span.text == "\n"
        else forms.get(span.role, markdown)(span.text)
        if span.text
        else ""
        for span in spans(words)
    ]
    return "".join(pieces)


def _is_address(text: str) -> bool:
    """Whether a link leads out; what could end it, or act, is no address."""
    return bool(re.fullmatch(r"https://[\w./#?=&%-]+", text))


def _table(grid: Grid) -> Sequence[str]:
    head = [_words(titled_block(title), in_table=True) for title in grid.head]
    sides = ["--:" if is_right(title) else "---" for title in grid.head]
    rows = [[_cell(cell) for cell in row] for row in grid.rows]
    return [f"| {' | '.join(cells)} |" for cells in (head, sides, *rows)]


def _cell(cell: Words) -> str:
    """A cell; a ladder's blanks before a name stay to be seen."""
    raw = plain_words(cell)
    depth = len(raw) - len(raw.lstrip(" "))
    return _INDENT * (depth // 2) + _words(cell, in_table=True).lstrip(" ")


def to_html(blocks: Iterable[Block]) -> str:
    """Blocks as one HTML element for a notebook, in the colours of its theme."""
    return f'<div style="overflow-x:auto">{"".join(map(_html, blocks))}</div>'


def page_html(blocks: Iterable[Block]) -> str:
    """Blocks in the classes of a page, whose policy allows no inline style."""
    return "".join(map(_of_page, blocks))


def _of_page(block: Block) -> str:
    match block:
        case Heading():
            level = max(block.level + 1, 3)
            return f"<h{level}>{_inline(block.text)}</h{level}>"
        case TextLine():
            mark = f'<b class="mark">{html(block.mark)}</b> ' if block.mark else ""
            return f'<p class="said indent-{block.indent}">{mark}{_inline(block.text)}</p>'
        case ListItem():
            return _page_item(block)
        case Fold():
            opened, title = " open" if block.shown else "", _inline(block.title)
            inside = page_html(block.blocks)
            return f'<details class="more"{opened}><summary>{title}</summary>{inside}</details>'
        case Grid():
            columns = block.telling()
            rows = ((block.head[i], [row[i] for row in block.rows]) for i in columns)
            heads, cells = zip(*rows, strict=True)
            body = "".join(
                f"<tr>{''.join(map(_page_cell, row, heads, columns))}</tr>"
                for row in zip(*cells, strict=True)
            )
            top = "".join(map(_page_head, heads))
            table = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
            return f'<div class="wide"><table class="plain">{table}</table></div>'
    return _html(block)


def _page_item(item: ListItem) -> str:
    if item.bullet == "?":
        return f'<p class="note">{_inline(item.text)}</p>'
    under = "".join(f'<p class="under">{_inline(words, page=True)}</p>' for words in item.under)
    return f'<article class="found"><p>{_inline(item.text, page=True)}</p>{under}</article>'


def _page_head(title: Words) -> str:
    right = ' class="n"' if is_right(title) else ""
    text = _inline(titled_block(title))
    # A corner without words is no heading.
    return f'<th scope="col"{right}>{text}</th>' if text else "<td></td>"


def _page_cell(cell: Words, title: Words, column: int) -> str:
    raw = plain_words(cell)
    inner = raw.lstrip(" ")
    classes = ["n"] if is_right(title) else []
    if column == 0:
        classes.append(f"depth-{min((len(raw) - len(inner)) // 2, 8)}")
    if inner in ("faster", "slower"):
        classes.append(f"is-{inner}")
    return f'<td class="{" ".join(classes)}">{_inline(cell)}</td>'


def _html(block: Block) -> str:
    inline, tag = _flow(block)
    if isinstance(block, Grid):
        return _html_table(block)
    if isinstance(block, Fold):
        opened = " open" if block.shown else ""
        inside = "".join(map(_html, block.blocks))
        return f"<details{opened}><summary>{inline}</summary>{inside}</details>"
    return f"<{tag}>{inline}</{tag.partition(' ')[0]}>"


def _flow(block: Block) -> tuple[str, str]:
    """What stands in an element, and the element with its style."""
    match block:
        case Heading():
            flow = _inline(block.text), f"h{max(2, min(block.level + 3, 6))}"
        case TextLine():
            mark = f"<b{_style(block.mark)}>{html(block.mark)}:</b> " if block.mark else ""
            flow = f"{mark}{_inline(block.text)}", f'div style="margin-left:{2 * block.indent}em"'
        case ListItem():
            under = "".join(f"<br>{_inline(words)}" for words in block.under)
            flow = f"{_inline(block.text)}{under}", 'div style="margin-left:1em"'
        case Command():
            flow = f"<code>{html(block.line)}</code> {html(block.about)}", "div"
        case Code():
            flow = "<code>" + "\n".join(map(html, block.text.splitlines())) + "</code>", "pre"
        case Paragraph():
            flow = _inline(block.text), "p"
        case Fold():
            flow = _inline(block.title), "details"
        case Image():
            flow = html(block.path), "div"
        case Grid():
            flow = "", "table"
    return flow


def _inline(words: Words, *, page: bool = False) -> str:
    """Words inside of an HTML element; on a page a rule leads to its words, a metric has a class."""
    tags = {"strong": "b", "rule": "b", "note": "i", "code": "code", "name": "code"}
    out = ""
    for span in spans(words):
        tag = tags.get(span.role)
        escaped = "<br>" if span.text == "\n" else html(span.text)
        if span.role == "link":
            target = escaped if _is_address(span.text) else f"#{escaped}"
            out += f'<a href="{target}">{escaped}</a>'
            continue
        if page and span.role == "rule":
            escaped = f'<a href="#word-{escaped}">{escaped}</a>'
        if page and span.role == "metric":
            escaped = f'<span class="metric">{escaped}</span>'
        out += f"<{tag}>{escaped}</{tag}>" if tag else escaped
    return out


def _html_table(grid: Grid) -> str:
    head = _row("th", [titled_block(title) for title in grid.head], grid.head)
    rows = "".join(_row("td", row, grid.head) for row in grid.rows)
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _row(tag: str, texts: Sequence[Words], head: Sequence[Words]) -> str:
    cells = []
    for words, title in zip(texts, head, strict=True):
        # A ladder is indented with blanks, which HTML would swallow; a number keeps its unit.
        right = is_right(title)
        rules = "right;white-space:nowrap" if right else "left;white-space:pre-wrap"
        style = _style(plain_words(words), f"text-align:{rules}")
        cells.append(f"<{tag}{style}>{_inline(words)}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"


def _style(judged: str, more: str = "") -> str:
    named = colour(judged).removeprefix("bold ")
    named = _READABLE.get(named, named)
    rules = ";".join(filter(None, (more, f"color:{named}" if named else "")))
    return f' style="{rules}"' if rules else ""
