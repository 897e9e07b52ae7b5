"""Counted instructions and a time  ->  how busy each unit was, as a share of what it can do.

Counted in PTX, which the machine code follows one to one where it computes: no more than a reading of
what cannot be taken away. What a unit does in a clock is the number of lanes that NVIDIA's programming
guide gives it (throughput of native arithmetic instructions).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.ptx import PtxModule, PtxStatement
from profkit.lab.ablation.survey import Survey

if TYPE_CHECKING:
    from profkit.units import Cycles, Share, SmArch, TextOrEmpty, UnitName


# Lanes of one SM that a unit serves in a clock, by compute capability.
_UNITS = "fp32", "fp64", "fp16", "int", "xu", "issue"
_LANES = {
    # HFMA2 goes through one half of the FMA pipe, as IMAD does: independent chains of them from 64
    # warps reach 0.50 of 128.
    "90": (128, 64, 64, 64, 16, 128),
    "80": (64, 32, 128, 64, 16, 128),
    "86": (128, 2, 128, 64, 16, 128),
    "89": (128, 2, 128, 64, 16, 128),
    "100": (128, 64, 128, 64, 16, 128),
    "120": (128, 2, 128, 64, 16, 128),
}
_TEXELS = 4  # an SM of each of these has four texture units, each of one filtered texel in a clock
# Multiply-adds of mma.sync that an SM does in a clock with half-precision operands.
_TENSOR = {"90": 1024, "80": 1024, "86": 512, "89": 512, "100": 1024, "120": 512}
_SECTORS_OF_LINE = 4  # an SM's L1 hands out one line of 128 bytes in a clock
_FLOAT = frozenset("add sub mul fma mad min max".split())
_WHOLE = frozenset(
    "add sub mul mad min max and or xor not shl shr shf lop3 bfe bfi abs neg".split()
)
_SPECIAL = frozenset("ex2 lg2 sin cos rcp rsqrt sqrt tanh".split())
# Of these PTX instructions none is left in the machine code, or far fewer.
_FREE = frozenset("mov cvta ld.param".split())
Work = defaultdict[str, float]  # unit -> cycles of an SM


def compute_unit_cycles_of_stretches(
    module: PtxModule, survey: Survey, accesses: Sequence[PtxAccess], arch: SmArch
) -> list[Work]:
    """Return how many cycles each unit works in each stretch of code without a barrier."""
    cycles = _get_cycles_by_instruction_kind(arch.rstrip("af"))
    if not cycles:
        return []
    by_start: dict[int, list[PtxAccess]] = {}
    for access in accesses:
        by_start.setdefault(access.statement.start, []).append(access)
    stretches: list[Work] = []
    last = -1
    for block, _, statement in module.iterate_statements_with_block_numbers():
        if block != last:
            stretches.append(defaultdict(float))
            last = block
        warps = sum(survey.entries[block])
        for unit in _iterate_units_of_statement(statement):
            stretches[-1][unit] += warps * cycles.get(unit, 1.0)
        stretches[-1]["tensor"] += warps * cycles["product"] * _count_equal_multiply_adds(statement)
        for access in by_start.get(statement.start, ()):
            _add_cycles_of_access(stretches[-1], access, survey)
        if is_barrier(statement.words):
            stretches.append(defaultdict(float))
    return stretches


def _get_cycles_by_instruction_kind(arch: SmArch) -> dict[str, Cycles]:
    """Return cycles of an SM that an instruction of a warp takes, and a multiply-add of a product."""
    if arch not in _LANES:
        return {}
    cycles = {"texture": 32 / _TEXELS, "product": 1 / _TENSOR[arch]}
    for unit, lanes in zip(_UNITS, _LANES[arch], strict=True):
        cycles[unit] = 32 / lanes
    return cycles


def _iterate_units_of_statement(statement: PtxStatement) -> Iterator[UnitName]:
    words = statement.words
    if words[0] in _FREE or statement.opcode.startswith("ld.param"):
        return
    yield "issue"
    if words[0] == "shfl":
        yield "shared"
    unit = get_unit_of_instruction(words)
    if unit:
        yield unit


def _add_cycles_of_access(work: Work, access: PtxAccess, survey: Survey) -> None:
    seen = survey.seen[access.number]
    if access.space == "shared":
        work["shared"] += seen.ways * max(1, access.width * 32 // 128)
    elif access.in_global:
        work["l1"] += max(seen.requests, seen.units / _SECTORS_OF_LINE)


def is_barrier(opcode_parts: Sequence[str]) -> bool:
    return opcode_parts[0] in ("bar", "barrier") and "warp" not in opcode_parts


def compute_unit_shares(
    stretches: Sequence[Work], cycles_of_all_sms: Cycles
) -> dict[UnitName, Share]:
    """Return unit -> share of its peak; `cycles_of_all_sms`: of all SMs together."""
    total: Work = defaultdict(float)
    for work in stretches:
        for unit, number in work.items():
            if number:
                total[unit] += number / cycles_of_all_sms
    return total


def measure_units_in_turns(
    stretches: Sequence[Work], cycles_of_all_sms: Cycles
) -> dict[UnitName, Share]:
    """Return unit -> its share of the time, if it works only where it has more to do than the others.

    Between two barriers, what has most to do decides how long it takes. Where the sum of these times is
    that of the call, units work in turns, and each of them waits for the others.
    """
    turns: Work = defaultdict(float)
    for work in stretches:
        own = {unit: number for unit, number in work.items() if unit != "issue" and number}
        if own:
            longest = max(own, key=lambda unit: own[unit])
            turns[longest] += own[longest]
    return {unit: number / cycles_of_all_sms for unit, number in turns.items()}


def get_unit_of_instruction(opcode_parts: list[str]) -> TextOrEmpty:
    """Return which unit does an instruction; empty for those that are not counted."""
    first = opcode_parts[0]
    last = opcode_parts[-1]
    if first in ("tex", "tld4"):
        return "texture"
    if first in _SPECIAL:
        return "xu"
    if first == "cvt" and _is_conversion_between(opcode_parts):
        return "xu"
    if first in _FLOAT and last in ("f16x2", "bf16x2", "f16", "bf16"):
        return "fp16"
    if first in _FLOAT and last == "f32":
        return "fp32"
    if first in _FLOAT and last == "f64":
        return "fp64"
    if first in _WHOLE and last[:1] in ("s", "u", "b"):
        return "int"
    return ""


def _is_conversion_between(opcode_parts: list[str]) -> bool:
    """Return whether a conversion changes between whole and floating numbers, or their size."""
    kinds = [word for word in opcode_parts[1:] if word[:1] in "fsub" and word[1:].isdigit()]
    floats = [word for word in kinds if word.startswith("f")]
    return len(kinds) == 2 and len(floats) == 1


def _count_equal_multiply_adds(statement: PtxStatement) -> float:
    """Return multiply-adds of half-precision operands that take as long as a matrix instruction."""
    words = statement.words
    if words[0] not in ("mma", "wmma", "wgmma"):
        return 0.0
    size = _compute_product_of_matrix_shape(words)
    if words[0] == "wgmma":
        size /= 4  # one instruction of four warps
    if {"s8", "u8", "e4m3", "e5m2"} & set(words):
        size /= 2
    return size


def _compute_product_of_matrix_shape(opcode_parts: list[str]) -> float:
    """Multiply the three numbers of `m16n8k16`."""
    for word in opcode_parts:
        if word.startswith("m") and "n" in word and "k" in word:
            m, _, rest = word[1:].partition("n")
            n, _, k = rest.partition("k")
            if m.isdigit() and n.isdigit() and k.isdigit():
                return float(int(m) * int(n) * int(k))
    return 0.0
