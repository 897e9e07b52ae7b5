"""What the public functions return  ->  the same, with a display of its own in a notebook.

Frames stay pandas DataFrames and comparisons what profkit.evidence makes of them; they only know,
besides, how to show themselves: with units, short names and verdicts, every text escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from profkit.diagnosis import launches
from profkit.diagnosis.rule import Rule
from profkit.diagnosis.rule import SourceShare as SourceLine
from profkit.errors import ProfkitError
from profkit.evidence import ladder as ladders
from profkit.evidence import sides
from profkit.evidence.claims import Verified, verify_claim_files
from profkit.evidence.compare import Policy
from profkit.evidence.history.noise import KnownSpreads
from profkit.evidence.runs import Evidence
from profkit.model.launch import Launch
from profkit.model.whatif import parse_changes
from profkit.model.whatif import whatif_launch as cost_model
from profkit.records.paths import expand
from profkit.reports import figures, raw_counters, reader
from profkit.reports.frame import frame_rows
from profkit.reports.metrics import CATALOGUE
from profkit.show.given import Given, given_launches, given_reports, given_run
from profkit.show.text import words
from profkit.show.text.blocks import Block, Grid, TextLine
from profkit.show.text.markup import ShowsItself, to_html
from profkit.show.text.names import short
from profkit.show.views import claims as judged
from profkit.show.views import comparison as changes

KERNEL = 48  # characters of a kernel name in a table
LONGEST = 400  # characters of any other cell
COLUMNS = 12  # a wider frame shows the leading ones only: no screen is 220 columns wide
LEADING = (
    *("variant", "case", "kernel", "grid", "block", "bound", "limiter", "rule", "status", "expect"),
    *("gain", "cause", "where", "try", "time", "waves", "registers", "occupancy", "issue_busy"),
    *("tensor_busy", "shared_busy", "l2_busy", "dram_busy"),
)
# Columns of findings that are no metric of the catalogue.
_SHOWN_AS: Mapping[str, Callable[[float], str]] = {
    "gain": words.gain,
    **dict.fromkeys(("expect", "expect_low", "expect_high", "headroom"), figures.speedup),
    "saves": figures.seconds,
}


class Frame(pd.DataFrame):
    """A DataFrame whose display in a notebook has units; its values are SI as ever."""

    @property
    def _constructor(self) -> Callable[..., Frame]:
        return Frame

    def _repr_html_(self) -> str:
        return to_html(_frame(self))


def _frame(frame: pd.DataFrame) -> Iterator[Block]:
    """Yield the columns that fit and the first rows, and how much there is in all."""
    display = pd.options.display
    most = display.max_rows or len(frame)
    names = [str(name) for name in frame.columns]
    shown = list(range(len(names)))
    if len(names) > COLUMNS:
        known = [n for n in LEADING if n in names and frame[n].notna().any()]
        known = known if "variant" in known else ["report", "launch", *known]
        shown = [names.index(n) for n in known if n in names] or shown[:COLUMNS]
    rows = frame if len(frame) <= most else frame.head(display.min_rows or most)
    right = [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]
    # Row numbers say nothing; names of groups, or of metrics in a transposed frame, do.
    index = frame.index.name is not None or not pd.api.types.is_integer_dtype(frame.index.dtype)
    head = [f"{'>' * right[i]}{names[i]}" for i in shown]
    cells = []
    for label, row in zip(rows.index, rows.itertuples(index=False, name=None), strict=True):
        cells.append((*[_cell("", label)] * index, *(_cell(names[i], row[i]) for i in shown)))
    yield Grid((*[str(frame.index.name or "")] * index, *head), tuple(cells), asked=True)
    columns = f"{len(shown)} of {figures.counted(frame.shape[1], 'column')}"
    yield TextLine(f"{len(rows)} of {figures.counted(len(frame), 'row')}, {columns}")


def _cell(name: str, value: Any) -> str:
    """Return a value as people read it: metrics with their unit, evidence and places as text."""
    if name in _SHOWN_AS:
        text = _SHOWN_AS[name](value)
    elif isinstance(value, Mapping):
        text = words.metric_values(value)
    elif isinstance(value, tuple) and len(value) == 3 and all(isinstance(n, int) for n in value):
        text = words.dims(value)
    elif isinstance(value, tuple) and value and isinstance(value[0], SourceLine):
        text = ", ".join(f"{line.file}:{line.line} {line.stall}" for line in value[:3])
    elif isinstance(value, tuple):
        text = ", ".join(map(str, value))
    elif isinstance(value, float):
        text = figures.quantity(value, CATALOGUE[name].unit if name in CATALOGUE else "count")
    elif name == "kernel":
        text = short(str(value), KERNEL)
    else:
        text = "" if value is None or value is pd.NA else str(value)[:LONGEST]
    return text


class Comparison(ShowsItself, sides.Compared):
    """What two sides have in common, compared; shown as `profkit compare` prints it."""

    blocks = changes.compared_runs


class ShownLadder(ShowsItself, ladders.Ladder):
    """Every variant of a case against its parent and the references."""

    blocks = changes.ladder_steps


class Claims(ShowsItself, tuple[Verified, ...]):
    """Files of claims, each claim tried."""

    blocks = judged.verified


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
    return Frame(raw_counters.frame_from_raw(rows))


def whatif(runs: Given, changes: str, artifacts: str | Path = "artifacts") -> Frame:
    """Return what each launch would gain if counts changed, by the cost model.

    Args:
        runs, artifacts: Launches, as `diagnose` takes them.
        changes: For example "inst_exp/32, shared_wavefronts*0.25, blocks*4".

    Returns:
        One row per launch: report, launch, kernel, variant, case, time (s), expect, expect_low,
        expect_high (speed-up factors; the interval is to hold four times of five).

    Raises:
        ProfkitError: A change cannot be read, or a launch lacks a count that the model needs.
    """
    counts = parse_changes(changes)
    names = ("report", "launch", "kernel", "variant", "case", "time")
    rows = []
    for row in frame_rows(given_launches(runs, artifacts)):
        hope = cost_model(Launch({k: float(v) for k, v in row.items() if k in CATALOGUE}), counts)
        rows.append((*map(row.get, names), hope.gain, hope.low, hope.high))
    return Frame(rows, columns=[*names, "expect", "expect_low", "expect_high"])


def diagnose(runs: Given, rules: Sequence[Rule] = (), artifacts: str | Path = "artifacts") -> Frame:
    """Return every finding of every launch.

    Args:
        runs: A report's path, a pattern, a folder, a list, a frame from `load`, a row of one (or a
            mapping of metrics), or a variant's name ("stage2", "stage2.B").
        rules: Rules of your own, asked beside profkit's. They may index any metric, any numeric column
            of the frame, and any raw counter of the report under Nsight Compute's own name.
        artifacts: Where variants' records and reports are.

    Returns:
        One row per launch and rule, in the order of the launches: report, launch, kernel, variant,
        case, time (s, under ncu), bound (memory, compute, latency, launch, balanced, unknown),
        limiter, because, headroom (speed-up left with the same work), saves (s that the leading
        finding is expected to save; all of the launch), rule, status (fires, clear, unknown), cause,
        gain (speed-up factor, an upper bound), expect, expect_low, expect_high (what people got who
        fixed it, and the interval, to hold four times of five), evidence (metric -> SI value),
        where (source lines, most of its cause first), try (what people do). NaN where not known.

    Raises:
        ProfkitError: Nothing can be read from what was given.
    """
    return Frame(launches.diagnose_frame(given_launches(runs, artifacts), rules))


def raw(runs: Given, artifacts: str | Path = "artifacts") -> Frame:
    """Return every scalar metric under Nsight Compute's own name and in its own unit.

    Args:
        runs, artifacts: Launches, as `diagnose` takes them; they must be in reports.

    Returns:
        Launches x raw names; numbers as float, texts as str, NaN where a launch has no value. The index
        is the launch in its report; (report, launch) where there are several reports.

    Raises:
        ProfkitError: A file cannot be read at all, or the launches are in none.
    """
    files, chosen = given_reports(runs, artifacts)
    kept = {file: reader.raw_frame(file) for file in files}
    if chosen:
        for file, frame in kept.items():
            kept[file] = frame[[(file, int(n)) in chosen for n in frame.index]]
    return Frame(kept[files[0]] if len(files) == 1 else pd.concat(kept, names=["report", "launch"]))


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
    files, chosen = given_reports(report, artifacts)
    if len(files) == 1 and (launch is not None or not chosen):
        return Frame(launches.launch_lines(files[0], launch or 0, count))
    places = sorted(chosen) or [(file, launch or 0) for file in files]
    frames = {place: launches.launch_lines(*place, count) for place in places}
    if len(frames) == 1:
        return Frame(frames[places[0]])
    return Frame(pd.concat(frames, names=["report", "launch"]).reset_index(["report", "launch"]))


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
    from profkit.show.page import page

    files, chosen = given_reports(runs, artifacts)
    reports = reader.read_report(files)
    shown = [j for j in launches.judged(reports) if not chosen or (j.report, j.index) in chosen]
    return page.save_page(page.render(reports, shown, title or page.TITLE), Path(file))


def compare(
    before: Any,
    after: Any,
    case: str | None = None,
    artifacts: str | Path = "artifacts",
    anyway: bool = False,
) -> Comparison:
    """Return what changed from one side to the other, and whether it is real.

    Args:
        before, after: A variant's name ("stage1", "stage1.B"), a run record, a report, a folder; or a
            frame or a row of one, so that two kernels of one report can be compared.
        anyway: Compare across GPUs, clocks, ncu versions and cases all the same.

    Returns:
        The answer (faster, slower, same, cannot tell) with its interval where both were timed; findings
        that are gone and new; metrics that moved; promises kept. It prints itself.

    Raises:
        ProfkitError: A side cannot be found or read, or the two have nothing in common.
    """
    runs, policy = (given_run(before), given_run(after)), _policy(artifacts, anyway)
    return Comparison(**vars(sides.compare_sides(*runs, case, artifacts, policy)))


def ladder(case: str, artifacts: str | Path = "artifacts", anyway: bool = False) -> ShownLadder:
    """Return every recorded variant of a case against its parent and every reference.

    Args:
        case: Its id, of the records and reports in `artifacts`.
        anyway: Compare across GPUs, clocks and ncu versions all the same.

    Raises:
        ProfkitError: Nothing is recorded at this case.
    """
    built = ladders.build_ladder(Evidence(Path(artifacts)), case, _policy(artifacts, anyway))
    return ShownLadder(**vars(built))


def _policy(artifacts: str | Path, anyway: bool) -> Policy:
    return Policy(spread_of=KnownSpreads(Path(artifacts, "history")), anyway=anyway)


def claims(files: str | Path | Iterable[str | Path], artifacts: str | Path = "artifacts") -> Claims:
    """Try the claims and acceptance gates in files: holds, fails, undecided or errored.

    Args:
        files: Python files of claims, or patterns. They are run: they are your own.
        artifacts: The records and reports that the claims look at.

    Raises:
        ProfkitError: The artifacts are not there, or a pattern matches nothing.
    """
    if not Path(artifacts).is_dir():
        raise ProfkitError(f"{artifacts}: no such folder", "it holds the records and reports")
    return Claims(verify_claim_files(expand(files), Evidence(Path(artifacts))))
