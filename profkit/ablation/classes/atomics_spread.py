"""Atomics on global memory, each thread's on a word of its own."""

from __future__ import annotations

from profkit.ablation.change import (
    ROOM,
    Ablation,
    Change,
    Code,
    count_words,
    refuse_nothing,
    refuse_steering,
)
from profkit.ablation.readdress import Path, fill_table, find_streams, write_streams
from profkit.ablation.streams import leap_through
from profkit.records.ablation import Refusal

ID = "atomics-spread"


def make_spread(code: Code) -> Change | Refusal:
    atomics = []
    for access in code.accesses:
        if access.space == "global" and access.kind == "atomic" and code.has_executed(access):
            atomics.append(access)
    if not atomics:
        return refuse_nothing(ID, "it has no atomics on global memory")
    found = [access for access in atomics if not access.steers and not code.feeds_steering(access)]
    if not found:
        return refuse_steering(ID, len(atomics), "atomics")
    streams = find_streams(found, code.survey, least=-ROOM)
    # Never the same word again soon: an atomic waits for the one before on its word.
    step = leap_through(ROOM)
    paths = {stream.number: Path(code.room, ROOM, step) for stream in streams}
    on = {access.number for access in found}
    return Change(
        text=write_streams(code.module, code.accesses, streams),
        table=fill_table(streams, paths, on, code.accesses),
        control=fill_table(streams, {}, set(), code.accesses),
        changed=f"{count_words(len(found), 'atomic')} on a word of each thread",
        kept=f"{len(atomics) - len(found)} that decide something stay"
        * (len(found) < len(atomics)),
    )


ABLATION = Ablation(
    id=ID,
    title="atomics that meet",
    reachable=True,
    rules=("atomics-contention",),
    probes=("atomic-bins", "atomic-same", "atomic-double"),
    make=make_spread,
)
