"""Regions of memory and the accesses to them  ->  a copy of the code that marks every sector it touches.

Other code for the same work has to touch as much memory: with less of it, what missed before would hit.
Each access marks the byte of its sector in a map of its region; the marks are counted after the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profkit.lab.ablation.accesses import PtxAccess, find_memory_accesses
from profkit.lab.ablation.ptx import PtxEdits, PtxModule
from profkit.lab.ablation.survey import write_code_computing_address

if TYPE_CHECKING:
    from profkit.units import PtxText


MOVED = "%profkit_to"  # the register that says where a moved access goes
MAPS = "profkit_maps"  # the array with the address of each region's map
SECTOR = 32  # bytes
_POINTER = 8  # bytes
_SECTOR_SHIFT = 5


@dataclass(frozen=True)
class Region:
    """Bytes of one array that some accesses go to."""

    low: int
    high: int  # behind the last byte
    accesses: tuple[PtxAccess, ...]

    @property
    def sectors(self) -> int:
        return (self.high - self.low) // SECTOR + 1


# Statements that mark the sector of one access. No address is outside of its region.
_MARK = """{{
.reg .b32 %pk_one;
.reg .b64 %pk_at, %pk_map;
{address}
sub.s64 %pk_at, %pk_at, {low};
shr.u64 %pk_at, %pk_at, {shift};
ld.global.u64 %pk_map, [{maps}+{place}];
add.s64 %pk_at, %pk_at, %pk_map;
mov.u32 %pk_one, 1;
{guard}st.global.u8 [%pk_at], %pk_one;
}}"""


def write_marking_module(module: PtxModule, regions: Sequence[Region]) -> PtxText:
    """Return the module's text in which each access of the regions marks what it touches."""
    changes = PtxEdits(module)
    changes.outside[f".visible .global .align 8 .b64 {MAPS}[{max(1, len(regions))}];"] = None
    for number, region in enumerate(regions):
        for access in region.accesses:
            text = _MARK.format(
                address=write_code_computing_address(module.kernels[access.kernel], access),
                low=region.low,
                shift=_SECTOR_SHIFT,
                maps=MAPS,
                place=_POINTER * number,
                guard=access.statement.condition,
            )
            changes.insert_before(access.statement, text)
    return changes.write_edited_module()


def replace_accesses_of_regions(regions: Sequence[Region], module: PtxModule) -> tuple[Region, ...]:
    """Return the regions with their accesses in rewritten code, where these stand in the same order."""
    before: list[PtxAccess] = []
    for region in regions:
        before += region.accesses
    before.sort(key=lambda access: access.statement.start)
    moved = [access for access in find_memory_accesses(module) if access.address.base == MOVED]
    now = {}
    for old, new in zip(before, moved, strict=True):
        now[old.number] = new
    found = []
    for region in regions:
        accesses = tuple(now[access.number] for access in region.accesses)
        found.append(replace(region, accesses=accesses))
    return tuple(found)
