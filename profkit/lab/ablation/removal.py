"""Statements that shall not be done  ->  the change in which they are issued and do nothing.

As with addresses, the same machine code serves both: the statements are issued, and a predicate that no
compiler knows decides whether they do anything.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from profkit.lab.ablation import ptx
from profkit.lab.ablation.change import Change, Code
from profkit.lab.ablation.ptx import Changes, Statement
from profkit.lab.ablation.readdress import TABLE, add_table

_DONE = struct.Struct("<I")


def find_statements(code: Code, *beginnings: str) -> list[Statement]:
    """All that were executed and whose opcode begins so."""
    found = []
    for block, _, statement in code.module.number_blocks():
        if code.survey.blocks[block] and f"{statement.opcode}.".startswith(beginnings):
            found.append(statement)
    return found


def make_switchable(
    code: Code, statements: Sequence[Statement], changed: str, kept: str = ""
) -> Change:
    """Issue the statements and let the table say whether they are done."""
    count = len(statements)
    return Change(
        text=_write_predicates(code, statements),
        table=_DONE.pack(0) * count,
        control=_DONE.pack(1) * count,
        changed=changed,
        kept=kept,
    )


def _write_predicates(code: Code, statements: Sequence[Statement]) -> str:
    """The module with statements that are done where the table says so."""
    changes = Changes(code.module)
    add_table(changes, _DONE.size * len(statements))
    for row, statement in enumerate(statements):
        changes.add_registers("pred", "%profkit_done")
        changes.add_registers("b32", "%profkit_word")
        guard = statement.guard
        lines = [
            f"ld.const.u32 %profkit_word, [{TABLE}+{_DONE.size * row}];",
            "setp.ne.u32 %profkit_done, %profkit_word, 0;",
        ]
        if statement.negated:
            changes.add_registers("pred", "%profkit_not")
            lines.append(f"not.pred %profkit_not, {guard};")
            guard = "%profkit_not"
        if guard:
            lines.append(f"and.pred %profkit_done, %profkit_done, {guard};")
        changes.put_before(statement, lines)
        text = ptx.write_statement(statement, "@%profkit_done ", statement.operands)
        changes.replace_statement(statement, text)
    return changes.write_module()
