"""The command line  ->  one verb  ->  an exit status.

0: done. 1: the answer is bad (a check failed, a gate was not met, slower). 2: profkit could not do
it. 130: interrupted. A mistake that the user can mend is two lines on stderr; a bug keeps its
traceback.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from profkit.cli import reading
from profkit.cli.examples import EXAMPLES
from profkit.cli.options import say
from profkit.errors import ProfkitError

COULD_NOT, INTERRUPTED, PIPE_CLOSED = 2, 130, 141


class Verbs(TyperGroup):
    """The group of all verbs: where their errors become messages and exit statuses."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; see the module's first lines for what comes out of it."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except ProfkitError as error:
            say(error)
            raise typer.Exit(COULD_NOT) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            # The reader of our output went away (`| head`): what is left goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from error
        return result


class Verb(TyperCommand):
    """A verb: its help ends with its examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the examples as they stand."""
        with formatter.section("Examples"):
            for line in EXAMPLES.get(self.name or "", ()):
                formatter.write(f"  {line}\n")


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is four times as fast, and nothing in it is markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"profkit {version('profkit')}")
        raise typer.Exit


@app.callback()
def profkit(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print it and leave."),
    ] = False,
) -> None:
    """What is this CUDA kernel waiting for, how do you know, and did my change fix it?"""


reading.register(app)
for _room in ("reporting", "judging", "measuring", "tuning"):
    if importlib.util.find_spec(f"profkit.cli.{_room}"):
        importlib.import_module(f"profkit.cli.{_room}").register(app)
for _verb in app.registered_commands:
    _verb.cls = Verb


def main() -> None:
    """Entry point of the console script."""
    # A name that the terminal's encoding cannot show must not stop the report.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="profkit")
