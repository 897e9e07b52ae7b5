"""The command line  ->  one verb  ->  an exit status.

0: done. 1: the answer is bad (a check failed, a gate was not met, slower). 2: profkit could not do
it, or not write the answer. 130: interrupted. 141: the reader of stdout went away. A mistake that
the user can mend is two lines on stderr; a bug keeps its traceback. A verb is a file in one of the
folders below, found by its name: there is no other list.
"""

from __future__ import annotations

import errno
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from profkit.cli.options import COULD_NOT
from profkit.cli.output import say
from profkit.cli.signals import (
    INTERRUPTED,
    PIPE_CLOSED,
    die_silently,
    drop_streams,
    stop_on_term,
    was_stopped,
)
from profkit.errors import ProfkitError, did_you_mean
from profkit.records.paths import SUFFIXES

_FIRST_SENTENCE = re.compile(r'^def [a-z].*?^    """(.*?[.?])(?=\s|""")', re.M | re.S)
_UNITS = {"M": 1 << 20, "G": 1 << 30}
# Folder of verbs -> what they have in common, in the order of the help.
FOLDERS = {
    "reading": "Reports, of anything",
    "judging": "Did it help, and is it true",
    "measuring": "Variants, on a machine with a GPU",
    "serving": "For programs",
}


def _names_a_report(word: str) -> bool:
    return word.endswith(SUFFIXES) or os.sep in word or Path(word).is_dir()


def verb_folders() -> dict[str, str]:
    """Verb -> the folder that its file stands in; no verb is imported for it."""
    here = Path(__file__).parent
    return {
        file.stem: folder
        for folder in FOLDERS
        for file in sorted((here / folder).glob("[a-z]*.py"))
    }


def _summary(folder: str, verb: str) -> str:
    """The first sentence of a verb's docstring; importing every verb for it takes half as long again."""
    text = (Path(__file__).parent / folder / f"{verb}.py").read_text("utf-8")
    found = _FIRST_SENTENCE.search(text)
    return found[1] if found else ""


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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A verb and what follows it; a report where a verb should be means diagnose."""
        if args and args[0] not in verb_folders() and _names_a_report(args[0]):
            args = ["diagnose", *args]
        elif args and args[0] not in verb_folders() and not args[0].startswith("-"):
            hint = did_you_mean(args[0], verb_folders(), "profkit --help lists them")
            raise ProfkitError(f"{args[0]}: no such verb, and no report", hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the verbs of each folder under what they have in common."""
        verbs = verb_folders()
        for folder, about in FOLDERS.items():
            names = [name for name, place in verbs.items() if place == folder]
            with formatter.section(about):
                formatter.write_dl([(name, _summary(folder, name)) for name in names])

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; see the module's first lines for what comes out of it."""
        stop_on_term()
        try:
            result = super().invoke(ctx)
        except ProfkitError as error:
            say(error)
            raise typer.Exit(COULD_NOT) from error
        except MemoryError as error:
            say(ProfkitError("out of memory", "read fewer reports at a time, or allow more"))
            raise typer.Exit(COULD_NOT) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:  # `| head`; click would make it a 1
            drop_streams()
            raise typer.Exit(PIPE_CLOSED) from error
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            name = str(error.filename or "a name")
            say(ProfkitError(f"{name[:60]}...: {error.strerror}", "give the path of a file"))
            raise typer.Exit(COULD_NOT) from error
        finally:
            die_silently()  # what is left is to end
            if was_stopped():  # whatever else was raised is of that: pydantic makes its own of it
                raise typer.Exit(INTERRUPTED)
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
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print it and leave."),
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Kernels of this folder may give nvcc any flag.")
    ] = False,
    max_memory: Annotated[
        str | None,
        typer.Option("--max-memory", metavar="SIZE", help="Of each process: 4G, 800M."),
    ] = None,
) -> None:
    """What is this CUDA kernel waiting for, how do you know, and did my change fix it?"""
    if trust:
        os.environ["PROFKIT_TRUST"] = "1"  # of the build room; workers inherit it
    if max_memory is not None:
        limit_memory(max_memory)


def limit_memory(size: str) -> None:
    """Hold this process, and each that it starts, to so much memory of its own.

    Raises:
        ProfkitError: It is no size.
    """
    import resource

    digits, unit = size[:-1], size[-1:].upper()
    if unit not in _UNITS or not (digits.isascii() and digits.isdigit()) or len(digits) > 6:
        raise ProfkitError(f"--max-memory {size}: not understood", "say 800M or 4G")
    most = int(digits) * _UNITS[unit]
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def commands() -> dict[str, TyperCommand]:
    """Verb -> its parser, each one imported: for whoever wants to look at all of them."""
    group = typer.main.get_command(app)
    assert isinstance(group, Verbs)  # noqa: S101 - that is what the app is made of
    return {name: group.get_command(None, name) for name in group.list_commands(None)}
