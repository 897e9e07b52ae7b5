"""What a verb is made of: exit statuses, examples, and the flags that verbs share, each once."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperOption

from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.files import get_current_folder, is_file, is_folder, list_folder_entries, read_text

if TYPE_CHECKING:
    from profkit.units import ClickContext, ClickFormatter, ClickParameter, CommandText, ExitStatus


DONE = 0
BAD = 1
COULD_NOT = 2
INTERRUPTED = 130
ARTIFACTS = Path("artifacts")  # where the verbs that judge look


# How a help looks, and what is said of a command line that cannot be parsed.

# Typer has its own copy of click or imports click, by its version: these are the classes of either.
UsageError: type[Any] = typer.BadParameter.__bases__[0]
_Context: type[Any] = TyperCommand.context_class
_Formatter: type[Any] = _Context.formatter_class
_HEADING = "\x1b[1m"
_NAME = "\x1b[36m"
_PLAIN = "\x1b[0m"


class HelpFormatter(_Formatter):  # type: ignore[misc]
    """Headings in bold, verbs and options in cyan, where stdout is a terminal that has colours."""

    def write_heading(self, heading: str) -> None:
        super().write_heading(_colour_text(heading, _HEADING))

    def write_dl(self, rows: Sequence[tuple[str, str]], *args: Any, **layout: Any) -> None:
        super().write_dl(
            [(_colour_text(name, _NAME), text) for name, text in rows], *args, **layout
        )


class Context(_Context):  # type: ignore[misc]
    """What a command line is parsed in: its help is written by the formatter above."""

    formatter_class = HelpFormatter


def supports_colour(stream: TextIO) -> bool:
    """Return whether a stream takes colours: a terminal that has them, unless NO_COLOR is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def _colour_text(text: str, colour: str) -> str:
    return f"{colour}{text}{_PLAIN}" if supports_colour(sys.stdout) else text


def explain_usage_error(error: Any, verb: str | None = None) -> ProfkitError:
    """Return what a user is told of a command line that cannot be parsed: what, and how to fix it.

    `verb` is the one that was called, for errors that do not know it.
    """
    context = error.ctx
    path = context.command_path if context else " ".join(filter(None, ("profkit", verb)))
    verb = path.partition(" ")[2]
    before = f"{verb}: " if verb else ""
    help_command = f"{path} --help lists the options and arguments"
    option = getattr(error, "option_name", "")
    if option and context and hasattr(error, "possibilities"):
        names = [name for p in context.command.get_params(context) for name in p.opts]
        longs = [name for name in names if name.startswith("--")]
        return ProfkitError(
            f"{before}no such option {option}", _suggest_option(option, longs, path)
        )
    said = _reword_usage_message(error.format_message().rstrip("."))
    words, _, extra = said.partition(": ")
    takes_variant = context and any(
        p.name == "variant" for p in context.command.get_params(context)
    )
    if words == "too many arguments" and takes_variant:
        help_command = f"{path} --variant {extra}"
    return ProfkitError(f"{before}{said[:1].lower()}{said[1:]}", help_command)


# What the parser says of a value -> what a user is told.
_IN_WORDS = (
    (r"is not a valid int( range)?", "is not a whole number"),
    (r"is not a valid float( range)?", "is not a number"),
    (r"is not in the range x>=(\S+)", r"is less than \1"),
    (r"[Oo]ption '(--[\w-]+)' requires an argument", r"\1 needs a value"),
    (r"[Gg]ot unexpected extra argument(?:s|\(s\))? \((.*)\)", r"too many arguments: \1"),
)


def _reword_usage_message(message: str) -> str:
    for pattern, plain in _IN_WORDS:
        message = re.sub(pattern, plain, message)
    return message


def _suggest_option(option: str, long_options: Sequence[str], verb_path: str) -> str:
    otherwise = f"{verb_path} --help lists the options"
    said = suggest_nearest_names(option, long_options, otherwise)
    return said if said.startswith("did you mean") else otherwise


# How a word on the command line could go on: the words that there are; typer takes those that fit.
NamesWithDescriptions = list[tuple[str, str]]
_SIDES = {".json", ".ncu-rep", ".ncu-repz"}


def list_known_variants(ctx: typer.Context) -> NamesWithDescriptions:
    """Return the variants of the folder of problems, and whatever was recorded, references too."""
    from profkit.cli.lab import find_kernels_folder, read_variant_titles

    try:
        titles = read_variant_titles(find_kernels_folder(ctx.params.get("kernels")))
    except ProfkitError:
        titles = {}
    return [*(dict.fromkeys(list_recorded_variants(ctx), "recorded") | titles).items()]


def list_comparable_sides(ctx: typer.Context, incomplete: str) -> list[str]:
    folder = Path(incomplete if incomplete.endswith("/") else Path(incomplete).parent)
    try:
        paths = [str(p) for p in list_folder_entries(folder) if is_folder(p) or p.suffix in _SIDES]
    except ProfkitError:  # what may not be read is no way to go on
        paths = []
    return [*list_recorded_variants(ctx), *paths]


def list_recorded_variants(ctx: typer.Context) -> list[str]:
    return _list_recorded_name_part(ctx, 0)


def list_recorded_cases(ctx: typer.Context) -> list[str]:
    return sorted(_list_recorded_name_part(ctx, 1))


def list_explainable_names() -> NamesWithDescriptions:
    from profkit.diagnosis.rules import ALL
    from profkit.program.rules import RULES
    from profkit.reports.metrics import CATALOGUE

    rules = [(rule.id, rule.title) for rule in ALL]
    rules += [(rule.id, rule.title) for rule in RULES]
    return [*rules, *((m.name, m.meaning) for m in CATALOGUE.values())]


def make_completion(*words: str) -> Callable[[], list[str]]:
    return lambda: list(words)


def _list_recorded_name_part(ctx: typer.Context, part_of_variant_and_case: int) -> list[str]:
    from profkit.records.paths import find_all_run_files

    folder = Path(ctx.params.get("artifacts") or "artifacts")
    return list(
        dict.fromkeys(
            name[part_of_variant_and_case]
            for name in find_all_run_files(folder, problems_to_extend=[])
        )
    )


# Reports, and which launches of them.
Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORTS...",
        help=(
            "Give .ncu-rep files, .csv files printed by ncu --csv --page raw, globs, or folders, "
            "which are searched recursively."
        ),
    ),
]
Kernel = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Choose kernels by name: any part of it may match."),
]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="EXPR", help="Choose launches for which this is true: 'bound == \"memory\"'."
    ),
]
Top = Annotated[
    int | None,
    typer.Option(metavar="N", help="Show only the N rows with the largest expected saving.", min=1),
]

# Runs, and which of them.
Artifacts = Annotated[
    Path, typer.Option(metavar="DIR", help="Read records and reports of variants from here.")
]
HistoryDir = Annotated[
    str,
    typer.Option(
        "--history", metavar="DIR", help="Use this history: a folder of tables, or a URL."
    ),
]
Case = Annotated[
    str | None,
    typer.Option(
        "--case",
        metavar="CASE",
        help="Choose one case. Default: all.",
        autocompletion=list_recorded_cases,
    ),
]
Anyway = Annotated[
    bool,
    typer.Option(
        "--anyway",
        help="Compare even if GPUs, clocks, ncu versions or cases differ, or a run is stale.",
    ),
]

FAIL_ON = ("slower", "finding", "resource")
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHAT",
        help=f"Exit with status 1 if any of these is true: {', '.join(FAIL_ON)}; repeatable.",
        autocompletion=make_completion(*FAIL_ON),
    ),
]

# Variants to measure.
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="ID",
        help="Choose a variant or a reference; repeatable.",
        autocompletion=list_known_variants,
    ),
]
Every = Annotated[bool, typer.Option("--all", help="Choose all variants.")]
Cases = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        metavar="CASE",
        help="Choose a case; repeatable. Default: all.",
        autocompletion=list_recorded_cases,
    ),
]
Kernels = Annotated[
    Path | None,
    typer.Option(
        "--kernels",
        metavar="DIR",
        help="Read problems and variants from here. Default: kernels.",
        show_default=False,
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="WHICH",
        help="Use all GPUs (all), a number of them (2) or a list (0,1). Default: one.",
    ),
]
BuildDir = Annotated[
    Path | None,
    typer.Option(
        "--build-dir",
        metavar="DIR",
        help="Keep compiled libraries here. Default: build, next to kernels.",
    ),
]
RecordsDir = Annotated[
    Path | None,
    typer.Option(
        "--artifacts",
        metavar="DIR",
        help="Write reports and records here. Default: artifacts, next to kernels.",
    ),
]


# How the answer is given: the flags that a verb may have, with which each help ends.
FORMS = {
    "brief": ("--brief", "Print the answer as short plain text, for an agent."),
    "json": ("--json", "Print one JSON document on stdout."),
    "markdown": ("--markdown", "Print Markdown, for pull requests and job summaries."),
    "quiet": ("--quiet -q", "Print no progress or notes on stderr."),
}
FORMATS = {"gcc": "editors", "github": "annotations", "sarif": "scanners"}  # name -> for whom
_FORMATS_TEXT = ", ".join(f"{name} ({user})" for name, user in FORMATS.items())
Opens = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORM",
        help=f"Print findings for another tool: {_FORMATS_TEXT}.",
        autocompletion=make_completion(*FORMATS),
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Draw a picture too: .png, .svg or .pdf."),
]


@dataclass
class _OutputFlags:
    """How the answer of the verb that runs is given, and whether it is quiet: its flags."""

    brief: bool = False
    json: bool = False
    markdown: bool = False
    quiet: bool = False

    def set_output_flags(self, flags: Mapping[str, bool]) -> None:
        vars(self).update(vars(_OutputFlags(**flags)))
        if self.json and self.markdown:
            raise ProfkitError("--json and --markdown cannot be combined", "choose one of them")


FORM = _OutputFlags()


def find_pyproject_with_settings() -> Path | None:
    """Return the nearest pyproject.toml, from the current folder upwards, if it names profkit."""
    try:
        folder = get_current_folder()
        for place in (folder, *folder.parents):
            file = place / "pyproject.toml"
            if is_file(file):
                return file if "[tool.profkit]" in read_text(file) else None
    except (OSError, ValueError, ProfkitError):
        pass  # it is gone, or may not be read: then it says nothing
    return None


# Parameters of the verb that runs whose values are from [tool.profkit], not from the command line.
FROM_SETTINGS: set[str] = set()


@dataclass(frozen=True)
class Verb:
    """What one file of the command line adds to it, under the file's name."""

    # Does it and returns the exit status; its parameters are the flags.
    run: Callable[..., int]
    group: str  # of the help
    summary: str  # the first sentence of its help; the function's docstring is the rest
    bad: str = ""  # when the exit status is 1; empty for a verb that never judges
    forms: str = "json quiet"  # those of FORMS that it has
    # Heading of the help -> the parameters under it, where there are too many for one list.
    sections: Mapping[str, str] = field(default_factory=dict)

    @property
    def examples(self) -> list[CommandText]:
        """Return the command lines of the file's docstring, with which the help ends."""
        return [line for line in self.example_lines if line.startswith("profkit ")]

    @property
    def example_lines(self) -> list[str]:
        """Return the examples as they are shown: "# What it does." above each command line."""
        lines = (sys.modules[self.run.__module__].__doc__ or "").splitlines()
        return [line for line in lines if line.startswith(("profkit ", "# "))]

    @property
    def exits(self) -> Mapping[ExitStatus, str]:
        judged = {BAD: self.bad} if self.bad else {}
        return {DONE: "done", **judged, COULD_NOT: "could not run"}

    def make_command(self, name: str) -> TyperCommand:
        single = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        single.command(name, cls=_Command)(self.run)
        command = typer.main.get_command(single)
        assert isinstance(command, _Command)  # noqa: S101 - a Typer of one command is that command
        command.name = name
        command.verb = self
        details = inspect.cleandoc(self.run.__doc__ or "")
        command.help = f"{self.summary}\n\n{details}".strip()
        for form in self.forms.split():
            words, text = FORMS[form]
            names = [form, *words.split()]
            command.params.append(
                TyperOption(param_decls=names, help=text, is_flag=True, default=False)
            )
        command.context_settings = {"help_option_names": ["-h", "--help"]}
        return command


# Options that say what is printed or written: a section of their own in every help.
_OUTPUT = (
    "output opens csv parquet page trace speedscope title "
    "form brief json version markdown quiet help"
)


class _Command(TyperCommand):
    """A command whose help ends with its exit statuses and examples."""

    verb: Verb
    context_class = Context

    def invoke(self, ctx: ClickContext) -> Any:
        FROM_SETTINGS.clear()
        for name in ctx.params:
            source = ctx.get_parameter_source(name)
            if source is not None and source.name == "DEFAULT_MAP":
                FROM_SETTINGS.add(name)
        FORM.set_output_flags({name: ctx.params.pop(name) for name in self.verb.forms.split()})
        raise typer.Exit(super().invoke(ctx))

    def collect_usage_pieces(self, ctx: ClickContext) -> list[str]:
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        return ["[OPTIONS]", *map(_format_argument, arguments)]

    def format_options(self, ctx: ClickContext, formatter: ClickFormatter) -> None:
        """Write the arguments, then the options under the verb's own headings, then the output's."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        headings: dict[str, str] = {}
        for heading, names in self.verb.sections.items():
            sections[heading] = []
            headings |= dict.fromkeys(names.split(), heading)
        sections |= {"Options": [], "Output": []}
        param: Any
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                sections["Arguments"].append((_format_argument(param), param.help or ""))
                continue
            heading = "Options"
            if param.name in _OUTPUT.split():
                heading = "Output"
            heading = headings.get(param.name, heading)
            sections[heading].append((format_option_spellings(param), write_option_help(param)))
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: ClickContext, formatter: ClickFormatter) -> None:  # noqa: ARG002
        with formatter.section("Exit status"):
            formatter.write_dl([(str(code), when) for code, when in self.verb.exits.items()])
        with formatter.section("Examples"):
            for line in self.verb.example_lines:
                formatter.write(f"  {line}\n")


def _format_argument(param: ClickParameter) -> str:
    """Return an argument as the usage line has it: REPORTS..., [FILES...]."""
    name = str(param.metavar or param.name.upper())
    if param.required or name.startswith("["):
        return name
    return f"[{name}]"


def format_option_spellings(param: ClickParameter) -> str:
    """Return an option's spellings, the short one first, and what it takes: -o, --output FILE."""
    spellings = ", ".join(sorted(param.opts, key=len))
    if param.is_flag:
        return spellings
    return f"{spellings} {param.metavar}"


def write_option_help(param: ClickParameter) -> str:
    """Return an option's help and, at its end, the value that it has where nobody gives one."""
    text = param.help or ""
    default = param.default
    is_worth_saying = bool(default) or default == 0
    if param.is_flag or not param.show_default or not is_worth_saying or callable(default):
        return text
    if isinstance(default, float):
        default = f"{default:g}"
    return f"{text} Default: {default}."


def verb(
    group: str,
    summary: str,
    *,
    bad: str = "",
    forms: str = "json quiet",
    sections: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., int]], Verb]:
    """Return the decorator that makes a function the verb of its file."""
    return lambda run: Verb(run, group, summary, bad, forms, sections or {})
