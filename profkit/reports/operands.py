"""The bits of an instruction  ->  its operands, without the library's text, which takes 0.3 s to begin.

Integer arithmetic, what it starts from (the number of a thread, constants) and accesses on shared
memory: addresses in shared memory are made of these. Where a bit is set that is not known here, nothing
is said of the instruction, and its text is asked for. Tests hold each against the text.

Since Volta: result in bits 16-23, first operand in 24-31; the second and third in 32-63 and 64-71, or
the other way round, which the form in bits 9-11 says, as it says what bits 32-63 are.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from profkit.reports.instruction import FAMILIES, read_guard, split_into_set_of_opcodes
from profkit.reports.lanes import WIDEST, SassStatement

if TYPE_CHECKING:
    from profkit.units import (
        IsNegative,
        MachineCode,
        Opcode,
        RegisterName,
        RegisterNumber,
        TenTimesCapabilityOrZero,
    )


_HALVES = Struct("<QQ")
_BLACKWELL = 100  # from here on a uniform register has eight bits
_ZERO = 255
_REGISTER = "register"
_NUMBER = "number"
_CONSTANT = "constant"
_UNIFORM = "uniform"
# Form -> what bits 32-63 hold, and whether that is the third operand.
_FORMS = {
    1: (_REGISTER, False),
    2: (_NUMBER, True),
    3: (_CONSTANT, True),
    4: (_NUMBER, False),
    5: (_CONSTANT, False),
    6: (_UNIFORM, False),
    7: (_UNIFORM, True),
}
_SPECIAL = {0x00: "SR_LANEID", 0x21: "SR_TID.X", 0x22: "SR_TID.Y", 0x23: "SR_TID.Z"}
_SPECIAL |= {0x25: "SR_CTAID.X", 0x26: "SR_CTAID.Y", 0x27: "SR_CTAID.Z", 0x88: "SR_CgaCtaId"}

# Bits of the upper half: of which each opcode may have some.
_THIRD = 0xFF
_NEGATE_FIRST = 1 << 8
_NEGATE_THIRD = 1 << 11
_CARRY = 1 << 10  # .X
_PREDICATES = 0x3FFF << 13  # that are written, and read
_HAS_UNIFORM = 1 << 27
_CONTROL = (1 << 64) - (1 << 41)  # for the scheduler, and which operands are read again
_SIGNED = 1 << 9  # of IMAD
_SX32 = 1 << 9  # of LEA
_HIGH = 1 << 16  # the upper half of what LEA and SHF make
_RIGHT = 1 << 12  # of SHF
_TRANSPOSED = 1 << 14  # of matrices
_SUM = 0x10
_BY_REGISTER = 0x0BB  # ULDC of a place that a register says
_KINDS_OF_PRODUCTS = {0x25: "WIDE", 0x27: "HI"}
_TYPES = ("S64", "U64", "S32", "U32")
_SIZES = ("U8", "S8", "U16", "S16", "", "64", "128")
_SCALES = ("", ".X4", ".X8", ".X16")
_MATRICES: tuple[list[str], ...] = ([], ["2"], ["4"])
_STORING = (0x188, 0x044)  # STS, STSM


class _Bits:
    """An instruction's two halves, and what of the upper one was looked at."""

    def __init__(
        self, low: int, high: int, opcode: Opcode, capability: TenTimesCapabilityOrZero
    ) -> None:
        self.low = low
        self.high = high & ~_CONTROL
        self.code = low & 0x1FF
        self.form = low >> 9 & 7
        self.is_uniform = opcode[0] == "U"
        self.is_blackwell = capability >= _BLACKWELL
        self._zero = {True: _ZERO if self.is_blackwell else 63, False: _ZERO}
        self.seen = _HAS_UNIFORM

    def has_bit(self, bit: int) -> bool:
        """Return whether a bit of the upper half is set; it is known then."""
        self.seen |= bit
        return bool(self.high & bit)

    def read_bits(self, first_bit: int, bit_count: int) -> int:
        """Return so many bits of the upper half; they are known then."""
        mask = (1 << bit_count) - 1
        self.seen |= mask << first_bit
        return self.high >> first_bit & mask

    def name_register(self, number: RegisterNumber, *, uniform: bool | None = None) -> RegisterName:
        """Return a register's name; of a uniform instruction all are uniform."""
        if uniform is None:
            uniform = self.is_uniform
        prefix = "UR" if uniform else "R"
        if number == self._zero[uniform]:
            return f"{prefix}Z"
        return f"{prefix}{number}"

    @property
    def result(self) -> RegisterNumber:
        return self.low >> 16 & 0xFF

    @property
    def first(self) -> RegisterName:
        return self.name_register(self.low >> 24 & 0xFF)

    @property
    def third(self) -> RegisterName:
        return self.name_register(self.read_bits(0, 8))

    def read_wide_field(self, kind: str) -> tuple[str, IsNegative]:
        """Return the operand in bits 32-63, and whether it counts negative."""
        field = self.low >> 32
        if kind == _NUMBER:
            return f"{field:#x}", False
        is_negative = bool(field >> 31)
        if kind == _CONSTANT:
            bank = field >> 22 & 0x1F
            offset = field >> 8 & 0x3FFF
            text = f"c[{bank:#x}][{4 * offset:#x}]"
            known = 0x87FFFF00
        else:
            uniform = self.is_uniform or kind == _UNIFORM
            text = self.name_register(field & 0xFF, uniform=uniform)
            known = 0x800000FF
        if field & ~known:
            raise _UnknownBitsError
        return text, is_negative

    def list_operands(self, third_sign: int = 0) -> tuple[list[str], list[IsNegative]]:
        """Return the three operands, and which count negative.

        `third_sign`: the bit of the upper half for the operand in bits 64-71, of opcodes that have one.
        """
        if self.form not in _FORMS:
            raise _UnknownBitsError
        kind, is_third = _FORMS[self.form]
        wide, is_negative = self.read_wide_field(kind)
        other = self.third
        is_other_negative = bool(third_sign) and self.has_bit(third_sign)
        if is_third:
            return [self.first, other, wide], [False, is_other_negative, is_negative]
        return [self.first, wide, other], [False, is_negative, is_other_negative]

    def list_plain_operands(self) -> list[str]:
        """Return the three operands of an opcode that has no signs."""
        operands, negative = self.list_operands()
        if any(negative):
            raise _UnknownBitsError
        return operands


class _UnknownBitsError(Exception):
    """A bit is set of which nothing is known."""


_Parts = tuple[Sequence[str], Sequence[str]]  # modifiers, and operands without the result


def _add_signs(
    operands: Sequence[str], negative: Sequence[IsNegative], sign: str = "-"
) -> list[str]:
    """Return the operands, each that counts negative with the sign before it."""
    signed = []
    for operand, is_negative in zip(operands, negative, strict=True):
        signed.append(sign + operand if is_negative else operand)
    return signed


def _read_sum(bits: _Bits) -> _Parts:
    """Read IADD3; not of pairs of registers (.64)."""
    if bits.code & 0x7F != _SUM:
        raise _UnknownBitsError
    operands, negative = bits.list_operands(_NEGATE_THIRD)
    negative[0] = bits.has_bit(_NEGATE_FIRST)
    bits.seen |= _PREDICATES
    if bits.has_bit(_CARRY):
        return ["X"], _add_signs(operands, negative, "~")
    return [], _add_signs(operands, negative)


def _read_product(bits: _Bits) -> _Parts:
    """Read IMAD: with WIDE into two registers, with HI the upper half."""
    operands, negative = bits.list_operands(_NEGATE_THIRD)
    bits.seen |= _PREDICATES
    modifiers = []
    if bits.code & 0x7F in _KINDS_OF_PRODUCTS:
        modifiers.append(_KINDS_OF_PRODUCTS[bits.code & 0x7F])
    if not bits.has_bit(_SIGNED):
        modifiers.append("U32")
    if bits.has_bit(_CARRY):
        modifiers.append("X")
        return modifiers, _add_signs(operands, negative, "~")
    return modifiers, _add_signs(operands, negative)


def _read_logic(bits: _Bits) -> _Parts:
    """Read LOP3: three operands, and the table of what each three bits make."""
    operands = bits.list_plain_operands()
    bits.seen |= _PREDICATES & ~_HIGH
    return ["LUT"], [*operands, f"{bits.read_bits(8, 8):#x}"]


def _read_shift(bits: _Bits) -> _Parts:
    """Read SHF."""
    operands = bits.list_plain_operands()
    modifiers = ["R" if bits.has_bit(_RIGHT) else "L", _TYPES[bits.read_bits(9, 2)]]
    if bits.has_bit(_HIGH):
        modifiers.append("HI")
    return modifiers, operands


def _read_scaled_sum(bits: _Bits) -> _Parts:
    """Read LEA."""
    operands, negative = bits.list_operands()
    negative[0] = bits.has_bit(_NEGATE_FIRST)
    bits.seen |= _PREDICATES & ~_HIGH
    flags = {"HI": bits.has_bit(_HIGH), "X": bits.has_bit(_CARRY), "SX32": bits.has_bit(_SX32)}
    modifiers = [name for name, is_on in flags.items() if is_on]
    signed = _add_signs(operands, negative)
    if modifiers[:1] != ["HI"] or "SX32" in modifiers:
        del signed[2]
    return modifiers, [*signed, f"{bits.read_bits(11, 5):#x}"]


def _read_short_sum(bits: _Bits) -> _Parts:
    """Read VIADD, and IADD."""
    second, is_negative = bits.read_wide_field(_FORMS[bits.form][0])
    bits.seen |= _PREDICATES
    return [], _add_signs([bits.first, second], [bits.has_bit(_NEGATE_FIRST), is_negative])


def _read_move(bits: _Bits) -> _Parts:
    """Read MOV, and IABS."""
    source, is_negative = bits.read_wide_field(_FORMS[bits.form][0])
    bits.read_bits(8, 4)  # which bytes are written: all
    if is_negative:
        raise _UnknownBitsError
    return [], [source]


def _read_choice(bits: _Bits) -> _Parts:
    """Read SEL: the first operand or the second, by a predicate."""
    second, is_negative = bits.read_wide_field(_FORMS[bits.form][0])
    bits.seen |= _PREDICATES & ~(_PREDICATES >> 10)
    if is_negative:
        raise _UnknownBitsError
    return [], [bits.first, second]


def _read_bytes_of_two(bits: _Bits) -> _Parts:
    """Read PRMT."""
    return [], bits.list_plain_operands()


def _read_constant(bits: _Bits) -> _Parts:
    """Read LDC and ULDC, of a place that no register says."""
    field = bits.low >> 32
    register = 0 if bits.is_uniform else _ZERO
    if bits.low >> 24 & 0xFF != register or field & ~0x07FFFFC0 or bits.code == _BY_REGISTER:
        raise _UnknownBitsError
    return _list_size(bits), [f"c[{field >> 22:#x}][{field >> 6 & 0xFFFF:#x}]"]


def _read_first_constant(bits: _Bits) -> _Parts:
    """Read LDCU, of the constants with the arguments: none of others was seen."""
    field = bits.low >> 32
    if bits.low >> 24 & 0xFF != _ZERO or field & ~0x1FFFE0:
        raise _UnknownBitsError
    return _list_size(bits), [f"c[0x0][{field >> 5:#x}]"]


def _read_copy(bits: _Bits) -> _Parts:
    """Read of LDGSTS how many bytes a lane copies, and nothing of where from and where to.

    Blackwell says how many somewhere else.
    """
    if bits.is_blackwell:
        raise _UnknownBitsError
    bits.seen = bits.high
    return _list_size(bits), []


def _list_size(bits: _Bits) -> list[str]:
    """Return the modifier for how many bytes a lane reads or writes; none for four."""
    size = bits.read_bits(9, 3)
    if size >= len(_SIZES):
        raise _UnknownBitsError
    return list(filter(None, [_SIZES[size]]))


def _read_first_lane(bits: _Bits) -> _Parts:
    """Read R2UR."""
    bits.seen |= 7 << 17  # no predicate is written
    if bits.low >> 32:
        raise _UnknownBitsError
    return [], [bits.name_register(bits.low >> 24 & 0xFF, uniform=False)]


def _read_special(bits: _Bits) -> _Parts:
    """Read S2R: a special register."""
    name = _SPECIAL.get(bits.read_bits(8, 8))
    if name is None:
        raise _UnknownBitsError
    return [], [name]


def _read_access(bits: _Bits) -> _Parts:
    """Read LDS and STS."""
    place = _read_address(bits, _SCALES[bits.read_bits(14, 2)])
    return _list_size(bits), place


def _read_matrices(bits: _Bits) -> _Parts:
    """Read LDSM and STSM: one, two or four matrices of eight rows."""
    place = _read_address(bits)
    count = bits.read_bits(8, 2)
    if count >= len(_MATRICES):
        raise _UnknownBitsError
    shape = "MT88" if bits.has_bit(_TRANSPOSED) else "M88"
    return ["16", shape, *_MATRICES[count]], place


def _read_address(bits: _Bits, scale: str = "") -> list[str]:
    """Return where shared memory is accessed, and what is stored there."""
    stored = bits.low >> 32 & 0xFF
    data: list[str] = []
    uniform = stored
    if bits.code in _STORING:
        data = [bits.name_register(stored)]
        uniform = bits.read_bits(0, 8)
    terms = [bits.first + scale]
    if bits.has_bit(_HAS_UNIFORM):
        terms.append(bits.name_register(uniform, uniform=True))
    elif uniform not in (0, _ZERO):
        raise _UnknownBitsError
    offset = bits.low >> 40
    if offset >> 23:
        offset -= 1 << 24
    if offset:
        terms.append(f"{offset:#x}")
    return [f"[{'+'.join(terms)}]", *data]


READERS = {
    "IADD3": _read_sum,
    "IMAD": _read_product,
    "LOP3": _read_logic,
    "SHF": _read_shift,
    "LEA": _read_scaled_sum,
    "VIADD": _read_short_sum,
    "IADD": _read_short_sum,
    "MOV": _read_move,
    "IABS": _read_move,
    "S2R": _read_special,
    "S2UR": _read_special,
    "R2UR": _read_first_lane,
    "SEL": _read_choice,
    "PRMT": _read_bytes_of_two,
    "LDC": _read_constant,
    "ULDC": _read_constant,
    "LDCU": _read_first_constant,
    "LDS": _read_access,
    "STS": _read_access,
    "LDGSTS": _read_copy,
    "LDSM": _read_matrices,
    "STSM": _read_matrices,
}
for _name in ("IADD3", "IMAD", "LOP3", "SHF", "LEA", "MOV", "SEL"):
    READERS[f"U{_name}"] = READERS[_name]
_TO_UNIFORM = split_into_set_of_opcodes("S2UR R2UR LDCU")
_WIDTHS = {"WIDE": 2, "64": 2, "128": 4, "2": 2, "4": 4}


def decode_statement(
    instruction: MachineCode, opcode: Opcode, capability: TenTimesCapabilityOrZero
) -> SassStatement | None:
    """Return an instruction's parts, as they would be of its text; None where a bit is not known.

    `opcode`: without modifiers; `capability`: ten times the compute capability.
    """
    read = READERS.get(opcode)
    if read is None:
        return None
    low, high = _HALVES.unpack(instruction)
    bits = _Bits(low, high, opcode, capability)
    try:
        modifiers, operands = read(bits)
    except _UnknownBitsError:
        return None
    if bits.high & ~bits.seen:
        return None
    guard = read_guard(bits.low) or ""
    writes: tuple[str, ...] = ()
    if bits.code not in _STORING and opcode != "LDGSTS":
        uniform = bits.is_uniform or opcode in _TO_UNIFORM
        count = max((_WIDTHS.get(modifier, 1) for modifier in modifiers), default=1)
        first = bits.name_register(bits.result, uniform=uniform)
        if not first.endswith("Z"):
            prefix = first.rstrip("0123456789")
            writes = tuple(f"{prefix}{bits.result + n}" for n in range(count))
    return SassStatement(guard, opcode, tuple(modifiers), tuple(operands), writes)


# Most registers that an opcode writes, and of which kind: all others may write any eight.
_NONE = split_into_set_of_opcodes(
    "ST STG STS STL STSM STAS RED REDG BRA BRX BAR EXIT CALL RET LDGSTS LDGDEPBAR DEPBAR NOP PLOP3 FCHK"
    " R2P CCTL BSSY BSYNC WARPSYNC SYNCS ISETP FSETP HSETP2 DSETP UISETP MEMBAR WARPGROUP FENCE"
)
_ONE = (
    FAMILIES["fp32"]
    | FAMILIES["fp16"]
    | split_into_set_of_opcodes(
        "FMNMX FSEL FSET SEL PRMT P2R SHFL F2FP I2FP MUFU POPC FLO BREV S2R VOTE"
    )
    | split_into_set_of_opcodes(
        "LOP3 SHF LEA IADD3 VIADD IABS IMNMX VIMNMX VIMNMX3 VIADDMNMX BMSK SGXT I2IP"
    )
) - split_into_set_of_opcodes("FFMA2 FADD2 FMUL2")
_ONE_UNIFORM = split_into_set_of_opcodes("S2UR R2UR ULEA ULOP3 USHF USEL UPRMT USGXT")
_FEW = {"IMAD": ("R", 2), "IADD": ("R", 2), "MOV": ("R", 2), "LDS": ("R", 4), "LDG": ("R", 8)}
_FEW |= {"LDSM": ("R", 4), "HMMA": ("R", 4), "IMMA": ("R", 4), "LDC": ("R", 4), "ULDC": ("UR", 4)}
_FEW |= {"UMOV": ("UR", 2), "UIADD3": ("UR", 2), "UIMAD": ("UR", 2), "LDCU": ("UR", 8)}


def bound_written_registers(opcode: Opcode) -> tuple[str, int]:
    """Return which registers an opcode may write ("R", "UR", "" for both), and how many at most."""
    if opcode in _NONE:
        return "", 0
    if opcode in _ONE:
        return "R", 1
    if opcode in _ONE_UNIFORM:
        return "UR", 1
    return _FEW.get(opcode, ("", WIDEST))
