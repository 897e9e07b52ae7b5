"""Stores to a thread's own memory that are issued and write nothing."""

from __future__ import annotations

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    Refused,
    SurveyedCode,
    format_count,
    make_nothing_to_remove_refusal,
)
from profkit.lab.ablation.removal import find_statements, make_statements_switchable
from profkit.lab.ablation.steering import find_steering


def skip_local_stores(code: SurveyedCode) -> CodeChange:
    found = find_statements(code, "st.local.")
    if not found:
        raise make_nothing_to_remove_refusal("its code has no array in local memory")
    for kernel in code.module.kernels.values():
        if "local" in find_steering(kernel).memories:
            raise Refused(
                "steers",
                "a value in local memory decides a branch or an address",
                "none that does",
                "index the array by constants: then it is in registers",
            )
    return make_statements_switchable(code, found, f"{format_count(len(found), 'store')} gone")


ABLATION = Ablation(
    id="no-local-stores",
    title="stores to local memory",
    reachable=False,
    rules=("local-memory",),
    probes=("local-array",),
    keeps="STL",
    make=skip_local_stores,
)
