"""Atomics on shared memory, each lane's on a word of its own."""

from __future__ import annotations

from profkit.lab.ablation import rows
from profkit.lab.ablation.change import Ablation, Change, Code, choose_free, count_words


def place_in_rows(code: Code) -> Change:
    atomics = code.list_executed(("shared",), ("atomic",))
    nothing = "it has no atomics on shared memory"
    free = choose_free(atomics, code.is_free, "atomics", nothing)
    changed = f"{count_words(len(free), 'atomic')} on a word of each lane"
    return rows.send_accesses_to_rows(code, rows.make_new_rows(free), changed, new_memory=True)


ABLATION = Ablation(
    id="atomics-in-rows",
    title="atomics that meet in shared memory",
    reachable=True,
    rules=("atomics-contention",),
    probes=("histogram", "atomic-shared"),
    keeps="ATOMS",
    make=place_in_rows,
)
