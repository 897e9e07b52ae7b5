"""Loads that find what they want in the L2, and not in the L1: no DRAM."""

from profkit.lab.ablation import streams
from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    format_count,
    make_nothing_to_remove_refusal,
)
from profkit.lab.ablation.streams import ROW

_SHARE = 8  # this part of the L2 for all streams together: it has two halves, and other guests


class LoadsHitL2(Ablation):
    id = "hits-l2"
    title = "DRAM behind loads"
    rules = ("dram-bandwidth", "low-l2-hit", "long-scoreboard")
    probes = ("dram-read", "low-l2-hit", "line-gather")
    keeps = "LDG LDGSTS"

    def make_change(self) -> CodeChange:
        streamed = streams.find_streams_steering_nothing(self.code)
        loaded = [stream for stream in streamed if stream.accesses[0].kind == "load"]
        touched = sum(stream.length for stream in loaded)
        if touched < self.code.l2 / 2:
            within = f"what it loads ({touched >> 10} KiB) is within the L2"
            raise make_nothing_to_remove_refusal(within)
        size = max(ROW, self.code.l2 // _SHARE // len(loaded) // ROW * ROW)
        longer = [stream for stream in loaded if stream.length > size]
        on = [access for stream in longer for access in stream.accesses]
        changed = f"{format_count(len(on), 'load')} sent to {size >> 10} KiB a stream"
        walk = streams.make_window_walk(size)
        kept = streams.say_unmoved_loads(self.code)
        return streams.redirect_to_streams(self.code, loaded, on, walk, changed, kept)


ABLATION = LoadsHitL2
