"""Barriers of a block that nobody waits at."""

from __future__ import annotations

from profkit.ablation.change import Ablation, Change, Code, count_words, refuse_nothing
from profkit.ablation.removal import find_statements, leave_out, steers_through_shared
from profkit.records.ablation import Refusal

ID = "no-barriers"


def make_barriers(code: Code) -> Change | Refusal:
    found = find_statements(
        code, "bar.sync.", "bar.cta.sync.", "barrier.sync.", "barrier.cta.sync."
    )
    if not found:
        return refuse_nothing(ID, "it has no barrier of a block")
    if steers_through_shared(code):
        return Refusal(
            ID,
            "steers",
            "a value in shared memory decides a branch or an address",
            "none that barriers keep in order",
            "look at who arrives last: the work before the barrier is not spread evenly",
        )
    waits = find_statements(code, "mbarrier.try_wait.", "mbarrier.test_wait.")
    kept = f"{len(waits)} waits for copies stay" if waits else ""
    return leave_out(code, found, f"{count_words(len(found), 'barrier')} gone", kept)


ABLATION = Ablation(
    id=ID,
    title="barriers",
    reachable=False,
    rules=("barrier-wait",),
    probes=("barrier", "mio-phases", "lg-phases"),
    make=make_barriers,
)
