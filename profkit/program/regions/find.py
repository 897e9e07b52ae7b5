"""A step  ->  its regions: where it is far from its floor, and the change that would bring it there.

Four kinds: a kernel far from its floor (scale), a run of kernels whose inner tensors need not exist
(merge), host time that no GPU work needs (host), transfers that could run at another time, or need not
be (stream).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profkit.program.findings.case import (
    MEMBERS,
    PASSED,
    SHORT,
    SMALL_COPY,
    Case,
    find_awaiting,
    goes_back,
    is_optimizers,
    is_strided,
)
from profkit.program.findings.fusion import LEAST_CHAIN, find_attention
from profkit.program.findings.host import find_allocations, find_waits
from profkit.program.findings.kernels import SORTING, is_cut
from profkit.program.findings.moves import (
    OWN_STREAM,
    find_kept_copies,
    find_small_copies,
    is_asked_for,
)
from profkit.program.findings.optimizers import find_optimizer
from profkit.program.findings.products import is_fp32_attention
from profkit.program.findings.redundant import find_copies_on_device, find_sliced_products
from profkit.program.operators import SELECTIONS
from profkit.program.regions.pricing import PRODUCTS, price_kernel, price_run
from profkit.program.replay.scenario import ALL, Aside, CallShare, Change, Range
from profkit.program.steps.cut import StepWork
from profkit.program.steps.kinds import is_compiled, precision_of
from profkit.records.gpus import find_pinned_rate

PRODUCTS_REACH = 0.6  # of the rate of products that fit
CONTENDED = 2.0  # times what the bytes of an addition need
FAR = 4.0  # times its floor: PyTorch's norms, reductions and broadcasts take up to 4 times their bytes
LONG = 20_000  # nanoseconds: shorter kernels are short for other reasons
GONE = Range(0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Region:
    """A part of a step, and the change that brings it to its floor."""

    kind: str  # kernel, run, host or transfer
    rule: str  # the category under which it is said
    works: tuple[int, ...]
    change: Change


def same(share: float) -> Range:
    """A share without an interval: a floor has none."""
    return Range(share, share, share)


def find_regions(case: Case) -> list[Region]:
    """Return all regions; a kernel is in one of them."""
    regions: list[Region] = []
    claimed: set[int] = set()
    for find in (
        find_transfers,
        find_optimizers,
        find_attentions,
        find_redundant,
        find_runs,
        find_kernels,
    ):
        for region in find(case, frozenset(claimed)):
            regions.append(region)
            claimed.update(region.works)
    return [*regions, *find_host_time(case)]


def find_transfers(case: Case, claimed: frozenset[int]) -> Iterator[Region]:
    """Copies, pinned and on streams of their own; collectives at the same time as what computes."""
    for finding in find_small_copies(case, claimed):
        merge = dict.fromkeys(finding.change.merge, GONE)
        host = dict.fromkeys(finding.change.host, CallShare(gap=GONE, busy=GONE))
        change = Change(merge=merge, host=host)
        yield Region(kind="transfer", rule="copy", works=tuple(finding.works), change=change)
    copies, exchanges = [], []
    for index, work in enumerate(case.works):
        if index in claimed:
            continue
        if work.kind == "copy" and work.activity.bytes > SMALL_COPY:
            copies.append(index)
        elif work.kind == "collective":
            exchanges.append(index)
    if copies:
        rate = find_pinned_rate(case.cc)
        kept = find_kept_copies(case, copies)
        scale, stream = {}, {}
        for index in copies:
            activity = case.works[index].activity
            scale[index] = same(min(1.0, activity.bytes / rate * 1e9 / max(1, activity.duration)))
            if index in kept:
                scale[index] = GONE
            number = OWN_STREAM.get(activity.direction)
            if number:
                stream[index] = Aside(number, GONE)
        waits = dict.fromkeys(find_awaiting(case, copies), CallShare())
        change = Change(scale=scale, host=waits, stream=stream)
        yield Region(kind="transfer", rule="copy", works=tuple(copies), change=change)
    if exchanges:
        aside = Aside(-5, GONE)
        change = Change(stream=dict.fromkeys(exchanges, aside))
        yield Region(kind="transfer", rule="collective", works=tuple(exchanges), change=change)


def merge_into(case: Case, run: Sequence[int], floor: float) -> tuple[dict[int, Range], list[int]]:
    """Return the share that is left of a run's first kernel, and the kernels that go."""
    first = max(1, case.works[run[0]].activity.duration)
    return {run[0]: same(floor / first)}, list(run[1:])


def find_optimizers(case: Case, claimed: frozenset[int]) -> Iterator[Region]:
    """An optimizer's kernels as one, which moves seven tensors of what they move in about nineteen."""
    for finding in find_optimizer(case, claimed):
        run = finding.works
        took = case.sum_time(run) * 1e6
        scale, gone = merge_into(case, run, max(SHORT, 7 / 19 * took))
        change = Change(scale=scale, merge=dict.fromkeys(gone, GONE))
        yield Region(kind="run", rule="optimizer", works=tuple(run), change=change)


def find_attentions(case: Case, claimed: frozenset[int]) -> Iterator[Region]:
    """Attention whose scores need not exist: half of its products' time is left."""
    for finding in find_attention(case, claimed):
        products = [i for i in finding.works if case.works[i].kind == "gemm"]
        others = [i for i in finding.works if case.works[i].kind != "gemm"]
        change = Change(scale=dict.fromkeys(products, same(0.5)), merge=dict.fromkeys(others, GONE))
        works = tuple(finding.works)
        yield Region(kind="run", rule="attention-unfused", works=works, change=change)


def find_redundant(case: Case, claimed: frozenset[int]) -> Iterator[Region]:
    """Work that is thrown away or done again: what is used of it is left."""
    for find in (find_sliced_products, find_copies_on_device):
        for finding in find(case, claimed):
            scale = {index: same(left.expect) for index, left in finding.change.scale.items()}
            change = Change(scale=scale)
            works = tuple(finding.works)
            yield Region(kind="run", rule="redundant", works=works, change=change)


def find_runs(case: Case, claimed: frozenset[int]) -> Iterator[Region]:
    """Runs of kernels that only move values through memory: copies that need not be, and chains."""
    copies: list[int] = []
    members: list[int] = []
    gone: list[int] = []
    heads: dict[int, Range] = {}
    for run in list_runs(case, claimed):
        chain = run
        moving = [i for i in run if is_moving(case, i)]
        if 2 * case.sum_time(moving) > case.sum_time(run):
            copies += [i for i in moving if is_needless(case, i)]
            chain = [i for i in run if i not in moving]
        if not is_chain(case, chain):
            continue
        keeps = case.trains and not goes_back(case.works[chain[0]])
        scale, rest = merge_into(case, chain, price_run(case, chain, keeps))
        members += chain
        heads |= scale
        gone += rest
    if copies:
        change = Change(merge=dict.fromkeys(copies, GONE))
        yield Region(kind="run", rule="layout", works=tuple(sorted(copies)), change=change)
    if members:
        change = Change(scale=heads, merge=dict.fromkeys(gone, GONE))
        works = tuple(sorted(members))
        yield Region(kind="run", rule="elementwise-chain", works=works, change=change)


def is_needless(case: Case, index: int) -> bool:
    """Whether a copy into another order need not be: the program asked for it, or a library did.

    What an operator copies for itself (heads of attention before a product) is read in that order.
    """
    work = case.works[index]
    return work.kind in {"layout", "concat"} or is_asked_for(work) or not work.maker.op


def is_chain(case: Case, run: Sequence[int]) -> bool:
    """Whether a run has at least three elementwise kernels that are bound by their bytes."""
    long = [i for i in run if case.works[i].activity.duration > 2 * SHORT]
    return sum(case.works[i].kind in MEMBERS for i in long) >= LEAST_CHAIN


def is_moving(case: Case, index: int) -> bool:
    """Whether a kernel only puts a tensor into another order, or tensors together."""
    work = case.works[index]
    return work.kind in {"layout", "concat"} or is_strided(work)


def list_runs(case: Case, claimed: frozenset[int]) -> list[list[int]]:
    """Return maximal runs on one stream, forward or backward, of what a compiler would merge."""
    runs: list[list[int]] = []
    open_runs: dict[int, list[int]] = {}
    for index, work in enumerate(case.works):
        stream = work.activity.stream
        run = open_runs.get(stream)
        fits = _can_merge(case, index) and index not in claimed
        if run and (not fits or goes_back(case.works[run[0]]) != goes_back(work)):
            runs.append(run)
            open_runs.pop(stream)
            run = None
        if fits:
            if run is None:
                open_runs[stream] = [index]
            else:
                run.append(index)
    runs.extend(open_runs.values())
    return runs


def _can_merge(case: Case, index: int) -> bool:
    work = case.works[index]
    moves = work.kind in MEMBERS | PASSED or is_moving(case, index)
    return moves and not is_compiled(work.activity.name) and not is_optimizers(work)


def find_kernels(case: Case, claimed: frozenset[int]) -> Iterator[Region]:
    """Kernels far from their floor, by the reason that their data show."""
    scales: dict[str, dict[int, Range]] = {}
    for index, work in enumerate(case.works):
        if index in claimed:
            continue
        if work.kind == "sort" and is_whole_order(case, index):
            continue
        floor = price_kernel(case, index)
        if floor is None:
            continue
        share = floor / max(1, work.activity.duration)
        if share > reachable_share(work):
            continue
        scales.setdefault(name_reason(case, index), {})[index] = same(share)
    for rule, scale in scales.items():
        works = tuple(scale)
        yield Region(kind="kernel", rule=rule, works=works, change=Change(scale=scale))


def is_whole_order(case: Case, index: int) -> bool:
    """Whether a kernel sorts or selects, and all of its result is used as far as is known."""
    operator = case.works[index].maker.op
    if not operator:
        return False  # how much of it is read nobody knows
    if operator in SORTING:
        return not is_cut(case, index)
    return operator.removeprefix("aten::") in SELECTIONS


def reachable_share(work: StepWork) -> float:
    """The share of a kernel's time up to which its floor is worth a word: libraries are no nearer."""
    if work.kind in {*PRODUCTS, "attention"}:
        return PRODUCTS_REACH
    if work.kind == "scatter":
        return 1 / CONTENDED
    return 1 / FAR if work.activity.duration >= LONG else 0.0


def name_reason(case: Case, index: int) -> str:
    """The category of a kernel that is far from its floor."""
    work = case.works[index]
    if work.kind in PRODUCTS and precision_of(work.activity.name) in {"fp32", "fp64"}:
        return "fp32-matmul"
    if work.kind == "attention" and is_fp32_attention(work):
        return "fp32-matmul"
    if work.kind == "scatter":
        return "atomics"
    if is_moving(case, index):
        return "layout"
    return "kernel"


def find_host_time(case: Case) -> Iterator[Region]:
    """Waits, allocations, launches and pauses of the host, each by itself."""
    held: dict[int, CallShare] = {}
    merge: dict[int, Range] = {}
    launches = ALL
    for find in (find_waits, find_allocations):
        for finding in find(case, frozenset()):
            for call, share in finding.change.host.items():
                held[call] = CallShare(gap=share.gap, busy=same(share.busy.high))
            for index, left in finding.change.merge.items():
                merge[index] = same(left.expect)
            if finding.change.launches != ALL:
                launches = same(finding.change.launches.expect)
    if held:
        change = Change(host=held, merge=merge, launches=launches)
        yield Region(kind="host", rule="host-sync", works=(), change=change)
    change = Change(launches=same(0.0), pauses=same(0.0))
    yield Region(kind="host", rule="host-launch", works=(), change=change)
