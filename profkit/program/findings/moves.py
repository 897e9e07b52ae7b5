"""Data that moves and computes nothing: copies, collectives, changes of layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from profkit.program.findings.case import REACH, Case, Draft, is_strided
from profkit.program.findings.host import SMALL_COPY, awaiting, uploads
from profkit.program.replay.scenario import Aside, CallShare, Change
from profkit.program.steps.cut import StepWork
from profkit.program.steps.idle import launch_place
from profkit.records.gpus import pinned_rate

OWN_STREAM = {"HtoD": -1, "DtoH": -2, "PtoP": -3, "": -4}
WAYS = {"HtoD": "to the GPU", "DtoH": "to the host"}
_SENT = re.compile(r"(?i)send|recv|all_?to_?all")
COPIED = {"aten::contiguous", "aten::clone"}


def copies(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Copies to and from the host, or between GPUs, that nothing computes beside."""
    chosen = case.chosen(lambda w: w.kind == "copy" and w.activity.bytes > SMALL_COPY, taken)
    if not chosen:
        return
    seen = [w.activity.bytes / (w.activity.duration * 1e-9) for w in case.works
            if w.kind == "copy" and not w.activity.pageable and w.activity.bytes > 1 << 20]  # fmt: skip
    # The step's own copies tell; a table's rate is worth half where there are any.
    rate = max([*seen, pinned_rate(case.cc) * (0.5 if seen else 1.0)])

    # Pinned and on streams of their own, a step ahead; at worst only pinned.
    scale, stream = {}, {}
    for i in chosen:
        activity = case.works[i].activity
        fast = activity.bytes / rate * 1e9 / max(1, activity.duration)
        scale[i] = REACH["copy pinned"].times(fast)
        if number := OWN_STREAM.get(activity.direction):
            stream[i] = Aside(number, REACH["copy in its place"])
    change = Change(scale, host=dict.fromkeys(awaiting(case, chosen), CallShare()), stream=stream)
    way = WAYS.get(case.longest(chosen).activity.direction, "between GPUs")
    total = sum(case.works[i].activity.bytes for i in chosen)
    time = case.time(chosen)
    pageable = any(case.works[i].activity.pageable for i in chosen)
    yield Draft(
        "copy",
        f"{total / 1e6:.3g} MB per step are copied {way}"
        f"{' from pageable memory' if pageable else ''}, {total / max(time, 1e-9) / 1e6:.3g} GB/s; "
        f"for {case.idle('copy') / 1e6:.3g} ms of it nothing computes",
        ("pin the host's memory, copy" if pageable else "copy")
        + case.advice(" with non_blocking=True", " asynchronously")
        + " on a stream of its own, a step ahead",
        chosen, change,
    )  # fmt: skip


def small_copies(case: Case, taken: frozenset[int]) -> Iterator[Draft]:  # noqa: ARG001
    """Many small tensors that go to the GPU one by one: each costs the host a call, or a wait."""
    chosen = uploads(case)
    if not chosen:
        return
    first = min(chosen)
    events = case.hosts.usual.events
    pieces = {n for n, e in enumerate(events) if e.items and chosen.issuperset(e.items)}
    # What the copies' operators call besides goes too; a pageable copy ends with a wait of its own.
    ops = {case.works[i].maker.ordinal for i in chosen} - {-1}
    calls = zip(case.step.calls, case.step.makers, strict=True)
    around = frozenset(
        n for n, (call, maker) in enumerate(calls)
        if maker.ordinal in ops or (call.waits and n - 1 in pieces)
    )  # fmt: skip

    # One copy in place of all; the host's work on each stays in part at worst.
    left = REACH["copies in one"]
    freed = (around - pieces).union(awaiting(case, chosen))
    host = dict.fromkeys(freed, CallShare(left, left))
    change = Change(merge=dict.fromkeys(chosen - {first}, left), host=host)
    total = sum(case.works[i].activity.bytes for i in chosen)
    waited = len({e.awaits for e in case.hosts.usual.events} & chosen)
    yield Draft(
        "copy",
        f"{len(chosen)} small copies per step bring {total / 1e6:.3g} MB to the GPU one by one"
        + (f", and the host waits for {waited} of them" if waited else ""),
        "put them into one pinned buffer on the host, and copy that "
        + case.advice("with non_blocking=True", "asynchronously"),
        sorted(chosen), change, launch_place(case.works[first]), idle=True,
    )  # fmt: skip


def collectives(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Collectives that nothing computes beside.

    Of what is sent from one rank to another a single recording does not tell whether it waits for the
    other rank or transfers: nothing is said of it.
    """
    chosen = case.chosen(
        lambda w: w.kind == "collective" and not _SENT.search(w.activity.name), taken
    )
    exposed = min(case.idle("collective"), round(1e6 * case.time(chosen)))
    if exposed < 0.01 * case.split.period:
        return
    learns = case.trains or any(w.kind == "optimizer" for w in case.works)
    reduces = all("gather" not in case.works[i].activity.name.lower() for i in chosen)

    # Beside what computes; at worst a good part stays exposed, or all where nothing learns.
    left = REACH["collective during training" if learns else "collective"]
    aside = Aside(-5, REACH["collective in its place"])
    change = Change(dict.fromkeys(chosen, left), stream=dict.fromkeys(chosen, aside))
    yield Draft(
        "collective",
        f"{len(chosen)} collectives per step take {case.time(chosen):.3g} ms, "
        f"{exposed / 1e6:.3g} ms of it with nothing computing at the same time",
        ("start them as gradients become ready, in buckets"
         + case.advice(" (DistributedDataParallel does)", "") if learns and reduces
         else "start them before their result is needed, in parallel with what does not need it")
        + ", and look whether one rank waits for another",
        chosen, change,
    )  # fmt: skip


def layouts(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Tensors that are only put into another order."""
    chosen = case.chosen(lambda w: w.kind == "layout" or is_strided(w), taken)
    if len(chosen) < 2:
        return
    named = [i for i in chosen if case.works[i].kind == "layout"]
    # A conversion round a convolution goes; a permuted copy may be needed by what reads it. What the
    # program asked for goes, with the biases that convolutions add by themselves where they are
    # products: a product reads either order, and adds a bias on its way.
    convolved = any(w.kind == "conv" for w in case.works)
    images = [i for i in chosen if convolved and _is_image(case.works[i])]
    asked = [i for i in chosen if _is_asked_for(case.works[i])]
    scale = dict.fromkeys(chosen, REACH["layout"])
    scale |= dict.fromkeys(asked + _biases(case) if asked else [], REACH["layout of products"])
    scale |= dict.fromkeys(images + named, REACH["layout of images"])
    round_conv = convolved and (named or images)
    yield Draft(
        "layout",
        f"{len(chosen)} kernels per step, {case.time(chosen):.3g} ms, only put tensors into another "
        "order" + (" round convolutions" if round_conv else ""),
        case.advice("keep tensors and model in memory_format=torch.channels_last",
                    "keep tensors in the order that the convolutions compute in") if round_conv
        else "choose shapes so that no permuted copy is needed, or let the next kernel read strided",
        chosen, Change(scale), launch_place(case.longest(named or chosen)),
    )  # fmt: skip


def _is_image(work: StepWork) -> bool:
    """A copy of a tensor of four dimensions into one of the same sizes: only its order changes."""
    shapes = work.maker.shapes
    same = len(shapes) >= 2 and len(shapes[0]) == 4 and shapes[0] == shapes[1]
    return same if work.maker.op else is_strided(work)


def _is_asked_for(work: StepWork) -> bool:
    """Whether the program asked for a copy, or autograd had to beside a convolution.

    Other copies of gradients are there in healthy programs too: heads are put together again.
    """
    top = work.maker.top
    return top in COPIED or "ConvolutionBackward" in top


def _biases(case: Case) -> list[int]:
    """What the operator of a convolution adds in a kernel of its own behind a product."""
    works = case.works
    return [
        i for i, w in enumerate(works)
        if w.kind == "elementwise" and w.maker.top.startswith("aten::conv")
        and i and works[i - 1].kind == "gemm"
    ]  # fmt: skip


def joins(case: Case, taken: frozenset[int]) -> Iterator[Draft]:
    """Tensors that are only put together: each part is read and written once more."""
    chosen = case.chosen(lambda w: w.kind == "concat", taken)
    if not chosen:
        return
    yield Draft(
        "layout",
        f"{len(chosen)} {'kernel' if len(chosen) == 1 else 'kernels'} per step, "
        f"{case.time(chosen):.3g} ms, only put tensors together",
        "allocate the whole once and write each part into its place"
        + case.advice(" (a cache that grows: index_copy_)", ""),
        chosen, Change(dict.fromkeys(chosen, REACH["join"])),
    )  # fmt: skip
