"""Stores to a thread's own memory that are issued and write nothing."""

from __future__ import annotations

from profkit.ablation.accesses import find_steering
from profkit.ablation.change import Ablation, Change, Code, count_words, refuse_nothing
from profkit.ablation.removal import find_statements, leave_out
from profkit.records.ablation import Refusal

ID = "no-local-stores"


def make_local(code: Code) -> Change | Refusal:
    found = find_statements(code, "st.local.")
    if not found:
        return refuse_nothing(ID, "its code has no array in local memory")
    for kernel in code.module.kernels.values():
        if "local" in find_steering(kernel):
            return Refusal(
                ID,
                "steers",
                "a value in local memory decides a branch or an address",
                "none that does",
                "",
            )
    return leave_out(code, found, f"{count_words(len(found), 'store')} gone")


ABLATION = Ablation(
    id=ID,
    title="stores to local memory",
    reachable=False,
    rules=("local-memory",),
    probes=("local-array",),
    make=make_local,
)
