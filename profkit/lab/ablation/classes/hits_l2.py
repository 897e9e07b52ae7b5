"""Loads that find what they want in the L2, and not in the L1: no DRAM."""

from __future__ import annotations

from profkit.lab.ablation import streams
from profkit.lab.ablation.accesses import Access
from profkit.lab.ablation.change import Ablation, Change, Code, format_count, refuse_absent
from profkit.lab.ablation.streams import ROW

_SHARE = 8  # this part of the L2 for all streams together: it has two halves, and other guests


def make_loads_hit_l2(code: Code) -> Change:
    streamed = streams.list_streamed(code)
    loaded = [stream for stream in streamed if stream.accesses[0].kind == "load"]
    touched = sum(stream.length for stream in loaded)
    if touched < code.l2 / 2:
        raise refuse_absent(f"what it loads ({touched >> 10} KiB) is within the L2")
    size = max(ROW, code.l2 // _SHARE // len(loaded) // ROW * ROW)
    on: list[Access] = []
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
