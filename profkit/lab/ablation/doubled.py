"""A module  ->  the same of which twice as many blocks can be launched: each block's work is done twice.

A block behind the middle of the grid takes the number of one before it, so none is out of bounds. If
twice the blocks take as long as all of them, there are too few.
"""

from __future__ import annotations

from profkit.lab.ablation import ptx
from profkit.lab.ablation.ptx import Changes, Kernel, Module, Statement

_BLOCK, _BLOCKS = "%profkit_block", "%profkit_blocks"
_RENAMED = {"%ctaid.x": _BLOCK, "%nctaid.x": _BLOCKS}
_BEGINNING = (
    f"mov.u32 {_BLOCKS}, %nctaid.x;",
    f"shr.u32 {_BLOCKS}, {_BLOCKS}, 1;",
    f"mov.u32 {_BLOCK}, %ctaid.x;",
    f"rem.u32 {_BLOCK}, {_BLOCK}, {_BLOCKS};",
)


def write_doubled(module: Module) -> str | None:
    """Its text; None where blocks know of clusters, or of the order in which they come."""
    changes = Changes(module)
    changes.add_registers("b32", _BLOCK, _BLOCKS)
    for kernel in module.kernels.values():
        if any(_knows_others(statement) for statement in kernel.statements):
            return None
        _rename_blocks(changes, kernel)
    return changes.write_module()


def _knows_others(statement: Statement) -> bool:
    """Whether a block asks for its cluster or its grid, or gets an answer of an atomic."""
    operands = " ".join(statement.operands)
    if "cluster" in operands or "cluster" in statement.opcode or "%gridid" in operands:
        return True
    return statement.words[0] == "atom" and "shared" not in statement.words


def _rename_blocks(changes: Changes, kernel: Kernel) -> None:
    changes.add_beginning(kernel, _BEGINNING)
    for statement in kernel.statements:
        operands = [_RENAMED.get(operand, operand) for operand in statement.operands]
        if operands != list(statement.operands):
            text = ptx.write_statement(statement, ptx.write_guard(statement), operands)
            changes.replace_statement(statement, text)
