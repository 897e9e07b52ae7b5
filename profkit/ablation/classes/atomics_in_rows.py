"""Atomics on shared memory, each lane's on a word of its own."""

from __future__ import annotations

from profkit.ablation import readdress
from profkit.ablation.change import (
    Ablation,
    Change,
    Code,
    count_words,
    refuse_nothing,
    refuse_steering,
)
from profkit.records.ablation import Refusal

ID = "atomics-in-rows"


def make_rows(code: Code) -> Change | Refusal:
    atomics = []
    for access in code.accesses:
        if access.space == "shared" and access.kind == "atomic" and code.has_executed(access):
            atomics.append(access)
    if not atomics:
        return refuse_nothing(ID, "it has no atomics on shared memory")
    on = [a.number for a in atomics if not a.steers and not code.feeds_steering(a)]
    if not on:
        return refuse_steering(ID, len(atomics), "atomics")
    rows = readdress.make_new_rows(code.accesses, on)
    return Change(
        text=readdress.write_rows(code.module, code.accesses, rows, new_memory=True),
        table=readdress.fill_rows(rows, set(on)),
        control=readdress.fill_rows(rows, set()),
        changed=f"{count_words(len(on), 'atomic')} on a word of each lane",
    )


ABLATION = Ablation(
    id=ID,
    title="atomics that meet in shared memory",
    reachable=True,
    rules=("atomics-contention",),
    probes=("histogram", "atomic-shared"),
    make=make_rows,
)
