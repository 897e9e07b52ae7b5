"""What a compiler says of kernels  ->  names that compare, resources, how many blocks fit on an SM.

What a GPU has is in profkit/records/gpus.toml. Nothing is measured: this answers without a GPU and
without counter permission.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.records.gpus import read_gpu_table

if TYPE_CHECKING:
    from profkit.units import ByteCount, Dim3, FloatOrNan, KernelName, MangledName


def demangle_names(names: Iterable[MangledName]) -> Mapping[MangledName, KernelName]:
    """Return mangled  ->  demangled names; a name stays as it is where there is no demangler."""
    mangled = list(names)
    filt = shutil.which("c++filt") or shutil.which("cu++filt")
    if not mangled or filt is None:
        return {m: m for m in mangled}
    given = "\n".join(mangled)
    try:
        done = subprocess.run(
            [Path(filt)], input=given, capture_output=True, text=True, check=False, timeout=60
        )
    except subprocess.TimeoutExpired:
        return {m: m for m in mangled}
    plain = done.stdout.splitlines()
    return dict(zip(mangled, plain if len(plain) == len(mangled) else mangled, strict=True))


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


def parse_ptxas_log(nvcc_output: str) -> list[KernelResources]:
    """Read the resources of every kernel function out of nvcc's output."""
    entry: tuple[str, str] | None = None
    spills = stack = 0
    rows: list[tuple[str, str, int, int, int, int]] = []
    for line in nvcc_output.splitlines():
        if m := _ENTRY.search(line):
            entry = (m[1], m[2])
            spills = 0
            stack = 0
        elif m := _FRAME.search(line):
            stack += int(m[1])
            spills += int(m[2]) + int(m[3])
        elif (m := _USED.search(line)) and entry:
            smem = _SMEM.search(m[2])
            rows.append((*entry, int(m[1]), int(smem[1]) if smem else 0, spills, stack))
            entry = None
    plain = demangle_names(row[0] for row in rows)
    return [KernelResources(plain[row[0]], *row) for row in rows]


@dataclass(frozen=True)
class Limits:
    """What one SM has. Shared memory in bytes; registers are allocated by warp."""

    warps: int
    blocks: int
    smem: int  # shared memory of an SM
    reserved: int  # shared memory that the system takes of every block
    tensor: int | None = None  # dense fp16 operations a clock, a multiply-add is two


@dataclass(frozen=True)
class Card:
    """A GPU as far as a launcher can ask for it."""

    arch: str
    sms: int
    l2: int  # bytes


_GPUS = {"{}{}".format(*cc): row for cc, row in read_gpu_table().items()}
LIMITS = {arch: Limits(*row.sm, row.tensor_ops) for arch, row in _GPUS.items() if row.sm}
# The card that is meant where none of an architecture is there; only its shape is used.
CARDS = {
    arch: Card(arch, row.card[1], row.card[2] << 20) for arch, row in _GPUS.items() if row.card
}
REGISTERS = 64 * 1024  # of an SM
_REGISTER_UNIT = 256  # registers are given to a warp in units of 256
_WARP_UNIT = 4  # warps are spread over the four schedulers of an SM
_SMEM_UNIT = 128


@dataclass(frozen=True)
class Occupancy:
    """How many blocks an SM holds at once, and what limits that."""

    blocks: int  # blocks per SM; 0 if not even one fits
    limiter: str  # what is used up first: registers, shared, warps or blocks
    fraction: float  # resident warps over the most that an SM holds


def compute_occupancy(
    capability: str, regs_per_thread: int, threads_per_block: int, smem_bytes_per_block: ByteCount
) -> Occupancy:
    """Count the blocks that fit; `smem_bytes_per_block` is static and dynamic shared memory."""
    limits = LIMITS.get(capability.rstrip("af"))
    if limits is None:
        raise ProfkitError(
            f"the limits of sm_{capability} are not known", f"known: {', '.join(LIMITS)}"
        )
    warps = ceil(threads_per_block / 32)
    per_warp = ceil(max(regs_per_thread, 1) * 32 / _REGISTER_UNIT) * _REGISTER_UNIT
    register_warps = REGISTERS // per_warp // _WARP_UNIT * _WARP_UNIT
    per_block = ceil((smem_bytes_per_block + limits.reserved) / _SMEM_UNIT) * _SMEM_UNIT
    fits = {
        "warps": limits.warps // warps,
        "registers": register_warps // warps,
        "shared": limits.smem // per_block if per_block else limits.blocks,
        "blocks": limits.blocks,
    }
    limiter = min(fits, key=lambda k: fits[k])
    return Occupancy(fits[limiter], limiter, fits[limiter] * warps / limits.warps)


def compute_waves(blocks_in_xyz: Dim3, blocks_per_sm: int, sm_count: int) -> FloatOrNan:
    """Return how many times the machine is filled; NaN if no block fits."""
    slots = blocks_per_sm * sm_count
    if slots:
        return prod(blocks_in_xyz) / slots
    return float("nan")
