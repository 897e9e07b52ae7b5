"""Accesses and where they shall go  ->  a module in which a table says whether they do.

One piece of machine code serves the original addresses and every other choice of them: with the table
empty it does what the kernel did, at the price of the instructions that choose, and with the table
filled the same instructions go elsewhere. So the two differ in nothing but in where memory is touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profkit.lab.ablation import ptx
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.ptx import PtxEdits

if TYPE_CHECKING:
    from profkit.units import ByteCount, RegisterName


TABLE = "profkit_table"
ALL_BITS = (1 << 32) - 1
# Of lop3: the first operand where the third one's bit is set, the second where it is not.
CHOOSE = (0xF0 & 0xAA) | (0xCC & ~0xAA)
_PAST_L1 = frozenset({"cg", "cv", "L1::no_allocate"})


@dataclass
class AddressSpan:
    """Accesses that go to the same bytes, and which bytes those are."""

    kind: tuple[str | int, ...]  # what alike accesses have in common
    accesses: list[PtxAccess]
    low: int
    last: int  # the last address, which is within


def merge_spans(spans: Iterable[AddressSpan], is_common_part: bool) -> list[AddressSpan]:
    """Join alike spans that meet: to all that they cover, or to the part that each of them covers."""
    joined: list[AddressSpan] = []
    for span in spans:
        for other in joined:
            if other.kind == span.kind and other.low <= span.last and span.low <= other.last:
                other.accesses += span.accesses
                lows = sorted((other.low, span.low))
                lasts = sorted((other.last, span.last))
                other.low = lows[is_common_part]
                other.last = lasts[not is_common_part]
                break
        else:
            joined.append(span)
    return joined


def add_control_table(changes: PtxEdits, size_bytes: ByteCount) -> None:
    changes.outside[f".visible .const .align 16 .b8 {TABLE}[{max(16, size_bytes)}];"] = None


def replace_base_register(
    changes: PtxEdits, access: PtxAccess, register: RegisterName, is_cached_in_l1: bool = False
) -> None:
    """Put another register in the place of an access's base; `is_cached_in_l1`: through the L1."""
    statement = access.statement
    operands = list(access.statement.operands)
    if is_cached_in_l1 and statement.words[0] == "ld":
        words = [word for word in statement.words if word not in _PAST_L1]
        statement = replace(statement, opcode=".".join(words))
    place = register
    if access.address.offset:
        place = f"{register}+{access.address.offset}"
    operands[access.address.operand] = f"[{place}]"
    text = ptx.write_statement(statement, statement.condition, operands)
    changes.replace_statement(access.statement, text)
