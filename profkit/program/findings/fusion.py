"""Tensors that go through memory again and again: attention that is not fused, chains, casts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from profkit.program.findings.case import (
    EMPTY,
    MEMBERS,
    REACH,
    SHORT,
    Advice,
    RuleTexts,
    StepCase,
    StepFinding,
    estimate_ns_as_merged_kernel,
    is_launched_by_autograd,
    list_runs_that_compiler_would_merge,
)
from profkit.program.operators import VALUE_BYTES
from profkit.program.replay.scenario import NOTHING, Range, StepChange, make_exact_range
from profkit.program.steps.cut import StepWork
from profkit.program.steps.idle import describe_launch_place
from profkit.program.steps.kinds import find_product_precision
from profkit.reports.figures import format_count_with_noun

if TYPE_CHECKING:
    from profkit.units import ClaimedWorks, CountOrZero, WorkIndex


BETWEEN = frozenset(
    "elementwise convert set softmax reduce random layout copy gather other concat".split()
)
# What a fused call takes of the products that it replaces, which write and read the scores: on an H200
# 0.34 forward and 0.47 backward where a causal mask leaves half of the work.
FUSED = 0.5
WIDEST_HEAD = 512  # columns that a fused kernel takes
WINDOW = 24  # works between the products on the two sides of a softmax
LEAST_CHAIN = 3
LEAST_PAIR = 2  # where nothing is kept for a way back: the tensor between two need not exist
MANY_SMALL = 16  # small kernels in a row that are a loop over tensors
MANY_KEYS = 256  # at least: classes, experts and clusters are seldom as many
UNKNOWN = (0, 0)  # the size of a softmax whose operator's sizes were not recorded
# On the way back, by names of libraries: what a trace without operators tells of a training.
_ON_THE_WAY_BACK = re.compile(r"ackward|[dw]grad|bn_bw|_bwd|_grad_")
# PyTorch's kernels of a softmax and of its logarithm are the same but for a functor or a flag.
_LOG_SOFTMAX = re.compile(
    r"(?i)log_?softmax|softmax_warp_\w+<[^<>]*, (\(int\))?\d+, (true|\(bool\)1)"
)
_WARP_SOFTMAX = re.compile(
    r"softmax_warp_\w+<[^<>]*?, (?:\(int\))?(\d+), (?:\(bool\))?(?:true|false|[01])"
)
_SOFTMAX_TYPES = re.compile(r"(?i)softmax\w*<(?:\d+, )?([\w:]+)")
# PyTorch's copies into half precision, or from one type into another.
_CAST = re.compile(r"b?float16_copy_kernel|LoadWithCast<1>")
# What autocast puts into half precision, as the outermost operator.
_PRODUCT = re.compile(r"aten::(linear|matmul|mm|bmm|addmm|baddbmm|conv|einsum)")
_HALF = frozenset({"c10::BFloat16", "c10::Half"})


ATTENTION = RuleTexts(
    rule="attention-unfused",
    says=(
        "unfused attention in {places}: scores, mask and softmax go through DRAM ({ms:time} per "
        "step, {around:time} of it outside the matrix products)"
    ),
    advice=Advice(
        torch="use torch.nn.functional.scaled_dot_product_attention",
        jax="use jax.nn.dot_product_attention",
        others="use fused attention (FlashAttention or cuDNN's)",
    ),
    floor="run",
    spreads=True,
)


def find_unfused_attention(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find products with a softmax between them, the scores in DRAM."""
    regions = _find_attention_regions(case, claimed_works)
    if not regions:
        return
    chosen = sorted(chain.from_iterable(regions))
    others = [i for i in chosen if case.works[i].kind != "gemm"]
    # One call takes a part of the products' time; all else of each region goes, with its launches.
    scale: dict[int, Range] = {}
    gone = list(others)
    for region in regions:
        own = [i for i in region if case.works[i].kind == "gemm"]
        longer = case.sum_work_ms(own) / case.sum_work_ms(own[:1])
        scale[own[0]] = make_exact_range(FUSED * longer)
        gone += own[1:]
    change = StepChange(scale, dict.fromkeys(gone, NOTHING))
    first = next(case.works[i] for i in chosen if case.works[i].kind == "softmax")
    where = describe_launch_place(first)
    around = case.sum_work_ms(others)
    yield case.make_finding(
        ATTENTION,
        chosen,
        change,
        where,
        times=len(regions),
        places=format_count_with_noun(len(regions), "place"),
        around=around,
    )


def _find_attention_regions(case: StepCase, claimed_works: ClaimedWorks) -> list[list[WorkIndex]]:
    """Return the works from the products before a softmax to those after it, one list a softmax."""
    out: list[list[int]] = []
    used: set[int] = set(claimed_works)
    repeated = _find_repeated_softmaxes(case)
    scores: set[tuple[int, int]] = set()  # of attention, on its way forward
    for i, work in enumerate(case.works):
        size = _read_score_size(work)
        if i in used or work.kind != "softmax" or _is_log_softmax(work):
            continue
        if size == UNKNOWN and not (
            _get_launch_identity(work) in repeated or _has_too_many_keys_for_choice(work)
        ):
            continue
        if _is_of_backward_by_name(work) and size not in scores:
            continue
        low = _find_farthest_product(case, i, -1, used)
        high = _find_farthest_product(case, i, 1, used)
        if low is not None and high is not None:
            out.append([j for j in range(low, high + 1) if j not in used])
            used.update(out[-1])
            scores.add(size)
    return out


def _get_launch_identity(work: StepWork) -> tuple[object, ...]:
    """Return what launches of one softmax in several layers have in common."""
    return work.activity.name, work.activity.grid, work.activity.block


def _find_repeated_softmaxes(case: StepCase) -> set[tuple[object, ...]]:
    """Return softmaxes that a step has several times: layers have one each, a loss has one."""
    softmaxes = (work for work in case.works if work.kind == "softmax")
    counted = Counter(_get_launch_identity(work) for work in softmaxes)
    return {launched for launched, count in counted.items() if count > 1}


def _has_too_many_keys_for_choice(softmax: StepWork) -> bool:
    """Return whether it is taken over more than what a choice or clusters have, by its kernel's name.

    PyTorch's kernel of a warp names the power of two that holds the keys, up to 1,024 (2,048 of late);
    over more a block goes.
    """
    warp = _WARP_SOFTMAX.search(softmax.activity.name)
    if warp:
        return 1 << (int(warp[1]) - 1) >= MANY_KEYS
    return "cunn_SoftMax" in softmax.activity.name


def _is_log_softmax(softmax: StepWork) -> bool:
    """Return whether it is the softmax of a loss, by its operator or else by its kernel's name."""
    if softmax.maker.op:
        return "log" in softmax.maker.op.lower()
    return _LOG_SOFTMAX.search(softmax.activity.name) is not None


def _is_of_backward_by_name(work: StepWork) -> bool:
    """Return whether autograd launched it; where no operator is known, by its kernel's name."""
    return is_launched_by_autograd(work) or (not work.maker.top and "ackward" in work.activity.name)


def _read_score_size(softmax: StepWork) -> tuple[CountOrZero, CountOrZero]:
    """Return how many scores a softmax reads, and over how many keys each is taken; zeros if unknown."""
    shape = next(iter(softmax.maker.shapes), ())
    if shape:
        return (prod(shape), shape[-1])
    return UNKNOWN


def _find_farthest_product(
    case: StepCase, softmax_index: WorkIndex, direction: int, used: set[WorkIndex]
) -> WorkIndex | None:
    """Return attention's farthest product on one side of a softmax; None if none is near.

    Forward there is one on each side, backward there are up to two.
    """
    last = None
    left = 2 if _is_of_backward_by_name(case.works[softmax_index]) else 1
    j = softmax_index + direction
    while left and 0 <= j < len(case.works) and abs(j - softmax_index) <= WINDOW and j not in used:
        kind = case.works[j].kind
        if kind == "gemm" and _is_product_of_scores(case, j, softmax_index):
            last = j
            left = left - 1
        elif kind not in BETWEEN:
            break
        j += direction
    return last


def _is_product_of_scores(case: StepCase, product_index: WorkIndex, softmax: WorkIndex) -> bool:
    """Return whether a product makes the scores that a softmax reads, or sums values over its keys.

    Its sizes tell: summed over anything else (as clusters' members are), it is not said. Of a single
    head the rest is narrow, and narrower than the keys are many. Without sizes its time tells.
    """
    one = case.works[product_index]
    other = case.works[softmax]
    if _read_score_size(other) == UNKNOWN:
        return not one.maker.shapes and _is_within_one_head(case, one, other)
    factors = _read_product_sizes(one)
    if factors is None or is_launched_by_autograd(one) != is_launched_by_autograd(other):
        return False
    scores, keys = _read_score_size(other)
    makes = factors.count_result_elements() == scores and keys in {factors.rows, factors.columns}
    reads = scores in {
        factors.count_left_operand_elements(),
        factors.count_right_operand_elements(),
    }
    if is_launched_by_autograd(one):
        return makes or reads
    if product_index < softmax:
        fits = makes
        width = factors.inner
    else:
        fits = reads and factors.inner == keys
        width = factors.rows
        if factors.count_left_operand_elements() == scores:
            width = factors.columns
    return fits and width <= WIDEST_HEAD and (factors.batch > 1 or width <= keys)


class _ProductSizes(NamedTuple):
    """Sizes of a product of matrices."""

    batch: int
    rows: int
    inner: int
    columns: int

    def count_result_elements(self) -> int:
        return self.batch * self.rows * self.columns

    def count_left_operand_elements(self) -> int:
        return self.batch * self.rows * self.inner

    def count_right_operand_elements(self) -> int:
        return self.batch * self.inner * self.columns


def _read_product_sizes(product: StepWork) -> _ProductSizes | None:
    """Return the sizes of a product; None where they are not known, or do not fit."""
    shapes = [shape for shape in product.maker.shapes if len(shape) > 1][-2:]
    if len(shapes) != 2:
        return None
    (*batch, rows, inner), (*_, across, columns) = shapes
    if inner != across:
        return None
    return _ProductSizes(prod(batch), rows, inner, columns)


def _is_within_one_head(case: StepCase, product: StepWork, softmax: StepWork) -> bool:
    """Return whether a product is too short to sum over more than a head's columns for each score.

    A softmax of PyTorch's reads and writes its scores at the rate of memory, so its time tells how
    many there are; the product's time, at the rate of its pipe, how many columns it can sum over.
    """
    typed = _SOFTMAX_TYPES.search(softmax.activity.name)
    rate = case.find_reachable_product_rate(find_product_precision(product.activity.name))
    if not typed or not rate:
        return False
    if typed[1].startswith("c10::") or "half" in typed[1]:
        size = 2
    else:
        size = 4
    scores = softmax.activity.duration * 1e-9 * case.bandwidth / (2 * size)
    columns = product.activity.duration * 1e-9 * rate / (2 * max(1.0, scores))
    return columns <= WIDEST_HEAD


ELEMENTWISE = RuleTexts(
    rule="elementwise-chain",
    says=(
        "{count:,} elementwise kernels per step in {runs} {chains} take {ms:time}; they run back to "
        "back, and can be fused wherever one reads what the previous one wrote{longest}"
    ),
    advice=Advice(
        torch="torch.compile the function that launches them, or write one kernel",
        jax="jax.jit the function that launches them, or write one kernel",
        others="write one kernel for each chain",
    ),
    instead={
        "compiled": Advice(
            others=(
                "the code is compiled, but these kernels are not fused: look for graph breaks "
                "(TORCH_LOGS=graph_breaks), for a backend that fuses nothing (aot_eager) and for "
                "operators that Inductor leaves as they are (TORCH_LOGS=output_code), or write one "
                "kernel"
            )
        ),
    },
    floor="run",
    spreads=True,
)


def find_unfused_elementwise(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find runs of kernels that each read and write what the one before has just written."""
    runs = list_elementwise_chains(case, claimed_works)
    if not runs:
        return
    # Each run as one kernel that reads its inputs and writes its result.
    heads: dict[int, Range] = {}
    gone: list[int] = []
    for run in runs:
        first = max(1, case.works[run[0]].activity.duration)
        heads[run[0]] = make_exact_range(estimate_ns_as_merged_kernel(case, run) / first)
        gone += run[1:]
    change = StepChange(heads, dict.fromkeys(gone, NOTHING))
    chosen = sorted([*heads, *gone])
    worst = max(runs, key=case.sum_work_ms)
    ops = [case.works[i].maker.op.removeprefix("aten::") for i in worst]
    named = ", ".join(dict.fromkeys(filter(None, ops)))
    yield case.make_finding(
        ELEMENTWISE,
        chosen,
        change,
        case.describe_origin_of_works(chosen, fallback_work=worst[0]),
        "compiled" if case.is_mostly_compiled(chosen) else "",
        runs=len(runs),
        chains="chains" if len(runs) > 1 else "chain",
        longest=f" (the longest: {named[:80]})" if named else "",
    )


def list_elementwise_chains(case: StepCase, claimed_works: ClaimedWorks) -> list[list[WorkIndex]]:
    """Return runs with at least three elementwise kernels that are bound by their bytes.

    Of shorter ones the launches are what costs: that is the host's. In training what lies between two is
    kept for the way back, and merging them saves little; in inference it need not exist.
    """
    least = LEAST_CHAIN if _may_train(case) else LEAST_PAIR
    chains = []
    for run in list_runs_that_compiler_would_merge(case, claimed_works):
        long = [i for i in run if case.works[i].activity.duration > 2 * SHORT]
        for part in _split_at_equal_copies(case, long):
            if sum(case.works[i].kind in MEMBERS for i in part) >= least:
                chains.append(part)
    return chains


def _may_train(case: StepCase) -> bool:
    """Return whether the step goes backward, or anything in it says that it may."""
    if case.trains:
        return True
    return any(
        work.kind in {"optimizer", "collective"} or _ON_THE_WAY_BACK.search(work.activity.name)
        for work in case.works
    )


def _split_at_equal_copies(case: StepCase, run: Sequence[WorkIndex]) -> Iterator[list[WorkIndex]]:
    """Yield the parts of a run between two equal copies in a row: neither reads what the other wrote."""
    part: list[int] = []
    for index in run:
        if part and _is_same_copy(case.works[part[-1]], case.works[index]):
            yield part
            part = []
        part.append(index)
    yield part


def _is_same_copy(one: StepWork, other: StepWork) -> bool:
    """Return whether two works copy in the same way: from one type into another, say, or as it is."""
    copies = one.kind in {"convert", "copy"}
    return copies and one.activity.name == other.activity.name


IN_GRAPHS = RuleTexts(
    rule="elementwise-chain",
    says=(
        "{count:,} elementwise kernels of {mean:figures} µs each run back to back in CUDA "
        "graphs: {ms:time} per step, because a graph still launches every node"
    ),
    advice=Advice(
        torch=(
            "update them together (torch._foreach_lerp_, torch._foreach_mul_), or torch.compile "
            "the captured code"
        ),
        others="merge them into one kernel, or a few, before capture",
    ),
    instead={
        "compiled": Advice(
            others="update them together (torch._foreach_lerp_, torch._foreach_mul_)"
        ),
    },
)


def find_small_kernels_in_graphs(
    case: StepCase, claimed_works: ClaimedWorks
) -> Iterator[StepFinding]:
    """Find many elementwise kernels in a graph that are so small that their launches are most of them.

    One kernel for all takes what they take beyond a launch each; the delays between them go.
    """
    scale: dict[int, Range] = {}
    gone: list[int] = []
    for run in _list_small_kernel_runs(case, claimed_works):
        beyond = sum(max(0.0, case.works[i].activity.duration - EMPTY) for i in run)
        first = max(1, case.works[run[0]].activity.duration)
        left = (SHORT + beyond) / first
        scale[run[0]] = Range(1.5 * left, left, SHORT / first)
        gone += run[1:]
    chosen = sorted([*scale, *gone])
    if not chosen:
        return
    change = StepChange(scale, dict.fromkeys(gone, NOTHING))
    mean = 1e3 * case.sum_work_ms(chosen) / len(chosen)
    advice = "compiled" if case.is_mostly_compiled(chosen) else ""
    yield case.make_finding(IN_GRAPHS, chosen, change, "", advice, mean=mean)


def _list_small_kernel_runs(case: StepCase, claimed_works: ClaimedWorks) -> list[list[WorkIndex]]:
    """Return runs of many small elementwise kernels of a graph."""
    runs: list[list[int]] = []
    open_run: list[int] = []
    for index, work in enumerate(case.works):
        small = work.activity.duration <= 2 * SHORT and work.kind in MEMBERS
        if small and work.activity.graph and index not in claimed_works:
            open_run.append(index)
            continue
        runs.append(open_run)
        open_run = []
    runs.append(open_run)
    return [run for run in runs if len(run) >= MANY_SMALL]


AUTOCASTS = RuleTexts(
    rule="elementwise-chain",
    says=(
        "{uses} kernels per step cast operands to half precision ({alike} of them have the size "
        "{size}), {back} cast gradients back, and {sums} add those in float32: {ms:time}"
    ),
    advice=Advice(
        others=(
            "cast each tensor once: leave autocast's cache on, or keep weights in half precision"
        )
    ),
    spreads=True,
)


def find_repeated_autocasts(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find operands that autocast puts into half precision at each use, and their gradients back.

    A tensor that is cast at each of its uses has a gradient for each, which is cast back and added
    to the others in float32: so the sums tell how many of the casts are of one tensor.
    """
    uses = case.list_unclaimed_works(
        lambda w: _is_cast(w) and bool(_PRODUCT.search(w.maker.top)), claimed_works
    )
    if len(uses) < 2 * LEAST_CHAIN:
        return
    sizes = Counter(_get_sorted_sizes_of_first_operand(case.works[i]) for i in uses)
    back, sums = _find_gradient_casts(case, sizes, claimed_works)
    if not sums:
        return  # each is cast once: no cache helps
    first = max(0.0, 1 - len(sums) / max(1, len(back)))
    scale = dict.fromkeys(sums, REACH["sums in half precision"])
    scale |= dict.fromkeys([*uses, *back], Range(min(1.0, first + 0.3), first, 0.0))
    size, alike = sizes.most_common(1)[0]
    yield case.make_finding(
        AUTOCASTS,
        sorted(scale),
        StepChange(scale),
        case.describe_origin_of_works(uses),
        uses=len(uses),
        alike=alike,
        size=_format_first_shape((size,)),
        back=len(back),
        sums=len(sums),
    )


def _find_gradient_casts(
    case: StepCase, sizes: Collection[tuple[int, ...]], claimed_works: ClaimedWorks
) -> tuple[list[WorkIndex], list[WorkIndex]]:
    """Return the casts of gradients of some sizes, and their sums in float32."""
    casts = []
    sums = []
    for index in case.list_unclaimed_works(is_launched_by_autograd, claimed_works):
        work = case.works[index]
        if _get_sorted_sizes_of_first_operand(work) not in sizes:
            continue
        if work.kind == "convert":
            casts.append(index)
        is_sum = work.maker.op in {"aten::add", "aten::add_"}
        if is_sum and not _HALF.intersection(work.maker.types):
            sums.append(index)
    return casts, sums


CASTS = RuleTexts(
    rule="elementwise-chain",
    says=("{count:,} kernels per step ({ms:time}) only convert tensors to another type{sizes}"),
    advice=Advice(
        others=(
            "keep tensors in the type in which they are used: leave autocast's cache on, or keep "
            "weights in half precision"
        )
    ),
    spreads=True,
)


def find_repeated_casts(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find kernels that only convert tensors to another type: some of them convert one tensor again."""
    works = case.list_unclaimed_works(_is_cast, claimed_works)
    if len(works) < 2 * LEAST_CHAIN:
        return
    sizes = Counter(case.works[i].maker.shapes for i in works)
    merge = dict.fromkeys(works, REACH["launch of a cast"])
    change = StepChange(dict.fromkeys(works, REACH["casts"]), merge)
    shape, alike = sizes.most_common(1)[0]
    said = "; their sizes are not known"
    if shape and shape[0]:
        said = f"; {alike:,} of them have the size {_format_first_shape(shape)}"
    yield case.make_finding(CASTS, works, change, alike=alike, sizes=said)


def _get_sorted_sizes_of_first_operand(work: StepWork) -> tuple[int, ...]:
    """Return the first operand's sizes in either order: a transposed gradient is of the same tensor."""
    if work.maker.shapes:
        return tuple(sorted(work.maker.shapes[0]))
    return ()


def _is_cast(work: StepWork) -> bool:
    """Return whether it copies from one type into another, by the operator's types or the functor."""
    if work.kind != "convert" or work.activity.duration <= 2 * SHORT:
        return False
    types = [t for t in work.maker.types if t in VALUE_BYTES]
    if len(types) > 1:
        copies = work.maker.op in {"aten::copy_", "aten::_to_copy", "aten::_foreach_copy_"}
        return copies and types[0] != types[1]
    return _CAST.search(work.activity.name) is not None


def _format_first_shape(shapes: tuple[tuple[int, ...], ...]) -> str:
    if shapes and shapes[0]:
        return " x ".join(map(str, shapes[0]))
    return "unknown"
