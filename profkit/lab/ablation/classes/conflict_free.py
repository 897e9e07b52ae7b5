"""Accesses of shared memory that meet on banks, each lane sent to a place of its own instead."""

from collections import Counter

from profkit.lab.ablation import neighbours, rows
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import AccessAblation, CodeChange, format_count, say_unchanged


class ConflictsGone(AccessAblation):
    id = "conflict-free"
    title = "shared bank conflicts"
    reachable = True
    rules = ("shared-bank-conflicts",)
    probes = ("conflict2", "conflict8", "conflict32", "transpose-conflict", "conflict-hidden")
    keeps = "LDS STS LDSM STSM LDGSTS"
    spaces = ("shared",)
    kinds = ("load", "store")
    what = "accesses in conflict"
    nothing = "no access of shared memory meets another on a bank"

    def has_cause(self, access: PtxAccess) -> bool:
        """Return whether a request takes a twentieth more passes over the banks than it has to."""
        seen = self.code.survey.seen[access.number]
        return seen.ways > 1.05 * seen.requests

    def can_be_rewritten_safely(self, access: PtxAccess) -> bool:
        return self.code.can_be_moved_without_effect(access)

    def change_accesses_free_to_change(self) -> CodeChange:
        survey = self.code.survey
        strides = neighbours.find_widths_with_neighbours(self.code.module, self.free, survey)
        made = rows.find_rows_within_touched_memory(self.free, survey, stride_by_access=strides)
        led = Counter(access.kind for access in rows.list_accesses_of_rows(made))
        words = [format_count(led[kind], kind) for kind in sorted(led)]
        changed = f"same instructions; {' and '.join(words)} re-addressed"
        kept = say_unchanged(len(self.found) - led.total(), "in conflict")
        return rows.send_accesses_to_rows(self.code, made, changed, kept)


ABLATION = ConflictsGone
