"""Scattered accesses of global memory, made by neighbouring threads to neighbouring places instead."""

from profkit.lab.ablation import streams
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import GLOBAL, AccessAblation, CodeChange, format_count


class AccessesCoalesced(AccessAblation):
    id = "coalesced"
    title = "scattered access"
    reachable = True
    rules = ("uncoalesced-access",)
    probes = (
        "sector-eighth",
        "sector-half",
        "transpose-naive",
        "drain",
        "l1-scattered",
        "gather-l2",
    )
    keeps = "LDG STG"
    spaces = GLOBAL
    kinds = ("load", "store")
    what = "scattered accesses"
    nothing = "every access fills the sectors that it touches"

    def has_cause(self, access: PtxAccess) -> bool:
        return self.code.is_scattered(access)

    def can_be_rewritten_safely(self, access: PtxAccess) -> bool:
        return access.number in self.led

    def make_change(self) -> CodeChange:
        self.streamed = streams.find_streams_steering_nothing(self.code)
        self.led = streams.list_access_numbers(self.streamed)
        return super().make_change()

    def change_accesses_free_to_change(self) -> CodeChange:
        on = self.free
        changed = f"{format_count(len(on), 'access', 'accesses')} made by neighbours side by side"
        walk = streams.make_full_walk(self.code)
        kept = "scattered ones that decide an address"
        return streams.redirect_to_streams(
            self.code, self.streamed, on, walk, changed, self.say_count_left_unchanged(kept)
        )


ABLATION = AccessesCoalesced
