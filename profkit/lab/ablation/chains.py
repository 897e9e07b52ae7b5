"""A kernel's statements and how often they ran  ->  how long its longest chain of dependent ones takes.

In a loop, what one round hands to the next cannot be overlapped: the longest path from a register to
itself through a basic block, times how often a warp runs the block. If that is most of the time that a
warp has, the warp waits for its own results, and more warps or more independent work is what would help.
"""

from __future__ import annotations

from dataclasses import dataclass

from profkit.lab.ablation import ptx
from profkit.lab.ablation.change import SurveyedCode
from profkit.lab.ablation.ptx import PtxStatement
from profkit.lab.ablation.units import get_unit_of_instruction

# Cycles from an instruction to the first that may use its result, on GPUs from 2020 on: microbenchmarks
# agree to a cycle or two on fixed ones, and to a tenth on the others.
_FIXED, _DOUBLE, _XU, _SHARED = 4, 8, 20, 29
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

    def add_chain(self, other: Chain, times: float = 1.0) -> Chain:
        return Chain(
            self.fixed + other.fixed * times,
            self.xu + other.xu * times,
            self.shared + other.shared * times,
        )


def measure_chains(code: SurveyedCode) -> Chain:
    """The chains of all blocks together, of the warp of a thread block that runs most of them."""
    statements: dict[tuple[str, int], list[PtxStatement]] = {}
    for number, kernel, statement in code.module.number_blocks():
        statements.setdefault((kernel.name, number), []).append(statement)
    by_warp: dict[int, Chain] = {}
    for (name, number), block in statements.items():
        longest = _find_longest(block)
        for warp, times in enumerate(code.survey.entries[number]):
            if times and longest.cycles and name in code.grids:
                before = by_warp.get(warp, Chain())
                by_warp[warp] = before.add_chain(longest, times / code.grids[name])
    return max(by_warp.values(), key=lambda chain: chain.cycles, default=Chain())


def _find_longest(statements: list[PtxStatement]) -> Chain:
    """The longest path through a basic block from a register to itself."""
    chains = [Chain()]
    for register in _find_registers_read_first(statements)[:_MOST]:
        chains.append(_measure_chain_to_register(register, statements))
    return max(chains, key=lambda chain: chain.cycles)


def _find_registers_read_first(statements: list[PtxStatement]) -> list[str]:
    """Registers that a block reads before it writes them."""
    read: dict[str, None] = {}
    written: set[str] = set()
    for statement in statements:
        for name in _list_sources(statement):
            if name not in written:
                read[name] = None
        written.update(ptx.list_written_registers(statement))
    return [name for name in read if name in written]


def _list_sources(statement: PtxStatement) -> list[str]:
    names = [*ptx.list_value_registers(statement), *ptx.list_address_registers(statement)]
    if statement.guard:
        return [*names, statement.guard]
    return names


def _measure_chain_to_register(register: str, statements: list[PtxStatement]) -> Chain:
    reached = {register: Chain()}
    for statement in statements:
        sources = [reached[name] for name in _list_sources(statement) if name in reached]
        for name in ptx.list_written_registers(statement):
            reached.pop(name, None)
            if sources:
                longest = max(sources, key=lambda chain: chain.cycles)
                reached[name] = longest.add_chain(_find_latency(statement))
    return reached.get(register, Chain())


def _find_latency(statement: PtxStatement) -> Chain:
    words = statement.words
    is_load = words[0] in ("ld", "atom", "ldmatrix")
    if words[0] == "shfl" or (is_load and "shared" in words):
        return Chain(shared=_SHARED)
    if words[0] in ("mov", "cvta", "ld", "atom", "tex"):
        return Chain()  # no instruction, or a wait that is measured otherwise
    unit = get_unit_of_instruction(words)
    if unit == "xu":
        return Chain(xu=_XU)
    return Chain(fixed=_DOUBLE if unit == "fp64" else _FIXED)
