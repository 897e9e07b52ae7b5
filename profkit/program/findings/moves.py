"""Data that moves and computes nothing: copies, collectives, changes of layout."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from profkit.program.findings.case import (
    REACH,
    SHORT,
    SMALL_COPY,
    Advice,
    RuleTexts,
    StepCase,
    StepFinding,
    find_calls_waiting_for_works,
    find_too_many_small_uploads,
    is_launched_by_autograd,
    is_only_moving_data,
    is_strided_copy,
    list_runs_that_compiler_would_merge,
)
from profkit.program.operators import REDUCTIONS, VALUE_BYTES, make_tensors_of_known_sizes
from profkit.program.replay.scenario import (
    NOTHING,
    CallShare,
    Range,
    StepChange,
    StreamMove,
    make_exact_range,
)
from profkit.program.steps.cut import StepWork
from profkit.program.steps.idle import describe_launch_place
from profkit.program.timeline import Activity, HostSpan
from profkit.records.gpus import find_pinned_copy_rate
from profkit.reports.figures import format_three_figures

if TYPE_CHECKING:
    from profkit.units import (
        AdviceKey,
        ByteCount,
        ByteCountOrZero,
        BytesPerSecond,
        CallIndex,
        ClaimedWorks,
        ClauseOrEmpty,
        KernelName,
        Nanoseconds,
        NanosecondsOfModel,
        OperatorName,
        TextOrEmpty,
        WorkIndex,
    )


OWN_STREAM = {"HtoD": -1, "DtoH": -2, "PtoP": -3, "": -4}
BOTH = "both"  # directions
WAYS = {
    "HtoD": "to the GPU",
    "DtoH": "to the host",
    BOTH: "to the GPU and back",
    "": "between GPUs",
}
PAGEABLE = {
    "HtoD": " from pageable memory",
    "DtoH": "'s pageable memory",
    BOTH: " through pageable memory",
    "": " through pageable memory",
}
LARGE_COPY = 1 << 20  # bytes: a smaller copy does not reach its rate
TO_AND_FRO = 0.5  # of the bytes of one way, that go the other way too
BOTH_WAYS = 0.1  # of the copies' time, from which on a way is worth a word
MAY_STAY = Range(1.0, 0.0, 0.0)  # an operator that is not known may need it
SEVERAL = 2  # convolutions
PIECES = 4  # copies with kernels between them, from which on they are no batch
_SENT = re.compile(r"(?i)send|recv|all_?to_?all")
PRODUCTS = frozenset({"conv", "gemm", "attention"})
COPIED = {"aten::contiguous", "aten::clone"}
JOIN = "aten::cat"
LEAST_GROWING = 0.02  # of the step
_OPAQUE = re.compile(r"CatArray.*?OpaqueType<\(?(?:unsigned int\))?(\d+)")
_JOINED_TYPE = re.compile(r"CatArray\w*<([\w:]+)[,>]")


COPIES = RuleTexts(
    rule="copy",
    says=(
        "{total} MB per step are copied {way}{pageable} at {rate:figures} GB/s; the GPU computes "
        "nothing for {alone:figures} of {step:figures} ms recorded{after}"
    ),
    advice=Advice(
        torch="{pin}copy with non_blocking=True on a separate stream, one step ahead",
        others="{pin}copy asynchronously on a separate stream, one step ahead",
    ),
    instead={
        "kept": Advice(
            torch=(
                "keep data that does not change between steps on the GPU; otherwise {pin}copy "
                "with non_blocking=True on a separate stream, one step ahead"
            ),
            others=(
                "keep the arrays on the GPU between steps; otherwise {pin}copy asynchronously on "
                "a separate stream, one step ahead"
            ),
        ),
        "worked on": Advice(
            torch="compute on the GPU what the host computes from them, and copy only its result",
            others="compute on the GPU what the host computes from them, and copy only the result",
        ),
        "reduced": Advice(
            torch=(
                "reduce on the GPU what {reduced} reduces on the host, and copy only its result"
            ),
            others="reduce it on the GPU, and copy only the result",
        ),
        "results": Advice(
            torch=(
                "{pin}copy less data, less often, or with non_blocking=True on a separate stream "
                "while the next step computes"
            ),
            others=(
                "{pin}copy less data, less often, or asynchronously on a separate stream while "
                "the next step computes"
            ),
        ),
        "aside": Advice(
            others=(
                "start each copy earlier, one step ahead: it is from pinned memory and on a stream "
                "of its own already, and the step still waits for it"
            )
        ),
        "results aside": Advice(
            others=(
                "copy less data, less often, or wait for it one step later: it goes to pinned "
                "memory on a stream of its own already"
            )
        ),
        "kept aside": Advice(
            others=(
                "keep data that does not change between steps on the GPU; otherwise start each "
                "copy one step ahead: it is from pinned memory and on a stream of its own already"
            )
        ),
    },
    floor="transfer",
)


@dataclass(frozen=True)
class _ExposedCopies:
    """Copies of a step, and those of them that another change takes away."""

    chosen: Sequence[int]
    kept: frozenset[int]  # may stay on the GPU
    reduced: Mapping[int, str]  # the operator that reduces it on the host
    worked_on: Mapping[int, float]  # nanoseconds that the host then works


def find_exposed_copies(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find copies to and from the host, or between GPUs, that nothing computes beside."""
    chosen = case.list_unclaimed_works(
        lambda w: w.kind == "copy" and w.activity.bytes > SMALL_COPY, claimed_works
    )
    if not chosen:
        return
    copies = _ExposedCopies(
        chosen=chosen,
        kept=find_host_round_trip_copies(case, chosen),
        reduced=find_copies_reduced_on_host(case, chosen),
        worked_on=find_host_ns_after_copies(case, chosen),
    )
    way = _find_main_direction(case, chosen)
    total = sum(case.works[i].activity.bytes for i in chosen)
    time = case.sum_work_ms(chosen)
    pageable = any(case.works[i].activity.pageable for i in chosen)
    yield case.make_finding(
        COPIES,
        chosen,
        _make_copies_change(case, copies),
        "",
        _choose_copies_advice(case, copies, way),
        total=format_three_figures(total / 1e6),
        reduced=", ".join(dict.fromkeys(copies.reduced.values())),
        way=WAYS[way],
        pageable=PAGEABLE[way] if pageable else "",
        pin="pin the host memory, " if pageable else "",
        rate=total / max(time, 1e-9) / 1e6,
        alone=case.sum_idle_ns("copy") / 1e6,
        step=case.split.period / 1e6,
        **_make_host_work_figure(copies.worked_on),
        after=_describe_host_work_after_copies(copies.worked_on),
    )


def _make_copies_change(case: StepCase, copies: _ExposedCopies) -> StepChange:
    """Pin them, on streams of their own, a step ahead; what may stay on the GPU is not copied."""
    rate = _find_fastest_copy_rate(case)
    scale = {}
    stream = {}
    for index in copies.chosen:
        scale[index] = _estimate_share_left_of_copy(case, copies, index, rate)
        if number := OWN_STREAM.get(case.works[index].activity.direction):
            stream[index] = StreamMove(number, NOTHING)
    host = dict.fromkeys(find_calls_waiting_for_works(case, copies.chosen), CallShare())
    # What the host does with them goes too, unless it is not for their sake.
    left = 1 - sum(copies.worked_on.values()) / max(1.0, sum(_measure_host_pauses_ns(case)))
    return StepChange(scale, host=host, stream=stream, pauses=Range(1.0, left, left))


def _find_fastest_copy_rate(case: StepCase) -> BytesPerSecond:
    """Return bytes a second of the step's fastest pinned copy, or else of the GPU's table."""
    seen = []
    for work in case.works:
        copy = work.activity
        if work.kind == "copy" and not copy.pageable and copy.bytes > LARGE_COPY:
            seen.append(copy.bytes / (copy.duration * 1e-9))
    return max(seen, default=find_pinned_copy_rate(case.cc))


def _estimate_share_left_of_copy(
    case: StepCase, copies: _ExposedCopies, index: WorkIndex, rate: BytesPerSecond
) -> Range:
    """Return what is left of a copy's time: at the fastest rate, as a kernel reads it, or nothing."""
    copy = case.works[index].activity
    took = max(1, copy.duration)
    fast = copy.bytes / rate * 1e9 / took
    left = make_exact_range(min(1.0, fast))
    if index in copies.kept:
        return left._replace(expect=0.0, high=0.0)
    if index in copies.reduced or index in copies.worked_on:  # a kernel reads it in its place
        read = min(copy.bytes / case.bandwidth * 1e9 / took, fast)
        return left._replace(expect=read, high=read)
    return left


def _find_main_direction(case: StepCase, chosen: Sequence[WorkIndex]) -> TextOrEmpty:
    """Return the direction that takes most of the time, or BOTH; empty for copies between GPUs."""
    times = {}
    for way in ("HtoD", "DtoH"):
        times[way] = case.sum_work_ms(_list_copies_in_direction(case, chosen, way))
    if min(times.values()) >= BOTH_WAYS * case.sum_work_ms(chosen):
        return BOTH
    if any(times.values()):
        return max(times, key=lambda way: times[way])
    return ""


def _choose_copies_advice(case: StepCase, copies: _ExposedCopies, direction: str) -> AdviceKey:
    """Return the key of what is to be done about most of the time of some copies."""
    half = case.sum_work_ms(copies.chosen) / 2
    if case.sum_work_ms(copies.reduced) > half and case.sum_work_ms(copies.kept) <= half:
        return "reduced"
    advice = ""
    if case.sum_work_ms(copies.kept) > half:
        advice = "kept"
    elif case.sum_work_ms(copies.worked_on) > half:
        return "worked on"
    elif direction == "DtoH":
        advice = "results"
    if case.sum_work_ms(_list_harmless_copies(case, copies.chosen)) > half:
        return f"{advice} aside".strip()
    return advice


def _list_harmless_copies(case: StepCase, chosen: Sequence[WorkIndex]) -> list[WorkIndex]:
    """Return copies that are as they should be: of pinned memory, on a stream without kernels."""
    computing = {w.activity.stream for w in case.works if w.kind not in {"copy", "collective"}}
    aside = []
    for index in chosen:
        activity = case.works[index].activity
        if not activity.pageable and activity.stream not in computing:
            aside.append(index)
    return aside


def _list_copies_in_direction(
    case: StepCase, chosen: Sequence[WorkIndex], direction: str
) -> list[WorkIndex]:
    found = []
    for index in chosen:
        if case.works[index].activity.direction == direction:
            found.append(index)
    return found


def find_copies_reduced_on_host(
    case: StepCase, chosen: Sequence[WorkIndex]
) -> dict[WorkIndex, OperatorName]:
    """Return copies to the host that an operator reduces there, and which operator that is.

    It has as many bytes of values as were copied, and calls the GPU for nothing.
    """
    names = {f"aten::{name}" for name in REDUCTIONS}
    starts = [call.start for call in case.step.calls]
    on_host: dict[int, tuple[int, str]] = {}  # by bytes
    for span in case.spans:
        inside = case.step.begin <= span.start < case.step.end
        if span.kind != "op" or not inside or span.name not in names:
            continue
        tensors = make_tensors_of_known_sizes(span.shapes, span.types)
        if tensors and bisect_left(starts, span.start) == bisect_left(starts, span.end):
            on_host[tensors[0].bytes] = span.start, span.name
    found = {}
    for index in _list_copies_in_direction(case, chosen, "DtoH"):
        activity = case.works[index].activity
        when, name = on_host.get(activity.bytes, (0, ""))
        if when >= activity.end:
            found[index] = name
    return found


def find_host_ns_after_copies(
    case: StepCase, chosen: Sequence[WorkIndex]
) -> dict[WorkIndex, NanosecondsOfModel]:
    """Return copies to the host that it waits for and then works long, with the nanoseconds of that.

    Nothing is launched in between, so the GPU runs empty: as a rule the host works on what it got.
    """
    results = set(_list_copies_in_direction(case, chosen, "DtoH"))
    pauses = _measure_host_pauses_ns(case)
    found = {}
    waited = -1  # the last result that was waited for, and nothing launched since
    for event, pause in zip(case.hosts.usual.events, pauses, strict=False):
        if waited >= 0 and pause:
            found[waited] = pause
        if event.items or waited in found:
            waited = -1
        if event.awaits in results:
            waited = event.awaits
    behind = pauses[-1] or pauses[0]  # the next step begins with it
    if waited >= 0 and behind:
        found[waited] = behind
    return found


def _measure_host_pauses_ns(case: StepCase) -> list[NanosecondsOfModel]:
    """Return how long the host pauses before each call and behind the last; 0 where it launches on."""
    model = case.hosts.usual
    times = [*(event.gap for event in model.events), model.tail]
    return [time if time > model.pause else 0.0 for time in times]


def _make_host_work_figure(
    host_ns_by_copy: Mapping[WorkIndex, NanosecondsOfModel],
) -> dict[str, float]:
    """Return the figure of the host's work for the finding's evidence, where there is any."""
    if not host_ns_by_copy:
        return {}
    return {"work": sum(host_ns_by_copy.values()) / 1e6}


def _describe_host_work_after_copies(
    host_ns_by_copy: Mapping[WorkIndex, NanosecondsOfModel],
) -> ClauseOrEmpty:
    if not host_ns_by_copy:
        return ""
    total = sum(host_ns_by_copy.values()) / 1e6
    return f"; then the host works for {format_three_figures(total)} ms before it launches again"


def find_host_round_trip_copies(
    case: StepCase, chosen: Sequence[WorkIndex]
) -> frozenset[WorkIndex]:
    """Return copies of what may stay on the GPU: it goes to and fro, or is brought piece by piece.

    What goes to the host comes back where as many bytes do. Pieces that come between kernels which
    use them are weights or blocks of an array: a batch of new data comes at once.
    """
    brought, returned = (_list_copies_in_direction(case, chosen, way) for way in ("HtoD", "DtoH"))
    sizes = Counter(case.works[i].activity.bytes for i in brought)
    back = Counter(case.works[i].activity.bytes for i in returned)
    shared = sizes & back
    least = min(_sum_copied_bytes(sizes), _sum_copied_bytes(back))
    if least and _sum_copied_bytes(shared) >= TO_AND_FRO * least:
        return frozenset(i for i in chosen if case.works[i].activity.bytes in shared)
    if _count_groups_of_copies_between_kernels(case, brought) >= PIECES:
        return frozenset(brought)
    return frozenset()


def _sum_copied_bytes(sizes: Counter[ByteCount]) -> ByteCount:
    """Return the bytes of copies that are counted by size."""
    return sum(size * count for size, count in sizes.items())


def _count_groups_of_copies_between_kernels(case: StepCase, copies: Collection[WorkIndex]) -> int:
    """Return into how many parts kernels divide some copies."""
    own = set(copies)
    pieces = 0
    is_open = False
    for index, work in enumerate(case.works):
        if index in own:
            pieces += not is_open
            is_open = True
        elif work.activity.kind == "kernel":
            is_open = False
    return pieces


SMALL_COPIES = RuleTexts(
    rule="copy",
    says="{count:,} small copies per step move {total:figures} MB to the GPU one at a time{waited}",
    advice=Advice(
        torch="pack them into one pinned host buffer, and copy that with non_blocking=True",
        others="pack them into one pinned host buffer, and copy that asynchronously",
    ),
    idle=True,
    floor="transfer",
)


def find_small_copies(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:  # noqa: ARG001
    """Find many small tensors that go to the GPU one by one: each costs the host a call, or a wait."""
    chosen = find_too_many_small_uploads(case)
    if not chosen:
        return
    first = min(chosen)
    # One copy in place of all.
    freed = _find_extra_calls_for_copies(case, chosen).union(
        find_calls_waiting_for_works(case, chosen)
    )
    host = dict.fromkeys(freed, CallShare(NOTHING, NOTHING))
    change = StepChange(merge=dict.fromkeys(chosen - {first}, NOTHING), host=host)
    waited = len({e.awaits for e in case.hosts.usual.events} & chosen)
    said = ""
    if waited:
        said = f", and the host waits for {waited} of them"
    yield case.make_finding(
        SMALL_COPIES,
        sorted(chosen),
        change,
        describe_launch_place(case.works[first]),
        total=sum(case.works[i].activity.bytes for i in chosen) / 1e6,
        waited=said,
    )


def _find_extra_calls_for_copies(case: StepCase, chosen: frozenset[WorkIndex]) -> set[CallIndex]:
    """Return the calls that operators make for their copies, besides those that start these.

    A pageable copy ends with a wait of its own. Where no operator is known, it is the calls between two
    copies.
    """
    events = case.hosts.usual.events
    calls = case.step.calls
    starting = {n for n, e in enumerate(events) if e.items and chosen.issuperset(e.items)}
    ops = {case.works[i].maker.ordinal for i in chosen} - {-1}
    around = set()
    for number, maker in enumerate(case.step.makers):
        if maker.ordinal in ops:
            around.add(number)
    for number in starting:
        if number + 1 < len(events) and calls[number + 1].waits:
            around.add(number + 1)
    if not ops:
        around |= _find_calls_between_copies(case, starting)
    return around - starting


MOVING_PAGES = RuleTexts(
    rule="copy",
    says=(
        "kernels touch unified memory that is not on the GPU: {pages:,} transfers bring {total:figures} "
        "MB while they run, and take {moving:figures} of their {kernels:figures} ms"
    ),
    advice=Advice(
        others=(
            "prefetch it before the launch (cudaMemPrefetchAsync), or allocate it with cudaMalloc and "
            "copy it"
        )
    ),
)


@dataclass(frozen=True)
class _KernelWithMovingPages:
    """A kernel and the pages of unified memory that move to the GPU while it runs."""

    kernel: Activity
    pages: Sequence[Activity]

    @property
    def moving(self) -> Nanoseconds:
        """Return nanoseconds in which they move."""
        return sum(page.duration for page in self.pages)

    @property
    def bytes(self) -> ByteCount:
        """Return how much moves."""
        return sum(page.bytes for page in self.pages)

    def estimate_share_left_of_kernel(self, pinned_bytes_per_s: BytesPerSecond) -> Range:
        """Return what is left of the kernel without them, where copies bring `pinned_bytes_per_s`.

        At worst they have to come before it; at best it waits from the first to the last.
        """
        worst = max(0.0, self.moving - self.bytes / pinned_bytes_per_s * 1e9)
        waited = min(self.pages[-1].end, self.kernel.end) - self.pages[0].start
        left = []
        for saved in (worst, self.moving, max(self.moving, waited)):
            left.append(max(0.0, 1 - saved / self.kernel.duration))
        return Range(*left)


def find_waits_for_pages(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:  # noqa: ARG001
    """Find kernels that wait for pages of unified memory, which move when they are touched."""
    touched = _find_kernels_with_moving_pages(case)
    if not touched:
        return
    pinned = find_pinned_copy_rate(case.cc)
    scale = {index: own.estimate_share_left_of_kernel(pinned) for index, own in touched.items()}
    moved = touched.values()
    yield case.make_finding(
        MOVING_PAGES,
        (),
        StepChange(scale),
        describe_launch_place(case.find_longest_work(touched)),
        pages=sum(len(own.pages) for own in moved),
        total=sum(own.bytes for own in moved) / 1e6,
        moving=sum(own.moving for own in moved) / 1e6,
        kernels=case.sum_work_ms(touched),
    )


def _find_kernels_with_moving_pages(case: StepCase) -> dict[WorkIndex, _KernelWithMovingPages]:
    """Return the kernels of the step that touch pages, by work."""
    brought = [page for page in case.page_moves if page.direction == "HtoD"]
    starts = [page.start for page in brought]
    found = {}
    for index, work in enumerate(case.works):
        kernel = work.activity
        first = bisect_left(starts, kernel.start)
        last = bisect_left(starts, kernel.end)
        if kernel.kind == "kernel" and first < last:
            found[index] = _KernelWithMovingPages(kernel, brought[first:last])
    return found


def _find_calls_between_copies(case: StepCase, copying_calls: set[CallIndex]) -> set[CallIndex]:
    """Return the calls between two copies with no other launch between them: the copies' own."""
    between: set[int] = set()
    since: list[int] = []
    after_piece = False
    for number, event in enumerate(case.hosts.usual.events):
        if number in copying_calls:
            between.update(since if after_piece else ())
            after_piece = True
            since = []
        elif event.items:
            after_piece = False
            since = []
        else:
            since.append(number)
    return between


COLLECTIVES = RuleTexts(
    rule="collective",
    says=(
        "{count:,} collectives per step take {ms:time}, {exposed:time} of it not overlapped "
        "with compute"
    ),
    advice=Advice(
        others=(
            "start them earlier and overlap them with independent work, and check whether one "
            "rank waits for another"
        )
    ),
    instead={
        "gradients": Advice(
            torch=(
                "start them as gradients become ready, in buckets (DistributedDataParallel does), "
                "and check whether one rank waits for another"
            ),
            others=(
                "start them as gradients become ready, in buckets, and check whether one rank "
                "waits for another"
            ),
        ),
    },
)


def find_exposed_collectives(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find collectives that nothing computes beside.

    Of what is sent from one rank to another a single recording does not tell whether it waits for the
    other rank or transfers: nothing is said of it.
    """
    chosen = case.list_unclaimed_works(
        lambda w: w.kind == "collective" and not _SENT.search(w.activity.name), claimed_works
    )
    exposed = min(case.sum_idle_ns("collective"), round(1e6 * case.sum_work_ms(chosen)))
    if exposed < 0.01 * case.split.period:
        return
    learns = case.trains or any(w.kind == "optimizer" for w in case.works)
    reduces = all("gather" not in case.works[i].activity.name.lower() for i in chosen)

    # Beside what computes; at worst a good part stays exposed, or all where nothing learns.
    left = REACH["collective during training" if learns else "collective"]
    aside = StreamMove(-5, REACH["collective in its place"])
    change = StepChange(dict.fromkeys(chosen, left), stream=dict.fromkeys(chosen, aside))
    if learns and reduces:
        advice = "gradients"
    else:
        advice = ""
    yield case.make_finding(COLLECTIVES, chosen, change, "", advice, exposed=exposed / 1e6)


LAYOUTS = RuleTexts(
    rule="layout",
    says=(
        "{count:,} kernels per step ({ms:time}) only change the memory layout of tensors{around}"
    ),
    advice=Advice(
        others=(
            "choose shapes so that no permuted copy is needed, or let the next kernel read "
            "strided data"
        )
    ),
    instead={
        "convolved": Advice(
            torch="keep tensors and model in memory_format=torch.channels_last",
            others="keep tensors in the layout that the convolutions use",
        ),
    },
    floor="run",
    spreads=True,
)


def find_layout_copies(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find tensors that are only put into another order, where nobody needs that order."""
    convolved = sum(work.kind == "conv" for work in case.works)
    chosen = []
    for index in list_standalone_copies(case, claimed_works):
        if _is_needless_layout(case, index, convolved > 0):
            chosen.append(index)
    if not chosen:
        return
    named = []
    images = []
    for index in chosen:
        if case.works[index].kind == "layout":
            named.append(index)
            images.append(index)
        elif _is_image_layout_copy(case, index):
            images.append(index)
    # One convolution (of patches, say) is no reason to keep all tensors in its order.
    is_convolved = convolved >= SEVERAL and 2 * case.sum_work_ms(images) > case.sum_work_ms(chosen)
    merge = dict.fromkeys(chosen, NOTHING)
    for index in chosen:
        if not case.works[index].maker.op and index not in images:
            merge[index] = MAY_STAY
    yield case.make_finding(
        LAYOUTS,
        chosen,
        StepChange(merge=merge),
        case.describe_origin_of_works(named or chosen),
        "convolved" if is_convolved else "",
        around=" around convolutions" if is_convolved else "",
    )


def _is_needless_layout(case: StepCase, index: WorkIndex, is_convolved: bool) -> bool:
    """Return whether a copy only changes the order, and the program asked for it or nobody knows who."""
    work = case.works[index]
    if work.kind == "layout":
        return True
    if not is_strided_copy(work):
        return False
    if is_requested_copy(work) or not work.maker.op:
        return True
    return is_convolved and _is_image_layout_copy(case, index)


def list_standalone_copies(case: StepCase, claimed_works: ClaimedWorks) -> list[WorkIndex]:
    """Return the copies of runs that do little else: a kernel of its own would not make them."""
    found: list[int] = []
    for run in list_runs_that_compiler_would_merge(case, claimed_works):
        moving = [i for i in run if is_only_moving_data(case.works[i])]
        if 2 * case.sum_work_ms(moving) > case.sum_work_ms(run):
            found += moving
    return sorted(found)


def _is_image_layout_copy(case: StepCase, index: WorkIndex) -> bool:
    """Return whether it copies four dimensions into the same sizes: only their order changes.

    Where no operator is known, a copy whose next product before or after it is a convolution;
    attention's heads are put into another order too, and have nothing to do with convolutions elsewhere.
    """
    work = case.works[index]
    if work.maker.op:
        shapes = work.maker.shapes
        return len(shapes) >= 2 and len(shapes[0]) == 4 and shapes[0] == shapes[1]
    if not is_strided_copy(work):
        return False
    count = len(case.works)
    kinds = [
        case.works[(index + n) % count].kind for n in range(1, count)
    ]  # steps follow each other
    nearest = (next((kind for kind in way if kind in PRODUCTS), "") for way in (kinds, kinds[::-1]))
    return "conv" in nearest


def is_requested_copy(work: StepWork) -> bool:
    """Return whether the program asked for a copy, or autograd had to beside a convolution.

    Other copies of gradients are there in healthy programs too: heads are put together again.
    """
    top = work.maker.top
    return top in COPIED or "ConvolutionBackward" in top


GROWING = RuleTexts(
    rule="layout",
    says=(
        "{count:,} {kernels} per step copy what is there to append a little: {whole} MB are written, "
        "{new} MB of them new, and the next step copies the result again ({ms:time})"
    ),
    advice=Advice(
        torch=(
            "allocate the cache once with room for the longest, and write each step's part into "
            "its place (index_copy_)"
        ),
        others="allocate it once with room for the longest, and write each part into its place",
    ),
    floor="kernel",
)


def find_growing_caches(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find a cache to which each step appends by concatenation: what was in it is copied in every step.

    Sizes tell: the largest part of a step's concatenation is as large as the result of the same
    concatenation in the step before.
    """
    joins = find_growing_concatenations(case)
    scale: dict[int, Range] = {}
    whole = 0
    new = 0
    for index, join in sorted(joins.items()):
        work = case.works[index]
        value = _read_value_bytes(work.activity.name)
        if index in claimed_works or not value:
            continue
        added = value * (prod(join.result) - prod(join.largest))
        whole += value * prod(join.result)
        new += added
        # One small kernel still reads and writes the part that is new.
        left = max(SHORT, 2 * added / case.bandwidth * 1e9)
        scale[index] = make_exact_range(left / max(1, work.activity.duration)).limit_to(1.0)
    chosen = list(scale)
    if not chosen or case.sum_work_ms(chosen) * 1e6 < LEAST_GROWING * case.split.period:
        return
    yield case.make_finding(
        GROWING,
        chosen,
        StepChange(scale=scale),
        kernels="kernel" if len(chosen) == 1 else "kernels",
        whole=format_three_figures(whole / 1e6),
        new=format_three_figures(new / 1e6),
    )


@dataclass(frozen=True)
class ConcatenationSizes:
    """The sizes of a concatenation."""

    largest: tuple[int, ...]  # of its parts
    result: tuple[int, ...]


def read_sizes_of_appending(part_sizes: Sequence[tuple[int, ...]]) -> ConcatenationSizes | None:
    """Return the sizes of a concatenation to one part that is larger than all others together.

    None where there is no such part, or the parts differ in more than one dimension.
    """
    filled = [part for part in part_sizes if prod(part)]
    if len(filled) < 2:
        return None
    largest = max(filled, key=prod)
    others = list(filled)
    others.remove(largest)
    if sum(prod(part) for part in others) >= prod(largest):
        return None
    result = list(largest)
    along = {_find_only_differing_dimension(largest, part) for part in others}
    if len(along) != 1:
        return None
    dimension = along.pop()
    if dimension is None:
        return None
    result[dimension] += sum(part[dimension] for part in others)
    return ConcatenationSizes(largest, tuple(result))


def _find_only_differing_dimension(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """Return the one dimension in which two tensors differ; None where it is not one."""
    if len(one) != len(other):
        return None
    unlike = [number for number, size in enumerate(one) if size != other[number]]
    if len(unlike) == 1:
        return unlike[0]
    return None


def find_growing_concatenations(case: StepCase) -> dict[WorkIndex, ConcatenationSizes]:
    """Return concatenations, by work, whose result is copied again by the same one a step later.

    The n-th of this step is the n-th of the step before, where steps have as many; of the first
    step that was recorded the one after tells. What grows within a step (the layers of a dense
    network) is no cache.
    """
    spans = _list_concatenation_spans(case)
    own = [span for span in spans if case.step.begin <= span.start < case.step.end]
    before = [span for span in spans if span.start < case.step.begin][-len(own) :]
    after = [span for span in spans if span.start >= case.step.end][: len(own)]
    results = {
        join.result for span in own if (join := read_sizes_of_appending(span.shapes)) is not None
    }
    growing: list[tuple[HostSpan, ConcatenationSizes]] = []
    for number, span in enumerate(own):
        join = read_sizes_of_appending(span.shapes)
        if join is None or join.largest in results:
            continue
        grew = len(before) == len(own) and _is_appended_to(
            join, read_sizes_of_appending(before[number].shapes)
        )
        grows = len(after) == len(own) and _is_appended_to(
            read_sizes_of_appending(after[number].shapes), join
        )
        if grew or grows:
            growing.append((span, join))
    return _find_concatenating_works(case, growing)


def _list_concatenation_spans(case: StepCase) -> list[HostSpan]:
    """Return the concatenations of all steps, of the threads that let the GPU concatenate."""
    joining = [case.works[index] for index in case.list_unclaimed_works(_is_concatenation)]
    threads = {case.step.calls[work.call].thread for work in joining}
    joining_spans = []
    for span in case.spans:
        if span.name == JOIN and span.thread in threads:
            joining_spans.append(span)
    return joining_spans


def _is_appended_to(join: ConcatenationSizes | None, earlier: ConcatenationSizes | None) -> bool:
    """Return whether the result of one concatenation is as large as the largest part of a later one."""
    return join is not None and earlier is not None and earlier.result == join.largest


def _is_concatenation(work: StepWork) -> bool:
    """Return whether it is a kernel of PyTorch's operator that concatenates."""
    return work.kind == "concat" and work.maker.op == JOIN


def _find_concatenating_works(
    case: StepCase, growing: Sequence[tuple[HostSpan, ConcatenationSizes]]
) -> dict[WorkIndex, ConcatenationSizes]:
    """Return the works that some operators launch."""
    found: dict[int, ConcatenationSizes] = {}
    for index in case.list_unclaimed_works(_is_concatenation):
        call = case.step.calls[case.works[index].call]
        for span, join in growing:
            if span.thread == call.thread and span.start <= call.start < span.end:
                found[index] = join
    return found


def _read_value_bytes(kernel: KernelName) -> ByteCountOrZero:
    """Return the bytes of a value by the name of PyTorch's kernel that concatenates; 0 if unknown."""
    opaque = _OPAQUE.search(kernel)
    if opaque:
        return int(opaque[1])
    typed = _JOINED_TYPE.search(kernel)
    if typed:
        return VALUE_BYTES.get(typed[1], 0)
    return 0


JOINS = RuleTexts(
    rule="layout",
    says="{count:,} {kernels} per step to concatenate tensors: {ms:time}",
    advice=Advice(
        torch=(
            "allocate the result once and write each part into its place (for a growing cache: "
            "index_copy_)"
        ),
        others="allocate the result once and write each part into its place",
    ),
    floor="run",
)


def find_concatenations(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find tensors that are only put together: each part is read and written once more.

    What autograd puts together are gradients of parts, which one tensor's gradient needs as a whole.
    """
    chosen = []
    for index in list_standalone_copies(case, claimed_works):
        work = case.works[index]
        if work.kind == "concat" and not is_launched_by_autograd(work):
            chosen.append(index)
    if not chosen:
        return
    change = StepChange(merge=dict.fromkeys(chosen, NOTHING))
    yield case.make_finding(
        JOINS, chosen, change, kernels="kernel" if len(chosen) == 1 else "kernels"
    )
