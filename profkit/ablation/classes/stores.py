"""Stores to global memory that are issued and write nothing."""

from __future__ import annotations

from profkit.ablation.change import Ablation, Change, Code, count_words, refuse_nothing
from profkit.ablation.removal import leave_out
from profkit.records.ablation import Refusal

ID = "no-stores"


def make_stores(code: Code) -> Change | Refusal:
    stores = []
    for access in code.accesses:
        if access.in_global and access.kind == "store" and code.has_executed(access):
            stores.append(access)
    found = [access for access in stores if not code.feeds_steering(access)]
    if not stores:
        return refuse_nothing(ID, "it stores nothing to global memory")
    if not found:
        return Refusal(
            ID,
            "steers",
            f"all {len(stores)} stores write what a branch or an address is read from",
            "one that does not",
            "",
        )
    statements = [(access.kernel, access.statement) for access in found]
    left = len(stores) - len(found)
    kept = f"{left} that are read again to decide something stay" if left else ""
    return leave_out(code, statements, f"{count_words(len(found), 'store')} gone", kept)


ABLATION = Ablation(
    id=ID,
    title="stores",
    reachable=False,
    rules=("store-drain", "dram-bandwidth"),
    probes=("dram-write", "drain", "transpose-naive"),
    make=make_stores,
)
