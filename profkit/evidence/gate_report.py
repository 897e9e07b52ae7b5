"""What a gate says of each subject  ->  its summary, its exit status, and every reason for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import nan
from typing import Literal, TypedDict

from profkit.errors import ProfkitError
from profkit.evidence.compare import BetweenProcesses, RunComparison
from profkit.evidence.power import ALPHA, POWER
from profkit.evidence.stats import TimeComparison, TimeEntry
from profkit.records.store import as_document

GateAnswer = Literal[
    "slower", "wrong", "faster", "same", "cannot tell", "no time", "stale", "new", "gone"
]
Cause = Literal["code", "method", "machine", "noise", ""]


class SubjectEntry(TypedDict):
    """One variant at one case; null where not known."""

    name: str
    answer: GateAnswer
    because: str
    cause: str | None
    time: TimeEntry | None
    smallest_change: float | None
    samples_needed: int | None
    between_processes: BetweenProcesses | None


class GateDocument(TypedDict):
    """What `profkit gate --json` prints."""

    schema: Literal["profkit.gate/1"]
    status: int
    summary: str
    reasons: list[str]
    alpha: float
    power: float
    subjects: list[SubjectEntry]


@dataclass(frozen=True)
class GateSubject:
    """One variant at one case, before and after."""

    name: str
    # what became of it; "wrong" where HEAD's values or accesses are, "no time" where it was
    # not timed, "stale" where its code changed since it was measured
    answer: GateAnswer
    because: str
    cause: Cause = ""  # where a difference comes from: the code, the method, the machine, noise
    time: TimeComparison | None = None  # the comparison; None where none was made
    # the smallest relative change that would have been seen; NaN where none was made
    smallest_change: float = nan
    # how many samples a side would see a change of SEES; None where that is not known
    samples_needed: int | None = None
    # what moved with it; None where that was not looked at
    change: RunComparison | None = field(default=None, compare=False)

    @property
    def between_processes(self) -> BetweenProcesses | None:
        """What the processes were taken to differ by, where times were compared."""
        return self.change.between_processes if self.change and self.time else None


@dataclass(frozen=True)
class GateReport:
    """What a gate says of two folders."""

    subjects: tuple[GateSubject, ...]  # every variant at every case of either side
    problems: tuple[ProfkitError, ...] = ()  # records that cannot be read
    strict: bool = False  # whether "cannot tell" closes the gate too
    alpha: float = ALPHA
    power: float = POWER

    @property
    def summary(self) -> str:
        """`0 slower, 1 faster, 34 the same, 2 cannot tell, 1 without a time`."""
        counts = Counter(s.answer for s in self.subjects)
        always = ("slower", "faster", "same", "cannot tell")
        kinds = [k for k in _WORDS if counts[k] or k in always]
        return ", ".join(f"{counts[kind]} {_WORDS[kind]}" for kind in kinds)

    @property
    def assumed(self) -> BetweenProcesses | None:
        """What processes were taken to differ by where that was never measured; None elsewhere."""
        found = [s.between_processes for s in self.subjects]
        return next((b for b in found if b and not b.measured), None)

    @property
    def closing(self) -> dict[int, list[GateSubject]]:
        """Exit status -> the subjects that ask for it."""
        untried = {"no time", "stale"} | ({"cannot tell"} if self.strict else set())
        bad = [s for s in self.subjects if s.answer in ("wrong", "slower")]
        return {
            1: sorted(bad, key=lambda s: s.answer != "wrong"),
            2: [s for s in self.subjects if s.answer in untried],
        }

    @property
    def status(self) -> int:
        """1 slower or wrong; 2 something that changed could not be judged; 0 otherwise."""
        if self.closing[1]:
            return 1
        return 2 if self.closing[2] or self.problems else 0

    @property
    def reasons(self) -> list[str]:
        """Every reason for a status other than 0."""
        named = [f"{s.name}: {s.because}" for closed in self.closing.values() for s in closed]
        return named + [problem.message for problem in self.problems]

    def to_json(self) -> GateDocument:
        """The document that `profkit gate --json` prints."""
        return as_document(GateDocument, self)


_WORDS: dict[GateAnswer, str] = {
    "wrong": "wrong", "slower": "slower", "faster": "faster", "same": "the same",
    "cannot tell": "cannot tell", "no time": "without a time", "stale": "stale",
    "new": "new", "gone": "gone",
}  # fmt: skip
