"""Instructions  ->  which of them may have run right before another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from profkit.reports.sass.instruction import Instruction
from profkit.reports.sass.opcodes import ENDS, INDIRECT


@dataclass(frozen=True)
class Program:
    """The instructions of a kernel in the order of their addresses.

    Attributes:
        instructions: All of them, ascending.
        index: Address -> position.
        before: Position -> positions that control may come from.
        encoded: Whether every instruction has its control fields.
    """

    instructions: Sequence[Instruction]
    index: dict[int, int] = field(init=False)
    before: dict[int, list[int]] = field(init=False)
    encoded: bool = field(init=False)

    def __post_init__(self) -> None:
        index = {instruction.pc: n for n, instruction in enumerate(self.instructions)}
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "before", _before(self.instructions, index))
        object.__setattr__(self, "encoded", all(x.control for x in self.instructions))


def _before(instructions: Sequence[Instruction], index: dict[int, int]) -> dict[int, list[int]]:
    """Falls through, jumps with a known target, and indirect jumps to where nothing else leads.

    A call falls through: what the callee did is not looked at. A callee's first instruction comes
    from all its calls.
    """
    before: dict[int, list[int]] = defaultdict(list)
    indirect = [n for n, x in enumerate(instructions) if x.opcode in INDIRECT]
    for n, instruction in enumerate(instructions):
        ends = instruction.opcode in ENDS and instruction.guard is None
        if n + 1 < len(instructions) and not ends:
            before[n + 1].append(n)
        if instruction.target in index and instruction.target is not None:
            before[index[instruction.target]].append(n)
    if indirect:
        for n in range(1, len(instructions)):
            if not before[n]:
                before[n] = list(indirect)
    return before
