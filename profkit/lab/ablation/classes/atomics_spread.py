"""Atomics on global memory, each thread's on a word of its own."""

from profkit.lab.ablation import streams
from profkit.lab.ablation.change import ROOM, AccessAblation, CodeChange, format_count
from profkit.lab.ablation.streams import AccessStream, AddressPath


class GlobalAtomicsSpread(AccessAblation):
    id = "atomics-spread"
    title = "atomics that meet"
    reachable = True
    rules = ("atomics-contention",)
    probes = ("atomic-bins", "atomic-same", "atomic-double")
    keeps = "ATOMG REDG"
    spaces = ("global",)
    kinds = ("atomic",)
    what = "atomics"
    nothing = "it has no atomics on global memory"

    def change_accesses_free_to_change(self) -> CodeChange:
        free = self.free
        led = streams.group_accesses_into_streams(free, self.code.survey, least_bytes=-ROOM)
        changed = f"{format_count(len(free), 'atomic')} on a word of each thread"
        kept = self.say_count_left_unchanged("that decide something")
        return streams.redirect_to_streams(self.code, led, free, self.walk_room, changed, kept)

    def walk_room(self, _: AccessStream) -> AddressPath:
        """Return never the same word again soon: an atomic waits for the one before on its word."""
        return AddressPath(self.code.room, ROOM, streams.choose_walk_stride(ROOM))


ABLATION = GlobalAtomicsSpread
