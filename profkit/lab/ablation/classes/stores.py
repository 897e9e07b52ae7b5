"""Stores to global memory that are issued and write nothing."""

from __future__ import annotations

from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    require_changeable_accesses,
    say_unchanged,
)
from profkit.lab.ablation.removal import make_statements_switchable


def skip_stores(code: SurveyedCode) -> CodeChange:
    stores = code.list_executed(GLOBAL, ("store",))
    nothing = "it stores nothing to global memory"
    free = require_changeable_accesses(
        stores, code.is_without_decision, "stores are read again and", nothing
    )
    kept = say_unchanged(len(stores) - len(free), "that are read again to decide something")
    statements = [access.statement for access in free]
    return make_statements_switchable(
        code, statements, f"{format_count(len(free), 'store')} gone", kept
    )


ABLATION = Ablation(
    id="no-stores",
    title="stores",
    reachable=False,
    rules=("store-drain", "dram-bandwidth"),
    probes=("dram-write", "drain", "transpose-naive"),
    keeps="STG",
    make=skip_stores,
)
