"""An answer or an error  ->  stdout or stderr, in the form that was asked for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import pairwise
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.cli.options import FORM, FORMATS, supports_colour
from profkit.errors import ProfkitError, require_package
from profkit.files import (
    is_file,
    is_path_there,
    resolve_path,
    verify_output_can_be_written,
    write_text_pieces,
    write_then_replace,
)
from profkit.show.text.escape import escape_text, iterate_csv

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.records.store import Document
    from profkit.show.text.blocks import Block
    from profkit.units import PlainValues


_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # one of them is set where pages can be shown


def print_error(error: ProfkitError) -> None:
    """Print an error as two lines on stderr: what is wrong, and what to do about it."""
    if supports_colour(sys.stderr):
        name = "\x1b[1;31mprofkit:\x1b[0m"
    else:
        name = "profkit:"
    print(f"{name} {escape_text(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  {mark_hint_command(escape_text(error.hint))}", file=sys.stderr)


_COMMAND = re.compile(r"(?:profkit|ncu|nsys|nvcc|pip|git|mkdir|sqlite3) ")
_SENTENCE = re.compile(r"\w+ \w+ [a-z]+s [a-z]")  # "profkit explain lists all of them"


def mark_hint_command(hint: str) -> str:
    """Return a hint that is a command of a shell behind "try: "; any other as it is."""
    if _COMMAND.match(hint) and not _SENTENCE.match(hint):
        return f"try: {hint}"
    return hint


def print_errors(problems: Iterable[ProfkitError], *, quiet: bool = False) -> None:
    """Print what could not be read, unless silence is asked for: the rest goes on.

    A hint that several problems in a row have stands once, below the last of them.
    """
    said = list(problems)
    if quiet:
        return
    for problem, following in pairwise([*said, None]):
        if problem is not None and following is not None and problem.hint == following.hint:
            print_error(ProfkitError(problem.message))
        elif problem is not None:
            print_error(problem)


def print_error_with_output(message: str, tool_output: str) -> None:
    """Print an error on stderr with everything that a tool said about it, line by line."""
    print_error(ProfkitError(message))
    for line in tool_output.splitlines():
        print(f"  {escape_text(line)}", file=sys.stderr)


def print_note(text: str) -> None:
    """Print on stderr what was done, unless silence is asked for."""
    if not FORM.quiet:
        print(text, file=sys.stderr)


def print_warning(text: str) -> None:
    """Print on stderr what changes an answer and nobody asked for, also where silence is asked for."""
    print(escape_text(text), file=sys.stderr)


@contextmanager
def show_progress() -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on stderr for long work: a callback (done, of), or None when nobody looks."""
    if FORM.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def show_spinner() -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being done, while somebody looks."""
    if FORM.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from profkit.show.text.terminal import make_console

    with make_console(stderr=True).status("") as status:
        yield lambda what: status.update(escape_text(what))


def refuse_flags(flags: Mapping[str, object], why_refused: str, hint: str) -> None:
    """Raise a ProfkitError for flags that were given and do not belong to what was asked for."""
    if misplaced := [flag for flag, value in flags.items() if value]:
        raise ProfkitError(f"{', '.join(misplaced)}: {why_refused}", hint)


def print_json(document: object) -> None:
    """Print one document; what is no number is null."""
    from profkit.records.store import make_json_safe

    print(dumps(make_json_safe(document), indent=1, allow_nan=False))


_MICRO = re.compile(r"(?<!\\)\\u00b5")  # the one letter beyond ASCII that nearly every answer has


def print_compact_json(document: PlainValues) -> None:
    """Print one document in one line, for who pays by the character."""
    from profkit.records.store import make_json_safe

    text = dumps(make_json_safe(document), separators=(",", ":"), allow_nan=False)
    print(_MICRO.sub("µ", text))


def print_json_rows(document: Document, name: str, rows: Iterable[Document]) -> None:
    """Print a document whose last key is a list of rows that are made one by one, a line for each."""
    before = {}
    for key, value in document.to_json().items():
        if key != name:
            before[key] = value
    head = dumps(before, indent=1, allow_nan=False).removesuffix("\n}")
    print(head, f",\n {dumps(name)}: [", sep="", end="")
    for n, row in enumerate(rows):
        line = dumps(row.to_json(), separators=(",", ":"), allow_nan=False)
        print("," if n else "", line, sep="\n  ", end="")
    print("\n ]\n}")


def require_known_format(format_name: str | None) -> None:
    """Raise a ProfkitError for a --format that there is not, or beside another form."""
    if format_name is None:
        return
    if format_name not in FORMATS:
        raise ProfkitError(f"--format {format_name}: unknown", f"one of {', '.join(FORMATS)}")
    others = {"--json": FORM.json, "--markdown": FORM.markdown, "--brief": FORM.brief}
    refuse_flags(others, f"cannot be combined with --format {format_name}", "choose one of them")


def print_blocks(blocks: Iterable[Block], document: object = None) -> None:
    """Print blocks as text or Markdown; or the document, where there is one, as JSON."""
    if document is not None and FORM.json:
        print_json(document)
    elif FORM.markdown:
        from profkit.show.text.blocks import render_markdown

        print(render_markdown(blocks), end="")
    else:
        from profkit.show.text.terminal import make_console, render_text

        print(render_text(blocks, make_console()), end="")


def save_frame(frame: DataFrame, file: Path, *, as_csv: bool) -> None:
    """Write a frame as CSV or Parquet, whole or not at all."""
    if as_csv:
        write_text_pieces(file, iterate_csv(frame))
        return
    with write_then_replace(file) as part:
        with require_package("pyarrow", "--parquet"):
            content = BytesIO()  # pyarrow opens no name that is no UTF-8
            _escape_invalid_utf8(frame).to_parquet(content, index=False)
        part.write_bytes(content.getvalue())


def _escape_invalid_utf8(frame: DataFrame) -> DataFrame:
    """Return a frame whose texts are UTF-8: a byte of a file's name that is none is written out."""

    def escape_cell(cell: object) -> object:
        if isinstance(cell, str) and not cell.isascii():
            return cell.encode("utf-8", "backslashreplace").decode()
        return cell

    texts = [name for name in frame.columns if frame[name].dtype == object]
    return frame.assign(**{str(name): frame[name].map(escape_cell) for name in texts})


BRIEF_WIDTH = 80
_COMMANDS = ("Run: ", "Next: ")  # lines that are copied as they are


def print_brief(text: str) -> None:
    """Print facts, a new line each; long ones go on indented, commands stay on one line.

    No word is cut, so a path stays whole. What would act on a terminal is escaped.
    """
    import textwrap

    from profkit.reports.figures import bind_units

    for line in text.splitlines():
        plain = escape_text(line)
        if plain.startswith(_COMMANDS) or not plain:
            print(plain)
            continue
        wrapped = textwrap.wrap(
            bind_units(plain),  # 25.5 % stays together
            BRIEF_WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        print("\n".join(wrapped).replace("\u00a0", " "))


def require_writable_output_path(path: Path, input_files: Sequence[str] = ()) -> Path:
    """Return a file that a verb may write, asked before anything is read.

    Evidence is never written over, whether it is read now or not: a record beside a report, say.
    """
    from profkit.records.paths import expand_paths

    verify_output_can_be_written(path, expand_paths(input_files) if input_files else ())
    refuse_overwriting_evidence(path)
    return path


def open_in_browser(path: Path) -> None:
    """Open a page in the user's browser; where no screen is, say where the page is."""
    import webbrowser

    has_screen = sys.platform != "linux" or any(map(os.environ.get, _SCREENS))
    if not (has_screen and webbrowser.open_new_tab(resolve_path(path).as_uri())):
        print_error(
            ProfkitError(f"{path}: no browser was found to open it", "copy it to your own machine")
        )


def refuse_overwriting_evidence(path: Path) -> None:
    """Raise a ProfkitError where a file is there that is evidence: nothing else is to stand there."""
    from profkit.records.paths import get_protected_kind

    kind = get_protected_kind(path)
    if kind:
        raise ProfkitError(f"{path}: is {kind}, which would be lost", "name another file to write")


def refuse_same_file(outputs: Sequence[Path]) -> None:
    """Raise a ProfkitError where two outputs are one file, under whatever names."""
    places: dict[Path, Path] = {}
    for path in outputs:
        place = resolve_path(path)
        is_special = is_path_there(path) and not is_file(path)  # /dev/null takes everything
        if place in places and not is_special:
            why = f"{path} and {places[place]}: are the same file"
            raise ProfkitError(why, "name two files")
        places[place] = path
