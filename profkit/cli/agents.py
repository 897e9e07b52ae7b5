"""An agent's question about the files in one folder  ->  a short answer, as text and as data.

Nothing here runs a command or writes a file. What would be a command of a shell in a hint is
reworded: as a call of a tool where one answers it, else as something to ask the user for.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from glob import has_magic
from json import dumps
from pathlib import Path
from typing import Any, TypeVar

from profkit.cli import sources
from profkit.cli.launches import explain_no_match, filter_rows_by_expression
from profkit.cli.pictures import import_plots
from profkit.diagnosis.launches import (
    JudgedLaunch,
    LaunchRow,
    add_source_lines,
    group_and_rank_launches,
    judge_reports,
    make_launch_lines_frame,
)
from profkit.diagnosis.launches import add_verdict_columns as judged_table
from profkit.diagnosis.rules import ALL
from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.files import (
    confine_reading_to_folder,
    is_folder,
    is_path_there,
    list_folder_entries,
    resolve_path,
)
from profkit.program.document import convert_to_second_form, make_triage_document
from profkit.program.recorded import judge_recordings
from profkit.program.rules import BY_ID as STEP_RULES
from profkit.records.paths import ROOFLINE, expand_paths, suggest_command_for_file
from profkit.reports.figures import format_percent, format_seconds
from profkit.reports.frame import make_row_views
from profkit.reports.reader import Reports, read_reports_or_raise
from profkit.show import numbers
from profkit.show.text.blocks import Block, Strip, TextLine
from profkit.show.text.escape import escape_text, shorten_name
from profkit.show.text.terminal import make_console, render_text
from profkit.show.views.agents import (
    NAME,
    list_origin_entries,
    make_comparison_entry,
    make_launches_entry,
    make_program_change_entry,
    make_triage_entry,
)
from profkit.show.views.diagnosis import ROWS, write_brief_diagnosis
from profkit.show.views.explain import explain
from profkit.show.views.triage import TABLES, show_compared_triages, show_triage

Answer = TypeVar("Answer")
TOP = 20  # kernels at most in one answer
LINES = 20  # source lines at most in one answer
WIDTH = 400  # characters at most of a line of an answer: a kernel's name may have 10,000
MOST = 20_000  # characters at most of an answer
_VARIANT = re.compile(r"\w[\w+.-]*")
# A command that one of the tools answers, with its one argument: the tool is what an agent calls.
_COMMAND = re.compile(r"\bprofkit (diagnose|explain|roofline|triage) ([\w./-]*[\w/-])")
_COMPARE = re.compile(r"\bprofkit compare ([\w./-]+) OTHER")
ARGUMENTS = {"diagnose": "reports", "explain": "name", "roofline": "reports", "triage": "recording"}
_OTHERWISE = re.compile(r";? otherwise: ")  # behind a hint that an agent can follow by itself
_IN_BRACKETS = re.compile(r"\((profkit [a-z])")  # a command of a shell, in the middle of a line
_OPTION = re.compile(r"--(kernel|where|case) ")  # of the command line: an argument of a tool
# A command of a shell, which the server has not: the user may run it.
_SHELL = re.compile(
    r"\b(?:profkit [a-z]|(?:ncu|nvcc) -|nsys [a-z]+ -|pip install|python -?\w+[. ])"
)
ASK = "ask the user: "
ASK_NAME = "name one that is in the server's folder"
LINES_HINT = "compile with nvcc -lineinfo, record with ncu --set full --import-source yes"


def list_source_lines_of_launch(
    report: str, launch_index: int, most_lines: int
) -> list[dict[str, Any]]:
    """Return the source lines of a launch's findings; several instructions of a line are one place."""
    frame = make_launch_lines_frame(report, launch_index, most_lines).head(LINES)
    frame = frame[frame["file"].notna()]
    keys = ["rule", "file", "line"]
    groups = frame[[*keys, "share", "source"]].groupby(keys, sort=False, as_index=False)
    summed = groups.agg({"share": "sum", "source": "first"}).astype(object)
    rows = summed.where(summed.notna(), None).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]


@dataclass(frozen=True)
class ToolAnswer:
    """An answer as text, and the same as data; None where the text is all there is."""

    text: str
    content: dict[str, Any] | None = None
    picture: bytes | None = None  # a PNG


def _confine_reads_to_folder(ask: Callable[..., Answer]) -> Callable[..., Answer]:
    """Return a question whose answer reads nothing outside of the server's folder."""

    @wraps(ask)
    def answer(answers: Answers, *given: Any, **named: Any) -> Answer:
        with confine_reading_to_folder(answers.root):
            try:
                return ask(answers, *given, **named)
            except ProfkitError as error:
                message, hint = map(answers.make_paths_relative, (error.message, error.hint))
                raise ProfkitError(message, hint) from error

    return answer


@dataclass(frozen=True)
class Answers:
    """The answers about what lies in a folder; whatever leads out of it is refused."""

    root: Path  # the folder, resolved

    @_confine_reads_to_folder
    def diagnose(
        self, reports: str | list[str], kernel: str = "", where: str = "", top: int = ROWS
    ) -> ToolAnswer:
        """What the kernels of these reports wait for: cause, place, number, next step.

        Args:
            reports: Reports (.ncu-rep), folders or globs, one or several, relative to the
                server's folder.
            kernel: Only kernels whose name contains this.
            where: A condition on columns, for example "bound == 'memory' and time > 1e-5".
            top: How many kernels, those with the largest expected saving first.
        """
        paths = self.expand_patterns_inside_folder(reports)
        if len(paths) == 1:
            self._refuse_file_of_another_tool(paths[0], "diagnose")
        read = read_reports_or_raise(paths)
        bad = [
            f"{self._make_relative(f.path)}: {f.message}" for f in read.files if f.status != "ok"
        ]
        launches = judge_reports(read)
        kept = require_matching_launches(read, launches, kernel, where)
        table = group_and_rank_launches([launches[n] for n in kept])
        if bad and not table:
            raise ProfkitError("\n".join(bad[:5]), "no launch could be read")
        lined, text = self._write_diagnosis_with_lines(table, max(1, min(top, TOP)))
        names = [self._make_relative(run.report) for run in lined]
        content = make_launches_entry(lined, names, len(table), bad)
        return self._make_shortened_answer("\n".join(filter(None, [text, *bad[:5]])), content)

    def _write_diagnosis_with_lines(
        self, rows_worst_first: list[LaunchRow], most_launches_with_lines: int
    ) -> tuple[list[JudgedLaunch], str]:
        """Return the first launches with their source lines, and the text on all of them."""
        lined = add_source_lines(
            [row.median_launch for row in rows_worst_first[:most_launches_with_lines]]
        )
        first = [
            row.replace_launch(row.median_launch, run)
            for row, run in zip(rows_worst_first, lined, strict=False)
        ]
        calls = [*self._iterate_suggested_next_calls(lined[:1])]
        brief = write_brief_diagnosis([*first, *rows_worst_first[len(lined) :]], calls)
        return lined, replace_commands_by_calls(brief)

    @_confine_reads_to_folder
    def compare(self, before: str, after: str, case: str = "") -> ToolAnswer:
        """What changed from one run to another, and whether it is real.

        Args:
            before: A report, a run record, a recording of a program, or a variant recorded in
                artifacts/.
            after: What to compare with it, of the same kind.
            case: Only this case; all where it is empty.
        """
        from profkit.evidence.compare import compare_sides
        from profkit.program.sides import compare_recordings
        from profkit.show.views.comparison import write_brief_comparison

        sides = self._resolve_compared_side(before), self._resolve_compared_side(after)
        if (programs := compare_recordings(*sides)) is not None:
            text = render_text(show_compared_triages(programs), make_console(width=100))
            return self._make_shortened_answer(text, make_program_change_entry(programs))
        evidence = sources.open_evidence(self._resolve_path_inside("artifacts"))
        compared = compare_sides(*sides, case or None, evidence)
        text = _IN_BRACKETS.sub(
            rf"({ASK}\1", replace_commands_by_calls(write_brief_comparison(compared))
        )
        return self._make_shortened_answer(text, make_comparison_entry(compared))

    @_confine_reads_to_folder
    def triage(self, recording: str, by: str = "kernel", step_ms: float = 0.0) -> ToolAnswer:
        """Where the step of a whole program goes, and what to do first about it.

        Args:
            recording: A torch.profiler trace, an nsys SQLite export, or a .triage folder.
            by: What the table has a row of: kernel, line, module or operator.
            step_ms: The time of one step without a profiler, in ms, where it is known.
        """
        if by not in TABLES:
            raise ProfkitError(f"by={by}: no such table", f"one of {', '.join(TABLES)}")
        path = self._require_file_inside(recording)
        self._refuse_file_of_another_tool(str(path), "triage")
        answer, counts = judge_recordings([path], unprofiled_step_ms=step_ms or None)
        content = make_triage_document(answer, counts)
        if counts and counts.report:
            call = f"call diagnose(reports={self._make_relative(counts.report)!r})"
            for kernel in content["kernels"]:
                kernel["next"] = call if kernel["counted"] else kernel["next"]
        screen = show_triage(content, "profkit triage --json", by)
        blocks = [
            mark_shell_command_for_user(block)
            for block in screen
            if not is_useless_to_agents(block)
        ]
        chosen = make_triage_entry(convert_to_second_form(content))
        if by != "kernel":
            del chosen["kernels"]
            chosen["table"] = list_origin_entries(content, by)
        return self._make_shortened_answer(render_text(blocks, make_console(width=100)), chosen)

    @_confine_reads_to_folder
    def explain(self, name: str = "") -> ToolAnswer:
        """What a rule, a metric or a word of the verdict means, and what people do about it.

        Args:
            name: A name that diagnose or triage printed: shared-bank-conflicts, l2_hit, latency.
                Without it, the names of all rules.
        """
        if not name.strip():
            rules = [f"{rule.id}: {rule.title}" for rule in ALL]
            rules += [f"{rule.id}: {rule.title}" for rule in STEP_RULES.values()]
            return self._make_shortened_answer("\n".join(rules))
        try:
            return self._make_shortened_answer(str(explain(name)))
        except ProfkitError as error:
            if _SHELL.search(error.hint):  # of everything that there is
                raise ProfkitError(
                    error.message, "call explain() for the names of all rules"
                ) from error
            raise

    @_confine_reads_to_folder
    def lines(self, report: str, launch: int = 0, count: int = 5) -> ToolAnswer:
        """The source lines where the findings of one launch happen.

        Args:
            report: One report, relative to the server's folder.
            launch: Which launch in it, from 0.
            count: How many lines of each finding.
        """
        path, *others = self.expand_patterns_inside_folder(report)
        if others:
            hint = f"name one of them, for example {self._make_relative(path)}"
            raise ProfkitError(f"{report}: holds {len(others) + 1} reports", hint)
        self._refuse_file_of_another_tool(path, "diagnose")
        rows = list_source_lines_of_launch(path, launch, min(count, LINES))
        if not rows:
            return ToolAnswer(f"no source lines in this report. {ASK}{LINES_HINT}")
        text = []
        for row in rows:
            source = (row.pop("source") or "").strip()
            row["share"] = round(row["share"], 4)
            where = f"{os.path.basename(row['file'])}:{row['line'] or '?'}"
            text.append(f"{row['rule']}: {where} {format_percent(row['share'], 1)}: {source}")
        return self._make_shortened_answer("\n".join(text), {"lines": rows})

    @_confine_reads_to_folder
    def roofline(
        self, reports: str | list[str], kernel: str = "", where: str = "", picture: bool = False
    ) -> ToolAnswer:
        """Every launch under the ceilings of its machine: which one it comes nearest to, and how near.

        Args:
            reports: Reports, folders or globs, one or several, relative to the server's folder.
            kernel: Only kernels whose name contains this.
            where: A condition on columns, for example "time > 1e-5".
            picture: Whether to draw it, too, as a PNG of about 90 kB.
        """
        paths = self.expand_patterns_inside_folder(reports)
        if len(paths) == 1:
            self._refuse_file_of_another_tool(paths[0], "roofline")
        read = read_reports_or_raise(paths)
        launches = judge_reports(read)
        kept = require_matching_launches(read, launches, kernel, where)
        frame = judged_table(read, launches).iloc[kept]
        rows = make_row_views(frame)
        if why := numbers.explain_empty_roofline(rows):
            raise ProfkitError(why, ROOFLINE)
        drawn = None
        if picture:
            plots = import_plots()
            drawn = plots.png(plots.roofline(frame))
            gc.collect()  # a figure is a circle of objects, and its pixels 4 MB
        text = [describe_nearest_roof(row) for row in rows[:TOP]]
        if len(rows) > TOP:
            text.append(f"{len(rows) - TOP} more launches: ask for fewer with kernel or where")
        told = self._make_shortened_answer("\n".join(text))
        return replace(told, picture=drawn)

    def expand_patterns_inside_folder(self, patterns: str | list[str]) -> tuple[str, ...]:
        """Return the reports that paths or globs name; a ProfkitError where one is outside."""
        named = [patterns] if isinstance(patterns, str) else patterns
        if len(named) == 1 and not has_magic(named[0]):
            self._require_file_inside(named[0])
        paths = expand_paths([str(self._resolve_path_inside(pattern)) for pattern in named])
        return tuple(str(self._resolve_path_inside(path)) for path in paths)

    def _iterate_suggested_next_calls(
        self, launches_worst_first: list[JudgedLaunch]
    ) -> Iterator[str]:
        for run in launches_worst_first:
            if run.top:
                yield f"Call: explain(name={run.top.rule!r})"
            yield f"Call: lines(report={self._make_relative(run.report)!r}, launch={run.index})"

    def _make_relative(self, path: str) -> str:
        return os.path.relpath(path, self.root)

    def make_paths_relative(self, text: str) -> str:
        """Return a text in which paths are what an agent calls them: relative to the folder."""
        return text.replace(f"{self.root}{os.sep}", "").replace(str(self.root), "the folder")

    def _make_shortened_answer(
        self, text: str, content: Mapping[str, Any] | None = None
    ) -> ToolAnswer:
        """Return an answer that is no longer than anyone reads."""
        short = escape_and_shorten_text(self.make_paths_relative(text).rstrip("\n"))
        return ToolAnswer(short, _cut_lists_to_fit(content) if content else None)

    def _refuse_file_of_another_tool(self, path: str, tool: str) -> None:
        """Raise a ProfkitError that names the tool for a file which this tool does not read."""
        if other := suggest_command_for_file(path, tool):
            name = self._make_relative(path)
            why = f"{name}: {other.meaning}, which {tool} does not read"
            raise ProfkitError(why, self.make_paths_relative(other.command))

    def _require_file_inside(self, name: str) -> Path:
        """Return a path in the folder; a ProfkitError that names near ones where there is none."""
        path = self._resolve_path_inside(name)
        if not name.strip():
            raise ProfkitError("no file was named", ASK_NAME)
        if not is_path_there(path):
            raise self._explain_missing_file(name, path)
        return path

    def _explain_missing_file(self, name: str, path: Path) -> ProfkitError:
        """Return the error for a file that is not there; it names near ones, by their paths."""
        found = list_folder_entries(path.parent) if is_folder(path.parent) else []
        near = {self._make_relative(str(other)): None for other in found}
        hint = suggest_nearest_names(self._make_relative(str(path)), near, ASK_NAME)
        return ProfkitError(f"{name[:WIDTH]}: no such file", hint)

    def _resolve_compared_side(self, side_name: str) -> str:
        if not side_name.strip():
            raise ProfkitError("no file was named", ASK_NAME)
        path = self._resolve_path_inside(side_name)
        if is_path_there(path):
            return str(path)
        # Not a path of another folder, which it would be where the server was started: a variant.
        try:
            is_elsewhere = is_path_there(side_name)
        except ProfkitError:
            is_elsewhere = True
        if not _VARIANT.fullmatch(side_name) or is_elsewhere:
            hint = self._explain_missing_file(side_name, path).hint
            raise ProfkitError(f"{side_name}: no such report in the folder of profkit mcp", hint)
        return side_name

    def _resolve_path_inside(self, name: str) -> Path:
        try:
            path = resolve_path(self.root / name)
        except ProfkitError as error:
            raise ProfkitError(error.message[:WIDTH], "give the path of a file") from error
        if not path.is_relative_to(self.root):
            shown = name[:WIDTH]
            raise ProfkitError(f"{shown}: outside of the folder that profkit mcp was started in")
        return path


def require_matching_launches(
    read: Reports, launches: Sequence[JudgedLaunch], part_of_kernel_name: str, where_expression: str
) -> list[int]:
    """Return which launches an agent asks for; a ProfkitError where there is none."""
    kept = [
        n for n, run in enumerate(launches) if part_of_kernel_name.lower() in run.kernel.lower()
    ]
    if where_expression and kept:
        kept = list(
            map(
                int,
                filter_rows_by_expression(
                    judged_table(read, launches).iloc[kept], where_expression
                ).index,
            )
        )
    if launches and not kept:
        raise explain_no_match(launches, part_of_kernel_name, where_expression)
    return kept


def describe_nearest_roof(launch_row: Mapping[Any, Any]) -> str:
    """Return a launch's position in words: its time, and the ceiling that it comes nearest to."""
    launch = f"{shorten_name(launch_row['kernel'], NAME)}: {format_seconds(launch_row['time'])}"
    return f"{launch}, {numbers.describe_roofline_position(launch_row)}"


def describe_error_for_agent(error: ProfkitError) -> str:
    """Return what is wrong and what to do about it, for an agent: a tool where a hint has a command."""
    lines = [_OPTION.sub(r"\1=", error.message)]
    for hint in _OTHERWISE.split(replace_commands_by_calls(error.hint)):
        lines.append(ASK + hint if _SHELL.search(hint) else _OPTION.sub(r"\1=", hint))
    return escape_and_shorten_text("\n".join(filter(None, lines)))


def replace_commands_by_calls(text: str) -> str:
    """Return a text in which commands that a tool answers are calls of the tool."""
    text = _COMPARE.sub(r"call compare(before='\1', after=...)", text)
    return _COMMAND.sub(lambda found: f"call {format_call(*found.groups())}", text)


def format_call(tool: str, argument: str) -> str:
    """Return the call of a tool with one argument: triage(recording='t.json')."""
    return f"{tool}({ARGUMENTS[tool]}={argument!r})"


def is_useless_to_agents(block: Block) -> bool:
    """Return whether a block of a screen says nothing to an agent: a bar, or how to get lines."""
    return isinstance(block, Strip) or (isinstance(block, TextLine) and block.mark == "lines")


def mark_shell_command_for_user(block: Block) -> Block:
    """Return a line of a screen; one that has a command of a shell is for the user."""
    if isinstance(block, TextLine) and isinstance(block.text, str) and _SHELL.search(block.text):
        return replace(block, text=ASK + block.text)
    return block


def escape_and_shorten_text(text: str) -> str:
    """Return an answer that is no longer than anyone reads, with what acts in a line written out."""
    cut = "\n".join(map(_escape_and_shorten_line, text.split("\n")))
    return cut if len(cut) <= MOST else f"{cut[:MOST]}\n... cut: ask about fewer reports"


def _escape_and_shorten_line(line: str) -> str:
    line = escape_text(line)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def _cut_lists_to_fit(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same data no longer than a text: lists are cut to what there is room for."""
    for most in (None, 20, 10, 5, 3, 1):
        cut: dict[str, Any] = _shorten_lists_and_strings(content, most)
        if len(dumps(cut)) <= MOST:
            return cut
    return {}


def _shorten_lists_and_strings(value: Any, most_items: int | None) -> Any:
    """Return plain values with lists of so many items at most, and strings as a line shows them."""
    if isinstance(value, str):
        return _escape_and_shorten_line(value)
    if isinstance(value, Mapping):
        return {key: _shorten_lists_and_strings(of, most_items) for key, of in value.items()}
    return (
        [_shorten_lists_and_strings(of, most_items) for of in value[:most_items]]
        if isinstance(value, list | tuple)
        else value
    )
