"""Work that is thrown away or done again, told by sizes or by which tensors it reads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from profkit.program.findings.case import (
    REACH,
    SHORT,
    Advice,
    RuleTexts,
    StepCase,
    StepFinding,
    find_calls_waiting_for_works,
    is_launched_by_autograd,
    is_launched_in_optimizer_step,
    is_strided_copy,
)
from profkit.program.operators import find_operator_needs
from profkit.program.replay.scenario import NOTHING, CallShare, Range, StepChange
from profkit.program.steps.cut import StepWork
from profkit.program.timeline import HostSpan

if TYPE_CHECKING:
    from profkit.units import ByteCountOrZero, ClaimedWorks, Share, WorkIndex


CUTS = frozenset(
    {"aten::slice", "aten::select", "aten::narrow", "aten::index_select", "aten::index"}
)
ALONG = frozenset({"elementwise", "convert"})  # kinds of works that carry a result on to its cut
NEXT = 8  # works after a cut of which the largest tensor tells how much of the result is used
USED = 0.125  # of a result: a projection that is cut into queries, keys and values uses more
LARGE = 1 << 20  # bytes of a copy within the GPU: smaller ones are inputs of a step
LEAST = 0.02  # of the step
ALL = 0.9  # of the GPU's time: where so much computes the same, the modules hold the step's data
PASSES = 4  # over growing rows, from which on they are a loop that generates
LAYER_KERNELS = 6  # in a row that a layer has at least
LAYER_ORIGINS = 3  # lines or operators of them: one operator may launch the same both ways
STARTS = 16  # of equal kernels on the way forward: places that are tried
BY_ROWS = frozenset({"norm", "elementwise", "softmax", "convert", "layout", "reduce"})

SLICED = RuleTexts(
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
COPIED_AGAIN = RuleTexts(
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


SAME_EACH_STEP = RuleTexts(
    rule="redundant",
    says=(
        "{count:,} of what runs on the GPU computes the same in every step ({ms:time}; the longest by "
        "{op}), because what it reads does not change"
    ),
    advice=Advice(
        torch=(
            "compute it once, and keep the result: before the loop, when the model is loaded "
            "(remove_parametrizations, weights cast once), or by the library's own cache"
        ),
        others="compute it once before the loop, and keep the result",
    ),
    launches=True,
    floor="run",
    spreads=True,
)
UNREAD_GRADIENTS = RuleTexts(
    rule="redundant",
    says=(
        "{count:,} of what the backward pass runs on the GPU makes gradients that nothing reads "
        "({ms:time}; the longest by {op}): no optimizer has their weights"
    ),
    advice=Advice(
        torch=(
            "requires_grad_(False) for weights that are not trained, or torch.no_grad() around the "
            "model that has them"
        ),
        others="compute no gradients of what is not trained",
    ),
    launches=True,
    floor="run",
    spreads=True,
)
NEEDLESS = {"same": SAME_EACH_STEP, "unread": UNREAD_GRADIENTS}


def find_needless_work(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Work whose operators read nothing that changes from step to step, or make what nothing reads."""
    everything = case.sum_work_ms(range(len(case.works)))
    for reason, words in NEEDLESS.items():
        chosen = []
        for index, work in enumerate(case.works):
            if work.maker.needless == reason and index not in claimed_works:
                chosen.append(index)
        if not chosen or case.sum_work_ms(chosen) > ALL * everything:
            continue
        waits = find_calls_waiting_for_works(case, chosen)
        change = StepChange(
            merge=dict.fromkeys(chosen, NOTHING),
            host=dict.fromkeys(waits, CallShare(NOTHING, NOTHING)),
        )
        if (
            case.hosts.estimate_saving(change).expect
            >= LEAST * case.hosts.step_ms_without_recorder.expect
        ):
            longest = case.find_longest_work(chosen).maker
            yield case.make_finding(words, chosen, change, op=longest.top or longest.op)


def find_sliced_products(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find products whose result is sliced to a small part before anything reads it whole."""
    used = _find_used_shares(case, claimed_works)
    chosen = sorted(used.keys() - claimed_works)
    if not chosen or case.sum_work_ms(chosen) * 1e6 < LEAST * case.split.period:
        return
    longest = max(chosen, key=lambda i: case.works[i].activity.duration)
    whole = used[longest].whole
    yield case.make_finding(
        SLICED,
        chosen,
        StepChange(
            scale={index: _estimate_time_left_of_used_share(used[index].share) for index in chosen}
        ),
        whole=whole,
        part=round(used[longest].share * whole),
        kernels="one kernel" if len(chosen) == 1 else f"{len(chosen):,} kernels",
    )


class _Used(NamedTuple):
    """How much of what a work computes is used."""

    share: float
    whole: int  # values


def _find_used_shares(case: StepCase, claimed_works: ClaimedWorks) -> dict[WorkIndex, _Used]:
    """Return products of which a small part is used, with the kernels that carry their results there."""
    cuts = [span for span in case.spans if span.kind == "op" and span.name in CUTS]
    readers = _index_works_by_tensor_size(case)
    used: dict[int, _Used] = {}
    for index, work in enumerate(case.works):
        if index in claimed_works or work.kind != "gemm":
            continue
        needs = find_operator_needs(work.maker.op, work.maker.shapes, work.maker.types)
        if needs is None or needs.result < 2:
            continue
        along = _list_product_with_elementwise_followers(case, index, needs.result)
        share = _find_used_share(case, cuts, readers, along, needs.result)
        if share is not None and share <= USED:
            # What the backward pass does with the gradient of a sliced result: most of it is zeros.
            backward = readers.backward.get(needs.result, ())
            along += backward[bisect_right(backward, along[-1]) :]
            used |= dict.fromkeys(along, _Used(share, needs.result))
    return used


@dataclass(frozen=True)
class _WorksByTensorSize:
    """The works of a step by how many values the tensors have that they are given."""

    forward: list[int]  # all that are not of the backward pass
    last_forward: dict[int, int]  # values -> the last of them that is given so many
    backward: dict[int, list[int]]  # values -> those of the backward pass


def _index_works_by_tensor_size(case: StepCase) -> _WorksByTensorSize:
    """Look at each work once: what reads a result is asked for each product."""
    found = _WorksByTensorSize([], {}, {})
    for index, work in enumerate(case.works):
        if is_launched_by_autograd(work):
            for values in _list_tensor_value_counts(work):
                found.backward.setdefault(values, []).append(index)
        else:
            found.forward.append(index)
            found.last_forward.update(dict.fromkeys(_list_tensor_value_counts(work), index))
    return found


def _estimate_time_left_of_used_share(share: Share) -> Range:
    """Return what is left of a kernel that computes only what is used; small ones gain nothing."""
    return Range(min(1.0, 4 * share), share, share)


def _list_product_with_elementwise_followers(
    case: StepCase, product: int, value_count: int
) -> list[WorkIndex]:
    """Return a product with the elementwise kernels right after it that take its result on."""
    along = [product]
    for index in range(product + 1, len(case.works)):
        work = case.works[index]
        if work.kind not in ALONG or value_count not in _list_tensor_value_counts(work):
            break
        along.append(index)
    return along


def _list_tensor_value_counts(work: StepWork) -> set[int]:
    return {prod(sizes) for sizes in work.maker.shapes if sizes}


def _find_used_share(
    case: StepCase,
    slicing_spans: list[HostSpan],
    readers: _WorksByTensorSize,
    carrying_works: Sequence[WorkIndex],
    result_value_count: int,
) -> Share | None:
    """Return the share of a cut result that is read; None where it is read whole, or not cut."""
    last = carrying_works[-1]
    begin = case.step.calls[case.works[last].call].start
    # What the backward pass has of that size is its gradient.
    first = bisect_right(readers.forward, last)
    after = [case.works[index] for index in readers.forward[first : first + NEXT]]
    end = case.step.end
    if after:
        end = case.step.calls[after[0].call].start
    cut_by_operator = any(
        begin < cut.start <= end and _is_slice_of(cut, result_value_count) for cut in slicing_spans
    )
    if not cut_by_operator:
        if not after or readers.last_forward.get(result_value_count, -1) > last:
            return None
        if not _is_read_by_rows(case.works[carrying_works[0]], after[0], result_value_count):
            return None
    return _find_largest_part_read(after, result_value_count)


def _find_largest_part_read(readers: Sequence[StepWork], result_value_count: int) -> Share | None:
    """Return the share that the largest smaller tensor has of a result; None where one is as large."""
    largest = 0
    for work in readers:
        counts = _list_tensor_value_counts(work)
        if result_value_count in counts and work.maker.top not in CUTS:
            return None
        largest = max([largest, *(count for count in counts if count < result_value_count)])
    if largest:
        return largest / result_value_count
    return None


def _is_read_by_rows(product: StepWork, reader: StepWork, result_value_count: int) -> bool:
    """Return whether what runs next reads some rows of a product.

    Recordings may lack operators that launch nothing, as slices: rows are as long as the product's.
    """
    factors = [sizes for sizes in product.maker.shapes if len(sizes) > 1]
    if not factors:
        return False
    columns = factors[-1][-1]
    rows = [sizes for sizes in reader.maker.shapes if len(sizes) > 1 and sizes[-1] == columns]
    return (
        columns > 0
        and result_value_count % columns == 0
        and any(prod(sizes) < result_value_count for sizes in rows)
    )


def _is_slice_of(slicing_span: HostSpan, result_value_count: int) -> bool:
    return bool(slicing_span.shapes) and prod(slicing_span.shapes[0]) == result_value_count


RECOMPUTED = RuleTexts(
    rule="redundant",
    says=(
        "{passes} passes over growing sizes: each has {more:,} {unit} more than the one before "
        "({first:,} to {last:,}), so all the others were computed before ({count:,} kernels, "
        "{ms:time} per step)"
    ),
    advice=Advice(
        torch=(
            "keep the results of earlier rows and compute only the new ones: a cache of keys and values "
            "(use_cache=True)"
        ),
        others=(
            "keep the results of earlier rows (a cache of keys and values), and compute only the new "
            "ones"
        ),
    ),
)


@dataclass(frozen=True)
class _Growth:
    """Launches of one kind whose rows grow by equal amounts: the first of a size is a new pass."""

    unit: str  # rows, or blocks where it is not known how many rows a block has
    sizes: Sequence[int]  # one a pass
    passes: Sequence[Sequence[int]]  # works of each size

    @property
    def rows_per_pass(self) -> int:
        """Return rows that each pass has more than the one before it."""
        return self.sizes[1] - self.sizes[0]


def find_recomputed_rows(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find a model that runs on all rows again for each new one, as if it generated without a cache."""
    found = list(_iterate_growing_launches(case))
    if not found:
        return
    shares: dict[int, float] = {}  # by work: the rows of its pass that are new, of all
    for growth in found:
        for size, works in zip(growth.sizes[1:], growth.passes[1:], strict=True):
            shares |= dict.fromkeys(works, growth.rows_per_pass / size)
    first = {index for growth in found for index in growth.passes[0]}
    scale = _estimate_time_left_of_later_passes(case, shares, first, claimed_works)
    if not scale:
        return
    longest = max(found, key=lambda growth: (growth.unit == "rows", len(growth.passes)))
    chosen = sorted(scale)
    yield case.make_finding(
        RECOMPUTED,
        chosen,
        StepChange(scale=scale),
        passes=len(longest.sizes),
        unit=longest.unit,
        more=longest.rows_per_pass,
        first=longest.sizes[0],
        last=longest.sizes[-1],
    )


def _estimate_time_left_of_later_passes(
    case: StepCase,
    shares: Mapping[WorkIndex, Share],
    first: Collection[WorkIndex],
    claimed_works: ClaimedWorks,
) -> dict[WorkIndex, Range]:
    """Return what is left of the works of later passes; what does not grow itself is as its neighbour.

    A product's rows are in no name: it has those of the last launch before it that tells.
    """
    known = sorted([*shares, *first])
    farthest = max((later - one for one, later in pairwise(known)), default=0)
    scale: dict[int, Range] = {}
    share = 0.0
    since = 0
    for index, work in enumerate(case.works):
        if index in first:
            share = 0.0
        elif index in shares:
            share = shares[index]
            since = index
        grows = index in shares or work.kind in {"gemm", "attention"}
        long = work.activity.duration > 2 * SHORT
        if share and grows and long and index not in claimed_works and index - since <= farthest:
            scale[index] = _estimate_time_left_of_used_share(
                max(share, SHORT / work.activity.duration)
            )
    return scale


def _iterate_growing_launches(case: StepCase) -> Iterator[_Growth]:
    """Yield kinds of launches whose blocks grow by equal and small amounts from pass to pass."""
    launched: dict[object, list[int]] = {}
    for index, work in enumerate(case.works):
        if work.kind in BY_ROWS and work.activity.grid:
            launched.setdefault(_make_growth_key(work), []).append(index)
    for works in launched.values():
        passes: list[list[int]] = []
        sizes: list[int] = []
        for index in works:
            size = prod(case.works[index].activity.grid or ())
            if not sizes or size != sizes[-1]:
                sizes.append(size)
                passes.append([])
            passes[-1].append(index)
        begin, end = _find_longest_even_growth(sizes)
        if end - begin >= PASSES:
            unit = "rows" if case.works[works[0]].kind == "norm" else "blocks"
            yield _Growth(unit, sizes[begin:end], passes[begin:end])


def _make_growth_key(work: StepWork) -> object:
    """Return what launches of one size in each pass have in common."""
    place = work.maker.place
    activity = work.activity
    if work.kind == "norm":
        return activity.name, activity.block  # a block a row: all of a model are alike
    if place is not None:
        return activity.name, activity.block, place.line, place.module
    return activity.name, activity.block, work.maker.op, work.maker.source


def _find_longest_even_growth(sizes: Sequence[int]) -> tuple[int, int]:
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


def find_copies_on_device(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find copies that the program asks for within the GPU, of tensors that stay as they are."""
    scale: dict[int, Range] = {}
    total = 0
    for index, work in enumerate(case.works):
        if index in claimed_works or is_launched_in_optimizer_step(work):
            continue
        size = _count_copied_bytes(work)
        left = REACH["copy again"]
        if not size and _is_copy_without_operator(work):
            size = work.activity.bytes
            left = REACH["copy again by name"]
        if size >= LARGE:
            scale[index] = left
            total += size
    chosen = list(scale)
    if not chosen or case.sum_work_ms(chosen) * 1e6 < LEAST * case.split.period:
        return
    # What an operator copies again goes with its launch; at worst half of it stays.
    known = [index for index in chosen if scale[index] is REACH["copy again"]]
    change = StepChange(scale=scale, merge=dict.fromkeys(known, REACH["launch of a copy"]))
    yield case.make_finding(
        COPIED_AGAIN, chosen, change, total=total / 1e6, kernels=_format_copy_count(chosen)
    )


def _format_copy_count(chosen: list[WorkIndex]) -> str:
    if len(chosen) == 1:
        return "one copy"
    return f"{len(chosen):,} copies"


def _is_copy_without_operator(work: StepWork) -> bool:
    """Return whether the driver copies within the GPU, and no operator tells for what."""
    within = work.activity.kind == "copy" and work.activity.direction == "DtoD"
    return within and not work.maker.op


def _count_copied_bytes(work: StepWork) -> ByteCountOrZero:
    """Return the bytes of a copy_ that the program calls itself, between tensors that are alike."""
    asked = work.maker.op == "aten::copy_" and work.maker.top == "aten::copy_"
    if not asked or work.kind != "convert" or is_strided_copy(work):
        return 0
    sizes = work.maker.shapes[:2]
    types = work.maker.types[:2]
    if len(sizes) < 2 or sizes[0] != sizes[1] or len(set(types)) > 1:
        return 0
    needs = find_operator_needs(work.maker.op, sizes, types)
    if needs:
        return needs.reads
    return 0


RUN_AGAIN = RuleTexts(
    rule="redundant",
    says=(
        "{count:,} of {whole:,} kernels of the backward pass run layers forward again, as gradient "
        "checkpointing does ({ms:time} per step)"
    ),
    advice=Advice(
        torch=(
            "if the GPU has memory left (torch.cuda.max_memory_allocated), switch gradient "
            "checkpointing off, or checkpoint fewer layers"
        ),
        jax="if the GPU has memory left, drop jax.checkpoint, or let its policy save more",
        others="if the GPU has memory left, keep the results of more layers",
    ),
    launches=True,
    floor="run",
    spreads=True,
)


def find_layers_run_again(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find kernels of the backward pass in the order in which the way forward had launched them.

    A backward pass goes through lines and modules from the last to the first. Only what runs layers
    again meets several of them in the order of the way forward, with the same kernels.
    """
    forward = []
    backward = []
    for index, work in enumerate(case.works):
        if work.activity.kind != "kernel" or is_launched_in_optimizer_step(work):
            continue
        if is_launched_by_autograd(work):
            backward.append(index)
        else:
            forward.append(index)
    again = [index for run in _list_equal_runs(case, forward, backward) for index in run]
    chosen = [index for index in again if index not in claimed_works]
    if case.sum_work_ms(chosen) * 1e6 < LEAST * case.split.period:
        return
    change = StepChange(merge=dict.fromkeys(chosen, NOTHING))
    finding = case.make_finding(RUN_AGAIN, chosen, change, whole=len(backward))
    yield replace(finding, optional=True)  # memory may be short


def _list_equal_runs(
    case: StepCase, forward: Sequence[WorkIndex], backward: Sequence[WorkIndex]
) -> Iterator[list[WorkIndex]]:
    """Yield the longest parts of the backward pass that are like a part of the way forward."""
    before = [_make_kernel_key(case.works[index]) for index in forward]
    after = [_make_kernel_key(case.works[index]) for index in backward]
    starts: dict[Hashable, list[int]] = {}
    for place, key in enumerate(before):
        starts.setdefault(key, []).append(place)
    place = 0
    while place < len(after):
        length = _measure_longest_run(before, after, place, starts)
        run = list(backward[place : place + length])
        origins = {_make_origin(case.works[index]) for index in run}
        if length >= LAYER_KERNELS and len(origins) >= LAYER_ORIGINS:
            yield run
            place += length
        else:
            place += 1


def _measure_longest_run(
    before: Sequence[Hashable],
    after: Sequence[Hashable],
    place: int,
    starts: Mapping[Hashable, Sequence[int]],
) -> int:
    """Return how many kernels from a place on are equal to some of the way forward."""
    longest = 0
    for start in starts.get(after[place], ())[:STARTS]:
        most = min(len(before) - start, len(after) - place)
        length = 0
        while length < most and before[start + length] == after[place + length]:
            length += 1
        longest = max(longest, length)
    return longest


def _make_kernel_key(work: StepWork) -> Hashable:
    """Return what a kernel has in common with the same one that runs again.

    Its module is no part of that: where a layer runs again, the module of its last kernels is not known.
    """
    return work.activity.name, work.activity.grid, _make_origin(work)


def _make_origin(work: StepWork) -> Hashable:
    """Return the operator that launched a kernel, and its line, as far as they are known."""
    place = work.maker.place
    return work.maker.op, place.line if place is not None else ""
