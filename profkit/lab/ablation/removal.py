"""Statements that shall not be done  ->  the change in which they are issued and do nothing.

As with addresses, the same machine code serves both: the statements are issued, and a predicate that no
compiler knows decides whether they do anything.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from profkit.lab.ablation import ptx
from profkit.lab.ablation.change import (
    Ablation,
    AccessAblation,
    CodeChange,
    SurveyedCode,
    format_count,
    make_nothing_to_remove_refusal,
)
from profkit.lab.ablation.ptx import PtxEdits, PtxStatement
from profkit.lab.ablation.readdress import TABLE, add_control_table

_DONE = struct.Struct("<I")


class StatementsGone(Ablation):
    """Statements of some opcodes that are issued and do nothing."""

    opcodes: tuple[str, ...]  # what they begin with
    unit: str  # one of them, in words
    nothing: str  # what is said where there are none

    def refuse_deciding_values(self) -> None:
        """Refuse where the kernel would do other work without them."""

    def say_what_is_unchanged(self) -> str:
        return ""

    def make_change(self) -> CodeChange:
        found = self.code.find_executed_statements(*self.opcodes)
        if not found:
            raise make_nothing_to_remove_refusal(self.nothing)
        self.refuse_deciding_values()
        changed = f"{format_count(len(found), self.unit)} gone"
        return make_statements_switchable(self.code, found, changed, self.say_what_is_unchanged())


class AccessesGone(AccessAblation):
    """Accesses that are issued and do nothing."""

    unit: str  # one of them, in words
    left: str  # those that stay, in words

    def change_free_accesses(self) -> CodeChange:
        gone = [access.statement for access in self.free]
        changed, kept = (
            f"{format_count(len(gone), self.unit)} gone",
            self.say_what_is_unchanged(self.left),
        )
        return make_statements_switchable(self.code, gone, changed, kept)


def make_statements_switchable(
    code: SurveyedCode,
    statements: Sequence[PtxStatement],
    changed: str,
    unchanged_text: str,
    at_once: bool = False,
) -> CodeChange:
    """Issue the statements and let the table say whether they are done: each, or all `at_once`."""
    count, done = len(statements), "%profkit_done"
    if at_once:
        count, done = 1, "%profkit_all"
    changes = PtxEdits(code.module)
    add_control_table(changes, _DONE.size * count)
    rows = {statement.start: row for row, statement in enumerate(statements)}
    for kernel in code.module.kernels.values():
        own = [statement for statement in kernel.statements if statement.start in rows]
        if at_once and own:
            changes.insert_before(kernel.statements[0], _write_table_test(changes, 0, done))
        for statement in own:
            if not at_once:
                test = _write_table_test(changes, rows[statement.start], done)
                changes.insert_before(statement, test)
            both = _merge_guard_with_switch(changes, statement, done)
            text = ptx.write_statement(statement, f"@{both} ", statement.operands)
            changes.replace_statement(statement, text)
    text = changes.write_edited_module()
    return CodeChange(text, changed, unchanged_text, _DONE.pack(0) * count, _DONE.pack(1) * count)


def _write_table_test(changes: PtxEdits, row: int, predicate: str) -> str:
    """Return statements that set a predicate from a word of the table."""
    changes.add_registers("pred", predicate)
    changes.add_registers("b32", "%profkit_word")
    place = _DONE.size * row
    return f"""ld.const.u32 %profkit_word, [{TABLE}+{place}];
setp.ne.u32 {predicate}, %profkit_word, 0;"""


def _merge_guard_with_switch(changes: PtxEdits, statement: PtxStatement, done: str) -> str:
    """Return the predicate that is set where `done` is and the statement's own guard."""
    if not statement.guard:
        return done
    both, guard = "%profkit_both", statement.guard
    changes.add_registers("pred", both)
    if statement.negated:
        changes.insert_before(statement, f"not.pred {both}, {guard};")
        guard = both
    changes.insert_before(statement, f"and.pred {both}, {done}, {guard};")
    return both
