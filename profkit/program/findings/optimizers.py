"""Optimisers, and loops over parameters beside them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from profkit.program.findings.case import (
    MEMBERS,
    REACH,
    SHORT,
    Case,
    Draft,
    accesses,
    goes_back,
    of_optimizer,
)
from profkit.program.replay.scenario import Change, Reach
from profkit.program.steps.idle import launch_place

MANY = 16  # kernels one by one that are a loop over parameters
FORWARD = {"gemm", "conv", "attention", "norm", "softmax"}  # no loop over parameters has these
FEW_UPDATES = 4  # a root or two may stand anywhere
_ADAM = re.compile(r"(?i)addcdiv|addcmul|sqrt|lerp|adam")
_FUSED = re.compile(r"(?i)fused")
_IN_PLACE = re.compile(r"aten::(add|sub|mul|div|lerp|copy|addcmul|addcdiv|clamp)_$")
# What only an optimiser's kernels do: Adam's last operation over all tensors or over one, by any
# name, and the root of the second moments.
_OF_ALL = re.compile(r"FusedAdam|multi_tensor_apply.*PointwiseOp.*divides")
_OF_ONE = re.compile(r"addcdiv")
_ROOT = re.compile(r"(?<!r)sqrt_kernel")


def optimizer(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """An optimiser that takes its parameters one by one, or its operations one by one."""
    named = [i for i in case.chosen(of_optimizer) if i not in taken]
    named = named or [i for i in _fused(case) if i not in taken and not case.works[i].maker.op]
    own = [*named, *_beside(case, taken)] if named else _by_name(case, taken)
    single = [i for i in own if case.works[i].kind in MEMBERS]
    # A fused optimiser counts its steps over all tensors at once: that is none of its operations.
    whole = {*named} if {*named}.intersection(_fused(case)) else set[int]()
    foreach = [i for i in own if case.works[i].kind == "optimizer" and i not in whole
               and not _FUSED.search(case.works[i].activity.name)]  # fmt: skip
    adam = any(_ADAM.search(case.works[i].activity.name) for i in (*single, *foreach))
    if len(single) < MANY and not (adam and len(foreach) >= 4):
        return
    works = sorted({*single, *foreach})
    outside = bool(named) and not {*named}.intersection(works)
    once = _in_one_pass(case, works) if outside else 0.7
    ratio = (
        REACH["adam"] if adam and not outside else Reach(1.5 * once, once, 0.6 * once).times(1.0)
    )
    # One kernel for many parameters: the time that bytes need, hardly any launches.
    times = [case.works[i].activity.duration for i in works]
    need = sum(max(0.0, time - SHORT) for time in times)
    only = Reach(*(max(need * share, 2 * SHORT) / (times[0] or 1.0) for share in ratio))
    rest = dict.fromkeys(works[1:], REACH["launch of a parameter"])
    kind = "parameters one by one" if len(single) >= len(foreach) else "operations one by one"
    yield Draft(
        "optimizer",
        ("beside the optimiser a loop goes through the parameters one by one" if outside
         else f"the optimiser goes through its {kind}")
        + f": {len(works):,} kernels, {case.time(works):.3g} ms on the GPU and a launch each",
        "torch._foreach_* over the list of all (an average of weights: torch.optim.swa_utils; norms: "
        "torch.nn.utils.clip_grad_norm_)" if outside
        else "fused=True (torch.optim.Adam, AdamW, SGD)",
        case.works[works[0]].maker.range or launch_place(case.works[works[0]]), tuple(works),
        Change({works[0]: only}, rest),
    )  # fmt: skip


def _fused(case: Case) -> list[int]:
    """Kernels that are a whole optimiser."""
    return case.chosen(lambda w: w.kind == "optimizer" and bool(_FUSED.search(w.activity.name)))


def _beside(case: Case, taken: frozenset[int]) -> list[int]:
    """What a loop over parameters does outside of the optimiser: averages of weights, scaled gradients.

    Behind the backward pass, with operations in place on tensors of several sizes as parameters are;
    where no operator is known, what follows a fused optimiser at once, of several sizes too.
    """
    back = max((i for i, w in enumerate(case.works) if goes_back(w)), default=-1)
    if back < 0:
        return _after_fused(case, taken)
    works = range(
        back + 1, len(case.works)
    )  # a step that was found may end in the next forward pass
    end = next((i for i in works if case.works[i].kind in FORWARD), len(case.works))
    found = [i for i in range(back + 1, end)
             if i not in taken and case.works[i].kind in MEMBERS
             and not of_optimizer(case.works[i])]  # fmt: skip
    within = _in_place(case, found)
    sizes = {case.works[i].maker.shapes[:1] for i in within}
    return found if len(within) >= MANY and len(sizes) > 1 else []


def _after_fused(case: Case, taken: frozenset[int]) -> list[int]:
    found: list[int] = []
    for i in range(max(_fused(case), default=len(case.works)) + 1, len(case.works)):
        if i in taken or case.works[i].kind not in MEMBERS or case.works[i].maker.op:
            break
        found.append(i)
    sizes = {case.works[i].activity.grid for i in found}
    return found if len(found) >= 2 * MANY and len(sizes) > 1 else []


def _in_place(case: Case, works: Sequence[int]) -> list[int]:
    return [i for i in works if _IN_PLACE.match(case.works[i].maker.op)]


def _in_one_pass(case: Case, loop: Sequence[int]) -> float:
    """The part of a loop's time that one kernel over all takes: two tensors read and one written.

    Each operation in place that is the most frequent one is a round over a parameter.
    """
    own = Counter(case.works[i].maker.op for i in _in_place(case, loop))
    if not own:
        return 0.5  # two operations of two and three accesses, or three and more
    tensors = max(own.values())
    return min(1.0, 3 * tensors / max(1, sum(accesses(case.works[i]) for i in loop)))


def _by_name(case: Case, taken: frozenset[int]) -> list[int]:
    """Where no range says so: what follows the last backward operator, or lies round addcdiv."""
    kinds = {*MEMBERS, "optimizer"}
    back = max((i for i, w in enumerate(case.works) if goes_back(w)), default=-1)
    if back >= 0:
        after = range(back + 1, len(case.works))
        return [i for i in after if i not in taken and case.works[i].kind in kinds]
    free = [i for i in range(len(case.works)) if i not in taken]
    if sum(bool(_OF_ALL.search(case.works[i].activity.name)) for i in free) >= 4:
        return [i for i in free if case.works[i].kind == "optimizer"]
    runs: list[list[int]] = [[]]  # of works that an optimiser may consist of
    for i in free:
        if case.works[i].kind in {*kinds, "reduce"}:  # LAMB takes a norm of each
            runs[-1].append(i)
        elif runs[-1]:
            runs.append([])
    return (
        max(runs, key=lambda run: _marks(case, run)) if any(_marks(case, r) for r in runs) else []
    )


def _marks(case: Case, run: Sequence[int]) -> int:
    """How many parameters' updates a run of works holds; few are none.

    Roots alone are updates where they are of several sizes, as weights and biases are, and the step
    has products: what a simulation repeats is of one size.
    """
    own = [case.works[i].activity for i in run]
    found = sum(bool(_OF_ONE.search(work.name)) for work in own)
    if found >= FEW_UPDATES:
        return found
    roots = [work.grid for work in own if _ROOT.search(work.name)]
    learns = len(set(roots)) > 1 and any(w.kind in {"gemm", "conv"} for w in case.works)
    return len(roots) if learns and len(roots) >= FEW_UPDATES else 0
