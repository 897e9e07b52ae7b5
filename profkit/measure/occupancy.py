"""Registers, threads and shared memory of a block  ->  how many fit on an SM, and why no more.

Limits per compute capability are profkit/records/gpus.toml's. Nothing is measured: this answers
without a GPU and without counter permission.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from profkit.errors import ProfkitError
from profkit.records.gpus import table


@dataclass(frozen=True)
class Limits:
    """What one SM has. Shared memory in bytes; registers are allocated by warp."""

    warps: int
    blocks: int
    smem: int  # shared memory of an SM
    reserved: int  # shared memory that the system takes of every block
    tensor: int | None = None  # dense fp16 operations a clock, a multiply-add is two


LIMITS = {
    "{}{}".format(*cc): Limits(*row.sm, row.tensor_ops) for cc, row in table().items() if row.sm
}
REGISTERS = 64 * 1024  # of an SM
_REGISTER_UNIT = 256  # registers are given to a warp in units of 256
_WARP_UNIT = 4  # warps are spread over the four schedulers of an SM
_SMEM_UNIT = 128


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel are resident on an SM."""

    blocks: int  # blocks per SM; 0 if not even one fits
    limiter: str  # what is used up first: registers, shared, warps or blocks
    fraction: float  # resident warps over the most that an SM holds


def blocks_that_fit(arch: str, regs: int, threads: int, smem: int) -> Occupancy:
    """Count the blocks that fit.

    `smem`: shared memory per block, static and dynamic, bytes.
    """
    limits = LIMITS.get(arch.rstrip("af"))
    if limits is None:
        raise ProfkitError(f"the limits of sm_{arch} are not known", f"known: {', '.join(LIMITS)}")
    warps = ceil(threads / 32)
    per_warp = ceil(max(regs, 1) * 32 / _REGISTER_UNIT) * _REGISTER_UNIT
    register_warps = REGISTERS // per_warp // _WARP_UNIT * _WARP_UNIT
    per_block = ceil((smem + limits.reserved) / _SMEM_UNIT) * _SMEM_UNIT
    fits = {
        "warps": limits.warps // warps,
        "registers": register_warps // warps,
        "shared": limits.smem // per_block if per_block else limits.blocks,
        "blocks": limits.blocks,
    }
    limiter = min(fits, key=lambda k: fits[k])
    return Occupancy(fits[limiter], limiter, fits[limiter] * warps / limits.warps)


def waves(grid: tuple[int, int, int], blocks_per_sm: int, sms: int) -> float:
    """How many times the machine is filled; NaN if no block fits."""
    slots = blocks_per_sm * sms
    return prod(grid) / slots if slots else float("nan")


@dataclass(frozen=True)
class Card:
    """A GPU as far as a launcher can ask for it."""

    name: str
    arch: str
    sms: int
    l2: int


# The card that is meant where none of an architecture is there; only its shape is used.
CARDS = {
    "80": Card("A100", "80", 108, 40 << 20),
    "89": Card("L4", "89", 58, 48 << 20),
    "90": Card("H200", "90", 132, 60 << 20),
}
