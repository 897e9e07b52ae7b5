"""Stores to global memory that are issued and write nothing."""

from __future__ import annotations

from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    Change,
    Code,
    choose_free,
    count_words,
    say_how_many_stay,
)
from profkit.lab.ablation.removal import make_switchable


def skip_stores(code: Code) -> Change:
    stores = code.list_executed(GLOBAL, ("store",))
    nothing = "it stores nothing to global memory"
    free = choose_free(stores, code.is_free, "stores are read again and", nothing)
    kept = say_how_many_stay(len(stores) - len(free), "that are read again to decide something")
    statements = [access.statement for access in free]
    return make_switchable(code, statements, f"{count_words(len(free), 'store')} gone", kept)


ABLATION = Ablation(
    id="no-stores",
    title="stores",
    reachable=False,
    rules=("store-drain", "dram-bandwidth"),
    probes=("dram-write", "drain", "transpose-naive"),
    keeps="STG",
    make=skip_stores,
)
