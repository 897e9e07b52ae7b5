"""Scattered accesses of global memory, made by neighbouring threads to neighbouring places instead."""

from __future__ import annotations

from profkit.lab.ablation import streams
from profkit.lab.ablation.accesses import Access
from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    Change,
    Code,
    choose_free,
    count_words,
    say_how_many_stay,
)


def align_accesses(code: Code) -> Change:
    executed = code.list_executed(GLOBAL, ("load", "store"))
    scattered = [access for access in executed if code.is_scattered(access)]
    streamed = streams.list_streamed(code)
    led = streams.list_in_streams(streamed)

    def has_stream(access: Access) -> bool:
        return access.number in led

    nothing = "every access fills the sectors that it touches"
    on = choose_free(scattered, has_stream, "scattered accesses", nothing)
    changed = f"{count_words(len(on), 'access', 'accesses')} made by neighbours side by side"
    kept = say_how_many_stay(len(scattered) - len(on), "scattered ones that decide an address")
    return streams.send_along(code, streamed, on, streams.walk_all(code), changed, kept)


ABLATION = Ablation(
    id="coalesced",
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
    keeps="LDG STG",
    make=align_accesses,
)
