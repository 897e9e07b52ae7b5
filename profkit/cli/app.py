"""The command line  ->  one verb  ->  an exit status.

0: done. 1: the answer is bad (a check failed, a gate was not met, slower). 2: profkit could not do
it. 130: interrupted. A mistake that the user can mend is two lines on stderr; a bug keeps its
traceback. A verb is a file in one of the folders below, found by its name: there is no other list.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from profkit.cli.options import COULD_NOT
from profkit.cli.output import say
from profkit.errors import ProfkitError

INTERRUPTED, PIPE_CLOSED = 130, 141
# Folder of verbs -> what they have in common, in the order of the help.
FOLDERS = {
    "reading": "Reports, of anything",
    "judging": "Did it help, and is it true",
    "measuring": "Variants, on a machine with a GPU",
}


def verb_folders() -> dict[str, str]:
    """Verb -> the folder that its file stands in; no verb is imported for it."""
    here = Path(__file__).parent
    return {
        file.stem: folder
        for folder in FOLDERS
        for file in sorted((here / folder).glob("[a-z]*.py"))
    }


class Verbs(TyperGroup):
    """The group of all verbs: where their errors become messages and exit statuses."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The verbs in the order of the help."""
        return list(verb_folders())

    def get_command(self, ctx: Any, name: str) -> Any:  # noqa: ARG002
        """The verb of this name, for which only its own file is imported; None without one."""
        folder = verb_folders().get(name)
        if folder is None:
            return None
        return import_module(f"profkit.cli.{folder}.{name}").VERB.command(name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs of each folder under what they have in common."""
        verbs = verb_folders()
        for folder, about in FOLDERS.items():
            names = [name for name, place in verbs.items() if place == folder]
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(about):
                formatter.write_dl([(name, verb.get_short_help_str(80)) for name, verb in commands])

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
def _profkit(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print it and leave."),
    ] = False,
) -> None:
    """What is this CUDA kernel waiting for, how do you know, and did my change fix it?"""


def commands() -> dict[str, TyperCommand]:
    """Verb -> its parser, each one imported: for whoever wants to look at all of them."""
    group = typer.main.get_command(app)
    assert isinstance(group, Verbs)  # noqa: S101 - that is what the app is made of
    return {name: group.get_command(None, name) for name in group.list_commands(None)}
