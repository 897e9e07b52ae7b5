"""Machine code as text  ->  what each lane of a warp has in a register.

An address in shared memory is mostly arithmetic of thread indices. What all lanes add alike (the number
of the block, a parameter, the round of a loop) may stay unknown: banks conflict by how lanes differ.

Branches are taken for the same in all lanes of a warp, and a call for one that keeps all registers.
Neither has to be so: whoever asks compares what comes out with what was counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache, reduce
from operator import add, mul, neg
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from profkit.units import InstructionIndex, Opcode, RegisterName


PositionAndRegister = tuple[int, str]  # of the instruction that writes it

LANES = 32  # of a warp
BITS = 32  # of a register
WORD = 1 << BITS
_ROUNDS = 3 * BITS  # a value loses a bit a round at least, or stays
_MOST = 1000  # instructions that an address may depend on
_REGISTERS = Struct(f"<{LANES}I")  # a register of all lanes


@dataclass(frozen=True, slots=True)
class Lanes:
    """What a register has in each lane: `values`, plus the same unknown multiple of 2**bits in all."""

    values: tuple[int, ...]
    bits: int = BITS

    @property
    def is_exact(self) -> bool:
        """Return whether all bits are known."""
        return self.bits == BITS

    @property
    def is_uniform(self) -> bool:
        """Return whether all lanes have one value."""
        return min(self.values) == max(self.values)


def make_uniform_lanes(value: int) -> Lanes:
    """Return one known value in all lanes."""
    return Lanes((value % WORD,) * LANES)


UNKNOWN = Lanes((0,) * LANES, 0)  # the same in all lanes, but which is not known


def add_lanes(left: Lanes, right: Lanes) -> Lanes:
    """Return the sum in each lane, as a word; only bits known in both are known in it."""
    return _cut_to_words(map(add, left.values, right.values), min(left.bits, right.bits))


def negate_lanes(value: Lanes) -> Lanes:
    """Return minus the value in each lane, as a word."""
    return _cut_to_words(map(neg, value.values), value.bits)


def _cut_to_words(numbers: Iterable[int], bits: int = BITS) -> Lanes:
    """Return a number of each lane as the register that it is written to has it."""
    return Lanes(tuple(number % WORD for number in numbers), bits)


def count_low_zero_bits(value: int) -> int:
    """Return how many low bits are 0; all of a word's for 0."""
    return (value & -value).bit_length() - 1 if value else BITS


def multiply_lanes(left: Lanes, right: Lanes) -> Lanes | None:
    """Return the product; None where an unknown factor meets one that differs between lanes."""
    bits = BITS
    for unknown, other in ((left, right), (right, left)):
        if unknown.is_exact:
            continue
        if not other.is_uniform:
            return None
        factor = min(count_low_zero_bits(other.values[0]), other.bits)
        bits = min(bits, unknown.bits + factor)
    return _cut_to_words(map(mul, left.values, right.values), bits)


def shift_lanes_right(value: Lanes, bit_count: int, *, signed: bool) -> Lanes | None:
    """Return the value shifted right in each lane; None if too few bits are known for that."""
    words: Iterable[int] = value.values
    if value.is_exact:
        if signed:
            words = map(convert_word_to_signed, words)
        return _cut_to_words(word >> bit_count for word in words)
    if value.bits > bit_count:
        return _cut_to_words((word >> bit_count for word in words), value.bits - bit_count)
    return UNKNOWN if value.is_uniform else None


def convert_word_to_signed(value: int) -> int:
    """Return an unsigned word as a signed number."""
    return value - WORD if value >> (BITS - 1) else value


def _find_operands_with_high_bits_set(
    operands: Sequence[Lanes], position: int, known: int
) -> int | None:
    """Return which operands but one have all bits set above the known ones; None where some have.

    An operand is the bit of the table's index that it decides: 4, 2 or 1.
    """
    others = 0
    for n, operand in enumerate(operands):
        if n == position:
            continue
        above = {x >> known for x in operand.values}
        if above == {(WORD - 1) >> known}:
            others |= 4 >> n
        elif above != {0}:
            return None
    return others


def compute_lop3(operands: Sequence[Lanes], table: int) -> Lanes | None:
    """Return what LOP3 makes of three operands; `table` has the answer for each three bits."""
    known = min(operand.bits for operand in operands)
    values = _apply_truth_table([operand.values for operand in operands], table)
    if known == BITS:
        return Lanes(values)
    low = (1 << known) - 1
    if all(operand.is_uniform for operand in operands):
        return Lanes(tuple(x & low for x in values), known)
    are_known = [operand.is_exact for operand in operands]
    if are_known.count(False) > 1:
        return None
    at = are_known.index(False)
    others = _find_operands_with_high_bits_set(operands, at, known)
    if others is None:
        return None
    cleared = table >> others & 1
    set_ = table >> (others | 4 >> at) & 1
    if cleared == set_:
        top = (WORD - 1 - low) * cleared
        return Lanes(tuple((x & low) | top for x in values))
    return Lanes(values, known)


def _apply_truth_table(operands: Sequence[Sequence[int]], table: int) -> tuple[int, ...]:
    """Return what `table` makes of each lane's three words; all lanes at once, as one long number."""
    every = (1 << BITS * LANES) - 1
    long = [int.from_bytes(_REGISTERS.pack(*values), "little") for values in operands]
    result = 0
    for number in range(8):
        if table >> number & 1:
            bits = every
            for n, operand in enumerate(long):
                bits &= operand if number & 4 >> n else every ^ operand
            result |= bits
    return _REGISTERS.unpack(result.to_bytes(_REGISTERS.size, "little"))


def merge_lanes(left: Lanes | None, right: Lanes | None) -> Lanes | None:
    """Return what is known of a register that comes from two places, one at a time in all lanes."""
    if left is None or right is None:
        return None
    if left.values == right.values:
        return left if left.bits <= right.bits else right
    apart = add_lanes(right, negate_lanes(left))
    if not apart.is_uniform:
        return None
    bits_alike = count_low_zero_bits(apart.values[0])
    return Lanes(left.values, min(left.bits, right.bits, bits_alike))


# A machine instruction as text.

_TEXT = re.compile(r"\s*(?:@(!?U?P\w+)\s+)?([A-Z][A-Z0-9_]*)([\w.]*)\s*(.*?)\s*;?\s*$")
_PREDICATE = re.compile(r"!?U?P(?:T|\d+)$")
_REGISTER = re.compile(r"(U?R)(Z|\d+)")
_CONSTANT = re.compile(r"c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+)\]$")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)$")
# These write no register, whatever their first operand is.
_SILENT = re.compile(
    r"(?:ST|STG|STS|STL|STSM|STAS|RED|REDG|REDS|BRA|BRX|BAR|EXIT|CALL|RET|LDGSTS|LDGDEPBAR|DEPBAR|NOP"
    r"|PLOP3|UPLOP3|FCHK|R2P|CCTL|BSSY|BSYNC|WARPSYNC|SYNCS|\w*SETP\w*)$"
)
WIDEST = 8  # registers that an instruction writes, at most
_WIDTHS = {"64": 2, "128": 4, "WIDE": 2, "F64": 2, "S64": 2, "U64": 2, "256": 8}
_PAIRS = re.compile(r"D(?:ADD|MUL|FMA)$|CS2R$")
_FOURS = re.compile(r"[HIDBQ]MMA$")


@dataclass(frozen=True, slots=True)
class SassStatement:
    """An instruction as the disassembler writes it, taken apart."""

    guard: str  # the predicate it runs under; "" without
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]  # without the predicates before the first register, and its result
    writes: tuple[str, ...]  # registers


def parse_sass_statement(text: str) -> SassStatement:
    """Return an instruction's parts; with nothing in them where the text is none."""
    found = _TEXT.match(text)
    if not found:
        return SassStatement("", "", (), (), ())
    guard, opcode, modifiers, rest = found.groups(default="")
    parts = tuple(modifiers.strip(".").split(".")) if modifiers else ()
    operands = tuple(part.strip() for part in rest.split(",")) if rest else ()
    if _SILENT.match(opcode):
        return SassStatement(guard, opcode, parts, operands, ())
    while operands and _PREDICATE.match(operands[0]):
        operands = operands[1:]
    first = _REGISTER.match(operands[0]) if operands else None
    if first is None:
        return SassStatement(guard, opcode, parts, operands, ())
    writes = _name_written_registers(first[1], first[2], _count_written_registers(opcode, parts))
    sources = tuple(x for x in operands[1:] if not _PREDICATE.match(x))
    return SassStatement(guard, opcode, parts, sources, writes)


def _name_written_registers(
    register_kind: str, first_number: str, count: int
) -> tuple[RegisterName, ...]:
    """Return so many registers from one on, R4 R5; none for RZ, which is always zero."""
    if first_number == "Z":
        return ()
    return tuple(f"{register_kind}{n}" for n in range(int(first_number), int(first_number) + count))


def _count_written_registers(opcode: Opcode, modifiers: Sequence[str]) -> int:
    if opcode == "LDSM":
        return int(modifiers[-1]) if modifiers[-1:] and modifiers[-1] in "24" else 1
    if _FOURS.match(opcode):
        return 4
    if opcode.endswith("SHF"):  # of two registers it makes one
        return 1
    if _PAIRS.match(opcode):
        return 1 if "32" in modifiers else 2
    return max((_WIDTHS.get(modifier, 1) for modifier in modifiers), default=1)


# What an instruction makes of its operands: None where lanes differ in a way that is not known.


class Pending(Enum):
    """Instead of a value: of a register whose operands were not worked out yet."""

    PENDING = "pending"


PENDING: Final = Pending.PENDING
MaybeLanes = Lanes | None
ComputeLanes = Callable[[SassStatement, Sequence[Lanes]], MaybeLanes]


def _compute_sum(statement: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    if "X" in statement.modifiers:  # with a carry
        return None
    return reduce(add_lanes, operands)


def _compute_product(statement: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    if "X" in statement.modifiers:
        return None
    if "HI" in statement.modifiers:
        return _compute_high_product(statement, operands)
    product = multiply_lanes(operands[0], operands[1])
    return product and add_lanes(product, operands[2])


def _compute_high_product(statement: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    """Return the upper half of a product, which divisions by constants are made of."""
    left, right, more = operands[:3]
    if not (left.is_exact and right.is_exact):
        return None
    signed = "U32" not in statement.modifiers
    products = []
    for x, y in zip(left.values, right.values, strict=True):
        product = convert_word_to_signed(x) * convert_word_to_signed(y) if signed else x * y
        products.append((product >> BITS) % WORD)
    return add_lanes(Lanes(tuple(products)), more)


def _compute_scaled_sum(statement: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    """Compute LEA: the first shifted left, plus the second; with HI what the shift pushes out."""
    if "X" in statement.modifiers:
        return None
    count = operands[-1].values[0] & (BITS - 1)
    if "HI" not in statement.modifiers:
        product = multiply_lanes(operands[0], make_uniform_lanes(1 << count))
        return product and add_lanes(product, operands[1])
    if len(operands) == 4 and any(operands[2].values):
        return None
    moved = shift_lanes_right(operands[0], BITS - count, signed="SX32" in statement.modifiers)
    return moved and add_lanes(moved, operands[1])


def _compute_lop3_statement(_: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    return compute_lop3(operands[:3], operands[3].values[0])


def _compute_shifted(statement: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    low, count, high = operands[:3]
    if not count.is_exact or not count.is_uniform:
        return None
    by = count.values[0] & (BITS - 1)
    modifiers = statement.modifiers
    if "L" in modifiers and "HI" not in modifiers:
        return multiply_lanes(low, make_uniform_lanes(1 << by))
    if "R" in modifiers and "HI" in modifiers:
        return shift_lanes_right(high, by, signed="S32" in modifiers or "S64" in modifiers)
    if "R" in modifiers and not any(high.values) and high.is_exact:
        return shift_lanes_right(low, by, signed=False)
    return None


def _compute_move(_: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    return operands[0]


def _compute_first_lane(_: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    """Compute R2UR: the lanes have one value, or the first active one's is taken."""
    return Lanes((operands[0].values[0],) * LANES, operands[0].bits)


def _compute_shuffle(statement: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    """Compute SHFL.IDX of one lane, which tells the compiler that a value is the same in all."""
    source, index = operands[:2]
    if "IDX" not in statement.modifiers or not (index.is_exact and index.is_uniform):
        return None
    return Lanes((source.values[index.values[0] % LANES],) * LANES, source.bits)


def _compute_absolute(_: SassStatement, operands: Sequence[Lanes]) -> MaybeLanes:
    if not operands[0].is_exact:
        return None
    return _cut_to_words(map(abs, map(convert_word_to_signed, operands[0].values)))


# Opcode -> who works it out, and from how many operands at least.
_MAKERS: dict[str, tuple[ComputeLanes, int]] = {
    "IADD3": (_compute_sum, 1),
    "IADD": (_compute_sum, 1),
    "VIADD": (_compute_sum, 1),
    "IMAD": (_compute_product, 3),
    "LEA": (_compute_scaled_sum, 3),
    "LOP3": (_compute_lop3_statement, 4),
    "SHF": (_compute_shifted, 3),
    "MOV": (_compute_move, 1),
    "R2UR": (_compute_first_lane, 1),
    "SHFL": (_compute_shuffle, 2),
    "IABS": (_compute_absolute, 1),
}
# Lanes that put the same in may get something else out.
_OWN = re.compile(
    r"(?:ATOM\w*|RED\w*|SEL|USEL|FSEL|VOTE\w*|MATCH\w*|P2R|SHFL|CS2R|\w*MMA|LDSM|LDL)$"
)


def compute_first_written_register(
    statement: SassStatement, operands: Sequence[Lanes | None]
) -> MaybeLanes:
    """Return the first register that an instruction writes."""
    known = []
    for operand in operands:
        if operand is None:
            return None
        known.append(operand)
    opcode = statement.opcode
    if opcode.removeprefix("U") in _MAKERS:
        maker, least = _MAKERS[opcode.removeprefix("U")]
        made = maker(statement, known) if len(known) >= least else None
        if made is not None:
            return made
    if not _OWN.match(opcode) and all(operand.is_uniform for operand in known):
        return UNKNOWN
    return None


class RegisterDefinitions:
    """Which instructions of a function may have written a register last; the same for all warps.

    `machine_code` has 16 bytes for each instruction. The third is the first register that it writes, if
    it writes any; `bounds` says which kind of register, and how many at most. Only where that is near is
    the instruction taken apart by `statement`, which may be slow.
    """

    def __init__(
        self,
        machine_code: bytes,
        statement: Callable[[int], SassStatement],
        before: Mapping[int, Sequence[int]],
        bounds: Sequence[tuple[str, int]],
    ) -> None:
        self._destinations = machine_code[2::16]
        self._bounds = bounds
        self._before = before
        self.statement = cache(statement)
        self.find = cache(self._find_definitions)
        self.list_dependencies = cache(self._list_dependencies)

    def _may_write(
        self, position: InstructionIndex, register_kind: str, register_number: int
    ) -> bool:
        """Return whether an instruction may write a register, as far as its opcode tells."""
        known, most = self._bounds[position]
        return register_number - most < self._destinations[
            position
        ] <= register_number and known in ("", register_kind)

    def _find_definitions(
        self, position: InstructionIndex, register: RegisterName
    ) -> tuple[InstructionIndex, ...]:
        """Return the instructions whose value a register may have at an instruction."""
        kind = register.rstrip("0123456789")
        number = int(register[len(kind) :])
        found = []
        seen: set[int] = set()
        front = list(self._before[position])
        while front:
            n = front.pop()
            if n in seen:
                continue
            seen.add(n)
            if self._may_write(n, kind, number):
                statement = self.statement(n)
                if register in statement.writes:
                    found.append(n)
                    if not statement.guard:
                        continue
            front += self._before[n]
        return tuple(sorted(found))

    def _list_dependencies(
        self, position: InstructionIndex, operands: tuple[str, ...]
    ) -> tuple[PositionAndRegister, ...]:
        """Return the instructions and registers of theirs that some operands depend on, in order."""
        nodes: set[PositionAndRegister] = set()
        front = [(position, operand) for operand in operands]
        while front and len(nodes) <= _MOST:
            place, operand = front.pop()
            for name in list_registers_in_operand(operand):
                for n in self.find(place, name):
                    if (n, name) not in nodes:
                        nodes.add((n, name))
                        front += [(n, source) for source in self.statement(n).operands]
        return tuple(sorted(nodes))


class WarpRegisters:
    """The registers of one warp, as far as they can be worked out.

    `special` has what S2R reads (SR_TID.X), `constants` what is known of c[0x0] by offset.
    """

    def __init__(
        self, code: RegisterDefinitions, special: Mapping[str, Lanes], constants: Mapping[int, int]
    ) -> None:
        self._code = code
        self._special = special
        self._constants = constants
        self._made: dict[PositionAndRegister, MaybeLanes] = {}
        # With all that they depend on: another round changes nothing.
        self._settled: set[PositionAndRegister] = set()

    def evaluate_operands(
        self, position: InstructionIndex, operands: Sequence[str]
    ) -> list[MaybeLanes]:
        """Return what an instruction's operands are in each lane; None where that is not known."""
        nodes = self._code.list_dependencies(position, tuple(operands))
        if len(nodes) > _MOST:
            return [None for _ in operands]
        open_nodes = [node for node in nodes if node not in self._settled]
        for _ in range(_ROUNDS):
            if not self._update_registers(open_nodes):
                self._settled.update(open_nodes)
                break
        values: list[MaybeLanes] = []
        for operand in operands:
            value = self._read_operand(position, operand)
            values.append(None if value is PENDING else value)
        return values

    def _update_registers(self, nodes: Iterable[PositionAndRegister]) -> bool:
        """Work each register out anew; return whether one changed."""
        changed = False
        for n, register in nodes:
            value = self._run_instruction(n, register)
            if value is PENDING:
                continue
            if (n, register) in self._made:
                value = merge_lanes(self._made[n, register], value)
                if value == self._made[n, register]:
                    continue
            self._made[n, register] = value
            changed = True
        return changed

    def _run_instruction(
        self, position: InstructionIndex, register: RegisterName
    ) -> MaybeLanes | Pending:
        """Return what an instruction puts into a register."""
        statement = self._code.statement(position)
        if statement.opcode in ("S2R", "S2UR", "CS2R"):
            return self._special.get("".join(statement.operands), UNKNOWN)
        operands: list[MaybeLanes] = []
        for operand in statement.operands:
            value = self._read_operand(position, operand)
            if value is PENDING:
                return PENDING
            operands.append(value)
        if register == statement.writes[0]:
            return compute_first_written_register(statement, operands)
        # The upper half.
        uniform = all(value is not None and value.is_uniform for value in operands)
        return UNKNOWN if uniform and not _OWN.match(statement.opcode) else None

    def _read_operand(self, position: InstructionIndex, operand: str) -> MaybeLanes | Pending:
        if _NUMBER.match(operand):
            return make_uniform_lanes(_parse_sass_number(operand))
        plain = operand.lstrip("-~|!").rstrip("|")
        value: MaybeLanes | Pending = UNKNOWN
        constant = _CONSTANT.match(plain)
        if constant:
            value = self._read_constant(
                _parse_sass_number(constant[1]), _parse_sass_number(constant[2])
            )
        elif plain.startswith(("R", "UR")):
            register = _REGISTER.match(plain)
            value = self._read_register(position, register[0]) if register else None
        elif "[" in plain:
            value = self._read_memory(position, plain)
        if value is None or value is PENDING:
            return value
        if operand.startswith("-"):
            value = negate_lanes(value)
        if operand.startswith("~"):
            value = add_lanes(negate_lanes(value), make_uniform_lanes(-1))
        return value

    def _read_memory(self, position: InstructionIndex, memory_operand: str) -> MaybeLanes | Pending:
        """Return what is in memory: who asks by the same address gets the same."""
        is_uniform = True
        for name in list_registers_in_operand(memory_operand):
            value = self._read_register(position, name)
            if value is PENDING:
                return PENDING
            is_uniform = is_uniform and value is not None and value.is_uniform
        return UNKNOWN if is_uniform else None

    def _read_constant(self, bank: int, offset: int) -> Lanes:
        if bank == 0 and offset in self._constants:
            return make_uniform_lanes(self._constants[offset])
        return UNKNOWN

    def _read_register(
        self, position: InstructionIndex, register: RegisterName
    ) -> MaybeLanes | Pending:
        if register.endswith("Z"):
            return make_uniform_lanes(0)
        definitions = self._code.find(position, register)
        if not definitions:
            return None
        merged: MaybeLanes | Pending = PENDING
        for n in definitions:
            value = self._made.get((n, register), PENDING)
            if merged is PENDING:
                merged = value
            elif value is not PENDING:
                merged = merge_lanes(merged, value)
        return merged


def _parse_sass_number(text: str) -> int:
    return int(text, 16 if "x" in text else 10)


@lru_cache(4096)
def list_registers_in_operand(operand: str) -> tuple[RegisterName, ...]:
    """Return the registers that an operand names."""
    return tuple(match[0] for match in _REGISTER.finditer(operand) if match[2] != "Z")
