"""What an ablation is, and what it makes of a kernel's code: one text, and two tables for it.

The control's table leaves everything as it was, the other takes one cause away. Both run the same
machine code, so what the choosing itself costs is in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from profkit.ablation.accesses import Access
from profkit.ablation.ptx import Module
from profkit.ablation.survey import Survey
from profkit.records.ablation import Refusal

_SECTOR = 32  # bytes
ROOM = 4 << 20  # bytes of memory that no kernel knows of: where atomics are spread


@dataclass(frozen=True)
class Code:
    """A kernel's code, and what it did in one call."""

    module: Module
    accesses: Sequence[Access]
    survey: Survey
    threads: Mapping[str, int]  # of one launch of each kernel
    grids: Mapping[str, int]  # thread blocks of one launch of each kernel
    l2: int  # bytes of the GPU's L2
    room: int  # address of ROOM bytes
    local_bytes: int  # of stack and spills of each thread
    capped: bool  # whether the compiler's flags limit registers
    # accesses that went from end to end through one allocation: what lies between is theirs
    anchored: frozenset[int]

    def first_block(self, name: str) -> int:
        """Which of all counted basic blocks is the first of a kernel."""
        first = 0
        for kernel in self.module.kernels.values():
            if kernel.name == name:
                break
            first += kernel.blocks
        return first

    def places(self, numbers: Sequence[int]) -> list[str]:
        """The source lines of accesses, `name.cu:12`, each once; empty text where not known."""
        return list(dict.fromkeys(self.place(number) for number in numbers))

    def place(self, number: int) -> str:
        file, line = self.accesses[number].statement.line
        path = self.module.files.get(file, "")
        return f"{path.rpartition('/')[2]}:{line}" if path and line else ""

    def has_executed(self, access: Access) -> bool:
        return self.survey.seen[access.number].requests > 0

    def is_scattered(self, access: Access) -> bool:
        """Whether an access touches a quarter more sectors than its bytes fill."""
        seen = self.survey.seen[access.number]
        return seen.units > 1.25 * seen.threads * access.width / _SECTOR

    def is_in_conflict(self, access: Access) -> bool:
        """Whether a request takes a twentieth more passes over the banks than it has to."""
        seen = self.survey.seen[access.number]
        return seen.ways > 1.05 * seen.requests

    def feeds_steering(self, store: Access) -> bool:
        """Whether what a store writes may be read by a load that decides what is done next."""
        seen = self.survey.seen[store.number]
        for load in self.accesses:
            apart = (load.space == "shared") != (store.space == "shared")
            if not load.steers or apart or load.space == "const":
                continue
            read = self.survey.seen[load.number]
            if read.requests and read.lowest < seen.highest and seen.lowest < read.highest:
                return True
        return False


@dataclass(frozen=True)
class Change:
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


@dataclass(frozen=True)
class Ablation:
    id: str
    title: str  # what is taken away: `shared bank conflicts`
    reachable: bool  # whether a fix could get there; else its gain is only a bound
    rules: tuple[str, ...]  # the rules whose gain it measures
    probes: tuple[str, ...]  # the probes that plant what it takes away
    make: Callable[[Code], Change | Refusal]

    def refuse(self, code: str, observed: str, threshold: str, remedy: str) -> Refusal:
        return Refusal(self.id, code, observed, threshold, remedy)


def refuse_nothing(ablation: str, what: str) -> Refusal:
    """The kernel has nothing of this kind: that is no fault."""
    return Refusal(ablation, "nothing-to-take-away", what, "", "")


def refuse_steering(ablation: str, count: int, what: str) -> Refusal:
    return Refusal(
        ablation,
        "steers",
        f"all {count} {what} decide a branch or an address",
        "one that does not",
        "compute the addresses, or look at occupancy: it says whether the wait is hidden",
    )


def count_words(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
