"""Narrow accesses of neighbours, made 16 bytes wide by so many fewer threads.

Only a part of the blocks is launched, and each access is wider by as much: the same bytes move in fewer
and wider instructions. Only threads that work alone can be fewer: each does what its element needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    GLOBAL,
    AccessAblation,
    CodeChange,
    Refused,
    format_count,
)
from profkit.lab.ablation.footprint import MOVED, Region
from profkit.lab.ablation.ptx import PtxEdits, PtxKernel
from profkit.lab.ablation.readdress import AddressSpan, merge_spans

if TYPE_CHECKING:
    from profkit.units import PtxText


_WIDEST = 16  # bytes that a thread moves by one instruction
_TOGETHER = frozenset(
    "bar barrier shfl vote match redux atom red mbarrier cp mma wmma wgmma ldmatrix stmatrix".split()
)
# Of the bytes of its sectors: fewer are not neighbours side by side, or the same for all.
_FILLED = 0.75
_OTHERS = 0.05  # of the sectors of those
_WORDS = tuple(f"%profkit_w{number}" for number in range(4))


class AccessesWide(AccessAblation):
    id = "wide"
    title = "narrow accesses"
    reachable = True
    rules = ("narrow-accesses", "long-scoreboard")
    probes = ("stream-one",)  # nothing is kept: fewer and wider accesses are what is wanted
    spaces = GLOBAL
    kinds = ("load", "store")
    what = "narrow accesses"
    nothing = "no access of neighbours is narrower than 16 bytes"

    def is_stream(self, access: PtxAccess) -> bool:
        """Return whether lanes go side by side, and both ends of what they touched are of one array."""
        seen = self.code.survey.seen[access.number]
        asked = seen.threads * access.width
        fills = _FILLED * 32 * seen.units <= asked <= 32 * seen.units / _FILLED
        is_placed = access.number in self.code.anchored and seen.lowest % _WIDEST == 0
        return fills and is_placed and not access.why_unmovable

    def has_cause(self, access: PtxAccess) -> bool:
        return access.width < _WIDEST and self.is_stream(access)

    def can_be_rewritten_safely(self, access: PtxAccess) -> bool:
        return not access.steers

    def change_accesses_free_to_change(self) -> CodeChange:
        self.refuse_cooperating_threads()
        executed = self.code.list_executed_accesses(self.spaces, self.kinds)
        moved = [access for access in executed if self.is_stream(access) and not access.steers]
        self.refuse_other_accesses(executed, moved)
        part = _WIDEST // max(access.width for access in moved)
        if part < 2 or prod(*self.code.grids.values()) < part:
            raise _make_shape_refusal("its widest access is 16 bytes, or it has no blocks to spare")
        regions = self.merge_into_regions(moved)
        changed = f"{format_count(len(moved), 'access', 'accesses')} {part} times as wide, "
        changed += f"by 1/{part} of the blocks"
        text = self.write_wide_accesses(regions, part)
        return CodeChange(text, changed, other_code=True, part=part, regions=regions)

    def write_wide_accesses(self, regions: Sequence[Region], width_factor: int) -> PtxText:
        """Return the module with accesses that are so many times as wide."""
        kernel = self.code.module.kernels[regions[0].accesses[0].kernel]
        changes = PtxEdits(self.code.module)
        changes.add_registers("b32", *_WORDS)
        changes.add_registers("b64", MOVED, "%profkit_wrapped")
        changes.add_registers("pred", "%profkit_past")
        for region in regions:
            for access in region.accesses:
                lines = _write_wide_access(kernel, access, region, width_factor)
                changes.replace_statement(access.statement, "\n\t".join(lines))
        return changes.write_edited_module()

    def merge_into_regions(self, accesses: Sequence[PtxAccess]) -> tuple[Region, ...]:
        """Return the bytes that accesses of one width go to together: stretched from one first byte."""
        spans = []
        for access in accesses:
            seen = self.code.survey.seen[access.number]
            spans.append(AddressSpan((access.width,), [access], seen.lowest, seen.highest - 1))
        merged = merge_spans(spans, is_common_part=False)
        return tuple(Region(span.low, span.last + 1, tuple(span.accesses)) for span in merged)

    def refuse_cooperating_threads(self) -> None:
        """Threads that work together cannot be fewer and do the same."""
        if len(self.code.grids) != 1:
            raise _make_shape_refusal("it launches several kernels")
        for statement in self.code.find_executed_statements(""):
            is_shared = any(word.startswith("shared") for word in statement.words)
            if statement.words[0] in _TOGETHER or is_shared:
                raise _make_shape_refusal("its threads work together")

    def refuse_other_accesses(
        self, executed: Sequence[PtxAccess], moved: Sequence[PtxAccess]
    ) -> None:
        """Fewer threads must touch no less than all: but for what all lanes read at one place."""
        streamed = others = 0
        for access in executed:
            seen = self.code.survey.seen[access.number]
            if access in moved:
                streamed += seen.units
            elif access.kind == "store" or seen.units != seen.requests:
                others += seen.units
        if others > _OTHERS * streamed:
            raise _make_shape_refusal(
                "it makes accesses that are not of neighbours side by side, too"
            )


def _make_shape_refusal(why: str) -> Refused:
    remedy = "write and time a wide version"
    return Refused("other-work", why, "threads that work alone", remedy)


def _list_value_operands(access: PtxAccess) -> list[PtxText]:
    """Return what is loaded or stored: registers, or a number."""
    operand = access.statement.operands[1 - access.address.operand]
    return [word.strip() for word in operand.strip("{} ").split(",")]


def _write_wide_access(
    kernel: PtxKernel, access: PtxAccess, region: Region, width_factor: int
) -> list[PtxText]:
    """Return statements in the place of an access that touch as many times its bytes."""
    words = _WORDS[: max(1, access.width * width_factor // 4)]
    kept = [word for word in access.statement.words[:-1] if word not in ("v2", "v4", "v8")]
    place = words[0]
    if len(words) > 1:
        kept.append(f"v{len(words)}")
        place = f"{{{', '.join(words)}}}"
    guard = access.statement.condition
    opcode = f"{guard}{'.'.join(kept)}.b32"
    values = _list_value_operands(access)
    lines = _write_stretched_address(kernel, access, region, width_factor)
    if access.kind == "store":
        lines += _pack_values(kernel, values, words)
        return [*lines, f"{opcode} [{MOVED}], {place};"]
    lines.append(f"{opcode} {place}, [{MOVED}];")
    for word in words[1:]:
        lines.append(f"xor.b32 {words[0]}, {words[0]}, {word};")
    for value in values:
        lines.append(guard + _write_word_move(kernel, value, words[0]))
    return lines


def _write_stretched_address(
    kernel: PtxKernel, access: PtxAccess, region: Region, width_factor: int
) -> list[PtxText]:
    """Return statements that stretch the way from the first byte, and come back before the last one."""
    size = access.width * width_factor
    places = (region.high - region.low) // size
    if places < 1:
        raise _make_shape_refusal("it touches a few bytes only")
    last = (places - 1) * size
    mask = (1 << places.bit_length() - 1) * size - 1
    base = access.address.base
    offset = access.address.offset
    if access.address.in_register and not kernel.is_64_bit_register(base):
        raise _make_shape_refusal("its addresses have 32 bits")
    if not access.address.in_register:
        raise _make_shape_refusal("it accesses an array of its module by name")
    return [
        f"add.s64 {MOVED}, {base}, {offset - region.low};",
        f"mul.lo.u64 {MOVED}, {MOVED}, {width_factor};",
        f"and.b64 %profkit_wrapped, {MOVED}, {mask};",
        f"setp.gt.u64 %profkit_past, {MOVED}, {last};",
        f"selp.b64 {MOVED}, %profkit_wrapped, {MOVED}, %profkit_past;",
        f"add.s64 {MOVED}, {MOVED}, {region.low};",
    ]


def _pack_values(kernel: PtxKernel, values: Sequence[str], words: Sequence[str]) -> list[PtxText]:
    """Return statements that fill words to store with what was to be stored."""
    lines = []
    for number, value in enumerate(values):
        to = words[min(number, len(words) - 1)]
        forms = {
            "16": f"mov.b32 {to}, {{{value}, {value}}};",
            "64": f"mov.b64 {{{to}, _}}, {value};",
            "": f"mov.b32 {to}, 0;",  # of a number
        }
        bits = ""
        if value.startswith("%"):
            bits = kernel.types.get(value, "b32")[1:]
        lines.append(forms.get(bits, f"mov.b32 {to}, {value};"))
    for word in words[len(values) :]:
        lines.append(f"mov.b32 {word}, {words[0]};")
    return lines


def _write_word_move(kernel: PtxKernel, value: str, word: str) -> PtxText:
    """Return a statement that puts a loaded word into a register of the kernel."""
    bits = kernel.types.get(value, "b32")[1:]
    if bits == "16":
        return f"mov.b32 {{{value}, _}}, {word};"
    if bits == "64":
        return f"mov.b64 {value}, {{{word}, {word}}};"
    return f"mov.b32 {value}, {word};"


ABLATION = AccessesWide
