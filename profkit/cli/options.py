"""What a verb is made of: exit statuses, examples, and the flags that verbs share, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from profkit.cli import complete

DONE, BAD, COULD_NOT = 0, 1, 2
ARTIFACTS = Path("artifacts")  # where the verbs that judge look

# Reports, and which launches of them.
Paths = Annotated[
    list[str],
    typer.Argument(
        help="Reports (.ncu-rep, or a .csv by ncu), folders (recursively) and globs.",
        metavar="REPORTS...",
    ),
]
Kernel = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Only launches whose kernel name matches this anywhere."),
]
Where = Annotated[
    str | None,
    typer.Option(metavar="EXPR", help="Only launches for which this holds: 'bound == \"memory\"'."),
]
Top = Annotated[int | None, typer.Option(min=1, metavar="N", help="The N worst rows only.")]

# Runs, and which of them.
Artifacts = Annotated[
    Path, typer.Option(metavar="DIR", help="Where records and reports of variants are.")
]
HistoryDir = Annotated[
    str,
    typer.Option("--history", metavar="DIR", help="The history: a folder of tables, or a URL."),
]
Case = Annotated[
    str | None,
    typer.Option("--case", metavar="CASE", help="Only this case.", autocompletion=complete.cases),
]
Anyway = Annotated[
    bool,
    typer.Option("--anyway", help="Across GPUs, clocks, ncu versions and cases too; stale runs."),
]

# Variants to measure.
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
Kernels = Annotated[
    Path | None,
    typer.Option("--kernels", metavar="DIR", help="The folder of problems.", show_default=False),
]
Gpus = Annotated[
    str | None,
    typer.Option("--gpus", metavar="WHICH", help="all, how many, or a list: 0,1. One if left out."),
]
BuildDir = Annotated[
    Path | None, typer.Option("--build-dir", metavar="DIR", help="Where libraries are kept.")
]
RecordsDir = Annotated[
    Path | None, typer.Option("--artifacts", metavar="DIR", help="Where reports and records go.")
]

# How the answer is given.
Brief = Annotated[
    bool,
    typer.Option("--brief", help="At most 500 tokens: cause, place, number, next step."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Markdown, for pull requests and job summaries.")
]
Picture = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Draw it too: .png, .svg or .pdf."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What one file of the command line adds to it, under the file's name."""

    # does it; its parameters are the verb's flags and its docstring is the help
    run: Callable[..., None]
    group: str  # of the help
    examples: tuple[str, ...]  # command lines with which the help ends: each flag stands in one
    bad: str = ""  # when the exit status is 1; empty for a verb that never judges

    @property
    def exits(self) -> Mapping[int, str]:
        """Exit status -> when."""
        judged = {BAD: self.bad} if self.bad else {}
        return {DONE: "done", **judged, COULD_NOT: "profkit could not do it"}

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
        exits = "; ".join(f"{code} {when}" for code, when in self.verb.exits.items())
        with formatter.section("Exit status"):
            formatter.write_text(exits)
        with formatter.section("Examples"):
            for line in self.verb.examples:
                formatter.write(f"  {line}\n")
