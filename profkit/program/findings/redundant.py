"""Work that is thrown away or done again, told by sizes alone."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from math import prod

from profkit.program.findings.case import (
    EMPTY,
    REACH,
    SHORT,
    Case,
    StepFinding,
    is_of_backward,
    is_optimizers,
    is_strided,
)
from profkit.program.findings.words import Advice, Words
from profkit.program.operators import ANY, Needs, find_needs, find_use
from profkit.program.replay.scenario import Change, Range, make_share
from profkit.program.steps.cut import StepWork
from profkit.program.steps.kinds import find_precision
from profkit.program.timeline import HostSpan

CUTS = frozenset({"aten::slice", "aten::select", "aten::narrow", "aten::index_select"})
ALONG = frozenset({"elementwise", "convert"})  # kinds of works that carry a result on to its cut
NEXT = 8  # works after a cut of which the largest tensor tells how much of the result is used
USED = 0.125  # of a result: a projection that is cut into queries, keys and values uses more
LARGE = 1 << 20  # bytes of a copy within the GPU: smaller ones are inputs of a step
LEAST = 0.02  # of the step
SEVERAL = 8  # equal turns of a loop: queries, keys and values are three
LONGEST_BODY = 12  # kernels of a turn
PASSES = 4  # over growing rows, from which on they are a loop that generates
BY_ROWS = frozenset({"norm", "elementwise", "softmax", "convert", "layout", "reduce"})

SLICED = Words(
    rule="redundant",
    says=(
        "only {part:,} of {whole:,} computed values are used ({kernels}, {ms:time} per step): "
        "the rest is sliced off immediately"
    ),
    advice=Advice(
        torch="slice first, then compute only the rest (logits of the last position, for example)",
        others="select first, then compute only the rest",
    ),
)
COPIED_AGAIN = Words(
    rule="redundant",
    says=(
        "{total:figures} MB are copied unchanged within the GPU in every step ({kernels}, {ms:time})"
    ),
    advice=Advice(
        torch=(
            "keep tensors where they are read: update weights in place, and let a graph read the "
            "buffers that are filled anyway"
        ),
        others="read the data in place, or write it to its destination in the first place",
    ),
)


def find_sliced_products(case: Case, claimed: frozenset[int]) -> Iterator[StepFinding]:
    """Products whose result is sliced to a small part before anything reads it whole."""
    cuts = []
    for span in case.spans:
        if span.kind == "op" and span.name in CUTS:
            cuts.append(span)
    used: dict[int, float] = {}  # by work: the share of what it computes that is used
    largest = 0
    for index, work in enumerate(case.works):
        if index in claimed or work.kind != "gemm":
            continue
        needs = find_needs(work.maker.op, work.maker.shapes, work.maker.types)
        if needs is None or needs.result < 2:
            continue
        along = _follow_result(case, index, needs.result)
        share = _find_used_share(case, cuts, along[-1], needs.result)
        if share is None or share > USED:
            continue
        largest = max(largest, needs.result)
        used |= dict.fromkeys(along, share)
    chosen = sorted(used.keys() - claimed)
    if not chosen or case.sum_time(chosen) * 1e6 < LEAST * case.split.period:
        return
    change = Change(scale={index: _estimate_left(used[index]) for index in chosen})
    worst = case.find_longest(chosen)
    needs = find_needs(worst.maker.op, worst.maker.shapes, worst.maker.types)
    if needs:
        whole = needs.result
    else:
        whole = largest
    share = max(used[index] for index in chosen if case.works[index] is worst)
    yield case.finding(
        SLICED,
        chosen,
        change,
        whole=whole,
        part=round(share * whole),
        kernels="one kernel" if len(chosen) == 1 else f"{len(chosen):,} kernels",
    )


def _estimate_left(share: float) -> Range:
    """What is left of a kernel that computes only what is used: small ones are no faster than that."""
    return Range(min(1.0, 4 * share), share, share)


def _follow_result(case: Case, product: int, values: int) -> list[int]:
    """Return a product with the elementwise kernels right after it that take its result on."""
    along = [product]
    for index in range(product + 1, len(case.works)):
        work = case.works[index]
        if work.kind not in ALONG or values not in _count_values(work):
            break
        along.append(index)
    return along


def _count_values(work: StepWork) -> set[int]:
    return {prod(sizes) for sizes in work.maker.shapes if sizes}


def _find_used_share(case: Case, cuts: list[HostSpan], last: int, values: int) -> float | None:
    """Return the share of a cut result that is read; None where it is read whole, or not cut."""
    begin = case.step.calls[case.works[last].call].start
    after = case.works[last + 1 : last + 1 + NEXT]
    end = case.step.end
    if after:
        end = case.step.calls[after[0].call].start
    if not any(begin < cut.start <= end and _is_cut_of(cut, values) for cut in cuts):
        return None
    largest = 0
    for work in after:
        counts = _count_values(work)
        if values in counts:
            return None
        largest = max([largest, *(count for count in counts if count < values)])
    if largest:
        return largest / values
    return None


def _is_cut_of(cut: HostSpan, values: int) -> bool:
    return bool(cut.shapes) and prod(cut.shapes[0]) == values


RECOMPUTED = Words(
    rule="redundant",
    says=(
        "{passes} passes over growing sizes: each has {more:,} {unit} more than the one before "
        "({first:,} to {last:,}), so all the others were computed before ({count:,} kernels, "
        "{ms:time} per step)"
    ),
    advice=Advice(
        torch=(
            "keep what earlier rows gave and compute only the new ones: a cache of keys and values "
            "(use_cache=True)"
        ),
        others="keep what earlier rows gave (a cache of keys and values), and compute only the new ones",
    ),
)


@dataclass(frozen=True)
class _Growth:
    """Launches of one kind whose rows grow by equal amounts: the first of a size is a new pass."""

    unit: str  # rows, or blocks where it is not known how many rows a block has
    sizes: Sequence[int]  # one a pass
    passes: Sequence[Sequence[int]]  # works of each size

    @property
    def more(self) -> int:
        """Rows that each pass has more than the one before it."""
        return self.sizes[1] - self.sizes[0]


def find_recomputed_rows(case: Case, claimed: frozenset[int]) -> Iterator[StepFinding]:
    """A model that runs on all rows again for each new one, as one that generates without a cache."""
    found = list(_find_growths(case))
    if not found:
        return
    shares: dict[int, float] = {}  # by work: the rows of its pass that are new, of all
    for growth in found:
        for size, works in zip(growth.sizes[1:], growth.passes[1:], strict=True):
            shares |= dict.fromkeys(works, growth.more / size)
    first = {index for growth in found for index in growth.passes[0]}
    scale = _scale_passes(case, shares, first, claimed)
    if not scale:
        return
    longest = max(found, key=lambda growth: (growth.unit == "rows", len(growth.passes)))
    chosen = sorted(scale)
    yield case.finding(
        RECOMPUTED,
        chosen,
        Change(scale=scale),
        passes=len(longest.sizes),
        unit=longest.unit,
        more=longest.more,
        first=longest.sizes[0],
        last=longest.sizes[-1],
    )


def _scale_passes(
    case: Case, shares: Mapping[int, float], first: Collection[int], claimed: frozenset[int]
) -> dict[int, Range]:
    """Return what is left of the works of later passes; what does not grow itself is as its neighbour.

    A product's rows are in no name: it has those of the last launch before it that tells.
    """
    known = sorted([*shares, *first])
    farthest = max((later - one for one, later in pairwise(known)), default=0)
    scale: dict[int, Range] = {}
    share, since = 0.0, 0
    for index, work in enumerate(case.works):
        if index in first:
            share = 0.0
        elif index in shares:
            share, since = shares[index], index
        grows = index in shares or work.kind in {"gemm", "attention"}
        long = work.activity.duration > 2 * SHORT
        if share and grows and long and index not in claimed and index - since <= farthest:
            scale[index] = _estimate_left(max(share, SHORT / work.activity.duration))
    return scale


def _find_growths(case: Case) -> Iterator[_Growth]:
    """Yield kinds of launches whose blocks grow by equal and small amounts from pass to pass."""
    launched: dict[object, list[int]] = {}
    for index, work in enumerate(case.works):
        if work.kind in BY_ROWS and work.activity.grid:
            launched.setdefault(_describe_rows(work), []).append(index)
    for works in launched.values():
        passes: list[list[int]] = []
        sizes: list[int] = []
        for index in works:
            size = prod(case.works[index].activity.grid or ())
            if not sizes or size != sizes[-1]:
                sizes.append(size)
                passes.append([])
            passes[-1].append(index)
        begin, end = _find_even_growth(sizes)
        if end - begin >= PASSES:
            unit = "rows" if case.works[works[0]].kind == "norm" else "blocks"
            yield _Growth(unit, sizes[begin:end], passes[begin:end])


def _describe_rows(work: StepWork) -> object:
    """Return what launches of one size in each pass have in common."""
    place = work.maker.place
    activity = work.activity
    if work.kind == "norm":
        return activity.name, activity.block  # a block a row: all of a model are alike
    if place is not None:
        return activity.name, activity.block, place.line, place.module
    return activity.name, activity.block, work.maker.op, work.maker.source


def _find_even_growth(sizes: Sequence[int]) -> tuple[int, int]:
    """Return from where to where sizes grow longest by one amount, an eighth of the first at most."""
    best = (0, 0)
    begin = 0
    for end in range(2, len(sizes) + 1):
        more = sizes[begin + 1] - sizes[begin]
        if end < len(sizes) and sizes[end] - sizes[end - 1] == more:
            continue
        if 0 < more <= USED * sizes[begin] and end - begin > best[1] - best[0]:
            best = (begin, end)
        begin = end - 1
    return best


def find_copies_on_device(case: Case, claimed: frozenset[int]) -> Iterator[StepFinding]:
    """Copies that the program asks for within the GPU, of tensors that stay as they are."""
    scale: dict[int, Range] = {}
    total = 0
    for index, work in enumerate(case.works):
        if index in claimed or is_optimizers(work):
            continue
        size = _count_copied_bytes(work)
        left = REACH["copy again"]
        if not size and _is_nameless_copy(work):
            size = work.activity.bytes
            left = REACH["copy again by name"]
        if size >= LARGE:
            scale[index] = left
            total += size
    chosen = list(scale)
    if not chosen or case.sum_time(chosen) * 1e6 < LEAST * case.split.period:
        return
    # What an operator copies again goes with its launch; at worst half of it stays.
    known = [index for index in chosen if scale[index] is REACH["copy again"]]
    change = Change(scale=scale, merge=dict.fromkeys(known, REACH["launch of a copy"]))
    yield case.finding(
        COPIED_AGAIN, chosen, change, total=total / 1e6, kernels=_count_copies(chosen)
    )


def _count_copies(chosen: list[int]) -> str:
    if len(chosen) == 1:
        return "one copy"
    return f"{len(chosen):,} copies"


def _is_nameless_copy(work: StepWork) -> bool:
    """Whether the driver copies within the GPU, and no operator tells for what."""
    within = work.activity.kind == "copy" and work.activity.direction == "DtoD"
    return within and not work.maker.op


def _count_copied_bytes(work: StepWork) -> int:
    """Return the bytes of a copy_ that the program calls itself, between tensors that are alike."""
    asked = work.maker.op == "aten::copy_" and work.maker.top == "aten::copy_"
    if not asked or work.kind != "convert" or is_strided(work):
        return 0
    sizes, types = work.maker.shapes[:2], work.maker.types[:2]
    if len(sizes) < 2 or sizes[0] != sizes[1] or len(set(types)) > 1:
        return 0
    needs = find_needs(work.maker.op, sizes, types)
    if needs:
        return needs.reads
    return 0


EQUAL_LAUNCHES = Words(
    rule="redundant",
    says=(
        "{count:,} kernels per step are launched one by one in {loops} of equal sizes (the longest: "
        "{longest} x {body}, {sizes}); by its size, no result is an input of the next ({ms:time})"
    ),
    advice=Advice(
        torch=(
            "keep their tensors in one, with a dimension more, and launch once for all (torch.bmm, "
            "torch.vmap)"
        ),
        jax="keep their arrays in one, with a dimension more, and call once for all (jax.vmap)",
        others="keep their arrays in one, and launch once for all (a batched call)",
    ),
    floor="run",
)


def find_batchable_launches(case: Case, claimed: frozenset[int]) -> Iterator[StepFinding]:
    """The same operators of the same sizes again and again, where one launch could do each of them."""
    loops = list_loops(case, claimed)
    if not loops:
        return
    runs = list(chain.from_iterable(loops))
    change = _merge_runs(case, runs)
    if case.hosts.estimate_saving(change).expect < LEAST * case.hosts.plain.expect:
        return
    chosen = sorted([*change.scale, *change.merge])
    longest = max(loops, key=lambda loop: sum(len(run) for run in loop))
    main = max(longest, key=case.sum_time)
    maker = case.works[main[0]].maker
    if len(longest) == 1:
        body = maker.op
    else:
        body = f"{len(longest)} kernels, with {maker.op}"
    yield case.finding(
        EQUAL_LAUNCHES,
        chosen,
        change,
        case.say_place(chosen, otherwise=main[0]),
        loops="one loop" if len(loops) == 1 else f"{len(loops):,} loops",
        longest=len(main),
        body=body,
        sizes=" and ".join(" x ".join(map(str, sizes)) for sizes in maker.shapes if sizes),
    )


def _merge_runs(case: Case, runs: Sequence[Sequence[int]]) -> Change:
    """Each run as one kernel, with the launch of its first."""
    heads: dict[int, Range] = {}
    gone: dict[int, Range] = {}
    for run in runs:
        first = max(1, case.works[run[0]].activity.duration)
        together, least = price_together(case, run)
        heads[run[0]] = Range(least / first, together / first, together / first)
        for index in run[1:]:
            gone[index] = make_share(_share_outside(case, case.works[index]))
    return Change(heads, gone)


def list_loops(case: Case, claimed: frozenset[int]) -> list[list[list[int]]]:
    """Return loops over equal and independent bodies: a list for each kernel of a body, of all turns.

    Each turn has operators of its own, and the host waits for nothing between them.
    """
    launched = [_describe_launch(case, index, claimed) for index in range(len(case.works))]
    used: set[int] = set()
    loops = []
    for length in range(1, LONGEST_BODY + 1):
        for begin, end in _find_repeats(launched, length):
            # A turn may begin with any of its kernels: what is before the loop may be like its end.
            for first in range(begin, min(begin + length, end - length * SEVERAL + 1)):
                turns = (end - first) // length
                whole = range(first, first + length * turns)
                if used.isdisjoint(whole) and _has_own_results(case, whole[:length], whole):
                    loops.append([list(whole[place::length]) for place in range(length)])
                    used.update(whole)
    return loops


def _find_repeats(launched: Sequence[object], length: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where launches of some number repeat at once; None repeats nothing."""
    first = 0
    for index in range(length, len(launched) + 1):
        last = index == len(launched)
        if not last and launched[index] is not None and launched[index] == launched[index - length]:
            continue
        if index - first >= length * SEVERAL:
            yield first, index
        first = index - length + 1


def _describe_launch(case: Case, index: int, claimed: frozenset[int]) -> tuple[object, ...] | None:
    """Return what the launches of one place in a loop have in common; None for what is in no loop.

    What autograd and optimizers launch is not the program's to write in another way.
    """
    work = case.works[index]
    activity, maker = work.activity, work.maker
    launched = activity.kind == "kernel" and not activity.graph and maker.ordinal >= 0
    if index in claimed or not launched or is_of_backward(work) or is_optimizers(work):
        return None
    if index:
        before = case.works[index - 1].call
    else:
        before = work.call
    between = case.step.calls[before + 1 : work.call]
    if any(call.waits or "WaitEvent" in call.name for call in between):
        return None
    within = index > 0 and case.works[index - 1].maker.ordinal == maker.ordinal
    shown = (activity.name, activity.grid, activity.block, activity.stream, within)
    return (*shown, maker.op, maker.top, maker.shapes, maker.types, maker.source)


def _has_own_results(case: Case, body: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether no turn of a loop reads what the turn before has made, by the sizes of all tensors.

    A tensor whose size no operator of the body makes comes from outside. Of another, each that the
    body has made before is read once; a further one may be of the turn before.
    """
    if case.works[whole[0]].maker.ordinal == case.works[whole[len(body)]].maker.ordinal:
        return False  # one operator that launches many kernels
    uses = []
    for index in body:
        work = case.works[index]
        if index > body[0] and case.works[index - 1].maker.ordinal == work.maker.ordinal:
            continue  # another kernel of the same operator
        use = find_use(work.maker.op, work.maker.shapes, work.maker.types)
        if use is None:
            return False
        uses.append(use)
    made = {use.makes for use in uses}
    targets = {use.adds_to for use in uses if use.adds_to}
    unread: Counter[int] = Counter()
    for use in uses:
        for count in use.reads:
            if count in targets:
                return False  # perhaps what the turns add to
            if count in made and not unread[count] and not unread[ANY]:
                return False
            if count in made:
                unread[count if unread[count] else ANY] -= 1
        unread[use.makes] += 1
    return True


def price_together(case: Case, run: Sequence[int]) -> tuple[float, float]:
    """Return nanoseconds of equal kernels as one: as expected, and if only their launches are saved.

    Where one leaves multiprocessors idle, the blocks of several run beside each other. The bytes and
    operations of all stay, and no kernel takes more than they took one by one.
    """
    took = 1e6 * case.sum_time(run)
    apart = max(float(SHORT), took - EMPTY * (len(run) - 1))
    work = case.works[run[0]]
    maker = work.maker
    needs = find_needs(maker.op, maker.shapes, maker.types)
    sms = None
    if case.device:
        sms = case.device.multiprocessors
    if needs is None or not sms or not work.activity.grid:
        return min(took, apart), min(took, apart)
    rounds = max(1.0, len(run) * prod(work.activity.grid) / sms)
    beside = took * min(1.0, rounds / len(run))
    together = max(float(SHORT), beside, len(run) * _price_needs(case, work, needs))
    return min(together, apart, took), min(took, apart)


def _price_needs(case: Case, work: StepWork, needs: Needs) -> float:
    """Return the nanoseconds that the bytes or the operations of a work need at least."""
    moved = (needs.reads + needs.writes) / case.bandwidth * 1e9
    rate = None
    if work.kind == "gemm":
        rate = case.find_product_rate(find_precision(work.activity.name))
    computed = 0.0
    if rate:
        computed = needs.operations / rate * 1e9
    return max(moved, computed)


def _share_outside(case: Case, work: StepWork) -> float:
    """Return the share of the host's time up to a launch that is not within the launch's operator."""
    call = case.step.calls[work.call]
    if work.call:
        before = case.step.calls[work.call - 1].end
    else:
        before = case.step.begin
    whole = call.end - before
    first = bisect_left(case.spans, before, key=lambda span: span.start)
    begin = before  # where it begins earlier, all of that time is its own
    for span in islice(case.spans, first, None):
        if span.start > call.start:
            break
        if span.kind == "op" and span.thread == call.thread and span.end >= call.end:
            begin = span.start
            break
    if whole > 0:
        return min(1.0, (begin - before) / whole)
    return 0.0
