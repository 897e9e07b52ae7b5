"""What `nvcc -Xptxas -v` printed  ->  the resources of each kernel function."""

from __future__ import annotations

import re
from dataclasses import dataclass

from profkit.measure.cuda.names import demangle

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for 'sm_(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_SMEM = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelResources:
    """What ptxas gave one kernel function."""

    name: str  # demangled, as reports show it
    mangled: str  # as the object file has it
    arch: str
    regs: int  # registers per thread
    smem: int  # static shared memory per block, bytes
    spills: int  # spill stores and loads together, bytes, called functions included
    stack: int  # stack frame per thread, bytes


def parse_ptxas(log: str) -> list[KernelResources]:
    """Read the resources of every kernel function out of nvcc's output."""
    entry: tuple[str, str] | None = None
    spills = stack = 0
    rows: list[tuple[str, str, int, int, int, int]] = []
    for line in log.splitlines():
        if m := _ENTRY.search(line):
            entry, spills, stack = (m[1], m[2]), 0, 0
        elif m := _FRAME.search(line):
            stack += int(m[1])
            spills += int(m[2]) + int(m[3])
        elif (m := _USED.search(line)) and entry:
            smem = _SMEM.search(m[2])
            rows.append((*entry, int(m[1]), int(smem[1]) if smem else 0, spills, stack))
            entry = None
    plain = demangle(row[0] for row in rows)
    return [KernelResources(plain[row[0]], *row) for row in rows]
