"""Tensors that go through memory again and again: chains of elementwise kernels, casts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from profkit.program.findings.case import (
    BYTES,
    MEMBERS,
    PASSED,
    REACH,
    SHORT,
    Case,
    Draft,
    accesses,
    goes_back,
    of_optimizer,
)
from profkit.program.replay.scenario import Change, Reach
from profkit.program.steps.cut import StepWork
from profkit.program.steps.idle import launch_place
from profkit.program.steps.kinds import is_compiled

LEAST_CHAIN = 3
NEW = 0.5  # of second operands: new tensors, the others results of the same run
SLOWER = 1.25  # a fused kernel that computes more a byte than each of its parts
# What autocast puts into half precision, as the outermost operator.
_PRODUCT = re.compile(r"aten::(linear|matmul|mm|bmm|addmm|baddbmm|conv|einsum)")
_HALF = frozenset({"c10::BFloat16", "c10::Half"})


def elementwise(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Runs of kernels that each read and write what the one before has just written."""
    runs = [run for run in _runs(case, taken) if _before(case, run) > 0]
    if not runs:
        return
    chosen = [i for run in runs for i in run]
    heads = {run[0]: _fused(case, run) for run in runs}
    rest = [i for i in chosen if i not in heads]
    # Each run as one kernel that reads its inputs and writes its result.
    change = Change(heads, dict.fromkeys(rest, REACH["launch of a chain"]))
    worst = max(runs, key=lambda run: _before(case, run))

    ops = [case.works[i].maker.op.removeprefix("aten::") for i in worst]
    named = ", ".join(dict.fromkeys(filter(None, ops)))
    yield Draft(
        "elementwise-chain",
        f"{len(chosen)} elementwise kernels a step in {len(runs)} "
        f"{'chains' if len(runs) > 1 else 'chain'} take {case.time(sorted(chosen)):.3g} ms; each "
        f"reads what the last one wrote"
        + (f" (the longest: {named[:80]})" if named else ""),
        case.advice("torch.compile the function they are in, or write one kernel",
                    "write one kernel for each chain",
                    "jax.jit the function they are in, or write one kernel"),
        launch_place(case.works[worst[0]]), tuple(sorted(chosen)), change,
    )  # fmt: skip


def _fused(case: Case, run: Sequence[int]) -> Reach:
    """The time of a run's one kernel, as a share of that of its first."""
    times = [case.works[i].activity.duration for i in run]
    after, whole = _after(case, run), sum(times) / max(1.0, times[0])
    return Reach(*(min(1.0, after * more) * whole for more in (1.8, 1.0, 0.8)))


def autocasts(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Operands that autocast puts into half precision at each use, and their gradients back.

    A tensor that is cast at each of its uses has a gradient for each, which is cast back and added
    to the others in float32: so the sums tell how many of the casts are of one tensor.
    """
    uses = [i for i in case.chosen(_is_cast) if i not in taken
            and _PRODUCT.search(case.works[i].maker.top)]  # fmt: skip
    if len(uses) < 2 * LEAST_CHAIN:
        return
    sizes = Counter(_sizes(case.works[i]) for i in uses)
    of_gradients = [i for i, w in enumerate(case.works)
                    if i not in taken and goes_back(w) and _sizes(w) in sizes]  # fmt: skip
    back = [i for i in of_gradients if case.works[i].kind == "convert"]
    sums = [i for i in of_gradients if case.works[i].maker.op in {"aten::add", "aten::add_"}
            and not _HALF.intersection(case.works[i].maker.types)]  # fmt: skip
    if not sums:
        return  # each is cast once: no cache helps
    first = max(0.0, 1 - len(sums) / max(1, len(back)))
    left = Reach(min(1.0, first + 0.3), first, 0.0)
    cast, summed = frozenset([*uses, *back]), frozenset(sums)
    works = tuple(sorted(cast | summed))
    change = Change(
        dict.fromkeys(summed, REACH["sums in half precision"]) | dict.fromkeys(cast, left)
    )

    size, count = sizes.most_common(1)[0]
    largest = max(uses, key=lambda i: case.works[i].activity.duration)
    yield Draft(
        "elementwise-chain",
        f"{len(uses)} kernels a step put operands into half precision, {count} of them of one size "
        f"({_dims((size,))}), {len(back)} put their gradients back, and {len(sums)} add those in "
        f"float32: {case.time(works):.3g} ms",
        "cast each tensor once: leave autocast's cache on, or keep weights in half precision",
        launch_place(case.works[largest]), works, change,
    )  # fmt: skip


def _sizes(work: StepWork) -> tuple[int, ...]:
    """Of the first operand, in either order: a transposed gradient is of the same tensor."""
    return tuple(sorted(work.maker.shapes[0])) if work.maker.shapes else ()


def casts(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Tensors that are only put into another type, again and again."""
    works = [i for i in case.chosen(_is_cast) if i not in taken]
    if len(works) < 2 * LEAST_CHAIN:
        return
    sizes = Counter(case.works[i].maker.shapes for i in works)
    change = Change(
        dict.fromkeys(works, REACH["casts"]), dict.fromkeys(works, REACH["launch of a cast"])
    )
    shape, count = sizes.most_common(1)[0]
    largest = max(works, key=lambda i: case.works[i].activity.duration)
    yield Draft(
        "elementwise-chain",
        f"{len(works)} kernels a step, {case.time(works):.3g} ms, only put tensors into another "
        f"type, {count} of them of one size ({_dims(shape)})",
        "keep them in the type that they are used in: autocast's cache on, weights in half precision",
        launch_place(case.works[largest]), tuple(works), change,
    )  # fmt: skip


def _is_cast(work: StepWork) -> bool:
    """A copy from one type into another, where the operator's types are known."""
    types = [t for t in work.maker.types if t in BYTES]
    return (
        work.kind == "convert" and work.activity.duration > 2 * SHORT
        and work.maker.op in {"aten::copy_", "aten::_to_copy", "aten::_foreach_copy_"}
        and len(set(types[:2])) == 2
    )  # fmt: skip


def _dims(shapes: tuple[tuple[int, ...], ...]) -> str:
    return " x ".join(map(str, shapes[0])) if shapes and shapes[0] else "unknown"


def _runs(case: Case, taken: frozenset[int]) -> list[list[int]]:
    """Runs of at least three kernels on one stream that could be one kernel."""
    streams: dict[int, list[int]] = {}
    for i, work in enumerate(case.works):
        streams.setdefault(work.activity.stream, []).append(i)
    out = []
    for indices in streams.values():
        run: list[int] = []
        for i in [*indices, -1]:
            if i >= 0 and i not in taken and _member(case.works[i]):
                run.append(i)
                continue
            out += _parts(case, run)
            run = []
    return out


def _member(work: StepWork) -> bool:
    fusible = work.kind in MEMBERS | PASSED and not is_compiled(work.activity.name)
    return fusible and not of_optimizer(work)


def _parts(case: Case, run: Sequence[int]) -> list[list[int]]:
    """A run cut where the size of the tensors changes: those parts are no one kernel.

    But where smaller tensors stand between two parts of one size, as sums do that the second part
    takes again, all are one: the kernel computes them on its way.
    """
    large = [i for i in run if case.works[i].activity.duration > 2 * SHORT]
    parts: list[list[int]] = []
    for i in large:
        if parts and _alike(case.works[parts[-1][-1]], case.works[i]):
            parts[-1].append(i)
        elif len(parts) > 1 and _returns(case, parts[-2][-1], parts[-1], i):
            parts[-2:] = [[*parts[-2], *parts[-1], i]]
        else:
            parts.append([i])
    return [p for p in parts
            if sum(case.works[i].kind in MEMBERS for i in p) >= LEAST_CHAIN]  # fmt: skip


def _returns(case: Case, before: int, between: Sequence[int], i: int) -> bool:
    """Whether a work is of the size of one before, and what stands between them is smaller."""
    first, last = case.works[before], case.works[i]
    if goes_back(last):
        return False  # sums of a backward pass are gradients, which nothing takes again
    size = min(_each(first), _each(last))
    return _alike(first, last) and all(_each(case.works[j]) < size for j in between)


def _each(work: StepWork) -> float:
    """Nanoseconds for each tensor that it reads or writes."""
    return work.activity.duration / accesses(work)


def _alike(a: StepWork, b: StepWork) -> bool:
    """Whether two kernels work on tensors of about one size, as far as their time tells."""
    each = _each(a), _each(b)
    # The backward pass is compiled by itself.
    return max(each) <= 4 * min(each) and goes_back(a) == goes_back(b)


def _before(case: Case, run: Sequence[int]) -> float:
    return case.time(run)


def _after(case: Case, run: Sequence[int], new: float = NEW) -> float:
    """The share of a run's time that one kernel in its place would take.

    `new` is the part of the second operands that are new tensors, the others results of the same run.
    """
    forward = case.trains and not goes_back(case.works[run[0]])  # keeps a tensor for the way back
    parts = [_bytes_of(case.works[i]) for i in run]
    known = [part for part in parts if part]
    if len(known) == len(parts):
        second = sum(reads - largest for reads, largest, _ in known[1:])
        needed = known[0][0] + new * second + known[-1][2] * (2 if forward else 1)
        return min(1.0, SLOWER * needed / case.bandwidth * 1e3 / max(1e-9, _before(case, run)))
    counts = [accesses(case.works[i]) for i in run]
    second = sum(max(0, n - 2) for n in counts)
    return min(1.0, SLOWER * (2 + new * second + forward) / sum(counts))


def _bytes_of(work: StepWork) -> tuple[int, int, int] | None:
    """Bytes: what an operator reads, its largest operand, what it writes; None if not known."""
    maker = work.maker
    sizes = [prod(shape) * BYTES[kind] for shape, kind in zip(maker.shapes, maker.types, strict=False)
             if shape and kind in BYTES]  # fmt: skip
    if not sizes:
        return None
    if maker.op == "aten::copy_" and len(sizes) > 1:
        return sizes[1], sizes[1], sizes[0]
    return sum(sizes), max(sizes), 0 if work.kind == "reduce" else max(sizes)
