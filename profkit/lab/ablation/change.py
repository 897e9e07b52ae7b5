"""What an ablation is, and what it makes of a kernel's code: one text, and two tables for it.

The control's table leaves everything as it was, the other takes one cause away. Both run the same
machine code, so what the choosing itself costs is in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.footprint import Region
from profkit.lab.ablation.ptx import PtxModule
from profkit.lab.ablation.survey import Survey
from profkit.records.ablation import Refusal

_SECTOR = 32  # bytes
GLOBAL = ("global", "generic")  # where an access of global memory may say that it goes
ROOM = 4 << 20  # bytes of memory that no kernel knows of: where atomics are spread


@dataclass(frozen=True)
class SurveyedCode:
    """A kernel's code, and what it did in one call."""

    module: PtxModule
    accesses: Sequence[PtxAccess]
    survey: Survey
    threads: Mapping[str, int]  # of one launch of each kernel
    grids: Mapping[str, int]  # thread blocks of one launch of each kernel
    l2: int  # bytes of the GPU's L2
    room: int  # address of ROOM bytes
    local_bytes: int  # of stack and spills of each thread
    capped: bool  # whether the compiler's flags limit registers
    fast: str  # the PTX of the same source with fast math; empty where there is none
    # accesses that went from end to end through one allocation: what lies between is theirs
    anchored: frozenset[int]

    def name_source_line(self, access: PtxAccess) -> str:
        """Its source line, `name.cu:12`; empty where that is not known."""
        file, line = access.statement.line
        path = self.module.files.get(file, "")
        if not path or not line:
            return ""
        return f"{path.rpartition('/')[2]}:{line}"

    def list_executed(self, spaces: tuple[str, ...], kinds: tuple[str, ...]) -> list[PtxAccess]:
        """Accesses of these spaces and kinds that the call made."""
        executed = []
        for access in self.accesses:
            is_wanted = access.space in spaces and access.kind in kinds
            if is_wanted and self.survey.seen[access.number].requests:
                executed.append(access)
        return executed

    def is_scattered(self, access: PtxAccess) -> bool:
        """Whether an access touches a quarter more sectors than its bytes fill."""
        seen = self.survey.seen[access.number]
        return seen.units > 1.25 * seen.threads * access.width / _SECTOR

    def is_in_conflict(self, access: PtxAccess) -> bool:
        """Whether a request takes a twentieth more passes over the banks than it has to."""
        seen = self.survey.seen[access.number]
        return seen.ways > 1.05 * seen.requests

    def reads_several_words(self, access: PtxAccess) -> bool:
        """Whether the lanes of a request read a twentieth more words than one."""
        seen = self.survey.seen[access.number]
        return seen.units > 1.05 * seen.requests

    def is_without_decision(self, access: PtxAccess) -> bool:
        """Whether neither what an access reads nor what it writes decides what is done next."""
        return not access.steers and not self.is_read_to_steer(access)

    def is_read_to_steer(self, store: PtxAccess) -> bool:
        """Whether what a store writes may be read by a load that decides what is done next."""
        return any(load.steers and self._may_read(load, store) for load in self.accesses)

    def _may_read(self, load: PtxAccess, store: PtxAccess) -> bool:
        apart = (load.space == "shared") != (store.space == "shared")
        if load.kind == "store" or apart or load.space == "const":
            return False
        read, written = self.survey.seen[load.number], self.survey.seen[store.number]
        if not read.requests:
            return False
        return read.lowest < written.highest and written.lowest < read.highest


@dataclass(frozen=True)
class CodeChange:
    """One cause taken away from a kernel's code."""

    text: str  # the rewritten PTX
    table: bytes  # what takes the cause away
    control: bytes  # what leaves everything as it was
    changed: str  # in words: `64 loads re-addressed`
    kept: str = ""  # what of that kind stays, and why
    # source line -> the table that changes the accesses of that line only
    lines: Mapping[str, bytes] = field(default_factory=dict)
    # other code, which needs no table and has no control: it is held against the original
    other_code: bool = False
    uncapped: bool = False  # to be assembled without the original's limit of registers
    part: int = 1  # of so many blocks one is launched, and does the work of all
    regions: tuple[Region, ...] = ()  # what those blocks have to touch as much of as all did


class Refused(Exception):
    """Why one cause cannot be taken away alone."""

    def __init__(self, code: str, observed: str, threshold: str, remedy: str) -> None:
        super().__init__(observed)
        self.code, self.observed, self.threshold, self.remedy = code, observed, threshold, remedy


@dataclass(frozen=True)
class Ablation:
    id: str
    title: str  # what is taken away: `shared bank conflicts`
    reachable: bool  # whether a fix could get there; else its gain is only a bound
    rules: tuple[str, ...]  # the rules whose gain it measures
    probes: tuple[str, ...]  # the probes that plant what it takes away
    # what it works on, in opcodes of the machine code, separated by spaces: after it there are as
    # many of them as before, and what choosing adds is of other kinds
    keeps: str
    make: Callable[[SurveyedCode], CodeChange]  # or Refused

    def make_refusal(self, why: Refused) -> Refusal:
        return make_named_refusal(self.id, why)


def make_named_refusal(ablation: str, why: Refused) -> Refusal:
    return Refusal(ablation, why.code, why.observed, why.threshold, why.remedy)


def make_nothing_to_remove_refusal(what: str) -> Refused:
    """The kernel has nothing of this kind: that is no fault."""
    return Refused("nothing-to-take-away", what, "one of them at least", "none: it costs nothing")


def require_changeable_accesses(
    found: Sequence[PtxAccess], is_free: Callable[[PtxAccess], bool], what: str, nothing: str
) -> list[PtxAccess]:
    """Those of the accesses found that can be changed alone; Refused where there are none."""
    if not found:
        raise make_nothing_to_remove_refusal(nothing)
    free = [access for access in found if is_free(access)]
    if not free:
        raise Refused(
            "steers",
            f"all {len(found)} {what} decide a branch or an address",
            "one that does not",
            "compute the addresses, or look at occupancy: it says whether the wait is hidden",
        )
    return free


def make_line_tables(
    code: SurveyedCode, on: Sequence[PtxAccess], fill: Callable[[set[int]], bytes]
) -> dict[str, bytes]:
    """Source line -> the table that changes the accesses of that line only."""
    lines: dict[str, set[int]] = {}
    for access in on:
        lines.setdefault(code.name_source_line(access), set()).add(access.number)
    return {place: fill(numbers) for place, numbers in lines.items() if place}


def say_unchanged(left: int, what: str) -> str:
    if not left:
        return ""
    return f"{left} {what} stay"


def format_count(number: int, one: str, several: str = "") -> str:
    if number == 1:
        return f"1 {one}"
    return f"{number} {several or one + 's'}"
