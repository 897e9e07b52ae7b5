"""Flags of the verbs that measure  ->  what they name, and how these verbs speak."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profkit.cli import complete
from profkit.cli.options import say
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from profkit.measure.targets import Places

BAD, COULD_NOT = 1, 2
Kernels = Annotated[
    Path | None,
    typer.Option("--kernels", metavar="DIR", help="The folder of problems.", show_default=False),
]
BuildDir = Annotated[
    Path | None, typer.Option("--build-dir", metavar="DIR", help="Where libraries are kept.")
]
Artifacts = Annotated[
    Path | None, typer.Option("--artifacts", metavar="DIR", help="Where reports and records go.")
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="ID",
        help="A variant or a reference; may be repeated.",
        autocompletion=complete.variants,
    ),
]
Every = Annotated[bool, typer.Option("--all", help="The whole ladder.")]
Cases = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="CASE", help="May be repeated.", autocompletion=complete.cases),
]
Archs = Annotated[
    str | None,
    typer.Option("--arch", metavar="LIST", help="80,89,90; the GPU present when left out."),
]


def places(
    kernels: Path | None = None, build_dir: Path | None = None, artifacts: Path | None = None
) -> Places:
    """Where the options say that things are."""
    from profkit.measure.targets import Places

    return Places(kernels, build_dir, artifacts)


def named(names: Sequence[str] | None, every: bool) -> Sequence[str]:
    """The variants that were named; none with --all, which is the other answer."""
    if bool(names) == every:
        raise ProfkitError(
            "which variants?" if not every else "--all and --variant are two answers",
            "--variant ID (profkit list shows them), or --all",
        )
    return names or ()


@contextmanager
def status(quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being done, on stderr, while somebody looks."""
    stop_on_term()
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from profkit.show.text.escape import visible

    with _console(stderr=True).status("") as status:
        yield lambda what: status.update(visible(what))


def stop_on_term() -> None:
    """A polite kill ends what was started too, like Ctrl-C; neither is ever lost."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def again(lost: sys.UnraisableHookArgs) -> None:
        # Raised where an object is cleaned up, Python would print it and go on: raise it again, soon.
        if lost.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            sys.__unraisablehook__(lost)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGALRM, stop)
    sys.unraisablehook = again


def show(what: RenderableType) -> None:
    """Print a table."""
    _console().print(what)


def _console(stderr: bool = False) -> Console:
    """As views.diagnosis.console, which loads the whole diagnosis: these verbs need none of it."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def say_all(message: str, text: str) -> None:
    """An error on stderr with everything that a tool said about it, line by line."""
    from profkit.show.text.escape import visible

    say(ProfkitError(message))
    for line in text.splitlines():
        print(f"  {visible(line)}", file=sys.stderr)


def print_json(document: Any) -> None:
    """Print one document; what is no number is null."""
    from json import dumps

    from profkit.records.store import clean

    print(dumps(clean(document), indent=1, allow_nan=False))
