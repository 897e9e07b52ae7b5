"""Atomics whose answer nobody reads, done as stores: as many bytes, and nothing to add.

What is left of the time is what carrying those bytes takes.
"""

from __future__ import annotations

from profkit.lab.ablation.accesses import Access
from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    Change,
    Code,
    choose_changeable,
    format_count,
    say_unchanged,
)
from profkit.lab.ablation.ptx import (
    Statement,
    count_bytes,
    list_read_registers,
    list_written_registers,
)
from profkit.lab.ablation.removal import make_statements_switchable

_OTHERWISE = "%profkit_otherwise"


def replace_atomics_by_stores(code: Code) -> Change:
    atomics = code.list_executed(GLOBAL, ("atomic",))
    read: set[tuple[str, str]] = set()
    for kernel in code.module.kernels.values():
        for statement in kernel.statements:
            read.update((kernel.name, name) for name in list_read_registers(statement))

    def is_result_unused(access: Access) -> bool:
        statement = access.statement
        answers = {(access.kernel, name) for name in list_written_registers(statement)}
        is_plain = not statement.guard and "{" not in "".join(statement.operands)
        return code.is_without_decision(access) and answers.isdisjoint(read) and is_plain

    free = choose_changeable(
        atomics, is_result_unused, "atomics", "it has no atomics on global memory"
    )
    changed = f"{format_count(len(free), 'atomic')} done as stores"
    kept = say_unchanged(len(atomics) - len(free), "that answer or decide something")
    statements = [access.statement for access in free]
    return make_statements_switchable(
        code, statements, changed, kept, at_once=True, put_first=write_store_for_atomic
    )


def write_store_for_atomic(statement: Statement) -> list[str]:
    """A store of the operand, where the atomic is not done."""
    at = statement.list_addresses()[0].operand
    place, value = statement.operands[at : at + 2]
    space = ".global" if "global" in statement.words else ""
    bits = 8 * count_bytes(statement)
    return [f"@!%profkit_all st{space}.b{bits} {place}, {value};"]


ABLATION = Ablation(
    id="atomics-stored",
    title="adding in the L2",
    reachable=False,
    rules=("atomics-contention",),
    probes=("atomic-double", "atomic-coalesced"),
    keeps="ATOMG REDG",
    make=replace_atomics_by_stores,
)
