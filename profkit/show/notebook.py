"""What a person gives for launches  ->  answers that show themselves in a notebook.

All take the same, so that what one returns the next one accepts. Frames stay pandas DataFrames and
comparisons what profkit.evidence makes of them; besides, they show themselves with units, short names
and verdicts, every text escaped.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from math import nan
from os.path import basename
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd
from msgspec import structs

from profkit.diagnosis import launches
from profkit.diagnosis.rule import LaunchRule, SourceShare
from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError, require_package
from profkit.evidence import ladder as ladders
from profkit.evidence.claims import Verified, verify_claim_files
from profkit.evidence.compare import Compared, Policy, compare_sides
from profkit.evidence.noise import KnownSpreads
from profkit.evidence.runs import Evidence, Run, load_runs_of_side
from profkit.files import expand_home, is_folder, is_path_there, write_text
from profkit.model import whatif as cost_model
from profkit.model.launch import StrictLaunch
from profkit.program import recorded
from profkit.program.sides import compare_recordings
from profkit.records.paths import SUFFIXES, expand_paths
from profkit.reports import figures, raw_counters, reader
from profkit.reports.frame import list_frame_rows_as_dicts
from profkit.reports.metrics import CATALOGUE
from profkit.show.text import words
from profkit.show.text.blocks import Block, Grid, Paragraph, TextLine, render_html
from profkit.show.text.escape import shorten_name
from profkit.show.text.terminal import ShowsItself, make_console, render_text
from profkit.show.views import comparison as changes
from profkit.show.views import explain as pages
from profkit.show.views.triage import show_compared_triages, show_triage

if TYPE_CHECKING:
    from profkit.units import FrameCell, LaunchIndex, TextOrEmpty


KERNEL = 48  # characters of a kernel name in a table, and in the head of a comparison
LONGEST = 400  # characters of any other cell
COLUMNS = 12  # a wider frame shows the leading ones only: no screen is 220 columns wide
LEADING = (
    "variant case kernel grid block bound limiter rule status expected low high at_most expect gain "
    "cause where advice try time waves "
    "registers occupancy issue_busy tensor_busy shared_busy l2_busy dram_busy"
).split()
# What a console has room for.
PLAIN = "kernel grid block time bound occupancy issue_busy dram_busy".split()
PLAIN_LINES = "report launch rule share file line opcode stall source".split()
PLAIN_FINDINGS = "kernel rule expected at_most expect gain cause".split()
WIDTH = 100  # of a console
# Columns of findings that are no metric of the catalogue.
_SHOWN_AS: Mapping[str, Callable[[float], str]] = {
    **dict.fromkeys(("gain", "at_most"), words.format_gain_as_bound),
    **dict.fromkeys(("expect", "expect_low", "expect_high", "headroom"), figures.format_speedup),
    **dict.fromkeys(("expected", "low", "high"), figures.format_speedup),
    **dict.fromkeys(("share", "stall_share"), figures.format_share),
    "saves": figures.format_seconds,
}


# Columns whose values are read with a unit or in short, also in a narrow part of a frame.
_WITH_UNITS = frozenset({"kernel", "expect", "expected"})


class Frame(pd.DataFrame):
    """A DataFrame whose display in a notebook has units; its values are SI as ever."""

    @property
    def _constructor(self) -> Callable[..., Frame]:
        return Frame

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError as error:
            names = [name for name in self.columns if isinstance(name, str)]
            if isinstance(key, str) and (near := get_close_matches(key, names, 3)):
                error.add_note(f"did you mean {' or '.join(near)}?")
            raise

    def _repr_html_(self) -> str:
        return render_html(show_frame(self))

    def __repr__(self) -> str:
        if self.shape[1] <= COLUMNS and _WITH_UNITS.isdisjoint(self.columns):
            return super().__repr__()
        leading = PLAIN_FINDINGS if "rule" in self.columns else PLAIN
        width = min(pd.options.display.width or WIDTH, WIDTH)
        return render_text(show_frame(self, leading), make_console(width=width)).rstrip("\n")


def show_frame(frame: pd.DataFrame, leading: Sequence[str] = LEADING) -> Iterator[Block]:
    """Yield the leading columns of a frame; of findings only those that fire, and how many do not."""
    answer = frame.attrs.get("answer")
    if answer and answer["rows"] == len(frame) and "rule" in frame.columns:
        yield Paragraph(answer["text"])  # of part of the launches it would be another one
    frame, not_shown = _drop_rules_that_do_not_fire(frame)
    count = len(frame)
    frame, doubts = _drop_measurement_notes(frame)
    most = pd.options.display.max_rows or len(frame)
    rows = frame
    if len(frame) > most:
        rows = frame.head(pd.options.display.min_rows or most)
    shown = _choose_column_indices(frame, leading)
    yield _make_frame_grid(rows, shown)
    columns = f"{len(shown)} of {figures.format_count_with_noun(frame.shape[1], 'column')}"
    yield TextLine(f"{len(rows)} of {figures.format_count_with_noun(count, 'row')}, {columns}")
    for rule, times in doubts.items():
        hidden = figures.format_count_with_noun(times, "row is", "rows are")
        yield TextLine(f"{rule} is about the measurement: {hidden} not shown")
    if not_shown:
        yield TextLine(f"not shown: {', '.join(not_shown)} (the column status has all)")


def _choose_column_indices(frame: pd.DataFrame, leading: Sequence[str]) -> list[int]:
    """Return the places of the columns to show: all of a narrow frame, else the leading ones."""
    names = [str(name) for name in frame.columns]
    if len(names) <= COLUMNS:
        return list(range(len(names)))
    if {"line", "opcode"} <= set(names):
        leading = PLAIN_LINES
    known = [name for name in leading if name in names and frame[name].notna().any()]
    if "variant" not in known and "variant" in leading:
        known = ["report", "launch", *known]
    return [names.index(name) for name in known if name in names] or list(range(COLUMNS))


def _make_frame_grid(rows: pd.DataFrame, shown: Sequence[int]) -> Grid:
    """Return rows of a frame, of the columns at the places `shown`, as a table.

    Row numbers say nothing; names of groups, or of metrics in a transposed frame, do.
    """
    head = []
    names = [str(name) for name in rows.columns]
    has_index = rows.index.name is not None or not pd.api.types.is_integer_dtype(rows.index.dtype)
    if has_index:
        head.append(str(rows.index.name or ""))
    for place in shown:
        side = ">" if pd.api.types.is_numeric_dtype(rows.dtypes.iloc[place]) else ""
        head.append(side + names[place])
    cells = []
    for label, row in zip(rows.index, rows.itertuples(index=False, name=None), strict=True):
        texts = [format_frame_cell(names[place], row[place]) for place in shown]
        if has_index:
            texts.insert(0, format_frame_cell("", label))
        cells.append(tuple(texts))
    wraps = None
    if head and head[-1] in ("cause", "source"):
        wraps = len(head) - 1
    return Grid(tuple(head), tuple(cells), wraps=wraps, asked=True)


def _drop_rules_that_do_not_fire(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of findings that fire, and how many others there are: "234 clear"."""
    if not {"rule", "status"} <= set(frame.columns):
        return frame, []
    others = []
    for status, times in frame["status"].value_counts().items():
        if status != "fires":
            others.append(f"{times} {status}")
    return frame[frame["status"] == "fires"], others


def _drop_measurement_notes(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[Any, int]]:
    """Return a frame without rows on the measurement, and how many it has of each of these rules.

    Where it has no other rows, they are what was asked for.
    """
    if not {"rule", "kernel", "cause"} <= set(frame.columns):
        return frame, {}
    is_doubt = frame["rule"].map(lambda rule: rule in BY_ID and BY_ID[rule].note)
    if not len(frame) or is_doubt.all():
        return frame, {}
    return frame[~is_doubt.astype(bool)], frame["rule"][is_doubt].value_counts().to_dict()


def format_frame_cell(name: str, value: FrameCell) -> TextOrEmpty:
    """Return a cell of the column `name` for people: with a unit, names shortened, "" for none."""
    if name in _SHOWN_AS:
        text = _SHOWN_AS[name](value)
    elif isinstance(value, Mapping):
        text = words.format_metric_values(value)
    elif isinstance(value, tuple) and len(value) == 3 and all(isinstance(n, int) for n in value):
        text = words.format_dims(value)
    elif isinstance(value, tuple) and value and isinstance(value[0], SourceShare):
        text = ", ".join(f"{line.file}:{line.line} {line.stall}" for line in value[:3])
    elif isinstance(value, tuple):
        text = ", ".join(map(str, value))
    elif isinstance(value, float):
        text = figures.format_value_with_unit(
            value, CATALOGUE[name].unit if name in CATALOGUE else "count"
        )
    elif name == "file" and value:
        text = basename(str(value))
    elif name == "kernel":
        text = shorten_name(str(value), KERNEL)
    elif value is None or value is pd.NA:
        text = ""
    else:
        text = str(value)[:LONGEST]
    return text


class Comparison(ShowsItself, Compared, frozen=True):
    blocks = changes.show_comparison


class ComparedPrograms(ShowsItself, dict[str, Any]):
    """A "profkit.triages/1" document: what became of each finding of a program."""

    def blocks(self) -> Iterable[Block]:
        return show_compared_triages(self)


class ShownProgram(ShowsItself, recorded.ProgramFrames):
    def blocks(self) -> Iterable[Block]:
        return show_triage(self.document, "findings has them")

    def plot(self, ax: Any = None) -> Any:
        """Draw the step, and the kernels that take longest; return the Axes."""
        with require_package("matplotlib", "a picture"):
            from profkit.show.plots.step import draw_step
        return draw_step(self.document, ax)


class ShownLadder(ShowsItself, ladders.Ladder, frozen=True):
    blocks = changes.show_ladder_steps


class Claims(ShowsItself, tuple[Verified, ...]):
    blocks = changes.show_claims


# A command at the end of a hint, for which pk has a function  ->  how many arguments that takes.
_TAKES = {
    "claims": 1,
    "compare": 2,
    "diagnose": 1,
    "explain": 1,
    "ladder": 1,
    "report": 1,
    "roofline": 1,
    "triage": 1,
}
_COMMAND = re.compile(rf"\bprofkit ({'|'.join(_TAKES)}) (.+)$")
_LIST = re.compile(r"\bprofkit explain lists\b")
Answer = TypeVar("Answer")


def reword_hints(ask: Callable[..., Answer]) -> Callable[..., Answer]:
    """Return a function whose errors name a function of pk as the next step, where there is one."""

    @wraps(ask)
    def ask_with_reworded_hints(*given: Any, **named: Any) -> Answer:
        try:
            return ask(*given, **named)
        except ProfkitError as error:
            hint = reword_command(error.hint)
            if hint == error.hint:
                raise
            raise type(error)(error.message, hint) from error

    return ask_with_reworded_hints


def reword_command(hint: str) -> str:
    """Return a hint that ends with a call of pk instead of a command.

    A command with options, or one that no function of pk answers with these arguments, stays: there
    is nothing else to say.
    """
    hint = _LIST.sub("pk.explain() lists", hint)
    found = _COMMAND.search(hint)
    if found is None:
        return hint
    verb, rest = found.groups()
    try:
        arguments = shlex.split(rest)
    except ValueError:  # a quotation mark without its partner: it is no command
        return hint
    if len(arguments) != _TAKES[verb] or any(word.startswith("-") for word in arguments):
        return hint
    return f"{hint[: found.start()]}pk.{verb}({', '.join(map(repr, arguments))})"


@reword_hints
def load(patterns: str | Path | Iterable[str | Path], client: Any = None) -> Frame:
    """Read reports into one row per launch.

    Args:
        patterns: Files, folders (recursively) and patterns.
        client: A dask.distributed.Client whose workers read the files.

    Returns:
        A DataFrame: report, launch, kernel, device, cc, grid, block, variant, case, status, and one
        column per metric under its short name, in SI units, shares 0-1, NaN not collected;
        `profkit explain NAME` says what each is. attrs["reports"] says of every file how it was read.

    Raises:
        ProfkitError: Nothing matches, or no file could be read at all.
    """
    plain = reader.load_reports(patterns, client)
    frame = Frame(plain)
    frame.attrs = plain.attrs
    return frame


def from_raw(rows: Iterable[Mapping[str, Any]]) -> Frame:
    """Return counters under Nsight Compute's names, from anywhere, as the frame that `load` gives.

    Args:
        rows: One mapping a launch: Nsight Compute's names to values in the units that it stores (%,
            ns, bytes), instances as "name[key]"; the demangled kernel under "kernel", and under
            "variant" and "case" what it is called. None and NaN mean not collected.

    Raises:
        ProfkitError: A row is no mapping, a counter is no number, or no row has a counter.
    """
    return Frame(raw_counters.make_raw_frame(rows))


@reword_hints
def whatif(runs: Given, changes: str, artifacts: str | Path = "artifacts") -> Frame:
    """Return what each launch would gain if counts changed, by the cost model.

    Args:
        runs, artifacts: Launches, as `diagnose` takes them.
        changes: For example "inst_exp/32, shared_wavefronts*0.25, blocks*4".

    Returns:
        One row per launch: report, launch, kernel, variant, case, time (s), expect, expect_low,
        expect_high (speed-up factors; the interval is to hold four times out of five), at_most (what
        the changes cannot pass).

    Raises:
        ProfkitError: A change cannot be read, or a launch lacks a count that the model needs.
    """
    counts = cost_model.parse_counter_changes(changes)
    names = ("report", "launch", "kernel", "variant", "case", "time")
    rows = []
    for row in list_frame_rows_as_dicts(resolve_launches(runs, artifacts)):
        launch = StrictLaunch({k: float(v) for k, v in row.items() if k in CATALOGUE})
        hope = cost_model.predict_speedup_of_changes(launch, counts)
        bound = cost_model.bound_speedup_of_changes(launch, counts)
        rows.append((*map(row.get, names), hope.gain, hope.low, hope.high, bound))
    return Frame(rows, columns=[*names, "expect", "expect_low", "expect_high", "at_most"])


@reword_hints
def diagnose(
    runs: Given, rules: Sequence[LaunchRule] = (), artifacts: str | Path = "artifacts"
) -> Frame:
    """Return every rule of every launch: those that fire, are clear or could not be checked.

    `findings` has those that fire, to read.

    Args:
        runs: A report's path, a pattern, a folder, a list, a frame from `load`, a row of one (or a
            mapping of metrics), or a variant's name ("stage2", "stage2.B").
        rules: Rules of your own, asked beside profkit's. They may index any metric, any numeric column
            of the frame, and any raw counter of the report under Nsight Compute's own name.
        artifacts: Where variants' records and reports are.

    Returns:
        It prints the answer of `profkit diagnose` and what fires; as data, it has
        one row per launch and rule, in the order of the launches: report, launch, kernel, variant,
        case, time (s, under ncu), bound (memory, compute, latency, launch, balanced, unknown),
        limiter, because, headroom (speed-up left with the same work), saves (s that the leading
        finding is expected to save; all of the launch), rule, status (fires, clear, unknown), cause,
        gain (speed-up factor, an upper bound), expect, expect_low, expect_high (what people got who
        fixed it, and the interval, to hold four times out of five), evidence (metric -> SI value),
        where (source lines, most of its cause first), try (what people do). NaN where not known.

    Raises:
        ProfkitError: Nothing can be read from what was given.
    """
    judged = launches.judge_frame(resolve_launches(runs, artifacts), rules)
    found = Frame(launches.make_findings_frame(judged))
    if judged:
        sentences = words.write_headline(launches.group_and_rank_launches(judged))
        found.attrs["answer"] = {"text": " ".join(sentences), "rows": len(found)}
    return found


# A column of `findings` -> the column of `diagnose` that it is.
_OF_DIAGNOSE = {
    **{name: name for name in "report launch kernel variant case time bound limiter rule".split()},
    "cause": "cause",
    "advice": "try",
    "expected": "expect",
    "low": "expect_low",
    "high": "expect_high",
    "at_most": "gain",
    "saves": "saves",
    "evidence": "evidence",
    "where": "where",
}
_OF_A_FINDING = ("rule", "advice", "expected", "low", "high", "at_most", "evidence", "where")


@reword_hints
def findings(
    runs: Given, rules: Sequence[LaunchRule] = (), artifacts: str | Path = "artifacts"
) -> Frame:
    """Return what to fix: a row per finding that fires, unless it repeats the leading one.

    `diagnose` has every rule of every launch, also those that are clear or could not be checked.

    Args:
        runs, rules, artifacts: As `diagnose` takes them.

    Returns:
        In the order of the launches, their leading finding first: report, launch, kernel, variant, case,
        time (s, under ncu), bound, limiter, rule, cause, advice, expected, low, high (speed-up factors;
        the interval holds four times out of five), at_most (the bound), saves (s that it is
        expected to save, of the launch's leading finding; NaN of the others), evidence (metric -> SI
        value), where (source lines), place (the first of them: "stage.cuh:68").
        A launch where nothing fires has one row without a rule, whose cause is what decided its verdict.

    Raises:
        ProfkitError: Nothing can be read from what was given.
    """
    judged = launches.judge_frame(resolve_launches(runs, artifacts), rules)
    every = launches.make_findings_frame(judged)
    said = [f.status == "fires" and not f.repeats for run in judged for f in run.diagnosis.findings]
    # A launch's saving is that of its leading finding: a sum over rows counts it once.
    fires = every[said].copy()
    fires.loc[fires.duplicated(["report", "launch"]), "saves"] = nan
    silent = _make_rows_without_finding(every, fires)
    both = fires
    if len(silent):
        both = pd.concat([fires, silent])
    chosen = both.sort_index()[list(_OF_DIAGNOSE.values())]
    table = Frame(chosen.set_axis(list(_OF_DIAGNOSE), axis=1).reset_index(drop=True))
    # A frame has a method `where`: found.where is no column, found.place is one.
    table["place"] = table["where"].map(_name_first_place)
    return table


def _make_rows_without_finding(every: pd.DataFrame, fires: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each launch that no firing finding is of; its cause is that of the verdict."""
    first = every.drop_duplicates(["report", "launch"])
    having = set(zip(fires["report"], fires["launch"], strict=True))
    is_silent = [key not in having for key in zip(first["report"], first["launch"], strict=True)]
    silent = first[is_silent].assign(cause=first[is_silent]["because"])
    for name in _OF_A_FINDING:
        silent[_OF_DIAGNOSE[name]] = None
    return silent


def _name_first_place(lines: Sequence[SourceShare] | None) -> TextOrEmpty:
    """Return the file and line of most of a finding's cause; "" where no line is known."""
    if not lines:
        return ""
    return f"{basename(lines[0].file)}:{lines[0].line}"


@reword_hints
def raw(runs: Given, artifacts: str | Path = "artifacts") -> Frame:
    """Return every scalar metric of launches, under Nsight Compute's own name and unit.

    Args:
        runs, artifacts: Launches, as `diagnose` takes them; they must be in reports.

    Returns:
        Launches x raw names; numbers as float, texts as str, NaN where a launch has no value. The index
        is the launch in its report; (report, launch) where there are several reports.

    Raises:
        ProfkitError: A file cannot be read at all, or the launches are in none.
    """
    files, chosen = resolve_reports(runs, artifacts)
    kept = {file: reader.read_raw_frame(file) for file in files}
    for file, frame in kept.items():
        if chosen:
            kept[file] = frame[[(file, int(n)) in chosen for n in frame.index]]
    return Frame(kept[files[0]] if len(files) == 1 else pd.concat(kept, names=["report", "launch"]))


@reword_hints
def lines(
    report: Given, launch: int | None = None, count: int = 10, artifacts: str | Path = "artifacts"
) -> Frame:
    """Return where the findings of launches in reports happen, and what is waited for there.

    Args:
        report, artifacts: Launches, as `diagnose` takes them.
        launch: Index of the one launch that is meant; the first one of a single file when None.
        count: At most so many lines a finding.

    Returns:
        One row per finding that fires and line, in the order of the findings, most first: rule,
        counter, file, line, pc (bytes), opcode, share (of the counter over the launch, 0-1), value
        (in the counter's unit), stall, stall_share, producer_file, producer_line, producer_pc,
        producer_opcode (the instruction whose result is waited for), source. An instruction without a
        line has no file. For several launches with report and launch in front.

    Raises:
        ProfkitError: A report cannot be read, or has no such launch.
    """
    files, chosen = resolve_reports(report, artifacts)
    places = sorted(chosen) or [(file, launch or 0) for file in files]
    if len(files) == 1 and launch is not None:
        places = [(files[0], launch)]
    if len(places) == 1:
        return Frame(launches.make_launch_lines_frame(*places[0], count))
    frames = {place: launches.make_launch_lines_frame(*place, count) for place in places}
    return Frame(pd.concat(frames, names=["report", "launch"]).reset_index(["report", "launch"]))


@reword_hints
def report(
    runs: Given,
    file: str | Path = "page.html",
    title: str = "",
    artifacts: str | Path = "artifacts",
) -> Path:
    """Write the page of some launches, one HTML file that needs nothing else, and return its path.

    Args:
        runs, artifacts: Launches, as `diagnose` takes them; they must be in reports.
        title: The page's heading; profkit's own when empty.

    Raises:
        ProfkitError: Nothing can be read, or the file cannot be written.
    """
    from profkit.show import page

    files, chosen = resolve_reports(runs, artifacts)
    reports = reader.read_report_files(files, lines_follow=True)
    shown = []
    for j in launches.judge_reports(reports):
        if not chosen or (j.report, j.index) in chosen:
            shown.append(j)
    write_text(file, page.render_page(reports, shown, title or page.TITLE).html)
    return Path(file)


@reword_hints
def triage(
    given: recorded.Recorded, step_ms: float | None = None, range: str = ""
) -> recorded.ProgramFrames:
    """Judge a recording of a program: a torch trace, an nsys export or a kept .triage folder.

    Args:
        given: Where it is: a path; a pattern or a list for one recording a rank; or what this returned.
        step_ms: Milliseconds of a step without the recorder, where somebody measured it.
        range: The range that is a step; found when empty.

    Returns:
        Frames, times in milliseconds, shares from 0 to 1:
        `findings`, one row a finding, the one that saves most first: category, say, expect, low,
        high and on_top_ms (saved by itself and beside the one before), kernels (ids), try, where;
        `idle`, one row a cause: cause, ms, where;
        `kernels`, one row a kernel with one grid and block: id, name, category, calls, ms, share,
        bound, limiter, headroom, counted, op, nvtx, source, line, module;
        beside them `step`, `first` and the whole `document`. It prints itself, and `plot()` draws it.

    Raises:
        ProfkitError: It is no recording, cannot be read, or nothing in it ran on a GPU.
    """
    if isinstance(given, recorded.ProgramFrames):
        return given
    frames = recorded.triage(given, step_ms, range)
    return ShownProgram(
        frames.step, frames.first, frames.findings, frames.idle, frames.kernels, frames.document
    )


@reword_hints
def compare(
    before: Any,
    after: Any,
    case: str | None = None,
    artifacts: str | Path = "artifacts",
    anyway: bool = False,
) -> Comparison | ComparedPrograms:
    """Return what changed from one side to the other, and whether it is real.

    Args:
        before, after: A variant's name ("stage1", "stage1.B"), a run record, a report, a folder; a
            frame or a row of one, so that two kernels of one report can be compared; or two recordings
            of a program.
        anyway: Compare across GPUs, clocks, ncu versions and cases all the same.

    Returns:
        The answer (faster, slower, same, cannot tell) with its interval where both were timed; findings
        that are gone and new; metrics that moved; promises kept. It prints itself.

    Raises:
        ProfkitError: A side cannot be found or read, or the two have nothing in common.
    """
    if isinstance(before, str | Path) and isinstance(after, str | Path):
        paths = str(expand_home(before)), str(expand_home(after))
        if (programs := compare_recordings(*paths)) is not None:
            return ComparedPrograms(programs)
    runs = wrap_frame_as_run(before), wrap_frame_as_run(after)
    policy = Policy(spread_of=KnownSpreads(Path(artifacts, "history")), anyway=anyway)
    return Comparison(**structs.asdict(compare_sides(*runs, case, artifacts, policy)))


explain = reword_hints(pages.explain)


@reword_hints
def ladder(case: str, artifacts: str | Path = "artifacts", anyway: bool = False) -> ShownLadder:
    """Return every recorded variant of a case against its parent and every reference.

    Args:
        case: Its id, of the records and reports in `artifacts`.
        anyway: Compare across GPUs, clocks and ncu versions all the same.

    Raises:
        ProfkitError: Nothing is recorded at this case.
    """
    policy = Policy(spread_of=KnownSpreads(Path(artifacts, "history")), anyway=anyway)
    built = ladders.build_ladder(Evidence(Path(artifacts)), case, policy)
    return ShownLadder(**structs.asdict(built))


@reword_hints
def claims(files: str | Path | Iterable[str | Path], artifacts: str | Path = "artifacts") -> Claims:
    """Try the claims and acceptance gates in files: holds, fails, undecided or errored.

    Args:
        files: Python files of claims, or patterns. They are run: they are your own.
        artifacts: The records and reports that the claims look at.

    Raises:
        ProfkitError: The artifacts are not there, or a pattern matches nothing.
    """
    if not is_folder(folder := Path(artifacts)):
        raise ProfkitError(
            f"{folder}: no such folder", "give the folder that holds the records and reports"
        )
    return Claims(verify_claim_files(expand_paths(files), Evidence(folder)))


# A path, a pattern, a frame, a row of one, a mapping of metrics, a variant's name, or several of them.
Given = str | Path | pd.DataFrame | pd.Series | Mapping[str, Any] | Iterable[Any]
TAKES = (
    "give a report's path, a pattern, a folder, a variant's name, a frame from pk.load, a row of it, "
    "or a list of these"
)


def resolve_launches(given: Given, artifacts: str | Path = "artifacts") -> pd.DataFrame:
    """Return the launches that are meant, one row each; an error where none are named."""
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, pd.Series):
        return given.to_frame().T.infer_objects()
    if isinstance(given, Mapping):
        return pd.DataFrame([dict(given)])
    if not isinstance(given, str | Path | Iterable):
        raise ProfkitError(f"{type(given).__name__}: cannot read launches from this type", TAKES)
    parts: list[Any]
    if isinstance(given, str | Path):
        parts = [given]
    else:
        parts = list(given)
    if parts and all(
        isinstance(p, Path) or (isinstance(p, str) and _is_path_or_pattern(p)) for p in parts
    ):
        return reader.load_reports(parts)  # at once: many files are read in several processes
    if isinstance(given, str | Path):
        runs = load_runs_of_side(given, Evidence(Path(artifacts)))
        frames = [run.launches for run in runs if len(run.launches)]
        why = f"{given}: its run record has no report", "profkit profile makes one"
    else:
        frames = [resolve_launches(part, artifacts) for part in parts]
        why = "an empty list has no launches", TAKES
    if not frames:
        raise ProfkitError(*why)
    return pd.concat(frames, ignore_index=True)


def _is_path_or_pattern(name: str | Path) -> bool:
    text = str(name)
    there = is_path_there(expand_home(text))
    return there or any(c in text for c in "*?[/\\") or text.endswith((*SUFFIXES, ".csv"))


def wrap_frame_as_run(given: Any) -> Any:
    """Return a frame, a row or a mapping as a run of its own; a name or a path as it is.

    Raises:
        ProfkitError: The frame has no rows.
    """
    if not isinstance(given, pd.DataFrame | pd.Series | Mapping):
        return given
    frame = resolve_launches(given)
    if frame.empty:
        raise ProfkitError("the frame has no rows to compare", TAKES)
    variant, case, kernel = (
        find_only_value(frame, column) for column in ("variant", "case", "kernel")
    )
    name = variant or (shorten_name(kernel, KERNEL) if kernel else f"{len(frame)} launches")
    if not variant and len(frame) == 1 and "launch" in frame:
        name += f" (launch {frame['launch'].iloc[0]})"
    return Run(name, case, None, frame)


def find_only_value(frame: pd.DataFrame, column: str) -> str | None:
    """Return the one value of a column; None where there are several, or no such column."""
    if column in frame:
        values = set(frame[column].dropna())
    else:
        values = set()
    if len(values) == 1:
        return str(values.pop())
    return None


def resolve_reports(
    given: Given, artifacts: str | Path = "artifacts"
) -> tuple[list[str], set[tuple[str, LaunchIndex]]]:
    """Return the files that are meant, and which launches in them; all where files were given."""
    if isinstance(given, str | Path) and _is_path_or_pattern(given):
        return [str(path) for path in expand_paths(given)], set()
    frame = resolve_launches(given, artifacts)
    if not {"report", "launch"} <= set(frame.columns) or frame["report"].isna().any():
        raise ProfkitError(
            "these launches are not from a report", "give a report, or a row of pk.load"
        )
    reports = frame["report"].astype(str)
    return list(reports.unique()), set(zip(reports, frame["launch"].astype(int), strict=True))
