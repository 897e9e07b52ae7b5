"""Atomics on shared memory, each lane's on a word of its own."""

from profkit.lab.ablation import rows
from profkit.lab.ablation.change import AccessAblation, CodeChange, format_count


class SharedAtomicsSpread(AccessAblation):
    id = "atomics-in-rows"
    title = "atomics that meet in shared memory"
    reachable = True
    rules = ("atomics-contention",)
    probes = ("histogram", "atomic-shared")
    keeps = "ATOMS"
    spaces = ("shared",)
    kinds = ("atomic",)
    what = "atomics"
    nothing = "it has no atomics on shared memory"

    def change_accesses_free_to_change(self) -> CodeChange:
        changed = f"{format_count(len(self.free), 'atomic')} on a word of each lane"
        made = [rows.make_row_in_new_memory(access) for access in self.free]
        return rows.send_accesses_to_rows(self.code, made, changed)


ABLATION = SharedAtomicsSpread
