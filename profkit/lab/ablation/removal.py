"""Statements that shall not be done  ->  the change in which they are issued and do nothing.

As with addresses, the same machine code serves both: the statements are issued, and a predicate that no
compiler knows decides whether they do anything.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from profkit.units import PtxText, RegisterName, TextOrEmpty


_DONE = struct.Struct("<I")


class StatementsGone(Ablation):
    """Statements of some opcodes that are issued and do nothing."""

    opcodes: tuple[str, ...]  # what they begin with
    unit: str  # one of them, in words
    nothing: str  # what is said where there are none

    def refuse_steering_statements(self) -> None:
        """Refuse where the kernel would do other work without them."""

    def say_what_is_unchanged(self) -> TextOrEmpty:
        return ""

    def make_change(self) -> CodeChange:
        found = self.code.find_executed_statements(*self.opcodes)
        if not found:
            raise make_nothing_to_remove_refusal(self.nothing)
        self.refuse_steering_statements()
        changed = f"{format_count(len(found), self.unit)} gone"
        return make_statements_switchable(self.code, found, changed, self.say_what_is_unchanged())


class AccessesGone(AccessAblation):
    """Accesses that are issued and do nothing."""

    unit: str  # one of them, in words
    left: str  # those that stay, in words

    def change_accesses_free_to_change(self) -> CodeChange:
        gone = [access.statement for access in self.free]
        changed = f"{format_count(len(gone), self.unit)} gone"
        kept = self.say_count_left_unchanged(self.left)
        return make_statements_switchable(self.code, gone, changed, kept)


def make_statements_switchable(
    code: SurveyedCode,
    statements: Sequence[PtxStatement],
    changed_text: str,
    unchanged_text: str,
    is_one_switch_for_all: bool = False,
) -> CodeChange:
    """Issue the statements and let the table say whether they are done: each by itself, or all."""
    count = len(statements)
    done = "%profkit_done"
    if is_one_switch_for_all:
        count = 1
        done = "%profkit_all"
    changes = PtxEdits(code.module)
    add_control_table(changes, _DONE.size * count)
    rows = {statement.start: row for row, statement in enumerate(statements)}
    for kernel in code.module.kernels.values():
        own = [statement for statement in kernel.statements if statement.start in rows]
        if is_one_switch_for_all and own:
            changes.insert_before(kernel.statements[0], _write_table_test(changes, 0, done))
        for statement in own:
            if not is_one_switch_for_all:
                test = _write_table_test(changes, rows[statement.start], done)
                changes.insert_before(statement, test)
            both = _merge_guard_with_switch(changes, statement, done)
            text = ptx.write_statement(statement, f"@{both} ", statement.operands)
            changes.replace_statement(statement, text)
    text = changes.write_edited_module()
    return CodeChange(
        text, changed_text, unchanged_text, _DONE.pack(0) * count, _DONE.pack(1) * count
    )


def _write_table_test(changes: PtxEdits, row: int, predicate: RegisterName) -> PtxText:
    """Return statements that set a predicate from a word of the table."""
    changes.add_registers("pred", predicate)
    changes.add_registers("b32", "%profkit_word")
    place = _DONE.size * row
    return f"""ld.const.u32 %profkit_word, [{TABLE}+{place}];
setp.ne.u32 {predicate}, %profkit_word, 0;"""


def _merge_guard_with_switch(
    changes: PtxEdits, statement: PtxStatement, switch_predicate: RegisterName
) -> RegisterName:
    """Return the predicate that is set where `switch_predicate` is and the statement's own guard."""
    if not statement.guard:
        return switch_predicate
    both = "%profkit_both"
    guard = statement.guard
    changes.add_registers("pred", both)
    if statement.negated:
        changes.insert_before(statement, f"not.pred {both}, {guard};")
        guard = both
    changes.insert_before(statement, f"and.pred {both}, {switch_predicate}, {guard};")
    return both
