"""A kernel of PTX, run block by block here: enough of it for kernels of tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from profkit.lab.ablation.ptx import PtxKernel, PtxStatement, parse_ptx_module

_SIGNED = {"s32", "s64"}
_ALIKE = {"mov", "cvt", "cvta"}
OPERATIONS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mad": lambda a, b, c: a * b + c,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "and": lambda a, b: a & b,
    "xor": lambda a, b: a ^ b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


@dataclass
class Machine:
    """Memory, and what was done to it."""

    memory: dict[int, int]  # address -> a word
    parameters: Mapping[str, int]
    shared: dict[int, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # array of shared memory -> address
    accesses: list[tuple[str, str, int]] = field(default_factory=list)

    def run_grid(self, text: str, grid: int, threads: int) -> None:
        (kernel,) = [k for k in parse_ptx_module(text).kernels.values() if k.is_entry]
        at = 0
        for name, size in re.findall(r"\.shared[^;]*?([\w$]+)\[(\d*)\];", text):
            self.places[name] = at
            at += -(-int(size or 0) // 128) * 128
        for block in range(grid):
            self.shared = {}
            sizes = {"%ctaid.x": block, "%nctaid.x": grid, "%ntid.x": threads}
            running = [self.run_thread(kernel, {**sizes, "%tid.x": t}) for t in range(threads)]
            while running:  # to the next barrier, or to the end
                running = [thread for thread in running if next(thread, None) is not None]

    def run_thread(self, kernel: PtxKernel, held: dict[str, int]) -> Iterator[bool]:
        at = 0
        while at < len(kernel.statements):
            statement = kernel.statements[at]
            at += 1
            if statement.guard and bool(held[statement.guard]) == statement.negated:
                continue
            if statement.words[0] in ("ret", "exit"):
                return
            if statement.words[0] == "bar":
                yield True
            elif statement.words[0] == "bra":
                block = kernel.labels[statement.operands[0]]
                places = [n for n, s in enumerate(kernel.statements) if s.block >= block]
                at = min(places, default=len(kernel.statements))
            else:
                self.do_statement(statement, held)

    def do_statement(self, statement: PtxStatement, held: dict[str, int]) -> None:
        def read(operand: str) -> int:
            name, _, offset = operand.strip("[] ").partition("+")
            known = {**self.places, **self.parameters, **held}
            return int(known.get(name, name)) + int(offset or 0)

        words, (to, *given) = statement.words, statement.operands
        if words[0] in ("ld", "st"):
            place = to if words[0] == "st" else given[0]
            if "param" in words:
                held[to] = read(place)
                return
            memory = self.shared if "shared" in words else self.memory
            self.accesses.append((words[0], words[1], read(place)))
            if words[0] == "st":
                memory[read(place)] = read(given[0])
            else:
                held[to] = memory[read(place)]
        elif words[0] in _ALIKE:
            held[to] = read(given[0])
        else:
            name = words[1] if words[0] == "setp" else words[0]
            made = OPERATIONS[name](*map(read, given))
            bits = 64 if words[-1].endswith("64") or "wide" in words else 32
            held[to] = int(made) if words[-1] in _SIGNED else int(made) % (1 << bits)
