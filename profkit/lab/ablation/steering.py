"""A kernel's statements  ->  which of them make values that decide what the kernel does next.

A value decides where it reaches a branch, an address or a barrier: through registers, and through
shared or local memory too. Registers are followed along the ways that the code can go: one that is
written again holds another value.

A branch around mere arithmetic decides nothing, unless what is computed there decides something: the
slow path of an accurate function, the force between two atoms that are near enough. How often it is
taken is counted when a change is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profkit.lab.ablation import ptx
from profkit.lab.ablation.ptx import PtxKernel, PtxStatement

if TYPE_CHECKING:
    from profkit.units import BasicBlockNumber, RegisterName


_MEMORY = frozenset(
    "ld ldu st atom red ldmatrix stmatrix wmma cp mbarrier prefetch tex suld sust wgmma".split()
)
_SPACES = frozenset("global shared local param const".split())
_FLOW = frozenset("bra brx ret exit bar barrier call nanosleep trap".split())
_JUMPS = frozenset("bra brx ret exit trap".split())
_OWN_MEMORY = frozenset("param local const".split())
_AMONG_LANES = frozenset("shfl vote match redux activemask mma tcgen05 setmaxnreg".split())


@dataclass
class Steering:
    """What decides: statements by where they begin, and the memories that hold deciding values."""

    statements: set[int] = field(default_factory=set)
    memories: set[str] = field(default_factory=set)  # of `shared` and `local`

    def is_writing_steering_register(self, statement: PtxStatement) -> bool:
        """Return whether a statement writes a register whose value there decides something."""
        return statement.start in self.statements


@dataclass(frozen=True)
class _Detour:
    """Blocks of mere arithmetic between a branch and the block where its ways meet again."""

    end: int
    written: frozenset[str]  # registers


def find_what_steers_control_flow(kernel: PtxKernel) -> Steering:
    blocks: list[list[PtxStatement]] = [[] for _ in range(kernel.basic_block_count)]
    for statement in kernel.statements:
        blocks[statement.block].append(statement)
    followers = [
        _list_successor_blocks(kernel, number, block) for number, block in enumerate(blocks)
    ]
    detours = [
        _find_arithmetic_detour(number, blocks, followers)
        for number in range(kernel.basic_block_count)
    ]
    needed: list[set[str]] = [set() for _ in blocks]  # registers that decide, where a block begins
    steering = Steering()
    before = -1
    while before < _count_known(steering, needed):  # until nothing is added
        before = _count_known(steering, needed)
        for number in reversed(range(kernel.basic_block_count)):
            registers: set[str] = set()
            for follower in followers[number]:
                registers |= needed[follower]
            detour = detours[number]
            decides = detour is None or not needed[detour.end].isdisjoint(detour.written)
            for statement in reversed(blocks[number]):
                if decides or statement.words[0] != "bra":
                    _step_back_over_statement(statement, registers, steering)
            needed[number] = registers
    return steering


def _find_arithmetic_detour(
    number: BasicBlockNumber,
    blocks: Sequence[Sequence[PtxStatement]],
    followers: Sequence[Sequence[int]],
) -> _Detour | None:
    """Return what lies between a block's branch and the block where all ways meet; None if it does more.

    Blocks are numbered as they stand in the text: a way that goes back before the branch is a loop.
    """
    end = max(followers[number], default=number)
    at = number + 1
    written: set[str] = set()
    while at < end:
        if not followers[at] or min(followers[at]) <= number:
            return None
        end = max(end, *followers[at])
        for statement in blocks[at]:
            if _has_side_effect(statement):
                return None
            written.update(ptx.list_written_registers(statement))
        at += 1
    if min(followers[number], default=number) <= number:
        return None
    return _Detour(end, frozenset(written))


def _has_side_effect(statement: PtxStatement) -> bool:
    """Return whether a statement does more than to compute registers of its own thread."""
    first = statement.words[0]
    if first == "ld":
        return _OWN_MEMORY.isdisjoint(statement.words)
    is_jump = first in ("bra", "brx")
    return first in _MEMORY or first in _AMONG_LANES or (first in _FLOW and not is_jump)


def _count_known(steering: Steering, needed: Sequence[set[str]]) -> int:
    """Count what is known to decide: statements, memories and registers. It only grows."""
    return len(steering.statements) + len(steering.memories) + sum(map(len, needed))


def _list_successor_blocks(
    kernel: PtxKernel, number: BasicBlockNumber, block: Sequence[PtxStatement]
) -> list[BasicBlockNumber]:
    """Return the blocks that may come behind one; all of them, where that is not known."""
    after = [number + 1] if number + 1 < kernel.basic_block_count else []
    if not block or block[-1].words[0] not in _JUMPS:
        return after
    last = block[-1]
    if not last.guard:
        after = []
    if last.words[0] not in ("bra", "brx"):
        return after
    target = kernel.labels.get(last.operands[0])
    if last.words[0] == "brx" or target is None:
        return list(range(kernel.basic_block_count))
    return [*after, target]


def _step_back_over_statement(
    statement: PtxStatement, registers: set[RegisterName], steering: Steering
) -> None:
    """Go from the registers that decide behind a statement to those that decide before it."""
    words = statement.words
    written = ptx.list_written_registers(statement)
    is_made = not registers.isdisjoint(written)
    if not statement.guard:
        registers.difference_update(written)
    for space in ("shared", "local"):
        stored = words[0] in ("st", "stmatrix", "atom", "red") and _can_access_space(words, space)
        if stored and space in steering.memories:
            registers.update(ptx.list_value_registers(statement))
    if is_made:
        steering.statements.add(statement.start)
        registers.update(ptx.list_value_registers(statement))
        if statement.guard:
            registers.add(statement.guard)
        if words[0] in ("ld", "ldmatrix", "atom", "wmma"):
            for space in ("shared", "local"):
                if _can_access_space(words, space):
                    steering.memories.add(space)
    registers.update(list_registers_that_steer(statement))


def list_registers_that_steer(statement: PtxStatement) -> list[RegisterName]:
    """Return registers that decide at this very statement."""
    words = statement.words
    if words[0] == "ld" and "param" in words:
        return []
    names = ptx.list_address_registers(statement)
    if statement.guard and (words[0] in _MEMORY or words[0] in _FLOW):
        names.append(statement.guard)
    if words[0] in _FLOW or (words[0] == "st" and "param" in words):
        names += ptx.list_value_registers(statement)
    if words[0] == "wgmma":  # descriptors say where in shared memory; values stand in braces
        for operand in statement.operands[1:]:
            if not operand.startswith("{"):
                names.append(operand)
    return [name for name in names if name.startswith("%")]


def _can_access_space(opcode_parts: Sequence[str], space: str) -> bool:
    """Return whether an access may be to shared or to local memory: a generic one may be to either."""
    if any(word == space or word.startswith(f"{space}::") for word in opcode_parts):
        return True
    return _SPACES.isdisjoint(word.partition("::")[0] for word in opcode_parts)
