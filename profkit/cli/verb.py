"""A function with its examples and exit statuses  ->  one verb of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand

from profkit.cli.options import BAD, COULD_NOT, DONE

_ALWAYS = {DONE: "done", COULD_NOT: "profkit could not do it"}


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What one file of the command line adds to it, under the file's name."""

    # does it; its parameters are the verb's flags and its docstring is the help
    run: Callable[..., None]
    examples: tuple[str, ...]  # command lines with which the help ends: each flag stands in one
    bad: str = ""  # when the exit status is 1; empty for a verb that never judges

    @property
    def exits(self) -> Mapping[int, str]:
        """Exit status -> when."""
        return {**_ALWAYS, **({BAD: self.bad} if self.bad else {})}

    def command(self, name: str) -> TyperCommand:
        """The verb for the parser."""
        single = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        single.command(name, cls=_Command)(self.run)
        command = typer.main.get_command(single)
        assert isinstance(command, _Command)  # noqa: S101 - a Typer of one command is that command
        command.name, command.verb = name, self
        command.context_settings = {"help_option_names": ["-h", "--help"]}
        return command


class _Command(TyperCommand):
    """A command whose help ends with its exit statuses and examples."""

    verb: Verb

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write exit statuses and examples as they stand."""
        exits = "; ".join(f"{code} {self.verb.exits[code]}" for code in sorted(self.verb.exits))
        with formatter.section("Exit status"):
            formatter.write_text(exits)
        with formatter.section("Examples"):
            for line in self.verb.examples:
                formatter.write(f"  {line}\n")
