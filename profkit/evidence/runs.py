"""A folder of artifacts  ->  runs by variant and case: the record, and the launches of its report.

A record is read when its run is looked up, a report when its launches are asked for; none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.diagnosis.rule import Diagnosis
from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.files import is_file, is_folder
from profkit.model.launch import StrictLaunch, is_impossible_value
from profkit.records import paths
from profkit.records.paths import RunFiles, RunName
from profkit.records.record import (
    Record,
    SourceFile,
    read_record,
    refresh_header_from_source,
    suggest_run_command,
)
from profkit.records.store import Read, compute_sha256_of_file
from profkit.reports.frame import drop_file_status_attribute, list_frame_rows_as_dicts

if TYPE_CHECKING:
    import pandas as pd

    from profkit.units import (
        CaseName,
        FrameCellOrNone,
        FrameRow,
        MetricName,
        RunLabel,
        Seconds,
        TextOrEmpty,
        VariantName,
    )

Row = Mapping[str, Any]  # of the frame: a launch


class MissingEvidence(ProfkitError):
    """A run that was never recorded, or a part of it; the hint is the command that records it."""


@dataclass(frozen=True)
class Run:
    """One variant at one case: what was timed and what was counted."""

    variant: str  # its id; for a bare report the kernel's or the file's name
    case: str | None  # the problem's case, None when not known
    record: Record | None  # the run record, None without one
    _launches: pd.DataFrame | None = None  # rows of the frame; None: those of the report
    report: Path | None = None  # the report's path, None without one
    stale: bool = False  # whether the code of its file is another today

    @property
    def name(self) -> str:
        """Return variant and case as one word, as in the files' names."""
        if self.case:
            return f"{self.variant}.{self.case}"
        return self.variant

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Return the launches of its reports, a row each; a ProfkitError if a report is damaged."""
        if self._launches is not None:
            return self._launches
        return read_undamaged_launches([self.report] if self.report else [])

    def use_launches_read_elsewhere(self, launches: pd.DataFrame) -> None:
        """Take what was read of its report together with others: it is not read again."""
        self.__dict__["launches"] = launches  # where cached_property looks

    def read_report_files(self) -> Run:
        """Return the run, its report read: a damaged one is said now."""
        _ = self.launches
        return self

    @property
    def needs_reading(self) -> bool:
        """Return whether it has a report that was not read yet."""
        return bool(self.report) and self._launches is None and "launches" not in self.__dict__

    @property
    def sha256(self) -> TextOrEmpty:
        """Return the sha256 of its report as it is now; "" without one."""
        if self.report:
            return compute_sha256_of_file(self.report)
        return ""

    @cached_property
    def usable(self) -> pd.DataFrame:
        """Return the launches that ncu could finish."""
        return self.launches[self.launches["status"] == "ok"]

    @cached_property
    def rows(self) -> Sequence[FrameRow]:
        """Return the rows of these launches."""
        return list_frame_rows_as_dicts(self.usable)

    @cached_property
    def row(self) -> FrameRow:
        """Return the row of the longest launch that ncu could finish, identity columns included."""
        usable = self.usable
        if usable.empty:
            raise MissingEvidence(f"no counters of {self.name}", self.write_hint_to_record_again())
        times = []
        for time in usable["time"].fillna(0):
            times.append(0.0 if is_impossible_value("time", time) else time)
        return self.rows[times.index(max(times))]

    @property
    def launch(self) -> StrictLaunch:
        """Return the metrics of that launch; indexing one that was not collected raises NotCollected."""
        return StrictLaunch({k: v for k, v in self.row.items() if isinstance(v, float)})

    @property
    def timed(self) -> Record:
        """Return the record, which has samples with a warm L2."""
        if self.record is None or not self.record.warm_samples:
            why = f"{self.name} was never timed, only profiled"
            if self.launches.empty:
                why = f"{self.name} was never timed"
            raise MissingEvidence(why, self.write_hint_to_record_again("bench"))
        return self.record

    @property
    def samples(self) -> tuple[Seconds, ...]:
        """Return seconds per call with a warm L2, without a profiler, in the order taken."""
        return self.timed.warm_samples

    def total(self, metric: MetricName) -> float:
        """Return the sum of a metric over all launches; MissingEvidence where one lacks it."""
        values = []
        for v in self.launches[metric]:
            values.append(float(v))
        if not values or any(isnan(v) for v in values):
            raise MissingEvidence(
                f"{metric} of {self.name} was not collected", self.write_hint_to_record_again()
            )
        return sum(values)

    def get_value_of_longest_launch(self, name: str) -> FrameCellOrNone:
        """Return one column of that row; None without counters."""
        if self.usable.empty:
            return None
        return self.row.get(name)

    def diagnosis(self) -> Diagnosis:
        """Return the verdict on the run's one launch."""
        return self.judge_row(self.row)

    def judge_row(self, row: FrameRow) -> Diagnosis:
        """Return the verdict on one of `rows`, found once: a parent has several children."""
        from profkit.diagnosis.verdict import judge_launch

        if id(row) not in self._verdicts:
            self._verdicts[id(row)] = judge_launch(row)
        return self._verdicts[id(row)]

    @cached_property
    def _verdicts(self) -> dict[int, Diagnosis]:
        return {}

    def write_hint_to_record_again(self, verb: str = "profile") -> str:
        """Return the command that records the run again, or why none can."""
        foreign = self.record is None and not self.launches.empty
        if foreign and self.launches["variant"].isna().all():
            return "a report has no timing: time both without a profiler"  # its name is a file's
        return suggest_run_command(self.variant, self.case, verb)


@dataclass(frozen=True)
class Evidence:
    """A folder of artifacts, read once."""

    root: Path  # the folder with records and reports (profkit.records.paths says where in it)
    _runs: dict[RunName, Run] = field(default_factory=dict, repr=False)
    # problem/variant -> what its file says today; without it the records say so
    headers: Mapping[str, SourceFile] = field(default_factory=dict, repr=False)
    _files: dict[RunName, tuple[RunFiles, ...]] = field(default_factory=dict, repr=False)
    _unread: list[ProfkitError] = field(
        default_factory=list, repr=False
    )  # what may not be looked at

    def load(self, variant: VariantName, case: CaseName) -> Run:
        """Return the run of a variant at a case, its report read.

        MissingEvidence where there is neither a record nor a report of it; a ProfkitError where one
        is damaged.
        """
        return self.load_without_report(variant, case).read_report_files()

    def load_without_report(self, variant: VariantName, case: CaseName) -> Run:
        """Return the same run, whose report is read when it is asked for."""
        if (variant, case) not in self._runs:
            self._runs[variant, case] = self.get_run_with_report_unread(variant, case)
        return self._runs[variant, case]

    def expand_run_name(self, name: str, case: CaseName | None = None) -> list[RunName]:
        """Return the runs that a name means: of "stage2" at every case, of "stage2.B" at one.

        A ProfkitError where it is a file's name, or no case of the variant was recorded.
        """
        if "/" in name or name.endswith((".json", *paths.SUFFIXES)):
            raise ProfkitError(f"{name}: no such file", "give a variant, a run record or a report")
        variant, _, own = name.partition(".")
        if own or case:
            return [(variant, own or case or "")]
        every = self.list_names()
        names = [known for known in every if known[0] == variant]
        if not names and self._unread:
            raise self._unread[0]
        if not names:
            variants = sorted({recorded for recorded, _ in every})
            listed = "profkit list shows what is recorded"
            if variants:
                hint = suggest_nearest_names(variant, variants, listed)
            else:
                hint = suggest_run_command(variant)
            raise ProfkitError(f"no run of {variant} in {self.root}", hint)
        return names

    def missing(self, need: RunLabel) -> MissingEvidence | None:
        """Return why a need ("variant.case") is not met, None when it is."""
        variant, _, case = need.partition(".")
        try:
            self.load(variant, case)
        except MissingEvidence as missing:
            return missing
        return None

    def load_all_usable_runs(
        self, is_wanted: Callable[[RunName], bool] = bool, are_counters_needed: bool = True
    ) -> Read[list[Run]]:
        """Return every run (of wanted names) that can be used, and what is wrong with the others.

        `are_counters_needed`: whether a run whose report is damaged counts as one that cannot be used.
        """
        names = [name for name in self.list_names() if is_wanted(name)]
        problems = list(self._unread)
        find = self.load_without_report
        if are_counters_needed:
            find = self.load
            read_unread_reports_of_runs(self._iterate_runs_with_readable_records(names))
        runs = []
        for name in names:
            try:
                runs.append(find(*name))
            except ProfkitError as problem:
                problems.append(problem)
        return Read(runs, problems)

    def _iterate_runs_with_readable_records(self, names: Iterable[RunName]) -> Iterator[Run]:
        """Yield those of the runs whose records can be read."""
        for name in names:
            with suppress(ProfkitError):  # load_all_usable_runs says it
                yield self.load_without_report(*name)

    def list_names(self) -> list[RunName]:
        """Return variant and case of everything in the folder, sorted."""
        return list(self.read_run_files_of_folder())

    def list_cases_with_record(self) -> list[CaseName]:
        """Return the cases at which there is a run record, sorted."""
        cases = set()
        for (_, case), several in self.read_run_files_of_folder().items():
            if any(files.record for files in several):
                cases.add(case)
        return sorted(cases)

    def find_files_of_run(self, variant: VariantName, case: CaseName) -> RunFiles | None:
        """Return where the record and the report of a run are; None where there is neither."""
        if (variant, case) not in self._files:
            self.read_run_files_of_folder()  # perhaps it was recorded since
        files = self._files.get((variant, case))
        if files:
            return paths.require_single_run(files, (variant, case))
        return None

    def write_hint_for_missing_run(self, variant: VariantName, case: CaseName) -> str:
        """Return the command that makes the run; before it a variant that may have been meant."""
        command = suggest_run_command(variant, case)
        cases_by_variant: dict[str, list[str]] = {}
        for recorded, its_case in self._files:
            cases_by_variant.setdefault(recorded, []).append(its_case)
        if variant in cases_by_variant:
            cases = ", ".join(sorted(cases_by_variant[variant]))
            return f"recorded cases: {cases}; otherwise: {command}"
        near = get_close_matches(variant, cases_by_variant, 3, 0.6)
        if near:
            return f"did you mean {' or '.join(near)}? otherwise: {command}"
        return command

    def read_run_files_of_folder(self) -> dict[RunName, tuple[RunFiles, ...]]:
        """Return (variant, case) -> its files, read from the folder anew."""
        self._files.clear()
        self._unread.clear()
        self._files.update(paths.find_all_run_files(self.root, self._unread))
        return self._files

    def get_run_with_report_unread(self, variant: VariantName, case: CaseName) -> Run:
        """Return a run whose report is not read yet; a ProfkitError where there is none."""
        if not (paths.is_valid_run_name(variant) and paths.is_valid_run_name(case)):
            hint = "for example stage2.B"
            raise ProfkitError(f"{variant!r} at case {case!r}: not a variant and a case", hint)
        files = self.find_files_of_run(variant, case)
        if files is None and self._unread:
            raise self._unread[0]
        if files is None:
            where = f"in {self.root}"
            if not is_folder(self.root):
                where = f"in {self.root}, which is no folder here (--artifacts DIR names another)"
            raise MissingEvidence(
                f"no run of {variant} at case {case} {where}",
                self.write_hint_for_missing_run(variant, case),
            )
        record = None
        stale = False
        if files.record:
            record, stale = refresh_header_from_source(read_record(files.record), self.headers)
        return Run(variant, case, record, None, files.report, stale)


def read_unread_reports_of_runs(runs: Iterable[Run]) -> None:
    """Read the reports of these runs at once, by several processes where there are many.

    One that is not whole is left as it is: who asks for its launches is told why.
    """
    from profkit.reports.frame import Reports
    from profkit.reports.reader import read_report_files

    by_report = {}
    for run in runs:
        if run.needs_reading:
            by_report[str(run.report)] = run
    for part in read_report_files(by_report).parts:
        if part.file.status == "ok":
            by_report[part.file.path].use_launches_read_elsewhere(
                drop_file_status_attribute(Reports((part,)).launches)
            )


def read_undamaged_launches(reports: list[Path]) -> pd.DataFrame:
    """Return the launches of reports as a frame; a ProfkitError where one is not whole."""
    from profkit.reports.reader import read_report_files

    found = read_report_files(reports)
    for file in found.files:
        if file.status != "ok":
            hint = "record it again: profkit profile"
            raise ProfkitError(f"{file.path}: {file.status}: {file.message}", hint)
    return drop_file_status_attribute(found.launches)


# What a side of a comparison names.

Comparand = str | Path | Run


def load_runs_of_side(
    side: Comparand,
    evidence: Evidence,
    case: CaseName | None = None,
    problems_to_extend: list[ProfkitError] | None = None,
) -> list[Run]:
    """Return the runs that one side names; never an empty list.

    `problems_to_extend` takes what in a folder cannot be read; without it, that is raised.
    """
    if isinstance(side, Run):
        return [side]
    path = Path(side)
    if is_folder(path):
        runs, wrong = Evidence(path).load_all_usable_runs(lambda name: case in (None, name[1]))
        if wrong and (problems_to_extend is None or not runs):
            raise wrong[0]
        if problems_to_extend is not None:
            problems_to_extend += wrong
    elif is_file(path):
        runs = []
        for run in _read_runs_of_file(path, evidence.headers):
            if case in (None, run.case):
                runs.append(run)
    else:
        runs = [evidence.load(*name) for name in evidence.expand_run_name(str(side), case)]
    if not runs:
        at = ""
        if case:
            at = f" at case {case}"
        if is_folder(path):
            raise ProfkitError(f"{side}: no run record or report{at} in this folder")
        raise ProfkitError(f"{side}: no run{at}", "profkit list shows what was recorded")
    return runs


def _read_runs_of_file(path: Path, headers: Mapping[str, SourceFile]) -> list[Run]:
    """Return the runs in one record (with the report beside it) or in one report.

    `headers`: what the files of variants say today, which counts while their code is the same. What
    is named by its file is never stale: it is that file which is asked for.
    """
    if path.suffix == ".json":
        record = refresh_header_from_source(read_record(path), headers).record
        report = paths.find_run_files(path.with_suffix("")).report
        return [Run(record.variant, record.case, record, None, report).read_report_files()]
    beside = path.with_suffix(".json")
    if is_file(beside):
        return _read_runs_of_file(beside, headers)
    frame = Run(path.stem, None, None, None, path).launches
    marks = set(zip(frame["variant"], frame["case"], strict=True))
    if len(marks) < 2:
        variant, case = next(iter(marks), (None, None))
        return [Run(variant or path.stem, case, None, frame, path)]
    runs = []
    for variant, case in sorted((mark for mark in marks if mark[0]), key=str):
        own = frame[(frame["variant"] == variant) & (frame["case"] == case)]
        runs.append(Run(variant, case, None, own, path))
    return runs


class MatchedRuns(NamedTuple):
    """List the runs that belong together, BEFORE's first, and the names of those without a partner."""

    pairs: list[tuple[Run, Run]]
    leftover_names: tuple[str, ...]


def match_runs(before: list[Run], after: list[Run]) -> MatchedRuns:
    """Return runs that belong together, and the names of those left alone.

    One run a side is a pair whatever it is called; several are paired by case and, where a side
    has several variants, by variant as well.
    """
    if len(before) == len(after) == 1:
        return MatchedRuns([(before[0], after[0])], ())
    variants_before = {run.variant for run in before}
    variants_after = {run.variant for run in after}
    by_variant = len(variants_before) > 1 or len(variants_after) > 1

    def make_key(run: Run) -> tuple[str | None, ...]:
        if by_variant:
            return (run.variant, run.case)
        return (run.case,)

    partner = {make_key(run): run for run in after}
    pairs = []
    paired: set[int] = set()
    for run in before:
        other = partner.get(make_key(run))
        if other is not None:
            pairs.append((run, other))
            paired |= {id(run), id(other)}
    leftover = tuple(run.name for run in (*before, *after) if id(run) not in paired)
    return MatchedRuns(pairs, leftover)
