"""Sleeps that do not sleep."""

from __future__ import annotations

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    SurveyedCode,
    format_count,
    make_nothing_to_remove_refusal,
)
from profkit.lab.ablation.removal import find_statements, make_statements_switchable


def skip_sleeps(code: SurveyedCode) -> CodeChange:
    found = find_statements(code, "nanosleep.")
    if not found:
        raise make_nothing_to_remove_refusal("it does not sleep")
    return make_statements_switchable(code, found, f"{format_count(len(found), 'sleep')} gone")


ABLATION = Ablation(
    id="no-sleeps",
    title="sleeping",
    reachable=False,
    rules=("sleeping",),
    probes=("sleep",),
    keeps="NANOSLEEP",
    make=skip_sleeps,
)
