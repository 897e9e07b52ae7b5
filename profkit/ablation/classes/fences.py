"""Memory fences that are issued and wait for nothing."""

from __future__ import annotations

from profkit.ablation.change import Ablation, Change, Code, count_words, refuse_nothing
from profkit.ablation.removal import find_statements, leave_out
from profkit.records.ablation import Refusal

ID = "no-fences"


def make_fences(code: Code) -> Change | Refusal:
    found = find_statements(code, "membar.", "fence.sc.", "fence.acq_rel.")
    if not found:
        return refuse_nothing(ID, "it has no memory fence")
    return leave_out(code, found, f"{count_words(len(found), 'fence')} gone")


ABLATION = Ablation(
    id=ID,
    title="memory fences",
    reachable=False,
    rules=("membar",),
    probes=("membar",),
    make=make_fences,
)
