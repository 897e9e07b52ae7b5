"""Machine code and executed instructions  ->  the single multiplies that an add could take in.

Counters know how many single multiplies and adds ran, not whether an add's operand is such a product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from profkit.reports.addresses import (
    DecodedFunction,
    LaunchedCode,
    group_addresses_by_function,
    index_register_definitions,
)
from profkit.reports.instruction import FAMILIES
from profkit.reports.lanes import RegisterDefinitions, list_registers_in_operand

if TYPE_CHECKING:
    from profkit.units import InstructionIndex, Share


_ADDS = frozenset({"FADD", "FADD2"})
_PRODUCTS = frozenset({"FMUL", "FMUL2"})


def compute_fusable_share(kernel: LaunchedCode) -> Share | None:
    """Return the share of the FP32 instructions that are adds of a product rounded by itself.

    None where the machine code of none is known.
    """
    executed = kernel.sum_metrics_by_address({"inst_executed": 1.0}) or {}
    all_fp32 = fusable = 0.0
    for program, places in group_addresses_by_function(kernel, executed):
        opcodes = {instruction.opcode for instruction in program.instructions}
        has_both = not opcodes.isdisjoint(_ADDS) and not opcodes.isdisjoint(_PRODUCTS)
        definitions = index_register_definitions(kernel, program)
        for pc in places:
            at = program.index[pc]
            opcode = program.instructions[at].opcode
            if opcode in FAMILIES["fp32"]:
                all_fp32 += executed[pc]
            # Their text is slow to ask for, and without a product none is needed.
            if has_both and opcode in _ADDS and _adds_single_product(program, definitions, at):
                fusable += executed[pc]
    if all_fp32:
        return fusable / all_fp32
    return None


def _adds_single_product(
    program: DecodedFunction, definitions: RegisterDefinitions, position: InstructionIndex
) -> bool:
    """Return whether an operand of an add is, on every path, the result of a single multiply."""
    for operand in definitions.statement(position).operands:
        for register in list_registers_in_operand(operand):
            sources = definitions.find(position, register)
            if sources and all(program.instructions[n].opcode in _PRODUCTS for n in sources):
                return True
    return False
