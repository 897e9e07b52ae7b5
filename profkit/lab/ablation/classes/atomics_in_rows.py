"""Atomics on shared memory, each lane's on a word of its own."""

from __future__ import annotations

from profkit.lab.ablation import rows
from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    require_changeable_accesses,
)


def spread_shared_atomics(code: SurveyedCode) -> CodeChange:
    atomics = code.list_executed(("shared",), ("atomic",))
    nothing = "it has no atomics on shared memory"
    free = require_changeable_accesses(atomics, code.is_without_decision, "atomics", nothing)
    changed = f"{format_count(len(free), 'atomic')} on a word of each lane"
    return rows.send_accesses_to_rows(code, rows.make_new_rows(free), changed, new_memory=True)


ABLATION = Ablation(
    id="atomics-in-rows",
    title="atomics that meet in shared memory",
    reachable=True,
    rules=("atomics-contention",),
    probes=("histogram", "atomic-shared"),
    keeps="ATOMS",
    make=spread_shared_atomics,
)
