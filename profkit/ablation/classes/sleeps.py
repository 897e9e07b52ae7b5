"""Sleeps that do not sleep."""

from __future__ import annotations

from profkit.ablation.change import Ablation, Change, Code, count_words, refuse_nothing
from profkit.ablation.removal import find_statements, leave_out
from profkit.records.ablation import Refusal

ID = "no-sleeps"


def make_sleeps(code: Code) -> Change | Refusal:
    found = find_statements(code, "nanosleep.")
    if not found:
        return refuse_nothing(ID, "it does not sleep")
    return leave_out(code, found, f"{count_words(len(found), 'sleep')} gone")


ABLATION = Ablation(
    id=ID,
    title="sleeping",
    reachable=False,
    rules=("sleeping",),
    probes=("sleep",),
    make=make_sleeps,
)
