"""Optimisers that go through their parameters or operations one by one, or through unread rows."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from math import prod
from typing import TYPE_CHECKING

from profkit.program.findings.case import (
    MEMBERS,
    REACH,
    SHORT,
    Advice,
    RuleTexts,
    StepCase,
    StepFinding,
    is_launched_by_autograd,
    is_launched_in_optimizer_step,
)
from profkit.program.operators import PRODUCTS
from profkit.program.replay.scenario import Range, StepChange

if TYPE_CHECKING:
    from profkit.units import ClaimedWorks, CountOrZero, Share, WorkIndex


MANY = 16  # kernels one by one that are a loop over parameters
TABLE_BACKWARD = "aten::embedding_dense_backward"
CLEARING = ("aten::fill_", "aten::zero_")
FEW_ROWS = 0.125  # of a table's rows: sorting and gathering more of them costs about what it saves
LEAST = 0.02  # of the step
ROWS_TWICE = 2.0  # a sparse gradient is sorted and summed first: its rows are moved about twice
FEW_UPDATES = 4  # a root or two may be anywhere
KINDS = {*MEMBERS, "optimizer"}
LAYERS = frozenset({"gemm", "conv", "attention", "softmax", "norm"})
_ADAM = re.compile(r"(?i)addcdiv|addcmul|sqrt|lerp|adam")
FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})  # of torch.optim's, those with fused=True
_NAMED = re.compile(r"ptimizer\.step#(\w+)\.step")
_FUSED = re.compile(r"(?i)fused")
# What only an optimiser's kernels do: Adam's last operation over all tensors or over one, by any
# name, and the root of the second moments.
_OF_ALL = re.compile(r"FusedAdam|multi_tensor_apply.*PointwiseOp.*divides")
_OF_ONE = re.compile(r"addcdiv")
_ROOT = re.compile(r"(?<!r)sqrt_kernel")


OPTIMIZER = RuleTexts(
    rule="optimizer",
    says=(
        "the optimizer handles its {kind} one at a time: {count:,} kernels, {ms:time} on the "
        "GPU, one launch each"
    ),
    advice=Advice(
        torch="pass fused=True (torch.optim.Adam, AdamW, SGD)",
        others="update all parameters with one kernel, or a few",
    ),
    instead={
        "unfused": Advice(
            torch=(
                "torch.compile {named}'s step, or use an optimizer that has fused=True "
                "(torch.optim.AdamW)"
            ),
            others="update all parameters with one kernel, or a few",
        ),
        "by hand": Advice(
            torch=(
                "replace the update written by hand by an optimizer of torch.optim with fused=True "
                "(AdamW, SGD), or update all parameters together with torch._foreach_*"
            ),
            others="update all parameters with one kernel, or a few",
        ),
        "unnamed": Advice(
            torch=(
                "pass fused=True if it is one of torch.optim (Adam, AdamW, SGD); if the update is "
                "written by hand, replace it by one of these, or by torch._foreach_*"
            ),
            others="update all parameters with one kernel, or a few",
        ),
    },
)


def find_unfused_optimizer(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find an optimiser that takes its parameters one by one, or its operations one by one."""
    of_torch = case.list_unclaimed_works(is_launched_in_optimizer_step, claimed_works)
    own = of_torch or _find_optimizer_works_by_name(case, claimed_works)
    single = [i for i in own if case.works[i].kind in MEMBERS]
    foreach = [i for i in own if case.works[i].kind == "optimizer"]
    if _has_kernel_matching(case, foreach, _FUSED):
        return  # what else it does, counting its steps over all tensors, is none of its operations
    works = sorted([*single, *foreach])
    is_adam = _has_kernel_matching(case, works, _ADAM)
    if len(single) < MANY and not (is_adam and len(foreach) >= FEW_UPDATES):
        return
    maker = case.works[works[0]].maker
    named = _NAMED.search(maker.range)
    name = named[1] if named else ""
    advice = ""
    if name and name not in FUSED:
        advice = "unfused"
    elif not of_torch:
        advice = "by hand" if _are_callers_recorded(case) else "unnamed"
    yield case.make_finding(
        OPTIMIZER,
        works,
        _make_change_merging_updates(case, works, REACH["adam" if is_adam else "optimizer"]),
        maker.range or case.describe_origin_of_works(works),
        advice,
        kind="parameters" if len(single) >= len(foreach) else "operations",
        named=name,
    )


def _has_kernel_matching(
    case: StepCase, work_indices: Sequence[WorkIndex], pattern: re.Pattern[str]
) -> bool:
    """Return whether the kernel of any of some works has such a name."""
    return any(pattern.search(case.works[i].activity.name) for i in work_indices)


def _make_change_merging_updates(
    case: StepCase, work_indices: Sequence[WorkIndex], share_left: Range
) -> StepChange:
    """Return the change to one kernel for many parameters: what bytes need, and hardly any launches."""
    need = 0.0
    for index in work_indices:
        need += max(0.0, case.works[index].activity.duration - SHORT)
    first = case.works[work_indices[0]].activity.duration or 1.0
    only = Range(*(max(need * share, 2 * SHORT) / first for share in share_left))
    return StepChange(
        {work_indices[0]: only}, dict.fromkeys(work_indices[1:], REACH["launch of a parameter"])
    )


def _are_callers_recorded(case: StepCase) -> bool:
    """Return whether a step of torch.optim's would have been named: by its range, or by its line."""
    return any(work.maker.top or work.maker.place is not None for work in case.works)


def _find_optimizer_works_by_name(case: StepCase, claimed_works: ClaimedWorks) -> list[WorkIndex]:
    """Return where no range says so: what follows the last backward operator, or lies round addcdiv.

    A step that was cut before its backward pass ends with the forward pass: a network's layers follow
    then, not an optimizer.
    """
    back = max((i for i, w in enumerate(case.works) if is_launched_by_autograd(w)), default=-1)
    free = [i for i in range(back + 1, len(case.works)) if i not in claimed_works]
    if back >= 0:
        updating = takewhile(lambda i: case.works[i].kind not in LAYERS, free)
        return [i for i in updating if case.works[i].kind in KINDS]
    if sum(bool(_OF_ALL.search(case.works[i].activity.name)) for i in free) >= FEW_UPDATES:
        return [i for i in free if case.works[i].kind == "optimizer"]
    return _find_run_with_most_updates(case, free)


def _find_run_with_most_updates(case: StepCase, free: Sequence[WorkIndex]) -> list[WorkIndex]:
    """Return the run with most updates, of works that an optimiser may consist of.

    Empty where none has any.
    """
    # LAMB takes a norm of each parameter.
    grouped = groupby(free, lambda i: case.works[i].kind in {*KINDS, "reduce"})
    found: list[int] = []
    most = 0
    for may_be, works in grouped:
        run = list(works)
        updates = _count_parameter_updates(case, run) if may_be else 0
        if updates > most:
            found = run
            most = updates
    return found


def _count_parameter_updates(case: StepCase, run: Sequence[WorkIndex]) -> CountOrZero:
    """Return how many parameters' updates a run of works holds; few are none.

    Roots alone are updates where they are of several sizes, as weights and biases are, and the step
    has products: what a simulation repeats is of one size.
    """
    own = [case.works[i].activity for i in run]
    found = sum(bool(_OF_ONE.search(work.name)) for work in own)
    if found >= FEW_UPDATES:
        return found
    roots = [work.grid for work in own if _ROOT.search(work.name)]
    learns = len(set(roots)) > 1 and any(w.kind in {"gemm", "conv"} for w in case.works)
    if learns and len(roots) >= FEW_UPDATES:
        return len(roots)
    return 0


DENSE_TABLES = RuleTexts(
    rule="redundant",
    says=(
        "gradients of embedding tables are dense: {rows:,} rows are cleared and updated per step, and "
        "at most {used:,} of them were read (optimizer and clearing: {ms:time})"
    ),
    advice=Advice(
        torch=(
            "nn.Embedding(sparse=True) for these tables, with an optimizer that updates only the rows "
            "that were read (torch.optim.SparseAdam, or SGD and Adagrad)"
        ),
        others="update only the rows that were read in the step",
    ),
    floor="run",
    spreads=True,
)


@dataclass(frozen=True)
class _DenseTable:
    """A table, and how many of its rows a step reads at most."""

    rows: int
    values: int
    used: int
    clearing: int  # the work that clears its gradient


def find_updates_of_unread_rows(
    case: StepCase, claimed_works: ClaimedWorks
) -> Iterator[StepFinding]:
    """Find optimizers that go through whole tables of which a step read a few rows."""
    tables = [table for table in _list_dense_tables(case) if table.clearing not in claimed_works]
    updates = case.list_unclaimed_works(is_launched_in_optimizer_step, claimed_works)
    if not tables or not updates:
        return
    of_tables = sum(table.values for table in tables)
    others = of_tables + _count_other_weights(case)
    used = sum(table.used for table in tables)
    rows = sum(table.rows for table in tables)
    still = used * of_tables / rows
    scale = {
        index: _make_share_left((others - of_tables + still) / others, still / others)
        for index in updates
    }
    for table in tables:
        scale[table.clearing] = _make_share_left(0.0, table.used / table.rows)
    chosen = sorted(scale)
    if case.sum_work_ms(chosen) * 1e6 < LEAST * case.split.period:
        return
    yield case.make_finding(
        DENSE_TABLES,
        chosen,
        StepChange(scale),
        case.describe_origin_of_works([table.clearing for table in tables]),
        rows=rows,
        used=used,
    )


def _make_share_left(share_left_at_best: Share, share_of_read_rows: Share) -> Range:
    """Return what is left of a work: what is not of the tables, and the rows that were read."""
    return Range(
        min(1.0, share_left_at_best + ROWS_TWICE * share_of_read_rows),
        min(1.0, share_left_at_best + share_of_read_rows),
        share_left_at_best,
    )


def _list_dense_tables(case: StepCase) -> list[_DenseTable]:
    """List the tables of which the backward pass makes dense gradients, and few rows were read."""
    read: dict[int, int] = {}  # by what launched it: rows of the gradients that come in
    for work in case.works:
        maker = work.maker
        if maker.op == TABLE_BACKWARD and maker.shapes and maker.shapes[0]:
            read[maker.ordinal] = prod(maker.shapes[0][:-1])
    tables = []
    for index, work in enumerate(case.works):
        maker = work.maker
        used = read.get(maker.ordinal, 0)
        sizes = maker.shapes[0] if maker.shapes else ()
        if maker.op not in CLEARING or not used or len(sizes) != 2:
            continue
        rows, width = sizes
        if used <= FEW_ROWS * rows:
            tables.append(_DenseTable(rows, rows * width, used, index))
    return tables


def _count_other_weights(case: StepCase) -> int:
    """Count the values of the weights that products read on the way forward, each line's once."""
    weights: dict[Hashable, int] = {}
    for work in case.works:
        maker = work.maker
        matrices = [sizes for sizes in maker.shapes if len(sizes) > 1]
        if (
            maker.op.removeprefix("aten::") not in PRODUCTS
            or is_launched_by_autograd(work)
            or not matrices
        ):
            continue
        place = maker.place
        name = (place.line, place.module) if place is not None else maker.shapes
        weights[name] = prod(matrices[-1])
    return sum(weights.values())
