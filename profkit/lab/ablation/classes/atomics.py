"""Atomics that are issued and change nothing."""

from __future__ import annotations

from profkit.lab.ablation.change import (
    GLOBAL,
    Ablation,
    Change,
    Code,
    choose_free,
    count_words,
    say_how_many_stay,
)
from profkit.lab.ablation.removal import make_switchable


def skip_atomics(code: Code) -> Change:
    atomics = code.list_executed((*GLOBAL, "shared"), ("atomic",))
    free = choose_free(atomics, code.is_free, "atomics", "it has no atomics")
    kept = say_how_many_stay(len(atomics) - len(free), "that decide something")
    statements = [access.statement for access in free]
    return make_switchable(code, statements, f"{count_words(len(free), 'atomic')} gone", kept)


ABLATION = Ablation(
    id="no-atomics",
    title="atomics",
    reachable=False,
    rules=("atomics-contention",),
    probes=("atomic-same", "atomic-bins", "atomic-shared", "histogram"),
    keeps="REDG ATOMG ATOMS",
    make=skip_atomics,
)
