"""A kernel's statements and how often they ran  ->  how long its longest chain of dependent ones takes.

In a loop, what one round hands to the next cannot be overlapped: the longest path from a register to
itself through a basic block, times how often a warp runs the block. If that is most of the time that a
warp has, the warp waits for its own results, and more warps or more independent work is what would help.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from profkit.lab.ablation import ptx
from profkit.lab.ablation.change import SurveyedCode
from profkit.lab.ablation.ptx import PtxStatement
from profkit.lab.ablation.units import get_unit_of_instruction

if TYPE_CHECKING:
    from profkit.units import Cycles, RegisterName


# Cycles from an instruction to the first that may use its result, on GPUs from 2020 on: microbenchmarks
# agree to a cycle or two on fixed ones, and to a tenth on the others.
_FIXED = 4
_DOUBLE = 8
_XU = 20
_SHARED = 29
_MOST = 64  # registers of a block that are followed


@dataclass(frozen=True)
class ChainCycles:
    """Cycles of one path, by what makes the wait."""

    fixed: float = 0.0  # arithmetic
    xu: float = 0.0
    shared: float = 0.0

    @property
    def cycles(self) -> Cycles:
        return self.fixed + self.xu + self.shared

    def add_chain(self, other: ChainCycles, times: float = 1.0) -> ChainCycles:
        return ChainCycles(
            self.fixed + other.fixed * times,
            self.xu + other.xu * times,
            self.shared + other.shared * times,
        )


def sum_dependency_chains_of_busiest_warp(code: SurveyedCode) -> ChainCycles:
    """Return the chains of all blocks together, of the warp of a thread block that runs most of them."""
    statements: dict[tuple[str, int], list[PtxStatement]] = {}
    for number, kernel, statement in code.module.iterate_statements_with_block_numbers():
        statements.setdefault((kernel.name, number), []).append(statement)
    by_warp: dict[int, ChainCycles] = {}
    for (name, number), block in statements.items():
        longest = _find_longest_carried_chain(block)
        for warp, times in enumerate(code.survey.entries[number]):
            if times and longest.cycles and name in code.grids:
                before = by_warp.get(warp, ChainCycles())
                by_warp[warp] = before.add_chain(longest, times / prod(code.grids[name]))
    return max(by_warp.values(), key=lambda chain: chain.cycles, default=ChainCycles())


def _find_longest_carried_chain(statements: list[PtxStatement]) -> ChainCycles:
    """Return the longest path through a basic block from a register to itself."""
    chains = [ChainCycles()]
    for register in _list_registers_read_before_written(statements)[:_MOST]:
        chains.append(_measure_chain_to_register(register, statements))
    return max(chains, key=lambda chain: chain.cycles)


def _list_registers_read_before_written(statements: list[PtxStatement]) -> list[RegisterName]:
    """Return registers that a block reads before it writes them."""
    read: dict[str, None] = {}
    written: set[str] = set()
    for statement in statements:
        for name in _list_registers_read(statement):
            if name not in written:
                read[name] = None
        written.update(ptx.list_written_registers(statement))
    return [name for name in read if name in written]


def _list_registers_read(statement: PtxStatement) -> list[RegisterName]:
    names = [*ptx.list_value_registers(statement), *ptx.list_address_registers(statement)]
    if statement.guard:
        return [*names, statement.guard]
    return names


def _measure_chain_to_register(
    register: RegisterName, statements: list[PtxStatement]
) -> ChainCycles:
    reached = {register: ChainCycles()}
    for statement in statements:
        sources = [reached[name] for name in _list_registers_read(statement) if name in reached]
        for name in ptx.list_written_registers(statement):
            reached.pop(name, None)
            if sources:
                longest = max(sources, key=lambda chain: chain.cycles)
                reached[name] = longest.add_chain(_estimate_latency(statement))
    return reached.get(register, ChainCycles())


def _estimate_latency(statement: PtxStatement) -> ChainCycles:
    words = statement.words
    is_load = words[0] in ("ld", "atom", "ldmatrix")
    if words[0] == "shfl" or (is_load and "shared" in words):
        return ChainCycles(shared=_SHARED)
    if words[0] in ("mov", "cvta", "ld", "atom", "tex"):
        return ChainCycles()  # no instruction, or a wait that is measured otherwise
    unit = get_unit_of_instruction(words)
    if unit == "xu":
        return ChainCycles(xu=_XU)
    return ChainCycles(fixed=_DOUBLE if unit == "fp64" else _FIXED)
