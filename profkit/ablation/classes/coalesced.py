"""Scattered accesses of global memory, made by neighbouring threads to neighbouring places instead."""

from __future__ import annotations

from profkit.ablation import streams
from profkit.ablation.change import (
    Ablation,
    Change,
    Code,
    count_words,
    refuse_nothing,
    refuse_steering,
)
from profkit.records.ablation import Refusal

ID = "coalesced"


def make_coalesced(code: Code) -> Change | Refusal:
    scattered = []
    for access in code.accesses:
        plain = access.in_global and access.kind != "atomic"
        if plain and code.has_executed(access) and code.is_scattered(access):
            scattered.append(access)
    if not scattered:
        return refuse_nothing(ID, "every access fills the sectors that it touches")
    movable = {access.number for access in streams.find_movable(code)}
    placed = {number for stream in streams.list_streamed(code) for number in stream.accesses}
    on = [access.number for access in scattered if access.number in movable & placed]
    if not on:
        return refuse_steering(ID, len(scattered), "scattered accesses")
    kept = ""
    if len(on) < len(scattered):
        kept = f"{len(scattered) - len(on)} scattered ones that decide an address stay"
    changed = f"{count_words(len(on), 'access', 'accesses')} made by neighbours side by side"
    return streams.make_change(code, on, streams.walk_all(code), changed, kept)


ABLATION = Ablation(
    id=ID,
    title="scattered access",
    reachable=True,
    rules=("uncoalesced-access",),
    probes=(
        "sector-eighth",
        "sector-half",
        "transpose-naive",
        "drain",
        "l1-scattered",
        "gather-l2",
    ),
    make=make_coalesced,
)
