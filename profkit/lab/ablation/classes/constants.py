"""Constants that lanes read at different places, read at one place instead."""

from __future__ import annotations

from profkit.lab.ablation import rows
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    require_changeable_accesses,
)


def read_constants_at_one_place(code: SurveyedCode) -> CodeChange:
    executed = code.list_executed(("const",), ("load",))
    apart = [access for access in executed if code.reads_several_words(access)]

    def can_move(access: PtxAccess) -> bool:
        return not access.steers and not access.why_unmovable

    nothing = "lanes read no constants at different places"
    free = require_changeable_accesses(apart, can_move, "loads of constants", nothing)
    found = rows.find_rows(free, code.survey, one_place=True)
    changed = (
        f"{format_count(len(rows.list_accesses_of_rows(found)), 'load')} of constants at one place"
    )
    return rows.send_accesses_to_rows(code, found, changed, one_place=True)


ABLATION = Ablation(
    id="constants-uniform",
    title="constants read apart",
    reachable=True,
    rules=("constant-divergence",),
    probes=("constant",),
    keeps="",  # choosing reads constants too
    make=read_constants_at_one_place,
)
