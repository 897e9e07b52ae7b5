"""One kernel at fault: contended atomics, a grid too small, far from what its bytes need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod

from profkit.program.findings.case import Case, Draft, input_bytes, needed_bytes
from profkit.program.savings.replay import Model
from profkit.program.step.groups import KernelGroup
from profkit.program.step.kinds import is_users

SORTS = frozenset({"aten::sort", "aten::argsort"})
SCANS = frozenset(
    {"aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::cummax", "aten::cummin"}
)
CUTS = frozenset({"aten::slice", "aten::narrow"})
NEXT = 8  # cuts after a sort that are looked at
SHARE = 0.05  # of the step, from which on a kernel is worth a sentence
LARGE = 0.2  # of the step, from which on a kernel of the user's that nobody has counted is named
LONG = 20_000  # nanoseconds: shorter kernels are short for other reasons
FAR = 4.0  # times what the bytes need, from which on a kernel is called slow
BOUND_BY_BYTES = {
    "softmax",
    "norm",
    "reduce",
    "elementwise",
    "convert",
    "gather",
    "concat",
    "random",
}


def contended_atomics(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Sums into few places, which wait for one another."""
    for group in case.groups:
        works = [i for i in group.works if i not in taken]
        if group.kind != "scatter" or not works or group.time < 0.02 * case.split.period:
            continue
        need = sum(input_bytes(case.works[i]) for i in works) / case.bandwidth * 1e9
        now = sum(case.works[i].activity.duration for i in works)
        if need and now < 2 * need:
            continue
        floor = min(1.0, 1.5 * need / now) if need else 0.5
        stays = {"low": min(1.0, 3 * floor), "expect": floor, "high": floor / 2.5}
        if not need:
            stays = {"low": 1.0, "expect": 0.5, "high": 0.02}  # an H200 kept a hundredth of one
        say = f"{_short(group)} adds into shared places: {now / 1e6:.3g} ms a step"
        if need:
            say += f", {now / need:.1f} times what its bytes need"
        yield Draft(
            "atomics", say + ("" if need else "; no counter was taken"),
            "sort or group the rows by target and sum each group, or multiply with who belongs "
            "where; private sums in shared memory",
            group.source or group.range or group.op or group.name, tuple(works),
            _scaled(works, stays),
        )  # fmt: skip


def small_grid(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A kernel of fewer blocks than the GPU has multiprocessors."""
    count = case.device.multiprocessors if case.device else None
    if not count:
        return
    for group in case.groups:
        works = [i for i in group.works if i not in taken]
        if not works or group.grid is None or group.kind in {"collective", "attention"}:
            continue
        blocks = group.grid[0] * group.grid[1] * group.grid[2]
        if blocks > 0.6 * count or group.time < SHARE * case.split.period:
            continue
        if group.time / group.calls < LONG:
            continue
        ideal = blocks / count
        stays = {"low": min(1.0, 2.5 * ideal + 0.1), "expect": ideal, "high": ideal * 0.6}
        if group.kind in BOUND_BY_BYTES and (need := _needed(case, works)):
            # Blocks that hold too few loads in flight are too few for more reasons than their number.
            least = need / sum(case.works[i].activity.duration for i in works)
            stays.update(expect=min(ideal, 1.6 * least), high=min(ideal * 0.6, least))
        yield Draft(
            "kernel",
            f"{_short(group)} runs {blocks} blocks on {count} multiprocessors, "
            f"{group.time / 1e6:.3g} ms a step: most of the GPU is idle",
            "split its work into more blocks (rows, tiles, split-k)",
            group.source or group.range or group.op or group.name, tuple(works),
            _scaled(works, stays),
        )  # fmt: skip


def slow(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A kernel far from its roof: counted, by its operator's bytes, or the user's own."""
    for group in case.groups:
        works = [i for i in group.works if i not in taken]
        if not works or group.time < SHARE * case.split.period:
            continue
        if (gain := case.gains.get(group.id)) is not None:
            if gain > 1.15:
                yield _counted(group, works, gain)
        elif group.kind != "attention" and is_users(group.name):
            if group.time > LARGE * case.split.period:
                yield _own(case, group, works)
        elif group.kind in BOUND_BY_BYTES or _is_native(group) or group.op in SCANS:
            yield from _against_bytes(case, group, works)


def sorts(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """A whole order where only its beginning is read on: topk finds that without it."""
    found = [i for i, w in enumerate(case.works)
             if i not in taken and w.maker.op in SORTS and _is_cut(case, i)]  # fmt: skip
    if not found or case.time(found) * 1e6 < 0.02 * case.split.period:
        return
    work = case.works[max(found, key=lambda i: case.works[i].activity.duration)]
    yield Draft(
        "kernel",
        f"{case.time(found):.3g} ms a step sort {' x '.join(map(str, work.maker.shapes[0]))} values, "
        "of which only the first are read on",
        "torch.topk", work.maker.source or work.maker.range or work.maker.op, tuple(found),
        # One H200, 50 of 32,000 in bfloat16: topk took a quarter of the sort.
        _scaled(found, {"low": 0.6, "expect": 0.3, "high": 0.1}),
    )  # fmt: skip


def _is_cut(case: Case, index: int) -> bool:
    """Whether a part of what a sort has made is taken right after it."""
    work = case.works[index]
    after = case.step.calls[work.call].start
    later = (s for s in case.spans if after < s.start < case.step.end and s.kind == "op")
    near = islice((s for s in later if s.name in CUTS | SORTS), NEXT)
    return any(
        s.name in CUTS and s.shapes[:1] == work.maker.shapes[:1] and s.shapes[:1] for s in near
    )


def _counted(group: KernelGroup, works: Sequence[int], gain: float) -> Draft:
    stays = {"low": min(1.0, 2 / (1 + gain)), "expect": 1 / gain, "high": 0.8 / gain}
    return Draft(
        "kernel", f"{_short(group)}, {group.time / 1e6:.3g} ms a step, could be {gain:.2g}x faster",
        "see its diagnosis", group.source or group.op or group.name, tuple(works),
        _scaled(works, stays),
    )  # fmt: skip


def _against_bytes(case: Case, group: KernelGroup, works: Sequence[int]) -> Iterator[Draft]:
    need = _needed(case, works, by_threads=_is_native(group))
    if not need or group.time < FAR * need or group.time / group.calls < LONG:
        return
    ratio = group.time / need
    yield Draft(
        "kernel",
        f"{_short(group)} takes {group.time / 1e6:.3g} ms a step, {ratio:.1f} times what the bytes "
        "of its operator need",
        "count it (profkit profile), or choose another layout or operator for it",
        group.source or group.range or group.op or group.name, tuple(works),
        _scaled(works, {"low": 0.9, "expect": min(1.0, 1.6 / ratio), "high": 1.0 / ratio}),
    )  # fmt: skip


def _is_native(group: KernelGroup) -> bool:
    """A loop of PyTorch's own that is no elementwise one (interpolation, pooling, depthwise)."""
    return group.kind in {"other", "conv"} and "at::native" in group.name


def _needed(case: Case, works: Sequence[int], by_threads: bool = False) -> float:
    """Nanoseconds that the bytes of some works' operators need; 0 if they are not known.

    Args:
        case: Whose works.
        works: Indices.
        by_threads: Whether a result may be larger than all inputs: a value a thread, then.
    """
    total = 0
    for i in works:
        moved = needed_bytes(case.works[i])
        activity = case.works[i].activity
        if moved and by_threads and activity.grid and activity.block:
            moved = max(
                moved, input_bytes(case.works[i]) + prod(activity.grid) * prod(activity.block)
            )
        total += moved
    return total / case.bandwidth * 1e9


def _own(case: Case, group: KernelGroup, works: Sequence[int]) -> Draft:
    return Draft(
        "kernel",
        f"{_short(group)}, no library's, takes {group.time / case.split.period:.0%} of the step; "
        "how far it is from its roof was not counted",
        f"profkit profile --kernel '{_short(group)}' --count 1 -- COMMAND",
        group.source or group.range or group.op or group.name, tuple(works),
        _scaled(works, {"low": 1.0, "expect": 0.5, "high": 0.1}),
    )  # fmt: skip


def _scaled(works: Sequence[int], stays: dict[str, float]):  # type: ignore[no-untyped-def]
    own = frozenset(works)

    def change(model: Model, level: str) -> Model:
        return model.scaled(lambda i: stays[level] if i in own else 1.0)

    return change


def _short(group: KernelGroup) -> str:
    plain = group.name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return plain.split("<", 1)[0].split("(", 1)[0].rsplit("::", 1)[-1][:60] or group.name[:60]
