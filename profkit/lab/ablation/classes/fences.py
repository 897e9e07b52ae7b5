"""Memory fences that are issued and wait for nothing."""

from __future__ import annotations

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    make_nothing_to_remove_refusal,
)
from profkit.lab.ablation.removal import find_statements, make_statements_switchable


def skip_fences(code: SurveyedCode) -> CodeChange:
    found = find_statements(code, "membar.", "fence.sc.", "fence.acq_rel.")
    if not found:
        raise make_nothing_to_remove_refusal("it has no memory fence")
    return make_statements_switchable(code, found, f"{format_count(len(found), 'fence')} gone")


ABLATION = Ablation(
    id="no-fences",
    title="memory fences",
    reachable=False,
    rules=("membar",),
    probes=("membar",),
    keeps="MEMBAR",
    make=skip_fences,
)
