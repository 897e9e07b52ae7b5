"""Scattered accesses of global memory, made by neighbouring threads to neighbouring places instead."""

from __future__ import annotations

from profkit.lab.ablation import streams
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    require_changeable_accesses,
    say_unchanged,
)


def coalesce_accesses(code: SurveyedCode) -> CodeChange:
    executed = code.list_executed(GLOBAL, ("load", "store"))
    scattered = [access for access in executed if code.is_scattered(access)]
    streamed = streams.find_movable_streams(code)
    led = streams.list_access_numbers(streamed)

    def has_stream(access: PtxAccess) -> bool:
        return access.number in led

    nothing = "every access fills the sectors that it touches"
    on = require_changeable_accesses(scattered, has_stream, "scattered accesses", nothing)
    changed = f"{format_count(len(on), 'access', 'accesses')} made by neighbours side by side"
    kept = say_unchanged(len(scattered) - len(on), "scattered ones that decide an address")
    return streams.redirect_to_streams(
        code, streamed, on, streams.make_full_walk(code), changed, kept
    )


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
    make=coalesce_accesses,
)
