"""An instruction that warps wait at  ->  the instructions whose results they wait for.

With control fields this is what the hardware does: the instruction waits for scoreboards, and those
who hold them are found by walking back until another instruction waited for the same. Without them
(text alone) it is a slice: back from the registers that are read to those who write them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set

from profkit.reports.sass import instruction as sass
from profkit.reports.sass.instruction import L1TEX, MIO, TENSOR, Instruction


class Program:
    """The instructions of a kernel in the order of their addresses."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        self.index = {x.pc: n for n, x in enumerate(instructions)}  # address -> position
        # Position -> positions that control may come from.
        self.before = _comes_from(instructions, self.index)
        self.encoded = all(x.control for x in instructions)  # with control fields


def _comes_from(instructions: Sequence[Instruction], index: dict[int, int]) -> dict[int, list[int]]:
    """Falls through, jumps with a known target, and indirect jumps to where nothing else leads.

    A call falls through: what the callee did is not looked at. A callee's first instruction comes
    from all its calls.
    """
    before: dict[int, list[int]] = defaultdict(list)
    indirect = [n for n, x in enumerate(instructions) if x.opcode in sass.INDIRECT]
    for n, instruction in enumerate(instructions):
        ends = instruction.opcode in sass.ENDS and instruction.guard is None
        if n + 1 < len(instructions) and not ends:
            before[n + 1].append(n)
        if instruction.target in index and instruction.target is not None:
            before[index[instruction.target]].append(n)
    if indirect:
        for n in range(1, len(instructions)):
            if not before[n]:
                before[n] = list(indirect)
    return before


BOUND = 20_000  # instructions that one walk looks at; the longest kernel seen has 18,000
_UNITS = {"long_scoreboard": L1TEX, "short_scoreboard": MIO}
_GROUP = "LDGDEPBAR"
# The warp was sampled behind the instruction that holds it, the next that it will issue.
_BEHIND = {
    "barrier": frozenset({"BAR", "UCGABAR_WAIT", "WARPSYNC", "WARPGROUP", "BSYNC"}),
    "membar": frozenset({"MEMBAR"}),
    "sleeping": frozenset({"NANOSLEEP"}),
    "gmma": frozenset({"WARPGROUP"}),
}
_WARPGROUP = "WARPGROUP"  # .ARRIVE before wgmma, .DEPBAR until its results are there


def producers(program: Program, pc: int, state: str = "") -> list[Instruction]:
    """Return the instructions that the one at an address waits for, in the order of their addresses.

    Of several, those answered by the warp state's unit (L1TEX for long_scoreboard, MIO for
    short_scoreboard). At exits it is the stores before them; at barriers, fences and sleeps these
    themselves; for a fixed latency the instruction before.
    """
    at = program.index.get(pc)
    if at is None:
        return []
    if state == "drain":
        sources = _stores(program, at)
    elif state in _BEHIND:
        sources = _before(program, at, _BEHIND[state])
    elif state == "wait":
        sources = set(program.before[at])
    else:
        sources = _of_groups(program, _awaited(program, at))
    if state in _UNITS:
        sources = {n for n in sources if program.instructions[n].opcode in _UNITS[state]} or sources
    return [program.instructions[n] for n in sorted(sources)]


def _walk(program: Program, at: int, stop: Callable[[int], bool]) -> Iterator[int]:
    """Yield positions before one, nearest first; not beyond one at which stop holds."""
    seen: set[int] = set()
    front = list(program.before[at])
    while front and len(seen) < BOUND:
        behind: list[int] = []
        for n in front:
            if n not in seen:
                seen.add(n)
                yield n
                if not stop(n):
                    behind += program.before[n]
        front = behind


def _awaited(program: Program, at: int) -> set[int]:
    """Return who an instruction waits for; behind a DEPBAR, whom that does."""
    find = _holders if program.encoded else _writers
    sources = find(program, at)
    if not sources:
        for n in program.before[at]:
            if _is(program, n, "DEPBAR"):
                sources |= find(program, n)
    return sources


def _before(program: Program, at: int, opcodes: frozenset[str]) -> set[int]:
    """Return the nearest of some opcodes on each path, or the instruction itself when it is of wgmma's.

    A wait for the results of wgmma is a wait for the products before it.
    """
    code = program.instructions

    def nearest(start: int, names: Set[str]) -> set[int]:
        walk = _walk(program, start, lambda n: code[n].opcode in names)
        return {n for n in walk if code[n].opcode in names}

    if code[at].opcode == _WARPGROUP:
        return nearest(at, TENSOR) or {at}
    holders = nearest(at, opcodes)
    groups = {n for n in holders if code[n].opcode == _WARPGROUP}
    products = set().union(*(nearest(n, TENSOR) for n in groups)) if groups else set()
    return holders - groups | products if products else holders


def _holders(program: Program, at: int) -> set[int]:
    """Return who holds the scoreboards that this instruction waits for."""
    instruction = program.instructions[at]
    if instruction.control is None:
        return set()
    mask, open_ = instruction.control.wait, 0
    if instruction.scoreboard:
        mask, open_ = 1 << instruction.scoreboard[0], instruction.scoreboard[1]
    holders: set[int] = set()
    for scoreboard in (n for n in range(6) if mask >> n & 1):
        holders |= _held(program, at, scoreboard, open_)
    return holders


def _held(program: Program, at: int, scoreboard: int, open_: int) -> set[int]:
    """Return who holds one scoreboard, without the newest `open_` of them.

    Whoever waited for it before has found it free: nothing older can still hold it.
    """
    code = program.instructions

    def waited(n: int) -> bool:
        fields = code[n].control
        return fields is not None and bool(fields.wait >> scoreboard & 1)

    holders = [
        n
        for n in _walk(program, at, waited)
        if (fields := code[n].control) is not None and fields.sets(scoreboard)
    ]
    return set(holders[open_:] or holders)


def _writers(program: Program, at: int) -> set[int]:
    """Return who of L1TEX and MIO writes the registers that this instruction reads.

    Where none does, it is a register that it overwrites while an earlier one still reads it.
    """
    instruction = program.instructions[at]
    if instruction.opcode == "DEPBAR":
        groups = [n for n in _walk(program, at, lambda _: False) if _is(program, n, _GROUP)]
        open_ = instruction.scoreboard[1] if instruction.scoreboard else 0
        return set(groups[open_:][:1])
    results: set[int] = set()
    for register in instruction.reads:
        results |= set(_last(program, at, register, reads=False))
    if not results:
        for register in instruction.writes:
            results |= set(_last(program, at, register, reads=True))
    return results


def _last(program: Program, at: int, register: str, *, reads: bool) -> Iterator[int]:
    """Yield the last ones on each path that write a register and take their time.

    With reads, those that read it instead, as far as nothing writes it in between.
    """
    code = program.instructions
    for n in _walk(program, at, lambda n: register in code[n].writes):
        used = code[n].reads if reads else code[n].writes
        if register in used and code[n].opcode in L1TEX | MIO:
            yield n


def _stores(program: Program, at: int) -> set[int]:
    """Return the stores before an exit, back to a fence; a warp at its exit is sampled behind it."""
    code = program.instructions
    if at and code[at - 1].opcode == "EXIT":
        at -= 1
    walk = _walk(program, at, lambda n: code[n].opcode in ("MEMBAR", "ERRBAR"))
    return {n for n in walk if code[n].opcode in sass.STORES}


def _of_groups(program: Program, sources: set[int]) -> set[int]:
    """Return the copies of a group (cp.async) in the place of the instruction that closes it."""
    copies: set[int] = set()
    for n in sources:
        if _is(program, n, _GROUP):
            walk = _walk(program, n, lambda m: _is(program, m, _GROUP))
            copies |= {m for m in walk if program.instructions[m].opcode in sass.GROUPED}
    return {n for n in sources if not _is(program, n, _GROUP)} | copies if copies else sources


def _is(program: Program, n: int, opcode: str) -> bool:
    return program.instructions[n].opcode == opcode
