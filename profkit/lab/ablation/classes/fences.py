"""Memory fences that are issued and wait for nothing."""

from __future__ import annotations

from profkit.lab.ablation.change import Ablation, Change, Code, format_count, refuse_absent
from profkit.lab.ablation.removal import find_statements, make_statements_switchable


def skip_fences(code: Code) -> Change:
    found = find_statements(code, "membar.", "fence.sc.", "fence.acq_rel.")
    if not found:
        raise refuse_absent("it has no memory fence")
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
