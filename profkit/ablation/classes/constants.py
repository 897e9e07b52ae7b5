"""Constants that lanes read at different places, read at one place instead."""

from __future__ import annotations

from profkit.ablation import readdress
from profkit.ablation.change import (
    Ablation,
    Change,
    Code,
    count_words,
    refuse_nothing,
    refuse_steering,
)
from profkit.records.ablation import Refusal

ID = "constants-uniform"
_APART = 1.05  # different words of a request


def make_uniform(code: Code) -> Change | Refusal:
    apart = []
    for access in code.accesses:
        seen = code.survey.seen[access.number]
        if access.space == "const" and seen.units > _APART * seen.requests:
            apart.append(access)
    if not apart:
        return refuse_nothing(ID, "lanes read no constants at different places")
    on = [access.number for access in apart if not access.steers and not access.unmovable]
    if not on:
        return refuse_steering(ID, len(apart), "loads of constants")
    rows = readdress.find_rows(code.accesses, code.survey, on, one_place=True)
    return Change(
        text=readdress.write_rows(code.module, code.accesses, rows, one_place=True),
        table=readdress.fill_rows(rows, set(on)),
        control=readdress.fill_rows(rows, set()),
        changed=f"{count_words(len(on), 'load')} of constants at one place",
    )


ABLATION = Ablation(
    id=ID,
    title="constants read apart",
    reachable=True,
    rules=("constant-divergence",),
    probes=("constant",),
    make=make_uniform,
)
