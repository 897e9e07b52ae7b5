"""Addresses in shared memory that machine code says: wavefronts, and layouts without conflicts."""

from __future__ import annotations

import pytest

from profkit.diagnosis.layouts import write_layout_advice
from profkit.reports.addresses import DecodedFunction, Layouts
from profkit.reports.banks import (
    SharedMemoryAccess,
    count_wavefronts_of_request,
    find_conflict_free_layouts,
)
from profkit.reports.fusing import compute_fusable_share
from profkit.reports.hotlines import LinesRequest, answer_line_requests
from profkit.reports.instruction import BYTES, Instruction
from profkit.reports.lanes import (
    LANES,
    WIDEST,
    Lanes,
    RegisterDefinitions,
    WarpRegisters,
    parse_sass_statement,
)
from tests.conftest import ROOT

ONE_EACH = tuple(range(LANES))


def column(pitch: int) -> list[int]:
    return [pitch * lane for lane in ONE_EACH]


@pytest.mark.parametrize(
    ("addresses", "size", "wavefronts"),
    [
        (column(4), 4, 1),
        (column(8), 4, 2),
        (column(128), 4, 32),
        (column(132), 4, 1),
        ([0] * LANES, 4, 1),
        (column(8), 8, 2),
        (column(16), 16, 4),
        (column(128), 16, 32),
        (column(144), 16, 4),
        (column(1), 1, 1),
        # Half a warp and half a warp, quarter and quarter: together where neighbours ask for the same.
        ([0] * LANES, 8, 1),
        ([0] * LANES, 16, 2),
        ([16 * (lane // 2) for lane in ONE_EACH], 16, 2),
        # Rows of a matrix for LDSM: as many lanes as rows.
        (column(128)[:8], 16, 8),
        (column(144)[:8], 16, 1),
    ],
)
def test_a_bank_delivers_one_word_at_once(addresses, size, wavefronts):
    assert count_wavefronts_of_request(addresses, size, is_load=True) == wavefronts


def test_stores_to_one_place_do_not_go_together():
    assert count_wavefronts_of_request([0] * LANES, 8, is_load=False) == 2


def test_an_access_that_never_ran_says_nothing():
    warps = (tuple(column(128)),)
    never = SharedMemoryAccess(
        pc=0, size=4, is_load=True, bits=32, warps=warps, counted=0.0, ideal=0.0, requests=0.0
    )
    assert not never.is_prediction_right


def evaluate(*texts: str, register: str, loops_to: int | None = None) -> Lanes | None:
    """What the last instruction finds in a register, in warp 1 of a block of 64."""
    code = bytearray(16 * len(texts))
    for n, text in enumerate(texts):
        written = parse_sass_statement(text).writes
        code[16 * n + 2] = int(written[0].lstrip("UR")) if written else 255
    before = {n: [n - 1] for n in range(1, len(texts))} | {0: []}
    if loops_to is not None:
        before[loops_to].append(len(texts) - 1)
    definitions = RegisterDefinitions(
        bytes(code), lambda n: parse_sass_statement(texts[n]), before, [("", WIDEST)] * len(texts)
    )
    special = {"SR_TID.X": Lanes(tuple(32 + lane for lane in ONE_EACH))}
    warp = WarpRegisters(definitions, special, {0: 64})
    return warp.evaluate_operands(len(texts) - 1, [register])[0]


@pytest.mark.parametrize(
    ("texts", "values", "bits"),
    [
        (["LOP3.LUT R1, R0, 0x1f, RZ, 0xc0, !PT"], list(ONE_EACH), 32),
        (["SHF.R.U32.HI R1, RZ, 0x5, R0"], [1] * LANES, 32),
        (["IMAD.SHL.U32 R1, R0, 0x4, RZ"], [4 * (32 + lane) for lane in ONE_EACH], 32),
        (["LEA R1, R0, c[0x0][0x210], 0x7"], [128 * (32 + lane) for lane in ONE_EACH], 0),
        (["IMAD R1, R0, c[0x0][0x0], RZ"], [64 * (32 + lane) for lane in ONE_EACH], 32),
        (["IADD3 R1, R0, -0x1, RZ"], [31 + lane for lane in ONE_EACH], 32),
        (["LOP3.LUT R1, R0, 0x7, RZ, 0x3c, !PT"], [(32 + lane) ^ 7 for lane in ONE_EACH], 32),
        (["IMAD.HI.U32 R1, R0, 0x55555556, RZ"], [(32 + lane) // 3 for lane in ONE_EACH], 32),
        (["LDC R2, c[0x0][0x210]", "IADD3 R1, R0, R2, RZ"], [32 + lane for lane in ONE_EACH], 0),
        (
            ["S2R R2, SR_CTAID.X", "IMAD R1, R2, 0x400, R0"],
            [32 + lane for lane in ONE_EACH],
            10,
        ),
        (
            [
                "LDC R2, c[0x0][0x210]",
                "LEA R2, R2, R0, 0x5",
                "LOP3.LUT R1, R2, 0x1f, RZ, 0xc0, !PT",
            ],
            list(ONE_EACH),
            32,
        ),
    ],
)
def test_what_lanes_have_in_a_register(texts, values, bits):
    found = evaluate("S2R R0, SR_TID.X", *texts, "NOP", register="R1")
    assert found is not None
    low = (1 << bits) - 1
    assert [x & low for x in found.values] == [x & low for x in values]
    assert found.bits == bits


@pytest.mark.parametrize(
    "texts",
    [
        ["LDG.E R2, desc[UR4][R4.64]", "IADD3 R1, R0, R2, RZ"],  # of an address that is not known
        ["LDC R2, c[0x0][0x210]", "IMAD R1, R0, R2, RZ"],  # a pitch that only the host knows
        ["SEL R1, R0, RZ, P0"],
        ["IADD3 R1, R9, R0, RZ"],  # never written
        ["LEA"],
    ],
)
def test_what_is_not_known_is_not_said(texts):
    assert evaluate("S2R R0, SR_TID.X", *texts, "NOP", register="R1") is None


def test_a_loop_adds_the_same_to_all_lanes():
    texts = [
        "S2R R0, SR_TID.X",
        "IMAD.SHL.U32 R1, R0, 0x80, RZ",
        "IADD3 R1, R1, 0x10, RZ",
        "BRA 0x20",
    ]
    found = evaluate(*texts, register="R1", loops_to=2)
    assert found is not None
    assert found.bits == 4
    assert {b - a for a, b in zip(found.values, found.values[1:], strict=False)} == {128}


def layouts(probe: int, *launches: int) -> list[Layouts]:
    report = str(ROOT / "artifacts" / "probes" / f"probes-{probe}.ncu-repz")
    counters = {"conflicts": ("excess-wavefronts",)}
    answers = answer_line_requests([LinesRequest(report, launch, counters) for launch in launches])
    return [answer.layouts["conflicts"] for answer in answers]


def test_a_tile_without_padding_is_padded_by_one_word():
    """Launch 28 and its fixed copy, whose rows have that word."""
    found, twin = layouts(3, 28, 29)
    assert found.decoded == 1
    (layout,) = found.found
    assert (layout.kind, layout.row, layout.bytes) == ("padding", 128, 4)
    assert (layout.before, layout.after, layout.share, layout.warps) == (32, 1, 1, 8)
    assert twin.found == ()
    advice = write_layout_advice(found, "or not")
    assert advice.startswith(
        "Pad the array by 4 bytes after each 128 (a row of 32 words becomes 33): 32 wavefronts per "
        "request become 1 at transpose-conflict_unpadded_tile.cu:22. "
    )


def test_rows_shorter_than_all_banks_are_swizzled():
    """Eight words a row: one word of padding makes the stores along rows conflict."""
    (found,) = layouts(0, 27)
    (layout,) = found.found
    assert (layout.kind, layout.row, layout.bytes) == ("swizzle", 32, 4)
    assert (layout.before, layout.after) == (8, 1)
    advice = write_layout_advice(found, "or not")
    assert advice.startswith(
        "Swizzle the array, the byte at offset x to offset x ^ x / 128 % 8 * 4:"
    )


def test_conflicts_at_addresses_that_were_loaded_have_no_layout():
    (found,) = layouts(1, 26)
    assert found == Layouts(0.0, ())


class Asked:
    """A launch whose two instructions have twice the wavefronts that they need, and no other facts."""

    block_size, capability = (32, 1, 1), 90

    def __init__(self, *opcodes: str) -> None:
        self.shared: dict = {}
        self.texts = 0
        instructions = [Instruction(BYTES * n, word) for n, word in enumerate(opcodes)]
        self._program = DecodedFunction(instructions)
        self._counts = {x.pc: 8.0 for x in instructions}

    def sum_metrics_by_address(self, terms: dict[str, float]) -> dict[int, float]:
        (name,) = terms
        half = 0.5 if name.endswith("_ideal") else 1.0
        return {pc: half * count for pc, count in self._counts.items()}

    def get_decoded_function_at(self, pc: int) -> DecodedFunction:
        return self._program

    def get_code_of_function(self, pc: int) -> bytes:
        return bytes(BYTES * len(self._counts))

    def disassemble_instruction(self, pc: int) -> str:
        self.texts += 1
        return "LDS R0, [R1] ;"


@pytest.mark.parametrize(
    ("opcodes", "asked", "again"),
    [(("ATOMS", "STS"), True, 0), (("LDS", "UTMALDG"), False, 0), (("LDS", "HGMMA"), False, 0)],
)
def test_text_is_asked_for_once_and_not_where_tiles_have_the_hardware_s_layouts(
    opcodes, asked, again
):
    first = Asked(*opcodes)
    assert find_conflict_free_layouts(first).found == ()
    assert (first.texts > 0) == asked
    other = Asked(*opcodes)
    other.shared = first.shared
    find_conflict_free_layouts(other)
    assert other.texts == again, "another launch of the same code in the same report"


@pytest.mark.parametrize(
    ("opcodes", "asked"), [(("FADD", "FMUL"), True), (("FADD", "FADD"), False)]
)
def test_adds_are_read_only_where_there_are_products(opcodes, asked):
    kernel = Asked(*opcodes)
    assert compute_fusable_share(kernel) == 0.0
    assert (kernel.texts > 0) == asked
