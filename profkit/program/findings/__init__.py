"""A case  ->  findings, the one that saves most first. profkit.program.rules says what each is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.judge import Rule
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
from profkit.program.findings.case import StepCase, StepFinding

if TYPE_CHECKING:
    from profkit.program.example import Part

PAGES = Path(__file__).parents[1] / "pages"
# Asked of a step; the indices are of what findings before it explain already.
StepCheck = Callable[[StepCase, frozenset[int]], Iterator[StepFinding]]
Example = tuple["Part", ...]


@dataclass(frozen=True, kw_only=True)
class StepRule(Rule[str, Example]):
    """A rule of a step: its examples are steps of a few lines, which are judged."""

    # Each finds one form of it; empty where nothing else being found is it.
    checks: tuple[StepCheck, ...]
    # Of a rule in a file of its own: its checks are asked before this one.
    asked_before: StepCheck = kernels.find_small_grid  # which may take any kernel

    @property
    def page(self) -> Path:
        """Return what was written by hand: why it happens, the code before and after, false alarms."""
        return PAGES / f"{self.id}.md"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fires or not self.clear:
            hint = "give fires=(...,) and clear=(...,)"
            raise ProfkitError(f"rule {self.id}: has no example", hint)


MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
ADDED_RULES: tuple[StepRule, ...] = tuple(
    chain.from_iterable(getattr(module, "RULES", ()) for module in MODULES)
)
# In this order works are explained: what a check covers, later ones leave out.
_OWN_ORDER: tuple[StepCheck, ...] = (
    host.find_host_waits,
    host.find_repeated_allocations,
    host.find_slow_launches,
    host.find_long_host_work,
    moves.find_exposed_copies,
    moves.find_small_copies,
    moves.find_waits_for_pages,
    moves.find_exposed_collectives,
    redundant.find_needless_work,
    redundant.find_layers_run_again,
    redundant.find_recomputed_rows,
    optimizers.find_updates_of_unread_rows,
    optimizers.find_unfused_optimizer,
    redundant.find_sliced_products,
    loops.find_cells_in_loops,
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


def _order_checks() -> list[StepCheck]:
    """Put the checks of each added rule before the one that it names."""
    order = list(_OWN_ORDER)
    for rule in ADDED_RULES:
        place = order.index(rule.asked_before)
        order[place:place] = rule.checks
    return order


ORDER = _order_checks()


def draft_findings(case: StepCase) -> list[StepFinding]:
    """Return what each check finds, in their order."""
    out: list[StepFinding] = []
    claimed: frozenset[int] = frozenset()
    for find in ORDER:
        for draft in find(case, claimed):
            out.append(draft)
            claimed = claimed.union(draft.works)
    return out
