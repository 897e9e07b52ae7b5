"""Accesses of shared memory that meet on banks, each lane sent to a place of its own instead."""

from __future__ import annotations

from profkit.lab.ablation import neighbours, rows
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    require_changeable_accesses,
    say_unchanged,
)


def avoid_bank_conflicts(code: SurveyedCode) -> CodeChange:
    executed = code.list_executed(("shared",), ("load", "store"))
    meeting = [access for access in executed if code.is_in_conflict(access)]

    def can_move(access: PtxAccess) -> bool:
        if access.steers or access.why_unmovable:
            return False
        return access.kind == "load" or not code.is_read_to_steer(access)

    nothing = "no access of shared memory meets another on a bank"
    free = require_changeable_accesses(meeting, can_move, "accesses in conflict", nothing)
    strides = neighbours.find_strides(code.module, free, code.survey)
    found = rows.find_rows(free, code.survey, strides=strides)
    led = rows.list_accesses_of_rows(found)
    loads = sum(access.kind == "load" for access in led)
    words = []
    if loads:
        words.append(format_count(loads, "load"))
    if loads < len(led):
        words.append(format_count(len(led) - loads, "store"))
    changed = f"same instructions; {' and '.join(words)} re-addressed"
    kept = say_unchanged(len(meeting) - len(led), "in conflict")
    return rows.send_accesses_to_rows(code, found, changed, kept)


ABLATION = Ablation(
    id="conflict-free",
    title="shared bank conflicts",
    reachable=True,
    rules=("shared-bank-conflicts",),
    probes=("conflict2", "conflict8", "conflict32", "transpose-conflict", "conflict-hidden"),
    keeps="LDS STS LDSM STSM LDGSTS",
    make=avoid_bank_conflicts,
)
