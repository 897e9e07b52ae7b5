"""Headings, lines, items, tables and folds  ->  the same in a terminal, as Markdown and as HTML.

What is said of a diagnosis, a comparison, a search, a check or a rule is put together once, of these.
Text in them may come out of reports and other people's files: it is escaped where it is rendered,
never before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, TypeVar

from profkit.show.text.escape import short

LONGEST = 44  # characters of a kernel's name where there is room
T = TypeVar("T")
Role = Literal["", "strong", "dim", "code", "note", "link", "name", "rule", "metric"]


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


def spans(words: Words) -> tuple[TextSpan, ...]:
    """Return words as pieces, the names of kernels as long as they are where there is room."""
    pieces = words if isinstance(words, tuple) else (words,)
    texts = (TextSpan(piece) if isinstance(piece, str) else piece for piece in pieces)
    return tuple(
        replace(span, text=short(span.text, LONGEST)) if span.role == "name" else span
        for span in texts
    )


def on_lines(pieces: Iterable[TextSpan]) -> Words:
    """Return pieces as the lines of one cell."""
    return tuple(chain.from_iterable((BREAK, piece) for piece in pieces))[1:]


def plain_words(words: Words) -> str:
    """Return words without how they are set."""
    return "".join(span.text for span in spans(words))


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

    def telling(self) -> list[int]:
        columns = list(range(len(self.head)))
        if self.asked:
            return columns
        told = [i for i in columns if any(plain_words(r[i]) not in _NOTHING for r in self.rows)]
        return told or columns


def grid(rows: Iterable[T], columns: Columns[T], **layout: Any) -> Grid:
    """Return the table of `rows`: of each column the title, and what it says of a row."""
    cells = (tuple(cell(row) for cell in columns.values()) for row in rows)
    return Grid(tuple(columns), tuple(cells), **layout)


def is_right(title: str) -> bool:
    return title.startswith(">")


@dataclass(frozen=True)
class Fold:
    """Details under a title: folded where the form can, open if `shown`; else indented."""

    title: Words
    blocks: tuple[Block, ...]
    shown: bool = False


Block = Heading | TextLine | Paragraph | ListItem | Command | Code | Image | Grid | Fold


def colour(text: str) -> str:
    """Return the colour of a word that judges, "" for any other: "faster", "memory: shared"."""
    return _COLOUR.get(text) or _COLOUR.get(text.partition(":")[0].partition("\n")[0], "")


_NOTHING = {"", "-", "not counted"}  # all that some column holds
_COLOUR = {
    **dict.fromkeys(("faster", "holds", "gone", "kept", "met", "right", "ok", "keep"), "green"),
    **dict.fromkeys(("slower", "fails", "new", "broken", "not met", "wrong", "failed"), "red"),
    **dict.fromkeys(("cannot tell", "undecided", "unknown", "warning", "stale"), "yellow"),
    **{"missing": "red", "errored": "bold red", "same": "cyan"},
    **{"fall back": "yellow", "not compared": "bold yellow"},
    **{"memory": "cyan", "compute": "green", "latency": "yellow", "launch": "red"},
    "balanced": "blue",
}
