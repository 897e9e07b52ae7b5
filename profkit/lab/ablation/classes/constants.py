"""Constants that lanes read at different places, read at one place instead."""

from profkit.lab.ablation import rows
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import AccessAblation, CodeChange, format_count


class ConstantsAtOnePlace(AccessAblation):
    id = "constants-uniform"
    title = "constants read apart"
    reachable = True
    rules = ("constant-divergence",)
    probes = ("constant",)  # nothing is kept: choosing reads constants too
    spaces = ("const",)
    kinds = ("load",)
    what = "loads of constants"
    nothing = "lanes read no constants at different places"

    def has_cause(self, access: PtxAccess) -> bool:
        """Return whether the lanes of a request read a twentieth more words than one."""
        seen = self.code.survey.seen[access.number]
        return seen.units > 1.05 * seen.requests

    def can_be_rewritten_safely(self, access: PtxAccess) -> bool:
        return self.code.can_be_moved_without_effect(access)

    def change_accesses_free_to_change(self) -> CodeChange:
        made = rows.find_rows_within_touched_memory(
            self.free, self.code.survey, do_lanes_share_place=True
        )
        led = rows.list_accesses_of_rows(made)
        changed = f"{format_count(len(led), 'load')} of constants at one place"
        return rows.send_accesses_to_rows(self.code, made, changed)


ABLATION = ConstantsAtOnePlace
