"""A case  ->  findings, the one that saves most first. profkit.program.rules says what each is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from profkit.program.findings import (
    fusion,
    host,
    kernels,
    loops,
    moves,
    optimizers,
    products,
    redundant,
)
from profkit.program.findings.case import Case, StepFinding

StepCheck = Callable[[Case, frozenset[int]], Iterator[StepFinding]]
# In this order works are explained: what a check covers, later ones leave out.
ORDER: Sequence[StepCheck] = (
    host.find_host_waits,
    host.find_allocations,
    host.find_slow_launches,
    host.find_host_work,
    moves.find_copies,
    moves.find_small_copies,
    moves.find_moving_pages,
    moves.find_collectives,
    redundant.find_recomputed_rows,
    optimizers.find_optimizer,
    redundant.find_sliced_products,
    loops.find_batchable_launches,
    fusion.find_attention,
    products.find_fp32_products,
    products.find_float64,
    products.find_odd_sized_products,
    products.find_odd_sized_products_by_name,
    products.find_product_tails,
    redundant.find_copies_on_device,
    kernels.find_contended_atomics,
    fusion.find_autocasts,
    moves.find_growing_caches,
    moves.find_layout_copies,
    moves.find_concatenations,
    fusion.find_elementwise,
    fusion.find_casts,
    fusion.find_small_in_graphs,
    kernels.find_sorts,
    kernels.find_small_grid,
    kernels.find_slow_kernels,
)


def draft_findings(case: Case) -> list[StepFinding]:
    """What each check finds, in their order."""
    out: list[StepFinding] = []
    claimed: frozenset[int] = frozenset()
    for find in ORDER:
        for draft in find(case, claimed):
            out.append(draft)
            claimed = claimed.union(draft.works)
    return out
