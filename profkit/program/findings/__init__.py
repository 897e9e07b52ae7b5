"""A case  ->  findings, the one that saves most first. A rule is one function in RULES."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from profkit.program.findings import fusion, host, kernels, moves, optimizers, products
from profkit.program.findings.case import Case, Draft

Rule = Callable[[Case, frozenset[int]], Iterator[Draft]]
# In this order works are explained: what a rule covers, later ones leave out.
RULES: Sequence[Rule] = (
    host.waits,
    host.allocations,
    host.slow_launches,
    host.own_work,
    moves.copies,
    moves.small_copies,
    moves.collectives,
    optimizers.optimizer,
    fusion.attention,
    products.fp32_products,
    products.in_float64,
    products.misfits,
    products.odd_by_name,
    products.tails,
    moves.layouts,
    kernels.contended_atomics,
    fusion.autocasts,
    fusion.elementwise,
    fusion.casts,
    moves.joins,
    kernels.sorts,
    kernels.small_grid,
    kernels.slow,
)
CATEGORIES = (
    "host-launch", "host-sync", "copy", "collective", "optimizer", "attention-unfused",
    "fp32-matmul", "elementwise-chain", "layout", "atomics", "kernel", "healthy",
)  # fmt: skip


def drafts(case: Case) -> list[Draft]:
    """What each rule finds, in the rules' order."""
    out: list[Draft] = []
    taken: frozenset[int] = frozenset()
    for rule in RULES:
        for draft in rule(case, taken):
            out.append(draft)
            taken = taken.union(draft.works)
    return out
