"""Loads that find what they want in the L2, and not in the L1: no DRAM."""

from __future__ import annotations

from profkit.ablation import streams
from profkit.ablation.change import Ablation, Change, Code, count_words, refuse_nothing
from profkit.ablation.readdress import ROW
from profkit.records.ablation import Refusal

ID = "hits-l2"
_SHARE = 8  # this part of the L2 for all streams together: it has two halves, and other guests


def make_l2_hits(code: Code) -> Change | Refusal:
    walked = []
    for stream in streams.list_streamed(code):
        if code.accesses[stream.accesses[0]].kind == "load":
            walked.append(stream)
    touched = sum(stream.length for stream in walked)
    if touched < code.l2 / 2:
        return refuse_nothing(ID, f"what it loads ({touched >> 10} KiB) is within the L2")
    size = max(ROW, code.l2 // _SHARE // len(walked) // ROW * ROW)
    on = [number for stream in walked if stream.length > size for number in stream.accesses]
    changed = f"{count_words(len(on), 'load')} sent to {size >> 10} KiB a stream"
    kept = streams.describe_kept(code, ["load"])
    return streams.make_change(code, on, streams.walk_window(size), changed, kept)


ABLATION = Ablation(
    id=ID,
    title="DRAM behind loads",
    reachable=False,
    rules=("dram-bandwidth", "low-l2-hit", "long-scoreboard"),
    probes=("dram-read", "low-l2-hit", "line-gather"),
    make=make_l2_hits,
)
