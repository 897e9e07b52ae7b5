"""Loads that find what they want in the L1: no wait for anything behind it."""

from __future__ import annotations

from profkit.lab.ablation import streams
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    make_nothing_to_remove_refusal,
    require_changeable_accesses,
)
from profkit.lab.ablation.streams import ROW

_WINDOW = 16 << 10  # bytes for all streams: fits the L1 that the largest shared memory leaves
_LARGEST = 4 << 10  # bytes for one
_BYPASS = {"volatile", "relaxed", "acquire"}


def make_loads_hit_l1(code: SurveyedCode) -> CodeChange:
    loads = code.list_executed(GLOBAL, ("load",))

    def is_free_load(access: PtxAccess) -> bool:
        return not access.steers

    require_changeable_accesses(loads, is_free_load, "loads", "it loads nothing from global memory")
    streamed = streams.find_movable_streams(code)
    led = streams.list_access_numbers(streamed)
    on = [access for access in loads if access.number in led]
    if not on:
        raise make_nothing_to_remove_refusal("its loads touch a few bytes only, and hit already")
    size = max(ROW, min(_LARGEST, _WINDOW // len(streamed)) // ROW * ROW)
    kept = [streams.say_unmoved_loads(code)]
    bypassing = sum(not _BYPASS.isdisjoint(access.statement.words) for access in on)
    if bypassing:
        kept.append(f"{bypassing} pass by the L1, for others to see: they hit the L2")
    words = ", ".join(filter(None, kept))
    changed = f"{format_count(len(on), 'load')} sent to {size} bytes a stream"
    walk = streams.make_window_walk(size, cached=True)
    return streams.redirect_to_streams(code, streamed, on, walk, changed, words)


ABLATION = Ablation(
    id="hits-l1",
    title="waiting for global loads",
    reachable=False,
    rules=("long-scoreboard", "l2-bandwidth", "low-l2-hit"),
    probes=("stream-one", "occupancy-half", "l2-read", "dram-read"),
    keeps="LDG LDGSTS",
    make=make_loads_hit_l1,
)
