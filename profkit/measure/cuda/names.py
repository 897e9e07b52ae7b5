"""What a compiler calls kernels and what it says of them  ->  names that compare, and resources."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


def base_name(name: str) -> str:
    """The function's own name, of a demangled or mangled one: no namespaces, no arguments."""
    if m := re.match(r"_ZN?((?:\d+\w+)+)", name):
        rest, last = m[1], ""
        while n := re.match(r"(\d+)", rest):
            end = n.end() + int(n[1])
            last, rest = rest[n.end() : end], rest[end:]
        return last
    depth, plain = 0, []
    for c in (
        name.removeprefix("void ").replace("(anonymous namespace)", "_").replace("<unnamed>", "_")
    ):
        depth += c in "<("
        if not depth:
            plain.append(c)
        depth -= c in ">)"
    return "".join(plain).rsplit("::", 1)[-1].strip().rsplit(" ", 1)[-1]


def demangle(names: Iterable[str]) -> Mapping[str, str]:
    """Mangled  ->  demangled names; a name stays as it is where there is no demangler."""
    mangled = list(names)
    filt = shutil.which("c++filt") or shutil.which("cu++filt")
    if not mangled or filt is None:
        return {m: m for m in mangled}
    done = subprocess.run(
        [Path(filt)], input="\n".join(mangled), capture_output=True, text=True, check=False
    )
    plain = done.stdout.splitlines()
    if len(plain) != len(mangled):
        return {m: m for m in mangled}
    return dict(zip(mangled, plain, strict=True))


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
