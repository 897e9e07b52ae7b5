"""A kernel's statements and how often they ran  ->  how long its longest chain of dependent ones takes.

In a loop, what one round hands to the next cannot be overlapped: the longest path from a register to
itself through a basic block, times how often a warp runs the block. If that is most of the time that a
warp has, the warp waits for its own results, and more warps or more independent work is what would help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profkit.ablation import ptx
from profkit.ablation.change import Code
from profkit.ablation.ptx import Kernel, Statement
from profkit.ablation.units import find_unit

# Cycles from an instruction to the first that may use its result, on GPUs from 2020 on: microbenchmarks
# agree to a cycle or two on fixed ones, and to a tenth on the others.
_FIXED = 4
_CYCLES = {"fp64": 8, "xu": 20, "shared": 29}
_MOST = 64  # registers of a block that are followed


@dataclass(frozen=True)
class Chain:
    """Cycles of one path, by what makes the wait."""

    fixed: float = 0.0  # arithmetic
    xu: float = 0.0
    shared: float = 0.0

    @property
    def cycles(self) -> float:
        return self.fixed + self.xu + self.shared

    def plus(self, kind: str, cycles: float) -> Chain:
        parts = {"fixed": self.fixed, "xu": self.xu, "shared": self.shared}
        parts[kind] += cycles
        return Chain(**parts)

    def times(self, number: float) -> Chain:
        return Chain(self.fixed * number, self.xu * number, self.shared * number)


def measure_chains(code: Code) -> Chain:
    """The chains of all blocks together, of the warp of a thread block that runs most of them."""
    by_warp: dict[int, Chain] = {}
    for kernel in code.module.kernels.values():
        for number, chain in _find_chains(kernel).items():
            entries = code.survey.entries[code.first_block(kernel.name) + number]
            for warp, times in enumerate(entries):
                blocks = code.grids.get(kernel.name, 0)
                if blocks and times:
                    more = chain.times(times / blocks)
                    before = by_warp.get(warp, Chain())
                    by_warp[warp] = Chain(
                        before.fixed + more.fixed, before.xu + more.xu, before.shared + more.shared
                    )
    return max(by_warp.values(), key=lambda chain: chain.cycles, default=Chain())


def _find_chains(kernel: Kernel) -> Mapping[int, Chain]:
    """Basic block -> its longest path from a register to itself."""
    blocks: dict[int, list[Statement]] = {}
    for statement in kernel.statements:
        blocks.setdefault(statement.block, []).append(statement)
    chains = {}
    for number, statements in blocks.items():
        longest = Chain()
        for register in _find_carried(statements)[:_MOST]:
            chain = _follow_register(register, statements)
            if chain.cycles > longest.cycles:
                longest = chain
        if longest.cycles:
            chains[number] = longest
    return chains


def _find_carried(statements: list[Statement]) -> list[str]:
    """Registers that a block reads before it writes them."""
    read: dict[str, None] = {}
    written: set[str] = set()
    for statement in statements:
        for name in _list_sources(statement):
            if name not in written:
                read[name] = None
        written.update(ptx.find_written(statement))
    return [name for name in read if name in written]


def _list_sources(statement: Statement) -> list[str]:
    names = [*ptx.find_read(statement), *ptx.find_addressing(statement)]
    return [*names, statement.guard] if statement.guard else names


def _follow_register(register: str, statements: list[Statement]) -> Chain:
    reached = {register: Chain()}
    for statement in statements:
        sources = [reached[name] for name in _list_sources(statement) if name in reached]
        written = ptx.find_written(statement)
        if sources:
            longest = max(sources, key=lambda chain: chain.cycles)
            kind, cycles = _find_latency(statement)
            for name in written:
                reached[name] = longest.plus(kind, cycles)
        else:
            for name in written:
                reached.pop(name, None)
    return reached.get(register, Chain())


def _find_latency(statement: Statement) -> tuple[str, float]:
    words = statement.words
    if words[0] in ("ld", "atom", "shfl", "ldmatrix") and ("shared" in words or words[0] == "shfl"):
        return "shared", _CYCLES["shared"]
    if words[0] in ("mov", "cvta", "ld", "atom", "tex"):
        return "fixed", 0.0  # no instruction, or a wait that is measured otherwise
    unit = find_unit(words)
    if unit == "xu":
        return "xu", _CYCLES["xu"]
    return "fixed", _CYCLES.get(unit, _FIXED)
