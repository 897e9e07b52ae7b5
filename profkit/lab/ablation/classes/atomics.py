"""Atomics that are issued and change nothing."""

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


def skip_atomics(code: SurveyedCode) -> CodeChange:
    atomics = code.list_executed((*GLOBAL, "shared"), ("atomic",))
    free = require_changeable_accesses(
        atomics, code.is_without_decision, "atomics", "it has no atomics"
    )
    kept = say_unchanged(len(atomics) - len(free), "that decide something")
    statements = [access.statement for access in free]
    return make_statements_switchable(
        code, statements, f"{format_count(len(free), 'atomic')} gone", kept
    )


ABLATION = Ablation(
    id="no-atomics",
    title="atomics",
    reachable=False,
    rules=("atomics-contention",),
    probes=("atomic-same", "atomic-bins", "atomic-shared", "histogram"),
    keeps="REDG ATOMG ATOMS",
    make=skip_atomics,
)
