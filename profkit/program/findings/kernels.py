"""One kernel at fault: contended atomics, a grid too small, far from what its bytes need.

Where nothing but a kernel's name and its time is known, nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod

from profkit.program.findings.case import REACH, Case, Draft
from profkit.program.findings.floors import is_native_loop
from profkit.program.replay.scenario import Change, Reach
from profkit.program.steps.cut import KernelGroup
from profkit.program.steps.kinds import is_librarys

SORTS = frozenset({"aten::sort", "aten::argsort"})
CUTS = frozenset({"aten::slice", "aten::narrow"})
NEXT = 8  # cuts after a sort that are looked at
IDLE = 0.6  # of the multiprocessors: kernels that together have no more blocks leave most idle
SHARE = 0.05  # of the step, from which on a kernel is worth a sentence
LEAST = 0.02  # the same of atomics and sorts
LONG = 20_000  # nanoseconds: shorter kernels are short for other reasons
FAR = 4.0  # times what the bytes need, from which on a kernel is called slow
BOUND_BY_BYTES = {
    "softmax", "norm", "reduce", "elementwise", "convert", "gather", "concat", "random",
}  # fmt: skip


def contended_atomics(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Sums into few places, which wait for one another: far from what their bytes need."""
    for group, works in _groups(case, taken, LEAST):
        need, now = case.floor(works), 1e6 * case.time(works)
        if group.kind != "scatter" or not need or now < 2 * need:
            continue
        floor = min(1.0, 1.5 * need / now)
        yield _draft(
            "atomics", group, works, Reach(3 * floor, floor, floor / 2.5),
            f"{_short(group)} adds into shared places: {now / 1e6:.3g} ms per step, {now / need:.1f} "
            "times what its bytes need",
            "sort or group the rows by target and sum each group, or multiply with who belongs "
            "where; private sums in shared memory",
        )  # fmt: skip


def small_grid(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A kernel of fewer blocks than the GPU has multiprocessors, with what runs beside it."""
    count = case.device.multiprocessors if case.device else None
    for group, works in _groups(case, taken, SHARE) if count else ():
        blocks = prod(group.grid or ())
        known = group.grid is not None and group.kind not in {"collective", "attention"}
        if not count or not known or blocks > IDLE * count or group.time < LONG * group.calls:
            continue
        beside = _blocks_beside(case, works, count)
        ideal = beside / count
        if ideal > IDLE:
            continue
        others = "" if beside < blocks + 1 else f" ({beside:.0f} with those that run with it)"
        yield _draft(
            "kernel", group, works, Reach(2.5 * ideal + 0.1, ideal, ideal * 0.6),
            f"{_short(group)} runs {blocks} blocks{others} on {count} multiprocessors, "
            f"{group.time / 1e6:.3g} ms per step: most of the GPU is idle",
            "split its work into more blocks (rows, tiles, split-k)",
        )  # fmt: skip


def _blocks_beside(case: Case, works: Sequence[int], full: int) -> float:
    """Blocks of all kernels while some works run, in the mean; those of no known grid fill the GPU.

    What the steps before and after do meanwhile counts too: they are alike, a period apart.
    """
    import numpy as np

    kernels = [w.activity for w in case.works if w.activity.kind == "kernel"]
    starts, ends = np.array([(a.start, a.end) for a in kernels]).T
    blocks = np.array([float(prod(a.grid) if a.grid else full) for a in kernels])
    total = 0.0
    for activity in (case.works[i].activity for i in works):
        for turn in (-case.split.period, 0, case.split.period):
            first, last = activity.start - turn, activity.end - turn
            shared = np.minimum(ends, last) - np.maximum(starts, first)
            total += float(blocks @ shared.clip(0))
    return total / (1e6 * case.time(works))


def slow(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A kernel far from its hardware limit: counted, or by its operator's bytes."""
    for group, works in _groups(case, taken, SHARE):
        milliseconds = f"{group.time / 1e6:.3g} ms per step"
        gain, need = case.gains.get(group.id), _needed(case, group, works)
        if gain is not None:
            if gain > 1.15:
                yield _draft(
                    "kernel", group, works, Reach(2 / (1 + gain), 1 / gain, 0.8 / gain),
                    f"{_short(group)}, {milliseconds}, could be {gain:.2g}x faster",
                    "see its diagnosis",
                )  # fmt: skip
        elif need and group.time >= FAR * need and group.time >= LONG * group.calls:
            ratio = group.time / need
            yield _draft(
                "kernel", group, works, Reach(0.9, 1.6 / ratio, 1.0 / ratio),
                f"{_short(group)} takes {milliseconds}, {ratio:.1f} times what the bytes of its "
                "operator need",
                "count it (profkit profile), or choose another layout or operator for it",
            )  # fmt: skip


def _needed(case: Case, group: KernelGroup, works: Sequence[int]) -> float:
    """Nanoseconds that the bytes of a group need which is bound by them; 0 where nobody knows."""
    bound = group.kind in BOUND_BY_BYTES or is_native_loop(group.kind, group.name)
    return case.floor(works) if bound and is_librarys(group.name) else 0.0


def sorts(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A whole order where only its beginning is read on: topk finds that without it."""
    found = [i for i in case.chosen(lambda w: w.maker.op in SORTS, taken) if _is_cut(case, i)]
    if not found or case.time(found) * 1e6 < LEAST * case.split.period:
        return
    maker = case.longest(found).maker
    yield Draft(
        "kernel",
        f"{case.time(found):.3g} ms per step sort {' x '.join(map(str, maker.shapes[0]))} values, "
        "of which only the first are read on",
        "torch.topk", found, Change(dict.fromkeys(found, REACH["sort"])),
    )  # fmt: skip


def _is_cut(case: Case, index: int) -> bool:
    """Whether a part of what a sort has made is taken right after it."""
    work = case.works[index]
    after = case.step.calls[work.call].start
    later = (s for s in case.spans if after < s.start < case.step.end and s.kind == "op")
    near = islice((s for s in later if s.name in CUTS | SORTS), NEXT)
    whole = work.maker.shapes[:1]
    return bool(whole) and any(s.name in CUTS and s.shapes[:1] == whole for s in near)


def _groups(
    case: Case, taken: frozenset[int], share: float
) -> Iterator[tuple[KernelGroup, list[int]]]:
    """Groups that take at least a share of the step, with their works that are not taken."""
    for group in case.groups:
        works = [i for i in group.works if i not in taken]
        if works and group.time >= share * case.split.period:
            yield group, works


def _draft(
    category: str, group: KernelGroup, works: Sequence[int], left: Reach, say: str, advice: str
) -> Draft:
    where = group.source or group.range or group.op or group.name
    change = Change(dict.fromkeys(works, left.times(1.0)))
    return Draft(category, say, advice, works, change, where)


def _short(group: KernelGroup) -> str:
    plain = group.name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return plain.split("<", 1)[0].split("(", 1)[0].rsplit("::", 1)[-1][:60] or group.name[:60]
