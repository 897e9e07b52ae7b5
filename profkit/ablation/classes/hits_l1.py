"""Loads that find what they want in the L1: no wait for anything behind it."""

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
from profkit.ablation.readdress import ROW
from profkit.records.ablation import Refusal

ID = "hits-l1"
_WINDOW = 16 << 10  # bytes for all streams: fits the L1 that the largest shared memory leaves
_LARGEST = 4 << 10  # bytes for one
_BYPASS = {"volatile", "relaxed", "acquire"}


def make_l1_hits(code: Code) -> Change | Refusal:
    loads = []
    for access in code.accesses:
        if access.in_global and access.kind == "load" and code.has_executed(access):
            loads.append(access)
    if not loads:
        return refuse_nothing(ID, "it loads nothing from global memory")
    movable = {access.number for access in streams.find_movable(code)}
    walked = streams.list_streamed(code)
    placed = {number for stream in walked for number in stream.accesses}
    on = [access.number for access in loads if access.number in movable & placed]
    if not on and all(access.steers for access in loads):
        return refuse_steering(ID, len(loads), "loads")
    if not on:
        return refuse_nothing(ID, "its loads touch a few bytes only, and hit already")
    size = max(ROW, min(_LARGEST, _WINDOW // max(1, len(walked))) // ROW * ROW)
    kept = [streams.describe_kept(code, ["load"])]
    bypassing = 0
    for number in on:
        bypassing += not _BYPASS.isdisjoint(code.accesses[number].statement.words)
    if bypassing:
        kept.append(f"{bypassing} pass by the L1, for others to see: they hit the L2")
    changed = f"{count_words(len(on), 'load')} sent to {size} bytes a stream"
    words = ", ".join(word for word in kept if word)
    walk = streams.walk_window(size)
    return streams.make_change(code, on, walk, changed, words, cached=True)


ABLATION = Ablation(
    id=ID,
    title="waiting for global loads",
    reachable=False,
    rules=("long-scoreboard", "l2-bandwidth", "low-l2-hit"),
    probes=("stream-one", "occupancy-half", "l2-read", "dram-read"),
    make=make_l1_hits,
)
