"""Accesses of global and shared memory that are issued and touch nothing, all of them together."""

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    GLOBAL,
    AccessAblation,
    CodeChange,
    format_count,
    say_unchanged,
)
from profkit.lab.ablation.removal import make_statements_switchable


class AccessesOfMemoryGone(AccessAblation):
    id = "no-memory"
    title = "all accesses of memory"
    probes = ("dram-copy",)
    keeps = "LDG STG LDS STS"
    spaces = (*GLOBAL, "shared")
    kinds = ("load", "store", "atomic")
    what = "accesses"
    nothing = "it accesses no memory that others see"

    def can_be_rewritten_safely(self, access: PtxAccess) -> bool:
        return super().can_be_rewritten_safely(access) and not access.why_unmovable

    def change_accesses_free_to_change(self) -> CodeChange:
        # A copy to shared memory is two accesses of one statement.
        stays = set()
        statements = {}
        for access in self.found:
            statements[access.statement.start] = access.statement
            if access not in self.free:
                stays.add(access.statement.start)
        gone = [statement for start, statement in statements.items() if start not in stays]
        changed = f"{format_count(len(gone), 'access', 'accesses')} issued, not done"
        kept = say_unchanged(len(stays), "that decide a branch or an address")
        return make_statements_switchable(
            self.code, gone, changed, kept, is_one_switch_for_all=True
        )


ABLATION = AccessesOfMemoryGone
