"""Narrow accesses of neighbours, made 16 bytes wide by so many fewer threads.

Only a part of the blocks is launched, and each access is wider by as much: the same bytes move in fewer
and wider instructions. Only threads that work alone can be fewer: each does what its element needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from profkit.lab.ablation import ptx
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    CodeChange,
    Refused,
    SurveyedCode,
    format_count,
    require_changeable_accesses,
)
from profkit.lab.ablation.footprint import MOVED, Region
from profkit.lab.ablation.ptx import PtxEdits, PtxKernel
from profkit.lab.ablation.readdress import AddressSpan, merge_spans

_WIDEST = 16  # bytes that a thread moves by one instruction
_TOGETHER = frozenset(
    "bar barrier shfl vote match redux atom red mbarrier cp mma wmma wgmma ldmatrix stmatrix".split()
)
_FILLED = (
    0.75  # of the bytes of its sectors: fewer are not neighbours side by side, or the same for all
)
_OTHERS = 0.05  # of the sectors of those
_WORDS = tuple(f"%profkit_w{number}" for number in range(4))


def widen_accesses(code: SurveyedCode) -> CodeChange:
    executed = code.list_executed(GLOBAL, ("load", "store"))
    moved = [access for access in executed if _is_stream(code, access)]
    narrow = [access for access in moved if access.width < _WIDEST]
    nothing = "no access of neighbours is narrower than 16 bytes"
    require_changeable_accesses(
        narrow, lambda access: not access.steers, "narrow accesses", nothing
    )
    _refuse_cooperating_threads(code)
    moved = [access for access in moved if not access.steers]
    _refuse_untouched_accesses(code, executed, moved)
    part = _WIDEST // max(access.width for access in moved)
    if part < 2 or max(code.grids.values()) < part:
        raise _refuse_shape("its widest access is 16 bytes, or it has no blocks to spare")
    regions = _merge_accesses_into_regions(code, moved)
    return CodeChange(
        text=_write_module_with_wide_accesses(code, regions, part),
        table=b"",
        control=b"",
        changed=f"{format_count(len(moved), 'access', 'accesses')} {part} times as wide, "
        f"by 1/{part} of the blocks",
        other_code=True,
        part=part,
        regions=regions,
    )


def _write_module_with_wide_accesses(
    code: SurveyedCode, regions: Sequence[Region], part: int
) -> str:
    """The module with accesses that are so many times as wide."""
    kernel = code.module.kernels[regions[0].accesses[0].kernel]
    changes = PtxEdits(code.module)
    changes.add_registers("b32", *_WORDS)
    changes.add_registers("b64", MOVED, "%profkit_wrapped")
    changes.add_registers("pred", "%profkit_past")
    for region in regions:
        for access in region.accesses:
            lines = _write_wide(kernel, access, region, part)
            changes.replace_statement(access.statement, "\n\t".join(lines))
    return changes.write_edited_module()


def _merge_accesses_into_regions(
    code: SurveyedCode, accesses: Sequence[PtxAccess]
) -> tuple[Region, ...]:
    """The bytes that accesses of one width go to together: they are stretched from one first byte."""
    spans = []
    for access in accesses:
        seen = code.survey.seen[access.number]
        spans.append(AddressSpan((access.width,), [access], seen.lowest, seen.highest - 1))
    regions = []
    for span in merge_spans(spans, narrow=False):
        regions.append(Region(span.low, span.last + 1, tuple(span.accesses)))
    return tuple(regions)


def _is_stream(code: SurveyedCode, access: PtxAccess) -> bool:
    """Whether lanes go side by side, and both ends of what they touched are of one array."""
    seen = code.survey.seen[access.number]
    asked = seen.threads * access.width
    fills = _FILLED * 32 * seen.units <= asked <= 32 * seen.units / _FILLED
    is_placed = access.number in code.anchored and seen.lowest % _WIDEST == 0
    return fills and is_placed and not access.why_unmovable


def _refuse_cooperating_threads(code: SurveyedCode) -> None:
    """Threads that work together cannot be fewer and do the same."""
    if len(code.grids) != 1:
        raise _refuse_shape("it launches several kernels")
    for block, _, statement in code.module.number_blocks():
        words = statement.words
        is_shared = any(word.startswith("shared") for word in words)
        if code.survey.blocks[block] and (words[0] in _TOGETHER or is_shared):
            raise _refuse_shape("its threads work together")


def _refuse_untouched_accesses(
    code: SurveyedCode, executed: Sequence[PtxAccess], moved: Sequence[PtxAccess]
) -> None:
    """Fewer threads must touch no less than all: but for what all lanes read at one place."""
    others = 0
    for access in executed:
        seen = code.survey.seen[access.number]
        is_shared = access.kind == "load" and seen.units == seen.requests
        if access not in moved and not is_shared:
            others += seen.units
    streamed = sum(code.survey.seen[access.number].units for access in moved)
    if others > _OTHERS * streamed:
        raise _refuse_shape("it makes accesses that are not of neighbours side by side, too")


def _refuse_shape(why: str) -> Refused:
    remedy = "write and time a wide version"
    return Refused("other-work", why, "threads that work alone", remedy)


def _write_wide(kernel: PtxKernel, access: PtxAccess, region: Region, part: int) -> list[str]:
    """Statements in the place of an access that touch as many times its bytes."""
    size = access.width * part
    words = _WORDS[: max(1, size // 4)]
    opcode = _make_opcode(access, len(words))
    place = words[0] if len(words) == 1 else f"{{{', '.join(words)}}}"
    values = _list_values(access)
    guard = ptx.write_guard(access.statement)
    lines = _write_address(kernel, access, region, part)
    if access.kind == "store":
        lines += _pack_values(kernel, values, words)
        lines.append(f"{guard}{opcode} [{MOVED}], {place};")
        return lines
    lines.append(f"{guard}{opcode} {place}, [{MOVED}];")
    for word in words[1:]:
        lines.append(f"xor.b32 {words[0]}, {words[0]}, {word};")
    for value in values:
        lines.append(guard + _write_word_move(kernel, value, words[0]))
    return lines


def _make_opcode(access: PtxAccess, words: int) -> str:
    """The opcode of an access with so many words of 4 bytes."""
    kept = [word for word in access.statement.words[:-1] if word not in ("v2", "v4", "v8")]
    return ".".join([*kept, f"v{words}", "b32"] if words > 1 else [*kept, "b32"])


def _list_values(access: PtxAccess) -> list[str]:
    """What is loaded or stored: registers, or a number."""
    operand = access.statement.operands[1 - access.address.operand]
    return [word.strip() for word in operand.strip("{} ").split(",")]


def _write_address(kernel: PtxKernel, access: PtxAccess, region: Region, part: int) -> list[str]:
    """Statements that stretch the way from the first byte, and come back before the last one."""
    size = access.width * part
    places = (region.high - region.low) // size
    if places < 1:
        raise _refuse_shape("it touches a few bytes only")
    last = (places - 1) * size
    mask = (1 << places.bit_length() - 1) * size - 1
    base, offset = access.address.base, access.address.offset
    first = f"add.s64 {MOVED}, {base}, {offset - region.low};"
    if access.address.in_register and not kernel.is_wide(base):
        raise _refuse_shape("its addresses have 32 bits")
    if not access.address.in_register:
        raise _refuse_shape("it accesses an array of its module by name")
    return [
        first,
        f"mul.lo.u64 {MOVED}, {MOVED}, {part};",
        f"and.b64 %profkit_wrapped, {MOVED}, {mask};",
        f"setp.gt.u64 %profkit_past, {MOVED}, {last};",
        f"selp.b64 {MOVED}, %profkit_wrapped, {MOVED}, %profkit_past;",
        f"add.s64 {MOVED}, {MOVED}, {region.low};",
    ]


def _pack_values(kernel: PtxKernel, values: Sequence[str], words: Sequence[str]) -> list[str]:
    """Statements that fill words to store with what was to be stored."""
    lines = []
    for number, value in enumerate(values):
        to = words[min(number, len(words) - 1)]
        bits = kernel.types.get(value, "b32")[1:]
        if not value.startswith("%"):
            lines.append(f"mov.b32 {to}, 0;")
        elif bits == "16":
            lines.append(f"mov.b32 {to}, {{{value}, {value}}};")
        elif bits == "64":
            lines.append(f"mov.b64 {{{to}, _}}, {value};")
        else:
            lines.append(f"mov.b32 {to}, {value};")
    for word in words[len(values) :]:
        lines.append(f"mov.b32 {word}, {words[0]};")
    return lines


def _write_word_move(kernel: PtxKernel, value: str, word: str) -> str:
    """A statement that puts a loaded word into a register of the kernel."""
    bits = kernel.types.get(value, "b32")[1:]
    if bits == "16":
        return f"mov.b32 {{{value}, _}}, {word};"
    if bits == "64":
        return f"mov.b64 {value}, {{{word}, {word}}};"
    return f"mov.b32 {value}, {word};"


ABLATION = Ablation(
    id="wide",
    title="narrow accesses",
    reachable=True,
    rules=("narrow-accesses", "long-scoreboard"),
    probes=("stream-one",),
    keeps="",  # fewer and wider accesses are what is wanted
    make=widen_accesses,
)
