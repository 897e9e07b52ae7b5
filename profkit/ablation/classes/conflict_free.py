"""Accesses of shared memory that meet on banks, each lane sent to a place of its own instead."""

from __future__ import annotations

from profkit.ablation import readdress
from profkit.ablation.accesses import Access
from profkit.ablation.change import (
    Ablation,
    Change,
    Code,
    count_words,
    refuse_nothing,
    refuse_steering,
)
from profkit.records.ablation import Refusal

ID = "conflict-free"


def make_conflict_free(code: Code) -> Change | Refusal:
    meeting = []
    for access in code.accesses:
        plain = access.space == "shared" and access.kind != "atomic"
        if plain and code.has_executed(access) and code.is_in_conflict(access):
            meeting.append(access)
    if not meeting:
        return refuse_nothing(ID, "no access of shared memory meets another on a bank")
    able = [access.number for access in meeting if _can_move(code, access)]
    rows = readdress.find_rows(code.accesses, code.survey, able)
    on = [number for row in rows for number in row.accesses]
    if not on:
        return refuse_steering(ID, len(meeting), "accesses in conflict")
    lines = {}
    for place in code.places(on):
        here = {number for number in on if code.place(number) == place}
        if place:
            lines[place] = readdress.fill_rows(rows, here)
    loads = [number for number in on if code.accesses[number].kind == "load"]
    words = []
    if loads:
        words.append(count_words(len(loads), "load"))
    if len(loads) < len(on):
        words.append(count_words(len(on) - len(loads), "store"))
    left = len(meeting) - len(on)
    return Change(
        text=readdress.write_rows(code.module, code.accesses, rows),
        table=readdress.fill_rows(rows, set(on)),
        control=readdress.fill_rows(rows, set()),
        changed=f"same instructions; {' and '.join(words)} re-addressed",
        kept=f"{left} in conflict stay" if left else "",
        lines=lines,
    )


def _can_move(code: Code, access: Access) -> bool:
    if access.steers or access.unmovable:
        return False
    return access.kind == "load" or not code.feeds_steering(access)


ABLATION = Ablation(
    id=ID,
    title="shared bank conflicts",
    reachable=True,
    rules=("shared-bank-conflicts",),
    probes=("conflict2", "conflict8", "conflict32", "transpose-conflict", "conflict-hidden"),
    make=make_conflict_free,
)
