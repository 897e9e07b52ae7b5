"""Addresses of shared memory in each lane  ->  wavefronts, and a layout without conflicts.

Shared memory has 32 banks of 4 bytes. What is served at once takes as many wavefronts as the fullest
bank has different words: a warp's words of 4 bytes, half a warp's of 8, a quarter's of 16.

Only what agrees with the counters is said: an address that was worked out wrongly has other conflicts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import gcd
from typing import TYPE_CHECKING, Literal, NamedTuple

from profkit.reports.addresses import (
    DecodedFunction,
    LaunchedCode,
    Layout,
    Layouts,
    group_addresses_by_function,
    index_register_definitions,
)
from profkit.reports.lanes import (
    LANES,
    Lanes,
    RegisterDefinitions,
    SassStatement,
    WarpRegisters,
    add_lanes,
    make_uniform_lanes,
    multiply_lanes,
)

if TYPE_CHECKING:
    from profkit.units import (
        ByteCount,
        ByteOffset,
        InstructionAddress,
        InstructionIndex,
    )


BANKS, BANK = 32, 4  # bytes
LINE = BANKS * BANK  # bytes of one wavefront
MATRIX = 8  # rows of 16 bytes in what LDSM loads at once, each at the address of a lane
AGREES = 0.05  # how far the wavefronts worked out may be from those counted
NARROWEST = 32  # bytes of a row: what is shorter is a record, and no padding mends its layout
MOST = 3  # layouts that are looked for
_WAVEFRONTS = ("memory_l1_wavefronts_shared", "memory_l1_sectors_shared")
_LOADS = frozenset({"LDS", "LDSM"})
_MATRICES = frozenset({"LDSM", "STSM"})
_DECODED = _LOADS | _MATRICES | {"STS"}
_TILES = re.compile(r"UTMA|UBLK|[A-Z]GMMA$|UTC")  # opcodes of copies and products of whole tiles
_SCALES = {"X4": 4, "X8": 8, "X16": 16}
_WORDS = 2  # low bits of an address in a word
_THREADS = 1024  # of a block, at most
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "8": 1, "16": 2}
# Since this capability a launch's block is elsewhere among its constants.
_BLACKWELL = 100
_BLOCK_BEFORE = 0x0
_BLOCK_SINCE = 0x360


@dataclass(frozen=True)
class SharedMemoryAccess:
    """An instruction on shared memory, and its addresses in each lane of each warp of a block."""

    pc: int
    size: int  # bytes a lane
    is_load: bool
    bits: int  # low bits of the addresses that are known; all lanes add the same above
    warps: tuple[tuple[int, ...], ...]
    counted: float  # wavefronts of the launch
    ideal: float  # those that it needs
    requests: float

    @cached_property
    def predicted_wavefronts(self) -> float:
        """Return wavefronts per request by the addresses, averaged over the warps."""
        return self.compute_average_wavefronts(self.warps)

    @property
    def is_prediction_right(self) -> bool:
        """Return whether the counted wavefronts match its addresses; False where it never ran."""
        if not self.requests:
            return False
        apart = abs(self.predicted_wavefronts * self.requests - self.counted)
        return apart <= AGREES * self.counted

    @property
    def needed_wavefronts(self) -> float:
        """Return the wavefronts that a request needs at least."""
        return self.ideal / self.requests

    @property
    def excess_wavefronts(self) -> float:
        """Return the wavefronts of the launch beyond those that it needs."""
        return max(0.0, self.counted - self.ideal)

    @property
    def has_conflicts(self) -> bool:
        """Return whether its addresses take more wavefronts than needed, beyond the tolerance."""
        return self.predicted_wavefronts > self.needed_wavefronts * (1 + AGREES)

    def compute_average_wavefronts(
        self, addresses_by_warp: Sequence[Sequence[ByteOffset]]
    ) -> float:
        """Return wavefronts per request, by the addresses of each warp."""
        counts = [
            count_wavefronts_of_request(lanes, self.size, is_load=self.is_load)
            for lanes in addresses_by_warp
        ]
        return sum(counts) / len(counts)

    @property
    def byte_range(self) -> tuple[ByteOffset, ByteOffset]:
        """Return its lowest address, and the one behind its highest byte."""
        lowest = min(min(lanes) for lanes in self.warps)
        highest = max(max(lanes) for lanes in self.warps)
        return lowest, highest + self.size


def count_wavefronts_of_request(
    addresses: Sequence[ByteOffset], bytes_per_lane: ByteCount, *, is_load: bool
) -> int:
    """Return the wavefronts of one request of a warp, `bytes_per_lane` bytes at each address."""
    total = 0
    for group in _group_addresses_served_together(addresses, bytes_per_lane, is_load=is_load):
        banks: dict[int, set[int]] = defaultdict(set)
        for address in group:
            for word in range(address // BANK, (address + bytes_per_lane - 1) // BANK + 1):
                banks[word % BANKS].add(word)
        total += max(map(len, banks.values()))
    return total


def _group_addresses_served_together(
    addresses: Sequence[ByteOffset], bytes_per_lane: ByteCount, *, is_load: bool
) -> list[Sequence[ByteOffset]]:
    """Return the addresses that are served at once.

    Two groups of a load go as one where each lane has the address of a neighbour: all of the next
    lane, or all of the next but one.
    """
    lanes = min(LINE // max(bytes_per_lane, BANK), len(addresses))
    step = min(2 * lanes, len(addresses))
    groups: list[Sequence[int]] = []
    for first in range(0, len(addresses), step):
        both = addresses[first : first + step]
        if step == lanes or (is_load and _do_neighbours_share_addresses(both)):
            groups.append(both)
        else:
            groups += [both[:lanes], both[lanes:]]
    return groups


def _do_neighbours_share_addresses(addresses: Sequence[ByteOffset]) -> bool:
    for near in (1, 2):
        if all(address == addresses[n ^ near] for n, address in enumerate(addresses)):
            return True
    return False


# The addresses of a launch.


@dataclass(frozen=True)
class SharedAccesses:
    """The accesses of a launch on shared memory."""

    decoded: tuple[SharedMemoryAccess, ...]  # those whose addresses were worked out
    counted: float  # wavefronts of all
    excess: float  # of them, beyond the ideal
    # Bytes that an access of unknown addresses may move at once: padding keeps to multiples of it.
    widest: int

    @property
    def well_predicted(self) -> list[SharedMemoryAccess]:
        """Return the accesses whose addresses explain their counted wavefronts."""
        return [access for access in self.decoded if access.is_prediction_right]


def find_shared_memory_accesses(kernel: LaunchedCode) -> SharedAccesses:
    """Return what is known of a launch's accesses; nothing where its machine code is not."""
    counted, ideal = _read_counted_and_ideal_wavefronts(kernel)
    executed = kernel.sum_metrics_by_address({"inst_executed": 1.0}) or {}
    decoded: list[SharedMemoryAccess] = []
    widest = BANK
    for program, places in group_addresses_by_function(kernel, counted):
        worked_out = _get_or_make_address_lookup(kernel, program)
        for pc in places:
            at = program.index[pc]
            addresses = worked_out(at)
            if addresses.warps:
                access = SharedMemoryAccess(
                    pc=pc,
                    size=addresses.size,
                    is_load=program.instructions[at].opcode in _LOADS,
                    bits=addresses.bits,
                    warps=addresses.warps,
                    counted=counted[pc],
                    ideal=ideal.get(pc, counted[pc]),
                    requests=executed.get(pc, 0.0),
                )
                decoded.append(access)
            if not addresses.warps or not decoded[-1].is_prediction_right:
                widest = max(widest, addresses.size)
    excess = sum(max(0.0, value - ideal.get(pc, value)) for pc, value in counted.items())
    return SharedAccesses(
        decoded=tuple(decoded),
        counted=sum(counted.values()),
        excess=excess,
        widest=widest,
    )


def _uses_tile_instructions(program: DecodedFunction) -> bool:
    """Return whether a function copies or multiplies whole tiles, whose layouts are the hardware's."""
    return any(_TILES.match(instruction.opcode) for instruction in program.instructions)


@dataclass(frozen=True)
class _Addresses:
    """What is known of an instruction on shared memory, without what was counted."""

    size: int  # bytes a lane
    bits: int
    warps: tuple[tuple[int, ...], ...]  # none where they are not known


_AddressLookup = Callable[[int], _Addresses]  # of the instruction at a position of a program


def _get_or_make_address_lookup(kernel: LaunchedCode, program: DecodedFunction) -> _AddressLookup:
    """Return what works out the addresses of a function, or has done so for another launch of it.

    Launches of one kernel in blocks of one size have the same, and a large one takes a quarter of a
    second.
    """
    start = program.instructions[0].pc
    known = "addresses", kernel.get_code_of_function(start), start, kernel.block_size
    if known not in kernel.shared:
        definitions = index_register_definitions(kernel, program)
        warps = _list_warp_registers(kernel, definitions)

        def look_up_addresses(at: InstructionIndex) -> _Addresses:
            statement = definitions.statement(at)
            size = _get_bytes_per_lane(statement)
            addresses = _compute_lane_addresses_by_warp(warps, at, statement)
            if not addresses:
                return _Addresses(size, 0, ())
            rows = _count_addressing_lanes(statement)
            lanes = tuple(value.values[:rows] for value in addresses)
            return _Addresses(size, min(value.bits for value in addresses), lanes)

        kernel.shared[known] = cache(look_up_addresses)
    worked_out: _AddressLookup = kernel.shared[known]
    return worked_out


def _read_counted_and_ideal_wavefronts(
    kernel: LaunchedCode,
) -> tuple[dict[InstructionAddress, float], dict[InstructionAddress, float]]:
    """Return address -> wavefronts of its accesses, and those that it needs at least."""
    for name in _WAVEFRONTS:
        counted = kernel.sum_metrics_by_address({name: 1.0})
        ideal = kernel.sum_metrics_by_address({f"{name}_ideal": 1.0})
        if counted and ideal:
            return counted, ideal
    return {}, {}


def _list_warp_registers(
    kernel: LaunchedCode, definitions: RegisterDefinitions
) -> list[WarpRegisters]:
    """Return the registers of each warp of a block; none where its size is not known."""
    columns, rows, planes = kernel.block_size
    first = _BLOCK_SINCE if kernel.capability >= _BLACKWELL else _BLOCK_BEFORE
    constants = {first: columns, first + 4: rows, first + 8: planes}
    threads = columns * rows * planes
    warps = []
    for start in range(0, min(threads, _THREADS), LANES):
        numbers = [min(start + lane, threads - 1) for lane in range(LANES)]
        special = {
            "SR_TID.X": Lanes(tuple(n % columns for n in numbers)),
            "SR_TID.Y": Lanes(tuple(n // columns % rows for n in numbers)),
            "SR_TID.Z": Lanes(tuple(n // (columns * rows) for n in numbers)),
            "SR_LANEID": Lanes(tuple(range(LANES))),
        }
        warps.append(WarpRegisters(definitions, special, constants))
    return warps


def _get_bytes_per_lane(statement: SassStatement) -> ByteCount:
    """Return how many bytes a lane reads or writes at its address."""
    if statement.opcode in _MATRICES:
        return 16
    return max((_BYTES.get(modifier, 0) for modifier in statement.modifiers), default=0) or BANK


def _count_addressing_lanes(statement: SassStatement) -> int:
    """Return of how many lanes the addresses count: of a matrix each row has one."""
    if statement.opcode not in _MATRICES:
        return LANES
    matrices = {"2": 2, "4": 4}
    return MATRIX * max((matrices.get(word, 1) for word in statement.modifiers), default=1)


def _compute_lane_addresses_by_warp(
    warps: Sequence[WarpRegisters], position: InstructionIndex, statement: SassStatement
) -> list[Lanes]:
    """Return where a statement accesses shared memory in each warp; none where that is not known."""
    if statement.opcode not in _DECODED:
        return []
    found = []
    for warp in warps:
        address = _compute_lane_addresses(warp, position, statement)
        if address is None or address.bits < _WORDS:
            return []
        found.append(address)
    return found


def _compute_lane_addresses(
    warp: WarpRegisters, position: InstructionIndex, statement: SassStatement
) -> Lanes | None:
    operand = ""
    for known in statement.operands:
        if known.startswith("["):
            operand = known
            break
    names = []
    scales = []
    for term in operand.strip("[]").split("+"):
        name, *parts = term.split(".")
        names.append(name)
        scales.append(max((_SCALES.get(part, 1) for part in parts), default=1))
    total = make_uniform_lanes(0)
    for value, scale in zip(warp.evaluate_operands(position, names), scales, strict=True):
        scaled = value and multiply_lanes(value, make_uniform_lanes(scale))
        if scaled is None:
            return None
        total = add_lanes(total, scaled)
    return total


# Layouts.


def find_conflict_free_layouts(kernel: LaunchedCode) -> Layouts:
    """Return layouts without conflicts of a launch's arrays in shared memory, that with most first."""
    counted, _ = _read_counted_and_ideal_wavefronts(kernel)
    groups = group_addresses_by_function(kernel, counted)
    # Nothing is looked for there, and the text of machine code is slow.
    if not groups or any(_uses_tile_instructions(program) for program, _ in groups):
        return Layouts(0.0, ())
    shared = find_shared_memory_accesses(kernel)
    if not shared.excess:
        return Layouts(0.0, ())
    decoded = sum(access.excess_wavefronts for access in shared.well_predicted) / shared.excess
    found: list[Layout] = []
    left = sorted(shared.well_predicted, key=lambda access: -access.excess_wavefronts)
    while left and left[0].has_conflicts and len(found) < MOST:
        array = _list_accesses_of_same_array(left[0], shared.well_predicted)
        change = _find_least_change(array, max(shared.widest, *(x.size for x in array)))
        if change is not None:
            _add_or_merge_layout(found, _make_layout(kernel, change, array, shared.excess))
        left = [access for access in left if access not in array]
    return Layouts(decoded, tuple(found))


def _make_layout(
    kernel: LaunchedCode, change: LayoutChange, array: Sequence[SharedMemoryAccess], excess: float
) -> Layout:
    """Return a layout of an array, with the source line of its first access, that with most excess.

    `excess`: wavefronts beyond the ideal of all accesses of the launch.
    """
    first = array[0]
    line: int | None
    file, line = kernel.place(first.pc)
    if file is None:
        line = None
    excess_of_array = sum(access.excess_wavefronts for access in array)
    return Layout(
        kind=change.kind,
        row=change.row,
        bytes=change.bytes,
        size=first.size,
        file=file,
        line=line,
        before=first.predicted_wavefronts,
        after=first.compute_average_wavefronts(change.moved),
        warps=len(change.moved),
        accesses=len(array),
        share=excess_of_array / excess,
        called_at=kernel.find_call_with_most_of_line({first.pc: 1.0}),
    )


def _add_or_merge_layout(layouts: list[Layout], layout: Layout) -> None:
    """Add what is said of one more array; to the same change of another array where there is one."""
    for n, other in enumerate(layouts):
        change = layout.kind, layout.row, layout.bytes, layout.size
        if change == (other.kind, other.row, other.bytes, other.size):
            accesses = other.accesses + layout.accesses
            share = other.share + layout.share
            layouts[n] = replace(other, accesses=accesses, share=share)
            return
    layouts.append(layout)


def _list_accesses_of_same_array(
    first: SharedMemoryAccess, others: Iterable[SharedMemoryAccess]
) -> list[SharedMemoryAccess]:
    """Return an access and those on the same array: what overlaps it, or overlaps what does."""
    array = [first]
    rest = [access for access in others if access is not first]
    low, high = first.byte_range
    has_grown = True
    while has_grown:
        apart = []
        for access in rest:
            start, end = access.byte_range
            if start < high and low < end:
                array.append(access)
                low = min(low, start)
                high = max(high, end)
            else:
                apart.append(access)
        has_grown = len(apart) < len(rest)
        rest = apart
    return array


AddressesByWarp = Sequence[Sequence[int]]


class LayoutChange(NamedTuple):
    """A change of where the elements of an array are, as Layout says it."""

    kind: Literal["padding", "swizzle"]
    row: int  # bytes
    bytes: int
    moved: AddressesByWarp  # where the first access of the array goes with it


def _find_least_change(
    array: Sequence[SharedMemoryAccess], alignment: ByteCount
) -> LayoutChange | None:
    """Return the least padding, else a swizzle, that leaves no conflict at any access of an array."""
    row = _find_row_pitch(array[0])
    if row < NARROWEST or row % alignment:
        return None
    for padding in range(alignment, LINE + 1, alignment):
        moved = [_compute_padded_addresses(access, row, padding) for access in array]
        if _is_layout_free_of_conflicts(array, moved):
            return LayoutChange("padding", row, padding, moved[0])
    moved = _compute_swizzled_addresses(array, row, alignment)
    if moved and _is_layout_free_of_conflicts(array, moved):
        return LayoutChange("swizzle", row, alignment, moved[0])
    return None


def _is_layout_free_of_conflicts(
    array: Sequence[SharedMemoryAccess], moved_warps: Sequence[AddressesByWarp]
) -> bool:
    """Return whether no access needs more wavefronts than it must, or than before without conflicts."""
    for access, warps in zip(array, moved_warps, strict=True):
        most = access.needed_wavefronts
        if not access.has_conflicts:
            most = max(most, access.predicted_wavefronts)
        if access.compute_average_wavefronts(warps) > most * (1 + AGREES):
            return False
    return True


def _find_row_pitch(access: SharedMemoryAccess) -> ByteCount:
    """Return how many bytes apart the rows are that lanes access at once; 0 where they are in one."""
    apart = 0
    for lanes in access.warps:
        addresses = sorted(set(lanes))
        end = addresses[0]
        for address in addresses:
            if address > end:
                apart = gcd(apart, address - addresses[0])
            end = address + access.size
    return apart


def _compute_padded_addresses(
    access: SharedMemoryAccess, row_bytes: ByteCount, padding_bytes: ByteCount
) -> list[list[ByteOffset]]:
    """Return where an access goes when each row of its array has so many bytes more.

    A row begins at the lowest address of a warp: whatever all lanes add keeps them in their rows.
    """
    moved = []
    for lanes in access.warps:
        first = min(lanes)
        moved.append(
            [address + (address - first) // row_bytes * padding_bytes for address in lanes]
        )
    return moved


def _compute_swizzled_addresses(
    array: Sequence[SharedMemoryAccess], row_bytes: ByteCount, chunk_bytes: ByteCount
) -> list[list[list[ByteOffset]]]:
    """Return where accesses go when chunks change places by the number of their line of 128 bytes.

    Nothing where rows are no power of two, or what all lanes add may change the line's number.
    """
    line = max(row_bytes, LINE)
    chunks = min(row_bytes, LINE) // chunk_bytes
    repeats = line * chunks  # bytes after which the same chunks change places again
    known = min(access.bits for access in array)
    if row_bytes & (row_bytes - 1) or chunks < 2 or repeats > 1 << known:
        return []
    base = min(access.byte_range[0] for access in array)
    moved = []
    for access in array:
        warps = []
        for lanes in access.warps:
            offsets = [address - base for address in lanes]
            warps.append([x ^ x // line % chunks * chunk_bytes for x in offsets])
        moved.append(warps)
    return moved
