"""The command line  ->  one verb  ->  an exit status and an orderly end.

0: done. 1: the answer is bad (a check failed, a gate was not met, slower). 2: profkit could not do
it, or not write the answer. 130: interrupted. 141: the reader of stdout went away. A mistake that
the user can mend is two lines on stderr; a bug keeps its traceback. A verb is a file in verbs/, of the
command line or of the lab, found by its name: there is no other list.

Until a verb runs, and after it, a signal ends the process as it always does, silently. While it
runs, each of SIGINT, SIGTERM and SIGHUP is what Ctrl-C is: everything that was started is ended.
stdout and stderr are open whatever the shell did, and given up quietly when nobody takes them.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from profkit.cli.options import (
    COULD_NOT,
    FORM,
    INTERRUPTED,
    Context,
    UsageError,
    Verb,
    explain_usage_error,
    find_pyproject_with_settings,
    format_option_spellings,
    write_option_help,
)
from profkit.cli.output import print_error, print_note
from profkit.errors import ProfkitError, explain_resource_limit, suggest_nearest_names
from profkit.files import (
    get_current_folder,
    is_folder,
    make_read_error,
    measure_memory_left,
    refuse_too_little_memory,
)

if TYPE_CHECKING:
    from profkit.units import (
        ClickCommandOrNone,
        ClickContext,
        ClickFormatter,
        ExitStatus,
        Sentence,
        VerbName,
    )


# The packages of verbs, and their folders.
_ROOT = Path(__file__).parents[1]
VERB_PACKAGES = {
    "profkit.cli.verbs": _ROOT / "cli" / "verbs",
    "profkit.lab.verbs": _ROOT / "lab" / "verbs",
}
PIPE_CLOSED = 141  # what a shell shows for a program that ends because its reader went away
_UNITS = {"M": 1 << 20, "G": 1 << 30}
# The questions by which the help groups the verbs, in its order.
GROUPS = (
    "Understand a kernel",
    "Understand a program",
    "Judge a change",
    "Work on your own kernels",
    "Serve agents and CI",
)
# What the help of the program ends with.
START = (
    "# Diagnose the kernels in an Nsight Compute report.",
    "profkit diagnose my.ncu-rep",
    "# Find out where a training step spends its time.",
    "profkit triage -- python train.py",
    "# See what a change did to the counters, or to the step of a program.",
    "profkit compare old.ncu-rep new.ncu-rep",
    "# List the options and examples of a command.",
    "profkit diagnose --help",
)
# What a verb was called before -> what runs instead. For this version; the help does not list them.
OLD = {
    "build": ("check", "--build-only"),
    "heatmap": ("roofline",),
    "report VARIANT": ("decide",),
    "verify": ("claims",),
}
# A flag that was a question of its own -> the verb that it is now. Its value, if it has one, is the
# verb's last argument.
OLD_FLAGS = {
    ("compare", "--ladder"): "ladder",
    ("compare", "--decide"): "decide",
    ("diagnose", "--with"): "whatif",
    ("history", "--sql"): "query",
    ("profile", "--no-counters"): "ablate",
    ("whatif", "--with"): "whatif",
}
WITH_VALUE = {"--with"}
WITH_NAMES = {"ablate"}  # verbs whose variants are arguments, and no flags
_SCORES = (
    "predicted gains are no longer kept in a ledger",
    "profkit compare PARENT CHILD shows what happened to each finding, and how much faster it is",
)
_SEARCH = "profkit tune --variant v3 --case B: a search needs no more than that"
# A verb, or a flag of a verb, that is gone -> why, and what to do instead.
GONE = {
    ("ledger", ""): _SCORES,
    ("claims", "--ledger"): _SCORES,
    ("claims", "--update"): _SCORES,
    ("tune", "--seed"): ("repeating a search proposes the same configurations", _SEARCH),
    ("tune", "--no-steer"): (
        "what diagnoses propose is part of the search",
        "profkit tune --no-profile runs without ncu, and so without proposals",
    ),
    ("tune", "--min-occupancy"): (
        "occupancy alone does not exclude a configuration",
        "profkit tune refuses what 'where:' and 'takes:' of the variant's header rule out",
    ),
}


def _looks_like_report_or_path(word: str) -> bool:
    from profkit.records.paths import SUFFIXES

    return word.endswith(SUFFIXES) or os.sep in word or is_folder(Path(word))


def _is_report_verb_of_old_form(args: list[str]) -> bool:
    page = any(word.startswith(("-o", "--output", "-h", "--help")) for word in args)
    return (
        args[:1] == ["report"]
        and len(args) > 1
        and not page
        and not _looks_like_report_or_path(args[1])
    )


def _count_words_before_double_dash(args: list[str]) -> int:
    """Return how many words come before `--`, behind which they are another program's."""
    return [*args, "--"].index("--")


def replace_flag_by_verb(args: list[str]) -> list[str]:
    """Return the words of the verb that a flag became; the same words where there is none."""
    end = _count_words_before_double_dash(args)
    for (name, flag_), verb in OLD_FLAGS.items():
        if args[:1] != [name]:
            continue
        for at, word in enumerate(args[:end]):
            option, _, value = word.partition("=")
            if option != flag_:
                continue
            rest = args[1:at] + args[at + 1 :]
            if verb in WITH_NAMES:
                rest = _convert_variant_options(rest)
            if flag_ not in WITH_VALUE:
                return [verb, *rest]
            if not value and at + 1 < end:
                value = args[at + 1]
                rest = args[1:at] + args[at + 2 :]
            return [verb, *rest, value]
    return args


def _convert_variant_options(words: list[str]) -> list[str]:
    """Return the words, with variants that were named by --variant as arguments."""
    named = []
    for word in words:
        option, equals, name = word.partition("=")
        if option != "--variant":
            named.append(word)
        elif equals:
            named.append(name)
    return named


def refuse_removed_words(args: list[str]) -> None:
    """Raise a ProfkitError that names the new way, where a verb or a flag is no longer there."""
    flags = {word.partition("=")[0] for word in args[1 : _count_words_before_double_dash(args)]}
    for (verb, flag), (why, instead) in GONE.items():
        if args[:1] == [verb] and (not flag or flag in flags):
            raise ProfkitError(f"{verb} {flag}".strip() + f": {why}", instead)


def list_verbs_alphabetically() -> list[VerbName]:
    """Return the names of all verbs, and import none."""
    return sorted(_find_modules_of_verbs())


def _find_modules_of_verbs() -> dict[VerbName, tuple[str, Path]]:
    """Return verb -> its module and its file."""
    verbs = {}
    for package, folder in VERB_PACKAGES.items():
        for file in folder.glob("[a-z]*.py"):
            verbs[file.stem] = (f"{package}.{file.stem}", file)
    return verbs


def read_verb_summaries_by_group() -> dict[str, list[tuple[VerbName, Sentence]]]:
    """Return group -> its verbs with their summaries, read from the files: no verb is imported."""
    groups: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
    for name, (_, file) in sorted(_find_modules_of_verbs().items()):
        constants = _read_group_and_summary(file)
        group = constants.get("GROUP", "")
        if group not in groups or "SUMMARY" not in constants:
            message = f"{file}: GROUP is none of the help's groups, or there is no SUMMARY"
            raise ProfkitError(message, f"GROUP is one of: {', '.join(GROUPS)}")
        groups[group].append((name, constants["SUMMARY"]))
    return groups


def _read_group_and_summary(file: Path) -> dict[str, str]:
    """Return GROUP and SUMMARY of a file of a verb, each of which it assigns in a line of its own.

    Parsing all files of verbs took a seventh of the help's time.
    """
    constants: dict[str, str] = {}
    for line in file.read_text("utf-8").splitlines():
        name, equals, value = line.partition(" = ")
        if equals and name in ("GROUP", "SUMMARY"):
            constants[name] = ast.literal_eval(value)
        if len(constants) == 2:
            break
    return constants


def _print_renamed_verb(ctx: ClickContext, old: str, new: str) -> None:
    if not ctx.resilient_parsing:  # as it is while a shell asks how a line could go on
        print_note(f"profkit {old} is now profkit {new}")


# What too little memory, or too few threads or files, becomes in Python and in libraries.
LIMITS = (ImportError, MemoryError, RuntimeError, SystemError)
# What users' input or code, or a limit, can cause; convert_to_user_error says which it was.
FORESEEN: tuple[type[BaseException], ...] = (
    *LIMITS,
    ProfkitError,
    UsageError,
    OSError,
    SystemExit,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class Verbs(TyperGroup):
    """The group of all verbs: where their errors become messages and exit statuses."""

    context_class = Context

    def parse_args(self, ctx: ClickContext, args: list[str]) -> list[str]:
        """Parse what comes before the verb."""
        has_words = bool(args)  # the parser takes them out
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            if not has_words or ctx.resilient_parsing:
                raise  # no words at all: the help is the answer
            print_error(explain_usage_error(error))
            raise typer.Exit(COULD_NOT) from error

    def list_commands(self, ctx: ClickContext) -> list[str]:  # noqa: ARG002
        return list_verbs_alphabetically()

    def get_command(self, ctx: ClickContext, name: str) -> ClickCommandOrNone:  # noqa: ARG002
        verbs = _find_modules_of_verbs()
        if name not in verbs:
            return None
        module = import_module(verbs[name][0])
        return next(x for x in vars(module).values() if isinstance(x, Verb)).make_command(name)

    def resolve_command(self, ctx: ClickContext, args: list[str]) -> Any:
        """Return a verb and what follows it; a report where a verb should be means diagnose."""
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        first = [*args, "--"][0]
        refuse_removed_words(args)
        old = "report VARIANT" if _is_report_verb_of_old_form(args) else first
        if now := OLD.get(old):
            _print_renamed_verb(ctx, old, " ".join(now[:2]))
            args = [*now, *args[1:]]
        elif (replaced := replace_flag_by_verb(args)) != args:
            gone = sorted(set(args) - set(replaced))
            _print_renamed_verb(ctx, " ".join([first, *gone][:2]), replaced[0])
            args = replaced
        elif first not in list_verbs_alphabetically() and _looks_like_report_or_path(first):
            args = ["diagnose", *args]
        elif first not in list_verbs_alphabetically() and not first.startswith("-"):
            hint = suggest_nearest_names(
                first, list_verbs_alphabetically(), "profkit --help lists them"
            )
            raise ProfkitError(f"{first}: neither a command nor a report", hint)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: ClickContext, formatter: ClickFormatter) -> None:
        """Write the verbs by the question that they answer, then the options that all of them have."""
        groups = read_verb_summaries_by_group()
        width = max(len(name) for verbs in groups.values() for name, _ in verbs)
        for group, verbs in groups.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in verbs])
        rows = [
            (format_option_spellings(param), write_option_help(param))
            for param in self.get_params(ctx)
        ]
        with formatter.section("Options"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: ClickContext, formatter: ClickFormatter) -> None:  # noqa: ARG002
        with formatter.section("Start here"):
            for line in START:
                formatter.write(f"  {line}\n")

    def invoke(self, ctx: ClickContext) -> Any:
        """Run a verb; see the module's first lines for what comes out of it."""
        interrupt_on_end_signals()
        FORM.set_output_flags({})
        try:
            refuse_too_little_memory()
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:  # `| head`; click would make it a 1
            redirect_streams_to_devnull()
            raise typer.Exit(PIPE_CLOSED) from error
        except FORESEEN as error:
            told = convert_to_user_error(error, ctx.invoked_subcommand)
            if told is None:
                raise
            if isinstance(error, LIMITS):
                _lift_memory_limit_for_exit()
            print_error(told)
            raise typer.Exit(COULD_NOT) from error
        finally:
            let_signals_end_process()  # what is left is to end
            if _came:  # whatever else was raised is of that, of pydantic's too
                raise typer.Exit(INTERRUPTED)


def convert_to_user_error(
    error: BaseException, verb: VerbName | None = None
) -> ProfkitError | None:
    """Return what a user is told of an error; None of a bug of profkit's own, which is a traceback."""
    if isinstance(error, ProfkitError):
        return error
    if isinstance(error, UsageError):
        return explain_usage_error(error, verb)
    if isinstance(error, LIMITS):
        return explain_resource_limit(error)
    if isinstance(error, SystemExit):  # click ends with an exception of its own
        why = f"the code that was run exited with SystemExit: {error.code}"
        return ProfkitError(why, "functions in problem.py must return, not exit")
    if isinstance(error, OSError):
        is_of_stream = error.errno in _LOST and error.filename is None
        if error.errno is None or is_of_stream:
            return None
        return explain_system_error(error)
    if isinstance(error, ArithmeticError | AttributeError | LookupError | TypeError | ValueError):
        return _explain_error_in_users_code(error)
    return None


def _explain_error_in_users_code(error: Exception) -> ProfkitError | None:
    """Return what is wrong in the user's own code; None where the error comes from profkit's."""
    from profkit.evidence.users_code import explain_failure_of_users_code, find_users_file_of_error

    file = find_users_file_of_error(error)
    if file is None:
        return None
    why = f"{file}: {explain_failure_of_users_code(error, file)}"
    return ProfkitError(why, "this is your own code: fix it in that file")


def explain_system_error(error: OSError) -> ProfkitError:
    """Return what a user is told of an error of the system that no verb foresaw."""
    if error.filename is None:
        try:
            get_current_folder()
        except ProfkitError as gone:
            return gone
        refused = ProfkitError(
            f"{error.strerror}", "the system refused; check that the disk is mounted"
        )
        return explain_resource_limit(error) or refused
    return make_read_error(os.fsdecode(str(error.filename)), error)


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is four times as fast, and nothing in it is markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version_and_exit(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        print(f"profkit {version('profkit')}")
        raise typer.Exit


@app.callback()
def _profkit(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version_and_exit,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Let kernels in this folder pass any flag to nvcc.")
    ] = False,
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory", metavar="SIZE", help="Limit the memory of each process: 4G, 800M."
        ),
    ] = None,
) -> None:
    """Find what limits a CUDA kernel or a whole GPU program, and whether a change fixed it.

    Reading Nsight Compute reports and torch.profiler or Nsight Systems traces needs no GPU; with one,
    profkit also runs the profilers for you.
    """
    if file := find_pyproject_with_settings():
        from profkit.cli.settings import read_defaults_of_verbs

        ctx.default_map = read_defaults_of_verbs(file, get_current_folder())
    if trust:
        os.environ["PROFKIT_TRUST"] = "1"  # of the build room; workers inherit it
    if max_memory is not None:
        _limit_memory(max_memory)
    if measure_memory_left() is not None:
        # Arrow would take a gigabyte of it for later, numpy's algebra some for each processor.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _limit_memory(size_text: str) -> None:
    """Hold this process, and each that it starts, to what --max-memory says."""
    import resource

    digits = size_text[:-1]
    unit = size_text[-1:].upper()
    if unit not in _UNITS or not (digits.isascii() and digits.isdigit()) or len(digits) > 6:
        raise ProfkitError(f"--max-memory {size_text}: not understood", "say 800M or 4G")
    most = int(digits) * _UNITS[unit]
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    refuse_too_little_memory()


def _lift_memory_limit_for_exit() -> None:
    """Give the end of this process the memory that its verb did not get.

    Without any, each object that is cleaned up has Python print that it could not be.
    """
    import resource

    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))


def import_verbs() -> dict[VerbName, TyperCommand]:
    """Import every verb; return verb -> its parser."""
    group = typer.main.get_command(app)
    assert isinstance(group, Verbs)  # noqa: S101 - that is what the app is made of
    return {name: group.get_command(None, name) for name in group.list_commands(None)}


def run_verbs() -> None:
    """Run what the command line asks for; the entry point of the console script."""
    let_signals_end_process()
    make_output_streams_tolerant()
    try:
        try:
            app(prog_name="profkit")
        finally:
            let_signals_end_process()
            sys.stdout.flush()
    except KeyboardInterrupt:  # between the verb and the end
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:
        raise SystemExit(report_lost_output_with_status(error)) from error


# Signals and streams.

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE = 5.0  # seconds in which a second signal does not stop the tidying up after the first
_came: list[int] = []  # signals that were answered since the process began


def let_signals_end_process() -> None:
    """Let signals end the process: Python's own handler would print where it was.

    Who started this may ignore SIGCHLD: then how a child ended would never be known.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asked for that
            signal.signal(number, signal.SIG_DFL)


def interrupt_on_end_signals() -> None:
    """Let SIGTERM end what was started too, as Ctrl-C does; neither is ever lost."""
    last = 0.0

    def stop(*_: object) -> None:
        nonlocal last
        now = time.monotonic()
        if last and now - last < _GRACE:
            return
        last = now
        _came.append(signal.SIGINT)
        raise KeyboardInterrupt

    def raise_lost_interrupt(lost: sys.UnraisableHookArgs) -> None:
        # Raised where an object is cleaned up, Python would print it and go on: raise it again, soon.
        nonlocal last
        if lost.exc_type is KeyboardInterrupt:
            last = 0.0
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            sys.__unraisablehook__(lost)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    signal.signal(signal.SIGALRM, stop)
    sys.unraisablehook = raise_lost_interrupt


# What a write to stdout or stderr fails with when the disk is full or the reader went away. Files
# are written by profkit.files, whose errors are others.
_LOST = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE, errno.EFBIG, errno.EBADF}


def make_output_streams_tolerant() -> None:
    """Let neither a name that the terminal cannot show nor `>&-` stop a report."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - till the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def report_lost_output_with_status(error: OSError) -> ExitStatus:
    """Say why an answer did not get out, unless its reader went away; return the exit status.

    An error that is not of a stream that takes nothing more is raised again.
    """
    if error.errno not in _LOST or error.filename is not None:
        raise error
    gone = error.errno == errno.EPIPE
    if not gone:
        with contextlib.suppress(OSError):
            print(f"profkit: the answer could not be written: {error.strerror}", file=sys.stderr)
            sys.stderr.flush()
    redirect_streams_to_devnull()
    if gone:
        return PIPE_CLOSED
    return COULD_NOT


def redirect_streams_to_devnull() -> None:
    """Send what is left to print nowhere: Python would try again when it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
