"""Statements that shall not be done  ->  the change in which they are issued and do nothing.

As with addresses, the same machine code serves both: the statements are issued, and a predicate that no
compiler knows decides whether they do anything.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from profkit.lab.ablation import ptx
from profkit.lab.ablation.change import CodeChange, SurveyedCode
from profkit.lab.ablation.ptx import PtxEdits, PtxStatement
from profkit.lab.ablation.readdress import TABLE, add_table

_DONE = struct.Struct("<I")


def find_statements(code: SurveyedCode, *beginnings: str) -> list[PtxStatement]:
    """All that were executed and whose opcode begins so."""
    found = []
    for block, _, statement in code.module.number_blocks():
        if code.survey.blocks[block] and f"{statement.opcode}.".startswith(beginnings):
            found.append(statement)
    return found


def make_statements_switchable(
    code: SurveyedCode,
    statements: Sequence[PtxStatement],
    changed: str,
    kept: str = "",
    at_once: bool = False,
) -> CodeChange:
    """Issue the statements and let the table say whether they are done: each, or all `at_once`."""
    if at_once:
        count = 1
    else:
        count = len(statements)
    return CodeChange(
        text=_write_predicates(code, statements, at_once),
        table=_DONE.pack(0) * count,
        control=_DONE.pack(1) * count,
        changed=changed,
        kept=kept,
    )


def _write_predicates(code: SurveyedCode, statements: Sequence[PtxStatement], at_once: bool) -> str:
    """The module with statements that are done where the table says so."""
    changes = PtxEdits(code.module)
    if at_once:
        add_table(changes, _DONE.size)
    else:
        add_table(changes, _DONE.size * len(statements))
    rows = {statement.start: row for row, statement in enumerate(statements)}
    for kernel in code.module.kernels.values():
        own = [statement for statement in kernel.statements if statement.start in rows]
        if at_once and own:
            changes.add_registers("pred", "%profkit_all")
            changes.insert_at_beginning(kernel, _write_table_test(changes, 0, "%profkit_all"))
        for statement in own:
            lines: list[str] = []
            done = "%profkit_all"
            if not at_once:
                done = "%profkit_done"
                changes.add_registers("pred", done)
                lines = _write_table_test(changes, rows[statement.start], done)
            both, done = _join_guard(changes, statement, done)
            changes.insert_before(statement, [*lines, *both])
            text = ptx.write_statement(statement, f"@{done} ", statement.operands)
            changes.replace_statement(statement, text)
    return changes.write_edited_module()


def _write_table_test(changes: PtxEdits, row: int, predicate: str) -> list[str]:
    """Statements that set a predicate from a word of the table."""
    changes.add_registers("b32", "%profkit_word")
    return [
        f"ld.const.u32 %profkit_word, [{TABLE}+{_DONE.size * row}];",
        f"setp.ne.u32 {predicate}, %profkit_word, 0;",
    ]


def _join_guard(changes: PtxEdits, statement: PtxStatement, done: str) -> tuple[list[str], str]:
    """Statements, and the predicate that they set: the statement's own guard, and `done`."""
    if not statement.guard:
        return [], done
    changes.add_registers("pred", "%profkit_both")
    if not statement.negated:
        return [f"and.pred %profkit_both, {done}, {statement.guard};"], "%profkit_both"
    lines = [
        f"not.pred %profkit_both, {statement.guard};",
        f"and.pred %profkit_both, {done}, %profkit_both;",
    ]
    return lines, "%profkit_both"
