"""Loads that find what they want in the L2, and not in the L1: no DRAM."""

from __future__ import annotations

from profkit.lab.ablation import streams
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    make_nothing_to_remove_refusal,
)
from profkit.lab.ablation.streams import ROW

_SHARE = 8  # this part of the L2 for all streams together: it has two halves, and other guests


def make_loads_hit_l2(code: SurveyedCode) -> CodeChange:
    streamed = streams.find_movable_streams(code)
    loaded = [stream for stream in streamed if stream.accesses[0].kind == "load"]
    touched = sum(stream.length for stream in loaded)
    if touched < code.l2 / 2:
        raise make_nothing_to_remove_refusal(
            f"what it loads ({touched >> 10} KiB) is within the L2"
        )
    size = max(ROW, code.l2 // _SHARE // len(loaded) // ROW * ROW)
    on: list[PtxAccess] = []
    for stream in loaded:
        if stream.length > size:
            on += stream.accesses
    changed = f"{format_count(len(on), 'load')} sent to {size >> 10} KiB a stream"
    walk, kept = streams.make_window_walk(size), streams.say_unmoved_loads(code)
    return streams.redirect_to_streams(code, streamed, on, walk, changed, kept)


ABLATION = Ablation(
    id="hits-l2",
    title="DRAM behind loads",
    reachable=False,
    rules=("dram-bandwidth", "low-l2-hit", "long-scoreboard"),
    probes=("dram-read", "low-l2-hit", "line-gather"),
    keeps="LDG LDGSTS",
    make=make_loads_hit_l2,
)
