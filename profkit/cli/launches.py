"""Reports, --kernel and --where  ->  the launches that were asked for, judged."""

from __future__ import annotations

import ast
import re
import signal
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from profkit.cli.options import COULD_NOT, DONE
from profkit.cli.output import print_error, print_errors, show_progress
from profkit.diagnosis.launches import JudgedLaunch, add_verdict_columns, judge_reports
from profkit.errors import ProfkitError
from profkit.files import is_path_there, shorten_path
from profkit.records.paths import (
    NOT_THERE,
    expand_paths,
    suggest_command_for_file,
    suggest_nearby_report,
)
from profkit.reports import reader
from profkit.reports.frame import COLUMNS
from profkit.reports.isolated import choose_hint, is_fault_of_file
from profkit.reports.reader import ReportFile, Reports
from profkit.show.text.escape import shorten_name

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.units import (
        AreAllMatched,
        AreAllWhole,
        Clause,
        DaskClientOrExecutor,
        ExitStatus,
        FilePath,
        GlobPattern,
        RegexText,
        RuleName,
    )


# Comparisons, and, or, not, arithmetic (** could run for ever), `in`, columns and constants. No
# calls, attributes, subscripts or @names: what is left can read the frame and nothing else.
_LOGIC = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Invert, ast.BitAnd, ast.BitOr)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_VALUES = (ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple, ast.USub, ast.UAdd)
_ALLOWED = (ast.Expression, ast.BinOp, ast.Compare, *_LOGIC, *_ARITHMETIC, *_COMPARISONS, *_VALUES)
PATTERN_TIME = 2.0  # seconds that all names together may take: a million take one
_RARE = (RuntimeError, ArithmeticError, MemoryError)  # of an expression that pandas cannot work out
LONGEST = 2000  # characters: nobody types more, and the parser nests no deeper
EXAMPLE = "for example: --where 'bound == \"memory\" and time > 1e-5'"


@dataclass(frozen=True)
class ChosenLaunches:
    reports: Reports
    complete: bool  # whether all reports were read whole
    everything: list[JudgedLaunch]
    kept: list[int]
    left_out: Mapping[str, int]  # rules that were ignored, and in how many launches each had fired

    @property
    def launches(self) -> list[JudgedLaunch]:
        return [self.everything[i] for i in self.kept]

    @property
    def exit_status(self) -> ExitStatus:
        good = self.complete and any(run.status == "ok" for run in self.launches)
        if good:
            return DONE
        return COULD_NOT

    @property
    def frame(self) -> DataFrame:
        """Return the rows of the frame with the judgement in it."""
        table = add_verdict_columns(self.reports, self.everything)
        if len(self.kept) == len(table):
            return table
        return table.iloc[self.kept]


def read_and_judge_launches(
    patterns: Sequence[GlobPattern],
    kernel_regex: RegexText | None = None,
    where_expression: str | None = None,
    client: DaskClientOrExecutor = None,
    *,
    lines_follow: bool = False,
    ignored_rules: Sequence[str] = (),
) -> ChosenLaunches:
    """Read what can be read, say what cannot; judge every launch, keep those that are asked for.

    `lines_follow`: their source lines will be asked for. `ignored_rules`: rules whose findings are left
    out.
    """
    paths, complete = expand_report_patterns(patterns) if patterns else ([], True)
    reports = Reports(())
    if paths:
        with show_progress() as step:
            reports = reader.read_report_files(
                paths, progress=step, client=client, lines_follow=lines_follow
            )
    complete = _report_damage_of_reports(reports) and complete
    launches = judge_reports(reports)
    left_out: dict[str, int] = {}
    if ignored_rules:
        left_out = count_launches_where_rules_fire(launches, ignored_rules)
        launches = [drop_findings_of_rules(run, ignored_rules) for run in launches]
    chosen = ChosenLaunches(reports, complete, launches, list(range(len(launches))), left_out)
    if kernel_regex is not None:
        matches = match_kernel_names([run.kernel for run in launches], kernel_regex)
        chosen = replace(chosen, kept=[i for i in chosen.kept if matches[i]])
    if where_expression is not None:
        chosen = replace(
            chosen,
            kept=[int(i) for i in filter_rows_by_expression(chosen.frame, where_expression).index],
        )
    if launches and not chosen.kept:
        raise explain_no_match(launches, kernel_regex, where_expression)
    return chosen


def count_launches_where_rules_fire(
    launches: Sequence[JudgedLaunch], rules: Sequence[RuleName]
) -> dict[RuleName, int]:
    """Return in how many launches each of these rules fires."""
    counts = dict.fromkeys(rules, 0)
    for run in launches:
        for finding in run.diagnosis.findings:
            if finding.rule in counts and finding.status == "fires":
                counts[finding.rule] += 1
    return counts


def drop_findings_of_rules(run: JudgedLaunch, ignored_rules: Sequence[RuleName]) -> JudgedLaunch:
    """Return a launch without what these rules found; what limits it stays as it was judged."""
    diagnosis = run.diagnosis
    findings = tuple(f for f in diagnosis.findings if f.rule not in ignored_rules)
    together = diagnosis.together
    if together and not set(together.rules).isdisjoint(ignored_rules):
        together = None
    lead = diagnosis.top
    return replace(
        run,
        diagnosis=replace(diagnosis, findings=findings, together=together),
        lead_is_left_out=lead is not None and lead.rule in ignored_rules,
    )


def _report_damage_of_reports(reports: Reports) -> AreAllWhole:
    """Say what is damaged, or holds no launch that worked; return whether all was read whole."""
    at = COLUMNS.index("status")
    status = {part.file.path: {row[at] for row in part.identity} for part in reports.parts}
    complete = True
    problems = list[ProfkitError]()
    for file in reports.files:
        if file.status != "ok":
            name = shorten_path(file.path)
            problems.append(ProfkitError(f"{name}: {_say_why_unread(file)}", _suggest_repair(file)))
            complete = False
        elif status.get(file.path) == {"failed"}:
            why = f"{file.path}: ncu gave up on every launch in it"
            problems.append(ProfkitError(why, _FAILED))
    print_errors(problems)
    return complete


def explain_no_match(
    launches: Sequence[JudgedLaunch], kernel_regex: str | None, where_expression: str | None
) -> ProfkitError:
    """Return the error for filters that no launch matches: it names some kernels that are there."""
    filters = []
    if kernel_regex:
        filters.append(f"--kernel {kernel_regex}")
    if where_expression:
        filters.append(f"--where {where_expression}")
    what, names = _list_what_launches_have(launches, where_expression or "")
    there = ", ".join(names[:5]) or "none"
    if len(names) > 5:
        there += f" and {len(names) - 5} more"
    return ProfkitError(f"no launch matches {' and '.join(filters)}", f"{what} here: {there}")


def _list_what_launches_have(launches: Sequence[JudgedLaunch], where: str) -> tuple[str, list[str]]:
    """Return the values of the column that an expression asks for, else the names of kernels."""
    known: dict[str, tuple[str, list[str | None]]] = {
        "variant": ("variants", [run.variant for run in launches]),
        "case": ("cases", [run.case for run in launches]),
        "bound": ("bounds", [run.diagnosis.bound for run in launches]),
        "limiter": ("limiters", [run.diagnosis.limiter for run in launches]),
    }
    for column, (what, values) in known.items():
        if re.search(rf"\b{column}\b", where):
            return what, list(dict.fromkeys(value for value in values if value))
    return "kernels", list(dict.fromkeys(shorten_name(run.kernel, 40) for run in launches))


def expand_report_patterns(patterns: Sequence[GlobPattern]) -> tuple[list[FilePath], AreAllMatched]:
    """Return the files that patterns name, each once, and whether each pattern named some."""
    paths: dict[str, None] = {}
    complete = True
    for pattern in patterns:
        try:
            paths.update(dict.fromkeys(expand_paths(pattern)))
        except ProfkitError as error:
            print_error(error)
            complete = False
    if not paths:
        raise typer.Exit(COULD_NOT)
    return list(paths), complete


NOT_A_REPORT = "not an Nsight Compute report"


def _say_why_unread(file: ReportFile) -> Clause:
    """Return what a file is instead of a report, where that is known; else what is wrong with it."""
    if file.message == NOT_THERE:
        return "no such file"
    other = suggest_command_for_file(Path(file.path), "diagnose")
    if other and not other.meaning.startswith(file.status):
        return f"{other.meaning}, {NOT_A_REPORT}"
    if file.message == NOT_A_REPORT:
        return file.message
    return f"{file.status}: {file.message}"


def _suggest_repair(file: ReportFile) -> str:
    path = Path(file.path)
    if other := suggest_command_for_file(path, "diagnose"):
        return other.command
    try:
        if not is_fault_of_file(file.message):
            return choose_hint(file.message, "")
        if is_path_there(path):
            if file.status == "damaged" and not file.launches:
                return "copy it again or profile again; nothing in it could be read"
            return _MEND[file.status]
        return suggest_nearby_report(path)
    except ProfkitError as error:
        return error.hint


_FAILED = "profile again: ncu's own output says why (memory, a time-out, a crash of the kernel)"
_MEND = {
    "empty": "ncu recorded no launch: check its --kernel-name, --launch-skip and NVTX filters",
    "damaged": "copy it again or profile again; what could be read is shown",
    "unreadable": "give a report of ncu (.ncu-rep, .ncu-repz), or its .csv with --page raw",
}


def match_kernel_names(names: Sequence[str], kernel_regex: RegexText) -> list[bool]:
    """Return which kernel names match a regular expression anywhere, in either case."""
    try:
        with warnings.catch_warnings(action="ignore"):  # "[[a]" may mean another thing some day
            expression = re.compile(kernel_regex, re.IGNORECASE)
    except (re.error, ValueError) as error:
        raise ProfkitError(
            f"--kernel {kernel_regex}: {error}", "give a valid regular expression"
        ) from error
    except (RecursionError, OverflowError) as error:
        raise ProfkitError(
            "--kernel: the expression is nested too deeply", "write a shorter one"
        ) from error
    with stop_block_after_seconds(PATTERN_TIME, f"--kernel {kernel_regex}"):
        matched = {name: bool(expression.search(name)) for name in dict.fromkeys(names)}
    return [matched[name] for name in names]


@contextmanager
def stop_block_after_seconds(seconds: float, what_takes_long: str) -> Iterator[None]:
    """Stop a block that takes longer: some expressions try every way to match before they give up.

    Python's own engine looks at signals while it matches. Outside of the main thread there are
    none, and no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        hint = "an expression with (x+)+ in it tries every way to match: write x+"
        raise ProfkitError(f"{what_takes_long}: gave no answer within {seconds:g} s", hint)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def filter_rows_by_expression(frame: DataFrame, where_expression: str) -> DataFrame:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    texts = {str(c) for c in frame.columns if not is_numeric_dtype(frame[c])}
    refuse_unsafe_expression(where_expression, [str(c) for c in frame.columns], texts)
    try:
        # The python engine: numexpr, where it is installed, would evaluate the text by itself.
        with warnings.catch_warnings(action="ignore"):
            chosen: Any = frame.eval(where_expression.strip(), engine="python")
        if not is_bool_dtype(getattr(chosen, "dtype", object)) or len(chosen) != len(frame):
            raise ValueError("it is not a comparison")
        matching: DataFrame = frame[chosen]
    except (LookupError, TypeError, ValueError, SyntaxError, *_RARE) as error:
        why = str(error) or type(error).__name__
        raise ProfkitError(f"--where {where_expression}: {why}", EXAMPLE) from error
    return matching


def _refuse_forbidden_node(
    node: ast.AST, expression: str, columns: Collection[str], texts: Collection[str]
) -> None:
    """Raise a ProfkitError for a part of an expression that is not allowed in one."""
    if not isinstance(node, _ALLOWED):
        what = type(node).__name__.lower()
        why = f"--where {expression}: {what} is not allowed, only comparisons of columns"
        raise ProfkitError(why, EXAMPLE)
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        for leaf in (node.left, node.right):
            if _is_text_expression(leaf, texts):
                raise ProfkitError(f"--where {expression}: arithmetic with text", EXAMPLE)
    if isinstance(node, ast.Name) and node.id not in columns:
        near = get_close_matches(node.id, columns, 1)
        hint = "profkit explain lists the columns"
        if near:
            hint = f"did you mean {near[0]}?"
        raise ProfkitError(f"--where {expression}: there is no column {node.id}", hint)


def refuse_unsafe_expression(
    expression: str, columns: Collection[str], texts: Collection[str] = ()
) -> None:
    """Raise a ProfkitError for an expression that does more than compare columns."""
    if len(expression) > LONGEST:
        raise ProfkitError(f"--where: {len(expression)} characters is too long", EXAMPLE)
    try:
        with warnings.catch_warnings(action="ignore"):  # "9or 1" is spelled badly, and that is all
            tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProfkitError(f"--where {expression}: not an expression", EXAMPLE) from error
    for node in ast.walk(tree):
        _refuse_forbidden_node(node, expression, columns, texts)
    if not any(isinstance(node, ast.Compare) for node in ast.walk(tree)):
        raise ProfkitError(f"--where {expression}: not a comparison", EXAMPLE)


def _is_text_expression(node: ast.expr, texts: Collection[str]) -> bool:
    """Return whether a part of an expression is text, or several values."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    if isinstance(node, ast.Name):
        return node.id in texts
    return isinstance(node, ast.List | ast.Tuple)
