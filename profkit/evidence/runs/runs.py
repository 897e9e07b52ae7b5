"""A folder of artifacts  ->  runs by variant and case: the record and the launches of its report.

What comparisons and claims are given. Nothing is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.rule import Diagnosis, Launch
from profkit.errors import ProfkitError
from profkit.records.current import Header, apply
from profkit.records.record import Record, read_record

if TYPE_CHECKING:
    import pandas as pd

REPORT_SUFFIXES = (".ncu-rep", ".ncu-repz")
_NAME = re.compile(r"[A-Za-z0-9][\w-]*")


class MissingEvidence(ProfkitError):
    """A run that was never recorded, or a part of it; the hint is the command that records it."""


@dataclass(frozen=True)
class Run:
    """One variant at one case: what was timed and what was counted.

    Attributes:
        variant: Its id; for a bare report the kernel's or the file's name.
        case: The problem's case, None when not known.
        record: The run record, None without one.
        launches: Rows of the frame, none without a report.
        report: The report's path, None without one.
        stale: Whether the code of its file is another today.
    """

    variant: str
    case: str | None
    record: Record | None
    launches: pd.DataFrame
    report: Path | None = None
    stale: bool = False

    @property
    def name(self) -> str:
        """Variant and case as one word, as in the files' names."""
        return f"{self.variant}.{self.case}" if self.case else self.variant

    @cached_property
    def usable(self) -> pd.DataFrame:
        """The launches that ncu could finish."""
        return self.launches[self.launches["status"] == "ok"]

    @cached_property
    def row(self) -> dict[Hashable, Any]:
        """The row of the longest launch that ncu could finish, identity columns included."""
        usable = self.usable
        if usable.empty:
            raise MissingEvidence(f"no counters of {self.name}", self._command())
        longest = int(usable["time"].fillna(0).to_numpy().argmax())
        return usable.iloc[longest].to_dict()

    @property
    def launch(self) -> Launch:
        """The metrics of that launch: indexing one that was not collected raises NotCollected."""
        return Launch({str(k): v for k, v in self.row.items() if isinstance(v, float)})

    @property
    def samples(self) -> tuple[float, ...]:
        """Seconds per call with a warm L2, without a profiler, in the order taken."""
        if self.record is None or not self.record.warm:
            raise MissingEvidence(f"no timing of {self.name}", self._command("bench"))
        return self.record.warm

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
        return verdict(self.row)

    def _command(self, verb: str = "profile") -> str:
        case = f" --case {self.case}" if self.case else ""
        return f"profkit {verb} --variant {self.variant}{case}"


@dataclass(frozen=True)
class Evidence:
    """A folder of artifacts, read once.

    Attributes:
        root: The folder with <variant>.<case>.json and .ncu-rep files.
        headers: problem/variant -> what its file says today; without it the records say so.
    """

    root: Path
    _runs: dict[tuple[str, str], Run | MissingEvidence] = field(default_factory=dict, repr=False)
    headers: Mapping[str, Header] = field(default_factory=dict, repr=False)

    def load(self, variant: str, case: str) -> Run:
        """The run of a variant at a case.

        Raises:
            MissingEvidence: Neither a record nor a report of it is there.
            ProfkitError: One is there and cannot be used.
        """
        key = variant, case
        if key not in self._runs:
            self._runs[key] = self._find(variant, case)
        found = self._runs[key]
        if isinstance(found, MissingEvidence):
            raise found
        return found

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
        found, problems = [], []
        for variant, case in self.names():
            path = self.root / f"{variant}.{case}.json"
            if case in cases and path.is_file():
                try:
                    found.append(apply(read_record(path), self.headers)[0])
                except ProfkitError as problem:
                    problems.append(problem)
        return found, problems

    def names(self) -> list[tuple[str, str]]:
        """Variant and case of everything in the folder."""
        files = [p for p in self.root.glob("*.*") if p.suffix in (".json", *REPORT_SUFFIXES)]
        parts = (p.stem.rpartition(".") for p in files)
        return sorted({(variant, case) for variant, _, case in parts if variant})

    def _find(self, variant: str, case: str) -> Run | MissingEvidence:
        if not (_NAME.fullmatch(variant) and _NAME.fullmatch(case)):
            raise ProfkitError(
                f"{variant!r} at case {case!r}: not a variant and a case", "for example stage2.B"
            )
        stem = f"{variant}.{case}"
        record = self.root / f"{stem}.json"
        reports = [p for s in REPORT_SUFFIXES if (p := self.root / (stem + s)).is_file()]
        if not record.is_file() and not reports:
            return MissingEvidence(
                f"no run of {variant} at case {case} in {self.root}",
                f"profkit profile --variant {variant} --case {case}",
            )
        said = read_record(record) if record.is_file() else None
        said, stale = apply(said, self.headers) if said else (None, False)
        report = reports[0] if reports else None
        return Run(variant, case, said, read_launches(reports[:1]), report, stale)


def verdict(row: Mapping[Hashable, Any]) -> Diagnosis:
    """The verdict on one row of the frame."""
    from profkit.diagnosis.engine import judge

    return judge({str(k): v for k, v in row.items()}, str(row["status"]))


def read_launches(reports: list[Path]) -> pd.DataFrame:
    """The frame of these reports: one row per launch; none for an empty list.

    Raises:
        ProfkitError: A report is damaged or cannot be read: half of one is not evidence.
    """
    from profkit.reports.reader import read

    found = read(reports)
    for file in found.files:
        if file.status != "ok":
            raise ProfkitError(
                f"{file.path}: {file.status}: {file.message}", "record it again: profkit profile"
            )
    return without_attrs(found.launches)


def without_attrs(launches: pd.DataFrame) -> pd.DataFrame:
    """The frame without the files' status: pandas copies it with every column that is looked at."""
    launches = launches.copy(deep=False)
    launches.attrs = {}
    return launches
