"""A folder of artifacts  ->  runs by variant and case: the record and the launches of its report.

What comparisons and claims are given. Nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.rule import Diagnosis
from profkit.errors import ProfkitError
from profkit.model.launch import Launch
from profkit.records.artifacts import RunFiles, RunName, is_word, only_one, run_files
from profkit.records.record import Record, SourceFile, read_record, with_todays_header
from profkit.reports.frame import without_attrs

if TYPE_CHECKING:
    import pandas as pd


class MissingEvidence(ProfkitError):
    """A run that was never recorded, or a part of it; the hint is the command that records it."""


@dataclass(frozen=True)
class Run:
    """One variant at one case: what was timed and what was counted."""

    variant: str  # its id; for a bare report the kernel's or the file's name
    case: str | None  # the problem's case, None when not known
    record: Record | None  # the run record, None without one
    launches: pd.DataFrame  # rows of the frame, none without a report
    report: Path | None = None  # the report's path, None without one
    stale: bool = False  # whether the code of its file is another today

    @property
    def name(self) -> str:
        """Variant and case as one word, as in the files' names."""
        return f"{self.variant}.{self.case}" if self.case else self.variant

    @cached_property
    def usable(self) -> pd.DataFrame:
        """The launches that ncu could finish."""
        return self.launches[self.launches["status"] == "ok"]

    @cached_property
    def rows(self) -> list[dict[Hashable, Any]]:
        """The rows of these launches, made once: pandas takes milliseconds for each."""
        return self.usable.to_dict("records")

    @cached_property
    def row(self) -> dict[Hashable, Any]:
        """The row of the longest launch that ncu could finish, identity columns included."""
        usable = self.usable
        if usable.empty:
            raise MissingEvidence(f"no counters of {self.name}", self._command())
        return self.rows[int(usable["time"].fillna(0).to_numpy().argmax())]

    @property
    def launch(self) -> Launch:
        """The metrics of that launch: indexing one that was not collected raises NotCollected."""
        return Launch({str(k): v for k, v in self.row.items() if isinstance(v, float)})

    @property
    def timed(self) -> Record:
        """The record, which has samples with a warm L2."""
        if self.record is None or not self.record.warm:
            raise MissingEvidence(f"no timing of {self.name}", self._command("bench"))
        return self.record

    @property
    def samples(self) -> tuple[float, ...]:
        """Seconds per call with a warm L2, without a profiler, in the order taken."""
        return self.timed.warm

    def total(self, metric: str) -> float:
        """Sum of a metric over all launches of the run.

        Raises:
            MissingEvidence: One of the launches does not have it.
        """
        values = [float(v) for v in self.launches[metric]]
        if not values or any(isnan(v) for v in values):
            raise MissingEvidence(f"{metric} of {self.name} was not collected", self._command())
        return sum(values)

    def column(self, name: str) -> Any:
        """One column of that row; None without counters."""
        return None if self.usable.empty else self.row.get(name)

    def diagnosis(self) -> Diagnosis:
        """The verdict on the longest launch."""
        return self.verdict(self.row)

    def verdict(self, row: dict[Hashable, Any]) -> Diagnosis:
        """The verdict on one of `rows`, found once: a parent is compared with each of its children."""
        if id(row) not in self._verdicts:
            self._verdicts[id(row)] = verdict(row)
        return self._verdicts[id(row)]

    @cached_property
    def _verdicts(self) -> dict[int, Diagnosis]:
        return {}

    def _command(self, verb: str = "profile") -> str:
        foreign = self.record is None and not self.launches.empty
        if foreign and self.launches["variant"].isna().all():
            return "a report alone has none: time both without a profiler"  # its name is a file's
        case = f" --case {self.case}" if self.case else ""
        return f"profkit {verb} --variant {self.variant}{case}"


@dataclass(frozen=True)
class Evidence:
    """A folder of artifacts, read once."""

    root: Path  # the folder with records and reports (profkit.records.artifacts says where in it)
    _runs: dict[RunName, Run | MissingEvidence] = field(default_factory=dict, repr=False)
    # problem/variant -> what its file says today; without it the records say so
    headers: Mapping[str, SourceFile] = field(default_factory=dict, repr=False)
    _files: dict[RunName, tuple[RunFiles, ...]] = field(default_factory=dict, repr=False)

    def load(self, variant: str, case: str) -> Run:
        """The run of a variant at a case.

        Raises:
            MissingEvidence: Neither a record nor a report of it is there.
            ProfkitError: One is there and cannot be used.
        """
        key = variant, case
        if key not in self._runs:
            self._runs[key] = self._find(variant, case)
        run = self._runs[key]
        if isinstance(run, MissingEvidence):
            raise run
        return run

    def missing(self, need: str) -> MissingEvidence | None:
        """Why a need ("variant.case") is not met, None when it is."""
        variant, _, case = need.partition(".")
        try:
            self.load(variant, case)
        except MissingEvidence as missing:
            return missing
        return None

    def readable(self, case: str | None = None) -> tuple[list[Run], list[ProfkitError]]:
        """Every run (at one case) that can be used, and what is wrong with the others."""
        runs, problems = [], []
        for variant, at in self.names():
            if case in (None, at):
                try:
                    runs.append(self.load(variant, at))
                except ProfkitError as problem:
                    problems.append(problem)
        return runs, problems

    def records(self, cases: Collection[str]) -> tuple[list[Record], list[ProfkitError]]:
        """The run records at some cases, without their reports; and what cannot be read."""
        records, problems = [], []
        for name in self.names():
            if name[1] not in cases:
                continue
            try:
                files = self.files(*name)
                if files and files.record:
                    records.append(with_todays_header(read_record(files.record), self.headers)[0])
            except ProfkitError as problem:
                problems.append(problem)
        return records, problems

    def names(self) -> list[RunName]:
        """Variant and case of everything in the folder, sorted."""
        return list(self._scan())

    def recorded_cases(self) -> list[str]:
        """The cases at which there is a run record, sorted."""
        every = self._scan().items()
        return sorted({case for (_, case), several in every if any(f.record for f in several)})

    def files(self, variant: str, case: str) -> RunFiles | None:
        """Where the record and the report of a run are; None where there is neither.

        Raises:
            ProfkitError: Two folders hold a run of this name.
        """
        if (variant, case) not in self._files:
            self._scan()  # perhaps it was recorded since
        files = self._files.get((variant, case))
        return only_one(files, (variant, case)) if files else None

    def _instead(self, variant: str, case: str) -> str:
        """The command that makes the run; before it a variant that may have been meant."""
        from difflib import get_close_matches

        command = f"profkit profile --variant {variant} --case {case}"
        known = {v for v, _ in self._files}
        near = [] if variant in known else get_close_matches(variant, known, 3, 0.6)
        return f"did you mean {' or '.join(near)}? else {command}" if near else command

    def _scan(self) -> dict[RunName, tuple[RunFiles, ...]]:
        self._files.clear()
        self._files.update(run_files(self.root))
        return self._files

    def _find(self, variant: str, case: str) -> Run | MissingEvidence:
        if not (is_word(variant) and is_word(case)):
            raise ProfkitError(
                f"{variant!r} at case {case!r}: not a variant and a case", "for example stage2.B"
            )
        files = self.files(variant, case)
        if files is None:
            return MissingEvidence(
                f"no run of {variant} at case {case} in {self.root}",
                self._instead(variant, case),
            )
        record, stale = None, False
        if files.record:
            record, stale = with_todays_header(read_record(files.record), self.headers)
        launches = read_launches([files.report] if files.report else [])
        return Run(variant, case, record, launches, files.report, stale)


def verdict(row: Mapping[Hashable, Any]) -> Diagnosis:
    """The verdict on one row of the frame."""
    from profkit.diagnosis.engine import judge_launch

    return judge_launch({str(k): v for k, v in row.items()}, str(row["status"]))


def read_launches(reports: list[Path]) -> pd.DataFrame:
    """The frame of these reports: one row per launch; none for an empty list.

    Raises:
        ProfkitError: A report is damaged or cannot be read: half of one is not evidence.
    """
    from profkit.reports.reader import read_report

    found = read_report(reports)
    for file in found.files:
        if file.status != "ok":
            raise ProfkitError(
                f"{file.path}: {file.status}: {file.message}", "record it again: profkit profile"
            )
    return without_attrs(found.launches)
