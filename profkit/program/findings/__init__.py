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
    host.find_repeated_allocations,
    host.find_slow_launches,
    host.find_long_host_work,
    moves.find_exposed_copies,
    moves.find_small_copies,
    moves.find_moving_pages,
    moves.find_exposed_collectives,
    redundant.find_work_same_each_step,
    redundant.find_recomputed_rows,
    optimizers.find_unfused_optimizer,
    redundant.find_sliced_products,
    loops.find_batchable_launches,
    fusion.find_unfused_attention,
    products.find_fp32_products,
    products.find_float64_work,
    products.find_odd_sized_products,
    products.find_odd_sized_products_by_name,
    products.find_products_with_wasted_tiles,
    redundant.find_copies_on_device,
    kernels.find_contended_atomics,
    fusion.find_repeated_autocasts,
    moves.find_growing_caches,
    moves.find_layout_copies,
    moves.find_concatenations,
    fusion.find_unfused_elementwise,
    fusion.find_repeated_casts,
    fusion.find_small_kernels_in_graphs,
    kernels.find_sorts_for_top_values,
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
