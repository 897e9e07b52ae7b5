"""Statements of a kind  ->  the change in which they are issued and do nothing."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.ablation.change import Change, Code
from profkit.ablation.predicate import fill_predicates, write_predicates
from profkit.ablation.ptx import Statement


def find_statements(code: Code, *beginnings: str) -> list[tuple[str, Statement]]:
    """(kernel, statement) of all that were executed and whose opcode begins so."""
    found = []
    first = 0
    for name, kernel in code.module.kernels.items():
        for statement in kernel.statements:
            if not code.survey.blocks[first + statement.block]:
                continue
            if f"{statement.opcode}.".startswith(beginnings):
                found.append((name, statement))
        first += kernel.blocks
    return found


def leave_out(
    code: Code, statements: Sequence[tuple[str, Statement]], changed: str, kept: str = ""
) -> Change:
    rows = range(len(statements))
    return Change(
        text=write_predicates(code.module, statements),
        table=fill_predicates(len(rows), rows),
        control=fill_predicates(len(rows), []),
        changed=changed,
        kept=kept,
    )


def steers_through_shared(code: Code) -> bool:
    """Whether a value in shared memory decides what is done next: then its order counts."""
    for access in code.accesses:
        if access.space == "shared" and access.steers and code.has_executed(access):
            return True
    return False
