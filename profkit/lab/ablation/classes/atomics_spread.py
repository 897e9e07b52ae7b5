"""Atomics on global memory, each thread's on a word of its own."""

from __future__ import annotations

from profkit.lab.ablation import streams
from profkit.lab.ablation.change import (
    ROOM,
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    require_changeable_accesses,
    say_unchanged,
)
from profkit.lab.ablation.streams import AccessStream, AddressPath


def spread_global_atomics(code: SurveyedCode) -> CodeChange:
    atomics = code.list_executed(("global",), ("atomic",))
    nothing = "it has no atomics on global memory"
    free = require_changeable_accesses(atomics, code.is_without_decision, "atomics", nothing)

    def walk_room(_: AccessStream) -> AddressPath:
        """Never the same word again soon: an atomic waits for the one before on its word."""
        return AddressPath(code.room, ROOM, streams.choose_walk_stride(ROOM))

    led = streams.group_accesses_into_streams(free, code.survey, least=-ROOM)
    changed = f"{format_count(len(free), 'atomic')} on a word of each thread"
    kept = say_unchanged(len(atomics) - len(free), "that decide something")
    return streams.redirect_to_streams(code, led, free, walk_room, changed, kept)


ABLATION = Ablation(
    id="atomics-spread",
    title="atomics that meet",
    reachable=True,
    rules=("atomics-contention",),
    probes=("atomic-bins", "atomic-same", "atomic-double"),
    keeps="ATOMG REDG",
    make=spread_global_atomics,
)
