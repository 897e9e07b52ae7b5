"""Text out of a report, which may hold anything  ->  text that is safe where it is shown.

Kernel names, paths, source lines and rule messages come from whoever recorded the report. Whatever
goes to a terminal passes `escaped`, and into rich only as `rich.text.Text`, never as markup.

A demangled kernel name of any length becomes what tells it from others in a given width: return type,
parameter list and namespaces go first, then template arguments are cut down to their own names, then
words are left out of the middle; tile shapes (128x64) are left out last.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from profkit.units import CharacterCount, HtmlText, MarkdownText

# Controls (ESC, newlines, C1), formats (right-to-left overrides, zero-width), lone surrogates,
# line and paragraph separators: all that a terminal or an editor obeys instead of showing.
_ACTS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MARKDOWN = re.compile(r"([\\`*_\[\]|~^$])")
_AUTOLINK = re.compile(r"(?i)(?<=http):(?=//)|(?<=https):(?=//)|(?<=ftp):(?=//)|(?<=www)\.")
_REFERENCE = re.compile(r"(?<!&)[@#](?=\w)")  # a mention or an issue, in the rendered text


def escape_text(text: str) -> str:
    """Return the text with every character that acts instead of being seen written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _ACTS else c for c in text
    )


def escape_markdown(text: str) -> MarkdownText:
    """Return the text as Markdown prose that renders as itself: no markup, HTML, link or mention."""
    from html import escape  # with its table of entities, which few verbs need

    text = escape(escape_text(text), quote=False)
    text = _AUTOLINK.sub(lambda m: f"&#{ord(m.group())};", _MARKDOWN.sub(r"\\\1", text))
    return _REFERENCE.sub(lambda m: f"{m.group()}&#8203;", text)


def write_code_span(text: str, *, in_table: bool = False) -> MarkdownText:
    """Return the text as a Markdown code span, fenced with more backticks than it has in a row."""
    text = escape_text(text) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    if text.startswith("`") or text.endswith("`"):
        pad = " "
    else:
        pad = ""
    # A table's cells are cut at every bare pipe, also inside of code.
    return f"{fence}{pad}{text.replace('|', chr(92) + '|') if in_table else text}{pad}{fence}"


def escape_html(text: str) -> HtmlText:
    """Return the text for HTML, inside of elements and of quoted attributes."""
    from html import escape

    return escape(escape_text(text), quote=True)


# A spreadsheet takes a cell that begins with one of these for a formula, and a kernel may be called
# `=cmd|...`. Such a text gets an apostrophe in front, and so does one that begins with an apostrophe:
# whoever reads the file takes one apostrophe off, and has what was there.
_BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
# Whatever a reader of CSV may take for the end of a row (str.splitlines takes all of them for one), and
# the other controls. csv.writer quotes a cell that holds any character of its line end, which is why
# this is the line end that it is told.
_ENDS_ROW = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_CONTROLS = "".join(map(chr, (*range(32), *range(127, 160))))
_MUST_BE_QUOTED = "".join(dict.fromkeys(_ENDS_ROW + _CONTROLS))
_ROWS_AT_A_TIME = 500  # of a frame that are written


def iterate_csv(frame: DataFrame) -> Iterator[str]:
    """Yield a frame as CSV, without its index, in which no text acts; numbers are left alone.

    A cell with a line break or a control in it is quoted: it ends no row, whoever reads it. Some rows
    at a time: as numbers of Python, a frame is several times as large.
    """
    yield _write_csv_rows([[escape_formula(name) for name in frame.columns]])
    for first in range(0, len(frame), _ROWS_AT_A_TIME):
        some = frame.iloc[first : first + _ROWS_AT_A_TIME]
        columns = [_list_csv_cells(some.iloc[:, at]) for at in range(some.shape[1])]
        yield _write_csv_rows(zip(*columns, strict=True))


def _write_csv_rows(rows: Iterable[Iterable[object]]) -> str:
    import csv

    written = io.StringIO(newline="")
    writer = csv.writer(written, lineterminator=_MUST_BE_QUOTED)
    lines: list[str] = []
    for row in rows:
        writer.writerow(row)
        lines.append(written.getvalue().removesuffix(_MUST_BE_QUOTED))
        written.seek(0)
        written.truncate()
    return "".join(f"{line}\n" for line in lines)


def _list_csv_cells(column: Series[Any]) -> list[object]:
    """Return the cells of a column as CSV has them: nothing for what is not known."""
    cells = column.tolist()
    for at, missing in enumerate(column.isna().tolist()):
        if missing:
            cells[at] = ""
        else:
            cells[at] = escape_formula(cells[at])
    return cells


def escape_formula(value: object) -> object:
    """Return a text that no spreadsheet takes for a formula; anything else as it is."""
    if isinstance(value, str) and value.startswith(_BEGINS):
        return f"'{value}"
    return value


_UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::|\{anonymous\}::")
_CAST = re.compile(r"\((?:bool|char|short|int|long|(?:un)?signed(?: \w+)*|size_t)\)(?=[-\w])")
_LAMBDA = re.compile(
    r"(?:\[lambda[^\]]*\]|\{lambda[^}]*\}(?:#\d+\})?)(?:::operator ?\(\)\([^()]*\)(?: const)?)?"
)
_SPACES = re.compile(r"\b(?:\w+::)+(?=\w)")
_TILE = re.compile(r"\d+x\d+")
_OPEN = "<([{"
_CLOSE = ">)]}"
_DULL = frozenset({"true", "false", "0", "1", "void", "array", "generated", "execute", "native"})
_LITERAL = re.compile(r"-?\d.*|float|double|int|long|char|bool|(__)?half|half_t|(__nv_)?bfloat16")
NARROWEST_WITH_ARGUMENTS = (
    24  # below, halves of a name and of its arguments say less than one of them
)
_LONGEST = 20_000  # beyond that a name is not C++ any more


def shorten_name(name: str, width: CharacterCount) -> str:
    """Return a kernel name in at most `width` characters, safe to show."""
    qualified, arguments = _split_template(name)
    base = _SPACES.sub("", qualified) or "(no name)"
    bare = _SPACES.sub("", arguments)
    for head, inside in ((qualified, arguments), (qualified, bare), (base, bare)):
        full = head
        if inside:
            full = f"{head}<{inside}>"
        if full and len(full) <= width:
            return full
    return _shorten_template(base, bare, width)


def _shorten_template(base: str, bare: str, width: CharacterCount) -> str:
    """Return a name with its template arguments, which have no room in full, by their words."""
    words = []
    for word in map(shorten_template_argument, split_template_arguments(bare)):
        if word and word not in _DULL:
            words.append(word)
    named = f"{base}<{', '.join(words)}>"
    if words and len(named) <= width:
        # Where room is left, the start of the arguments in full says more than their names.
        room = width - len(base) - 3
        if width - len(named) < 12:
            return named
        return f"{base}<{bare[:room]}…>"
    types = ", ".join([w for w in words if not _LITERAL.fullmatch(w)] or dict.fromkeys(words))
    if not types or width < NARROWEST_WITH_ARGUMENTS:
        return drop_middle_words(base, width)
    # PyTorch's elementwise kernels differ in their arguments only: half of the room is theirs.
    head = drop_middle_words(base, max(width // 2 - 1, width - 2 - len(types)))
    return f"{head}<{drop_middle_words(types, width - 2 - len(head))}>"


def _split_template(name: str) -> tuple[str, str]:
    """Return `void ns::f<int, 4>(float *)` as `ns::f` and `int, 4`; no arguments without a template."""
    plain = _LAMBDA.sub("lambda", name[:_LONGEST])
    function = escape_text(_remove_parameters(_CAST.sub("", _UNNAMED.sub("", plain))))
    opening = 0
    if function.endswith(">"):
        for i, char, depth in iterate_bracket_depths(function):
            if char == "<" and depth == 0:
                opening = i
    if not opening:
        return function, ""
    return function[:opening], function[opening + 1 : -1]


def iterate_bracket_depths(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield index, character and how many brackets are open before it."""
    depth = 0
    for i, char in enumerate(text):
        if char in _CLOSE and text[i - 1 : i] != "-":  # "->" closes nothing
            depth = max(depth - 1, 0)
        yield i, char, depth
        if char in _OPEN:
            depth += 1


def _remove_parameters(name: str) -> str:
    """Return `void f<int>(float *)` as `f<int>`; a name of another shape as it is."""
    cut = next(
        (i for i, c, depth in iterate_bracket_depths(name) if c == "(" and depth == 0 and i > 0),
        None,
    )
    if cut is None:
        function = name
    else:
        function = name[:cut]
    blank = max(
        (i for i, c, depth in iterate_bracket_depths(function) if c == " " and depth == 0),
        default=-1,
    )
    is_typed = cut is not None or "<" in function
    if is_typed:
        return function[blank + 1 :].strip() or name
    return name


def split_template_arguments(text: str) -> list[str]:
    """Return the arguments of a template, split at commas outside of all brackets."""
    cuts = []
    for i, c, depth in iterate_bracket_depths(text):
        if c == "," and depth == 0:
            cuts.append(i)
    edges = zip([-1, *cuts], [*cuts, len(text)], strict=True)
    return [text[a + 1 : b].strip() for a, b in edges]


def shorten_template_argument(argument: str) -> str:
    """Return the name of a template argument: `Traits<64, 128>` is Traits, `f(int)::lambda` is f."""
    outer = "".join(
        c for _, c, depth in iterate_bracket_depths(argument) if depth == 0 and c not in "<>()[]{}"
    )
    parts = []
    for p in re.split(r"::| ", outer):
        if p and p not in {"lambda", "const", "*", "&"}:
            parts.append(p)
    if parts:
        return parts[-1]
    return outer


def drop_middle_words(text: str, width: CharacterCount) -> str:
    """Leave words out of the middle until it fits: first, last and tile words stay longest."""
    if len(text) <= width:
        return text
    words = re.findall(r"[^_]+_*|_+", text[:2000])
    if len(text) > 2000 or len(words) < 2:
        return cut_middle(text, width)
    worth = {i: rank_name_word(words, i) for i in range(len(words))}
    kept: set[int] = set()
    for i in sorted(worth, key=lambda i: (-worth[i], i)):
        if len(join_kept_words(words, kept | {i})) <= width:
            kept.add(i)
    if 0 in kept:
        return join_kept_words(words, kept)
    return f"{text[: width - 1]}…"  # without its start it could be anything


def rank_name_word(words: list[str], position: int) -> float:
    """Return how much a word of a name says: the first one most, then a tile, then the second one."""
    word = words[position].strip("_")
    if position == 0:
        return 5
    if _TILE.search(word):
        return 4
    if position == 1:
        return 3
    if word in _DULL:
        return -1
    return (1.0 if word.isdigit() else 0.0) + (
        0.5 if position == len(words) - 1 else 1 - position / len(words)
    )


def join_kept_words(words: list[str], kept: set[int]) -> str:
    """Return the words at the places `kept`, an ellipsis for each run that is left out."""
    out = ""
    last = -1
    for i in sorted(kept):
        out += ("" if i == last + 1 else "…") + words[i]
        last = i
    return out + ("" if last == len(words) - 1 else "…")


def cut_middle(text: str, width: CharacterCount) -> str:
    """Return start and end of a text, an ellipsis where the middle was."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    end = (width - 1) * 2 // 5
    return text[: width - 1 - end] + "…" + text[len(text) - end :]
