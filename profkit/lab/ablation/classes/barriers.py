"""Barriers of a block that nobody waits at."""

from __future__ import annotations

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    Refused,
    SurveyedCode,
    format_count,
    make_nothing_to_remove_refusal,
    say_unchanged,
)
from profkit.lab.ablation.removal import find_statements, make_statements_switchable

_BARRIERS = "bar.sync.", "bar.cta.sync.", "barrier.sync.", "barrier.cta.sync."


def skip_barriers(code: SurveyedCode) -> CodeChange:
    found = find_statements(code, *_BARRIERS)
    if not found:
        raise make_nothing_to_remove_refusal("it has no barrier of a block")
    for access in code.list_executed(("shared",), ("load", "atomic")):
        if access.steers:
            raise Refused(
                "steers",
                "a value in shared memory decides a branch or an address",
                "none that barriers keep in order",
                "look at who arrives last: the work before the barrier is not spread evenly",
            )
    waits = find_statements(code, "mbarrier.try_wait.", "mbarrier.test_wait.")
    kept = say_unchanged(len(waits), "waits for copies")
    return make_statements_switchable(
        code, found, f"{format_count(len(found), 'barrier')} gone", kept
    )


ABLATION = Ablation(
    id="no-barriers",
    title="barriers",
    reachable=False,
    rules=("barrier-wait",),
    probes=("barrier", "mio-phases", "lg-phases"),
    keeps="BAR",
    make=skip_barriers,
)
