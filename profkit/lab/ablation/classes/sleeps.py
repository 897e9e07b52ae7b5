"""Sleeps that do not sleep."""

from __future__ import annotations

from profkit.lab.ablation.change import Ablation, Change, Code, count_words, refuse_nothing
from profkit.lab.ablation.removal import find_statements, make_switchable


def skip_sleeps(code: Code) -> Change:
    found = find_statements(code, "nanosleep.")
    if not found:
        raise refuse_nothing("it does not sleep")
    return make_switchable(code, found, f"{count_words(len(found), 'sleep')} gone")


ABLATION = Ablation(
    id="no-sleeps",
    title="sleeping",
    reachable=False,
    rules=("sleeping",),
    probes=("sleep",),
    keeps="NANOSLEEP",
    make=skip_sleeps,
)
