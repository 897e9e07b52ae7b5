"""One machine instruction as both readers give it: from text (text.py) and from bits (machine.py)."""

from __future__ import annotations

from dataclasses import dataclass

BYTES = 16  # of an instruction, from Volta on


@dataclass(frozen=True, slots=True)
class Control:
    """What the compiler tells the scheduler beside an instruction.

    Attributes:
        stall: Cycles until the next instruction of the warp may issue.
        write: The scoreboard (0-5) that is released when the result is there; None if none is.
        read: The scoreboard that is released when the operands were read; None if none is.
        wait: Bit n is set when the instruction waits until scoreboard n is released.
    """

    stall: int
    write: int | None
    read: int | None
    wait: int

    def sets(self, scoreboard: int) -> bool:
        """Whether the instruction holds this scoreboard until it is done."""
        return scoreboard in (self.write, self.read)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        pc: Its address in bytes.
        opcode: LDG; without modifiers.
        modifiers: ("E", "128"); none when read from bits.
        guard: The predicate it runs under (P0, !UP1), None when it always runs.
        reads: Registers it reads: R4, UR6, P0, UP1, B0; empty when read from bits.
        writes: Registers it writes, likewise.
        target: Address that it may jump to; None when it does not, or when that is not known.
        scoreboard: Of a DEPBAR: the scoreboard that it waits for and how many may stay open.
        control: None when read from text that has none.
    """

    pc: int
    opcode: str
    modifiers: tuple[str, ...] = ()
    guard: str | None = None
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    target: int | None = None
    scoreboard: tuple[int, int] | None = None
    control: Control | None = None


def control(high: int) -> Control:
    """The control fields out of the upper 64 bits of an instruction (Volta to Blackwell)."""
    write, read = high >> 46 & 7, high >> 49 & 7
    return Control(
        stall=high >> 41 & 0xF,
        write=None if write == 7 else write,
        read=None if read == 7 else read,
        wait=high >> 52 & 0x3F,
    )
