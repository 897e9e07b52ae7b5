"""The flags that several verbs share, and how every verb speaks on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from profkit.errors import ProfkitError

Paths = Annotated[
    list[str],
    typer.Argument(help="Reports, folders (searched recursively) and globs.", metavar="REPORTS..."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Markdown, for pull requests and job summaries.")
]


def say(error: ProfkitError) -> None:
    """Print an error as two lines on stderr: what is wrong, and what to do about it."""
    from profkit.show.text.escape import visible

    print(f"profkit: {visible(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  {visible(error.hint)}", file=sys.stderr)


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr for long work: a callback (done, of), or None when nobody looks.

    Args:
        what: What is being done, as a word: "reading".
        quiet: The user asked for silence.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def write_to(path: Path) -> Path:
    """A file that a verb may write: its folder has to be there.

    Raises:
        ProfkitError: The folder does not exist, or the name is a folder's.
    """
    if path.is_dir():
        raise ProfkitError(f"{path}: is a folder", "name a file in it")
    if not path.absolute().parent.is_dir():
        raise ProfkitError(f"{path}: its folder does not exist", f"mkdir -p {path.parent}")
    return path
