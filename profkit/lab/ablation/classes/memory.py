"""Accesses of global and shared memory that are issued and touch nothing, all of them together."""

from __future__ import annotations

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    require_changeable_accesses,
    say_unchanged,
)
from profkit.lab.ablation.ptx import PtxStatement
from profkit.lab.ablation.removal import make_statements_switchable


def skip_accesses(code: SurveyedCode) -> CodeChange:
    found = code.list_executed((*GLOBAL, "shared"), ("load", "store", "atomic"))

    def is_free(access: PtxAccess) -> bool:
        return code.is_without_decision(access) and not access.why_unmovable

    free = require_changeable_accesses(
        found, is_free, "accesses", "it accesses no memory that others see"
    )
    stays = {access.statement.start for access in found if not is_free(access)}
    statements: dict[int, PtxStatement] = {}  # a copy to shared memory is two accesses
    for access in free:
        if access.statement.start not in stays:
            statements[access.statement.start] = access.statement
    changed = f"{format_count(len(statements), 'access', 'accesses')} issued, not done"
    kept = say_unchanged(len(stays), "that decide a branch or an address")
    return make_statements_switchable(code, list(statements.values()), changed, kept, at_once=True)


ABLATION = Ablation(
    id="no-memory",
    title="all accesses of memory",
    reachable=False,
    rules=(),
    probes=("dram-copy",),
    keeps="LDG STG LDS STS",
    make=skip_accesses,
)
