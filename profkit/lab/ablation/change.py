"""What an ablation is, and what it makes of a kernel's code: one text, and two tables for it.

The control's table leaves everything as it was, the other takes one cause away. Both run the same
machine code, so what the choosing itself costs is in both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.footprint import Region
from profkit.lab.ablation.ptx import PtxModule, PtxStatement
from profkit.lab.ablation.survey import Survey
from profkit.records.ablation import Refusal

if TYPE_CHECKING:
    from profkit.units import (
        AblationName,
        AccessNumber,
        Clause,
        ClauseOrEmpty,
        PtxText,
        TextOrEmpty,
    )


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
    grids: Mapping[str, tuple[int, int, int]]  # thread blocks of one launch of each kernel
    l2: int  # bytes of the GPU's L2
    room: int  # address of ROOM bytes
    local_bytes: int  # of stack and spills of each thread
    capped: bool  # whether the compiler's flags limit registers
    fast: str  # the PTX of the same source with fast math; empty where there is none
    # accesses that went from end to end through one allocation: what lies between is theirs
    anchored: frozenset[int]
    dynamic_shared: int = 0  # bytes of a block, the most that a launch asks for
    blocks_at_once: int = 0  # on the GPU, the most of a launch

    def write_source_line_label(self, access: PtxAccess) -> TextOrEmpty:
        """Return its source line, `name.cu:12`; empty where that is not known."""
        file, line = access.statement.line
        path = self.module.files.get(file, "")
        if not path or not line:
            return ""
        return f"{path.rpartition('/')[2]}:{line}"

    def find_executed_statements(self, *opcode_prefixes: str) -> list[PtxStatement]:
        """Return all that were executed and whose opcode begins so."""
        found = []
        for block, _, statement in self.module.iterate_statements_with_block_numbers():
            if self.survey.blocks[block] and f"{statement.opcode}.".startswith(opcode_prefixes):
                found.append(statement)
        return found

    def list_executed_accesses(
        self, spaces: tuple[str, ...], kinds: tuple[str, ...]
    ) -> list[PtxAccess]:
        """Return accesses of these spaces and kinds that the call made."""
        executed = []
        for access in self.accesses:
            has_cause = access.space in spaces and access.kind in kinds
            if has_cause and self.survey.seen[access.number].requests:
                executed.append(access)
        return executed

    def is_scattered(self, access: PtxAccess) -> bool:
        """Return whether an access touches a quarter more sectors than its bytes fill."""
        seen = self.survey.seen[access.number]
        return seen.units > 1.25 * seen.threads * access.width / _SECTOR

    def can_be_moved_without_effect(self, access: PtxAccess) -> bool:
        """Return whether another address changes nothing that is decided."""
        decides = access.kind == "store" and self.can_stored_value_steer_control_flow(access)
        return not (access.steers or access.why_unmovable or decides)

    def has_no_effect_on_control_flow(self, access: PtxAccess) -> bool:
        """Return whether neither what an access reads nor what it writes decides what is done next."""
        return not access.steers and not self.can_stored_value_steer_control_flow(access)

    def can_stored_value_steer_control_flow(self, store: PtxAccess) -> bool:
        """Return whether what a store writes may be read by a load that decides what is done next."""
        written = self.survey.seen[store.number]
        for load in self.accesses:
            apart = (load.space == "shared") != (store.space == "shared")
            if not load.steers or load.space == "const" or apart:
                continue
            read = self.survey.seen[load.number]
            if read.requests and read.lowest < written.highest and written.lowest < read.highest:
                return True
        return False


@dataclass(frozen=True)
class CodeChange:
    """One cause taken away from a kernel's code."""

    text: str  # the rewritten PTX
    changed: str  # in words: `64 loads re-addressed`
    kept: str = ""  # what of that kind stays, and why
    table: bytes = b""  # what takes the cause away
    control: bytes = b""  # what leaves everything as it was
    # source line -> the table that changes the accesses of that line only
    lines: Mapping[str, bytes] = field(default_factory=dict)
    # other code, which needs no table and has no control: it is held against the original
    other_code: bool = False
    uncapped: bool = False  # to be assembled without the original's limit of registers
    part: int = 1  # of so many blocks one is launched, and does the work of all
    axis: int | None = None  # of the grid, along which that is; None: whichever touches as much
    more_shared: int = 0  # bytes of dynamic shared memory that it needs besides
    regions: tuple[Region, ...] = ()  # what those blocks have to touch as much of as all did


class Refused(Exception):
    """Why one cause cannot be taken away alone."""

    def __init__(self, code: str, observed: str, threshold: str, remedy: str) -> None:
        super().__init__(observed)
        self.said = code, observed, threshold, remedy

    def make_refusal(self, ablation: AblationName) -> Refusal:
        return Refusal(ablation, *self.said)


def make_nothing_to_remove_refusal(observed: Clause) -> Refused:
    """Return that the kernel has nothing of this kind, which is no fault."""
    return Refused(
        "nothing-to-take-away", observed, "one of them at least", "none: it costs nothing"
    )


class Ablation(ABC):
    """One cause, and how it is taken away from a kernel's code."""

    id: str
    title: str  # what is taken away: `shared bank conflicts`
    reachable = False  # whether a fix could get there; else its gain is only a bound
    rules: tuple[str, ...] = ()  # the rules whose gain it measures
    probes: tuple[str, ...] = ()  # the probes that plant what it takes away
    # What it works on, in opcodes of the machine code, separated by spaces: after it there are as
    # many of them as before, and what choosing adds is of other kinds.
    keeps = ""

    def __init__(self, code: SurveyedCode) -> None:
        self.code = code

    @abstractmethod
    def make_change(self) -> CodeChange:
        """Return the code without the cause; or Refused."""


class AccessAblation(Ablation):
    """One that changes accesses of some kinds, those that are free to be changed."""

    spaces: tuple[str, ...]
    kinds: tuple[str, ...]
    what: str  # the accesses, in words
    nothing: str  # what is said where there are none
    found: list[PtxAccess]
    free: list[PtxAccess]

    def has_cause(self, access: PtxAccess) -> bool:
        """Return whether an access has the cause: at least, that its kind is done at all."""
        return access.kind in self.kinds

    def can_be_rewritten_safely(self, access: PtxAccess) -> bool:
        """Return whether it can be changed, and nothing else is done."""
        return self.code.has_no_effect_on_control_flow(access)

    def make_change(self) -> CodeChange:
        executed = self.code.list_executed_accesses(self.spaces, self.kinds)
        self.found = [access for access in executed if self.has_cause(access)]
        if not self.found:
            raise make_nothing_to_remove_refusal(self.nothing)
        self.free = [access for access in self.found if self.can_be_rewritten_safely(access)]
        if not self.free:
            raise Refused(
                "steers",
                f"all {len(self.found)} {self.what} decide a branch or an address",
                "one that does not",
                "compute the addresses, or look at occupancy: it says whether the wait is hidden",
            )
        return self.change_accesses_free_to_change()

    @abstractmethod
    def change_accesses_free_to_change(self) -> CodeChange:
        """Return the code in which those accesses are changed that are free."""

    def say_count_left_unchanged(self, which_ones: Clause) -> ClauseOrEmpty:
        return say_unchanged(len(self.found) - len(self.free), which_ones)


def make_change_by_table(
    code: SurveyedCode,
    text: PtxText,
    accesses: Sequence[PtxAccess],
    fill_table: Callable[[set[AccessNumber]], bytes],
    changed_text: str,
    unchanged_text: str,
) -> CodeChange:
    """The change of some accesses by a table: for all of them, for none, and for each source line."""
    lines: dict[str, set[int]] = {}
    for access in accesses:
        lines.setdefault(code.write_source_line_label(access), set()).add(access.number)
    everything = set().union(*lines.values())
    lines.pop("", None)
    tables = {place: fill_table(numbers) for place, numbers in lines.items()}
    return CodeChange(
        text, changed_text, unchanged_text, fill_table(everything), fill_table(set()), tables
    )


def say_unchanged(unchanged_count: int, which_ones: Clause) -> ClauseOrEmpty:
    if not unchanged_count:
        return ""
    return f"{unchanged_count} {which_ones} stay"


def format_count(number: int, singular: str, plural: str = "") -> str:
    if number == 1:
        return f"1 {singular}"
    return f"{number} {plural or singular + 's'}"
