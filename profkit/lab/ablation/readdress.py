"""Accesses and where they shall go  ->  a module in which a table says whether they do.

One piece of machine code serves the original addresses and every other choice of them: with the table
empty it does what the kernel did, at the price of the instructions that choose, and with the table
filled the same instructions go elsewhere. So the two differ in nothing but in where memory is touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from profkit.lab.ablation import ptx
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.ptx import PtxEdits

TABLE = "profkit_table"
_PAST_L1 = frozenset({"cg", "cv", "L1::no_allocate"})


@dataclass
class AddressSpan:
    """Accesses that go to the same bytes, and which bytes those are."""

    kind: tuple[str | int, ...]  # what alike accesses have in common
    accesses: list[PtxAccess]
    low: int
    last: int  # the last address, which is within


def merge_spans(spans: Iterable[AddressSpan], narrow: bool) -> list[AddressSpan]:
    """Join alike spans that meet: to all that they cover, or with `narrow` to what each covers."""
    joined: list[AddressSpan] = []
    for span in spans:
        other = _find_overlapping_span(span, joined)
        if other is None:
            joined.append(span)
            continue
        other.accesses += span.accesses
        lows, lasts = (other.low, span.low), (other.last, span.last)
        if narrow:
            other.low, other.last = max(lows), min(lasts)
        else:
            other.low, other.last = min(lows), max(lasts)
    return joined


def _find_overlapping_span(span: AddressSpan, spans: Iterable[AddressSpan]) -> AddressSpan | None:
    for other in spans:
        if other.kind == span.kind and other.low <= span.last and span.low <= other.last:
            return other
    return None


def add_table(changes: PtxEdits, size: int) -> None:
    declaration = f".visible .const .align 16 .b8 {TABLE}[{max(16, size)}];"
    changes.outside[declaration] = None


def replace_base_register(
    changes: PtxEdits, access: PtxAccess, register: str, cached: bool = False
) -> None:
    """Put another register in the place of an access's base; `cached`: through the L1."""
    statement, operands = access.statement, list(access.statement.operands)
    if cached and statement.words[0] == "ld":
        words = [word for word in statement.words if word not in _PAST_L1]
        statement = replace(statement, opcode=".".join(words))
    if access.address.offset:
        offset = f"+{access.address.offset}"
    else:
        offset = ""
    operands[access.address.operand] = f"[{register}{offset}]"
    text = ptx.write_statement(statement, ptx.write_guard(statement), operands)
    changes.replace_statement(access.statement, text)
