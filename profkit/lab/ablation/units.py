"""Counted instructions and a time  ->  how busy each unit was, as a share of what it can do.

Counted in PTX, which the machine code follows one to one where it computes: no more than a reading of
what cannot be taken away. What a unit does in a clock is the number of lanes that NVIDIA's programming
guide gives it (throughput of native arithmetic instructions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from profkit.lab.ablation.accesses import Access
from profkit.lab.ablation.survey import Survey

# Lanes of one SM that a unit serves in a clock, by compute capability.
_LANES = {
    # HFMA2 goes through one half of the FMA pipe, as IMAD does: independent chains of them from 64
    # warps reach 0.50 of 128.
    "90": {"fp32": 128, "fp64": 64, "fp16": 64, "int": 64, "xu": 16, "issue": 128},
    "80": {"fp32": 64, "fp64": 32, "fp16": 128, "int": 64, "xu": 16, "issue": 128},
    "86": {"fp32": 128, "fp64": 2, "fp16": 128, "int": 64, "xu": 16, "issue": 128},
    "89": {"fp32": 128, "fp64": 2, "fp16": 128, "int": 64, "xu": 16, "issue": 128},
    "100": {"fp32": 128, "fp64": 64, "fp16": 128, "int": 64, "xu": 16, "issue": 128},
    "120": {"fp32": 128, "fp64": 2, "fp16": 128, "int": 64, "xu": 16, "issue": 128},
}
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


def measure_busy(
    survey: Survey, accesses: Sequence[Access], arch: str, cycles: float
) -> dict[str, float]:
    """Unit -> share of its peak; `cycles`: of all SMs together."""
    lanes = _LANES.get(arch.rstrip("af"))
    if lanes is None or cycles <= 0:
        return {}
    counted = count_by_unit(survey.issued)
    busy = {unit: 32 * counted[unit] / (lanes[unit] * cycles) for unit in lanes}
    tensor = _count_products(survey.issued) / (_TENSOR[arch.rstrip("af")] * cycles)
    busy["tensor"] = tensor
    passes = 0
    for access in accesses:
        if access.space == "shared":
            per_pass = max(1, access.width * 32 // 128)
            passes += survey.seen[access.number].ways * per_pass
    lines = 0.0
    for access in accesses:
        seen = survey.seen[access.number]
        if access.in_global:
            lines += max(seen.requests, seen.units / _SECTORS_OF_LINE)
    busy["l1"] = lines / cycles
    shuffles = sum(n for opcode, n in survey.issued.items() if opcode.startswith("shfl"))
    busy["shared"] = (passes + shuffles) / cycles
    return busy


def count_by_unit(issued: Mapping[str, int]) -> Counter[str]:
    """Instructions of warps by the unit that does them."""
    counted: Counter[str] = Counter()
    for opcode, number in issued.items():
        words = opcode.split(".")
        if words[0] in _FREE or opcode.startswith("ld.param"):
            continue
        counted["issue"] += number
        unit = find_unit(words)
        if unit:
            counted[unit] += number
    return counted


def find_unit(words: list[str]) -> str:
    """Which unit does an instruction; empty for those that are not counted."""
    first, last = words[0], words[-1]
    if first in _SPECIAL:
        return "xu"
    if first == "cvt" and _is_conversion_between(words):
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


def _is_conversion_between(words: list[str]) -> bool:
    """Whether a conversion changes between whole and floating numbers, or their size."""
    kinds = [word for word in words[1:] if word[:1] in "fsub" and word[1:].isdigit()]
    floats = [word for word in kinds if word.startswith("f")]
    return len(kinds) == 2 and len(floats) == 1


def _count_products(issued: Mapping[str, int]) -> float:
    """Multiply-adds of half-precision operands that matrix instructions do, as many as take as long."""
    total = 0.0
    for opcode, number in issued.items():
        words = opcode.split(".")
        if words[0] not in ("mma", "wmma", "wgmma"):
            continue
        size = _read_shape(words)
        if words[0] == "wgmma":
            size /= 4  # one instruction of four warps
        if {"s8", "u8", "e4m3", "e5m2"} & set(words):
            size /= 2
        total += number * size
    return total


def _read_shape(words: list[str]) -> float:
    """Multiply the three numbers of `m16n8k16`."""
    for word in words:
        if word.startswith("m") and "n" in word and "k" in word:
            m, _, rest = word[1:].partition("n")
            n, _, k = rest.partition("k")
            if m.isdigit() and n.isdigit() and k.isdigit():
                return float(int(m) * int(n) * int(k))
    return 0.0
