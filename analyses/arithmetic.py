"""The attention problem and the GPUs of the original documents, as arithmetic: nothing measured.

The analyses use this for what they mark as computed. The original was written for an L4 in October
2025; its five documents are cited by number: 000 status of V3 (14 Oct), 001 project status
(20 Oct), 002 plan of loop 1 (14 Oct), 003 summary (14 Oct), 004 "NCU analysis" (19 Oct).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from profkit.lab.measure.variants.problem import load_problem
from profkit.model.launch import Launch

RESERVED = 1024  # bytes of shared memory that the driver takes per block, sm_80 and later
WARP = 32


_PROBLEM = load_problem(Path(__file__).resolve().parents[1] / "kernels" / "attention").module


@dataclass(frozen=True)
class Attention:
    """One case of kernels/attention/problem.py, which says its sizes and its work."""

    case: Any

    @property
    def batch(self) -> int:
        """Sequences."""
        return int(self.case.B)

    @property
    def heads(self) -> int:
        """Heads of each."""
        return int(self.case.H)

    @property
    def length(self) -> int:
        """Queries, and keys, of each head."""
        return int(self.case.S)

    @property
    def dim(self) -> int:
        """Elements of a query."""
        return int(self.case.D)

    @property
    def operations(self) -> float:
        """Floating-point operations of the two matrix products."""
        return float(_PROBLEM.operations(self.case))

    @property
    def bytes(self) -> float:
        """Compulsory traffic."""
        return float(_PROBLEM.compulsory_bytes(self.case))

    @property
    def exps(self) -> float:
        """Exponentials, one per score."""
        return float(_PROBLEM.exponentials(self.case))

    @property
    def intensity(self) -> float:
        """Operations per compulsory byte."""
        return self.operations / self.bytes


CASES = {name: Attention(case) for name, case in _PROBLEM.CASES.items()}
B = CASES["B"]  # the stage and V2c kernels' own shape
V = CASES["V"]  # the shape of V1, V2 and V3


@dataclass(frozen=True)
class Device:
    """A GPU by its data sheet.

    Attributes:
        name: What it is called.
        sms: Streaming multiprocessors.
        clock: Boost clock, Hz.
        base: Base clock, Hz, to which ncu locks by default.
        tensor: Dense fp16 operations/s of the tensor cores.
        dram: Bytes/s.
        shared: Shared memory per SM, bytes.
        block_shared: The most one block can have, bytes.
        warps: Warps an SM holds.
        registers: Per SM.
        exps: Exponentials per SM and cycle.
    """

    name: str
    sms: int
    clock: float
    base: float
    tensor: float
    dram: float
    shared: int
    block_shared: int
    warps: int
    registers: int = 65536
    exps: int = 16

    def blocks_by_registers(self, registers: float, threads: float) -> int:
        """Blocks of an SM by registers, which are given out in eights per thread."""
        per_block = ceil(registers / 8) * 8 * WARP * ceil(threads / WARP)
        return self.registers // per_block

    def blocks_by_shared(self, shared: float) -> int:
        """Blocks of an SM by shared memory, static and dynamic together."""
        return int(self.shared // (shared + RESERVED))

    def blocks(self, registers: float, shared: float, threads: float) -> int:
        """Blocks that fit on one SM at once."""
        return min(
            self.blocks_by_registers(registers, threads),
            self.blocks_by_shared(shared),
            self.warps // ceil(threads / WARP),
        )

    def rounds(self, grid: float, blocks: int) -> int:
        """Rounds in which a grid of equal blocks runs."""
        return ceil(grid / (self.sms * blocks))

    def floor(self, work: Attention) -> dict[str, float]:
        """The shortest possible time by each resource, seconds, without any launch cost."""
        return {
            "tensor": work.operations / self.tensor,
            "dram": work.bytes / self.dram,
            "exp": work.exps / (self.exps * self.sms * self.clock),
        }


L4 = Device("L4", 58, 2.04e9, 795e6, 121e12, 300e9, 100 * 1024, 99 * 1024, 48)
L4_SPARSE = 242e12  # what the documents took for the peak: only with structured sparsity


def on_l4(launch: Launch) -> float:
    """Seconds of a measured launch on an L4 if each block took as many cycles there.

    Blocks run in rounds; how many fit on an SM follows from the launch's registers, shared memory
    and threads. An L4's slower memory and smaller tensor cores are left out: a lower bound.
    """
    shared = launch["shared_static"] + launch["shared_dynamic"]
    there = L4.blocks(launch["registers"], shared, launch["block_size"])
    rounds = L4.rounds(launch["grid_size"], there)
    return launch["cycles"] / max(ceil(launch["waves"]), 1) * rounds / L4.clock


def computed_l4(launch: Launch, work: Attention) -> str:
    """One line on what the same blocks would come to on an L4."""
    shared = launch["shared_static"] + launch["shared_dynamic"]
    if shared > L4.block_shared:
        return (
            f"L4 (computed): does not start, {shared:,.0f} B of shared memory per block are more "
            f"than {L4.block_shared:,} B"
        )
    seconds = on_l4(launch)
    return (
        f"L4 (computed, same cycles per block): {seconds * 1e6:.0f} us, "
        f"{work.operations / seconds / L4.tensor:.1%} of the tensor peak and "
        f"{work.bytes / seconds / L4.dram:.1%} of the DRAM peak for the compulsory bytes"
    )
