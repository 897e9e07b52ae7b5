"""A case  ->  findings, the one that saves most first. A rule is one function in RULES."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from profkit.program.findings import fusion, host, kernels, moves, optimizers, products
from profkit.program.findings.case import Case, ProgramFinding

Rule = Callable[[Case, frozenset[int]], Iterator[ProgramFinding]]
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
CATEGORIES = tuple(
    "host-launch host-sync copy collective optimizer attention-unfused fp32-matmul "
    "elementwise-chain layout atomics kernel healthy unknown".split()
)


def drafts(case: Case) -> list[ProgramFinding]:
    """What each rule finds, in the rules' order."""
    out: list[ProgramFinding] = []
    taken: frozenset[int] = frozenset()
    for rule in RULES:
        for draft in rule(case, taken):
            out.append(draft)
            taken = taken.union(draft.works)
    return out
