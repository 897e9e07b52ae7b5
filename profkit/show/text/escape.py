"""Text out of a report, which may hold anything  ->  text that is safe where it is shown.

Kernel names, paths, source lines and rule messages come from whoever recorded the report. Whatever
goes to a terminal passes `visible`, and into rich only as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

# Controls (ESC, newlines, C1), formats (right-to-left overrides, zero-width), lone surrogates,
# line and paragraph separators: all that a terminal or an editor obeys instead of showing.
_ACTS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MARKDOWN = re.compile(r"([\\`*_\[\]|~^$])")
_AUTOLINK = re.compile(r"(?i)(?<=http):(?=//)|(?<=https):(?=//)|(?<=ftp):(?=//)|(?<=www)\.")
_REFERENCE = re.compile(r"(?<!&)[@#](?=\w)")  # a mention or an issue, in the rendered text


def escaped(text: str) -> str:
    """Return the text with every character that acts instead of being seen written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _ACTS else c for c in text
    )


def markdown(text: str) -> str:
    """Return the text as Markdown prose that renders as itself: no markup, HTML, link or mention."""
    from html import escape  # with its table of entities, which few verbs need

    text = escape(escaped(text), quote=False)
    text = _AUTOLINK.sub(lambda m: f"&#{ord(m.group())};", _MARKDOWN.sub(r"\\\1", text))
    return _REFERENCE.sub(lambda m: f"{m.group()}&#8203;", text)


def code(text: str, *, in_table: bool = False) -> str:
    """Return the text as a Markdown code span, fenced with more backticks than it has in a row."""
    text = escaped(text) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    # A table's cells are cut at every bare pipe, also inside of code.
    return f"{fence}{pad}{text.replace('|', chr(92) + '|') if in_table else text}{pad}{fence}"


def html(text: str) -> str:
    """Return the text for HTML, inside of elements and of quoted attributes."""
    from html import escape

    return escape(escaped(text), quote=True)


# A spreadsheet takes a cell that begins with one of these for a formula, and a kernel may be called
# `=cmd|...`. Such a text gets an apostrophe in front, and so does one that begins with an apostrophe:
# whoever reads the file takes one apostrophe off, and has what was there.
_BEGINS = ("=", "+", "-", "@", "\t", "\r", "'")


def csv_text(frame: DataFrame) -> str:
    """Return a frame as CSV, without its index, in which no text acts; numbers are left alone."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    plain = frame.copy()
    for name in plain.columns:
        if not (is_numeric_dtype(plain[name]) or is_bool_dtype(plain[name])):
            plain[name] = plain[name].map(quoted_cell, na_action="ignore")
    plain.columns = [quoted_cell(name) for name in plain.columns]
    text: str = plain.to_csv(index=False)
    return text


def quoted_cell(value: object) -> object:
    """Return a text that no spreadsheet takes for a formula; anything else as it is."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINS) else value
