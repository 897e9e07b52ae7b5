"""Loads that find what they want in the L1: no wait for anything behind it."""

from profkit.lab.ablation import streams
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    GLOBAL,
    AccessAblation,
    CodeChange,
    format_count,
    make_nothing_to_remove_refusal,
)
from profkit.lab.ablation.streams import ROW

_WINDOW = 16 << 10  # bytes for all streams: fits the L1 that the largest shared memory leaves
_LARGEST = 4 << 10  # bytes for one
_BYPASS = {"volatile", "relaxed", "acquire"}


class LoadsHitL1(AccessAblation):
    id = "hits-l1"
    title = "waiting for global loads"
    rules = ("long-scoreboard", "l2-bandwidth", "low-l2-hit")
    probes = ("stream-one", "occupancy-half", "l2-read", "dram-read")
    keeps = "LDG LDGSTS"
    spaces = GLOBAL
    kinds = ("load",)
    what = "loads"
    nothing = "it loads nothing from global memory"

    def can_be_rewritten_safely(self, access: PtxAccess) -> bool:
        return not access.steers

    def change_accesses_free_to_change(self) -> CodeChange:
        streamed = streams.find_streams_steering_nothing(self.code)
        led = streams.list_access_numbers(streamed)
        on = [access for access in self.free if access.number in led]
        if not on:
            few = "its loads touch a few bytes only, and hit already"
            raise make_nothing_to_remove_refusal(few)
        size = max(ROW, min(_LARGEST, _WINDOW // len(streamed)) // ROW * ROW)
        kept = streams.say_unmoved_loads(self.code)
        bypassing = sum(not _BYPASS.isdisjoint(access.statement.words) for access in on)
        if bypassing:
            others = f"{bypassing} pass by the L1, for others to see: they hit the L2"
            kept = ", ".join(filter(None, [kept, others]))
        changed = f"{format_count(len(on), 'load')} sent to {size} bytes a stream"
        walk = streams.make_window_walk(size, cached=True)
        return streams.redirect_to_streams(self.code, streamed, on, walk, changed, kept)


ABLATION = LoadsHitL1
